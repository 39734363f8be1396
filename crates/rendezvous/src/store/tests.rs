use super::*;

fn store() -> Store {
    Store::new(Limits::default())
}

/// The reply to `client`; replies to others fail the test.
fn ask(store: &mut Store, client: ClientId, request: Request) -> Option<Reply> {
    let mut replies = Vec::new();
    store.handle(client, request, &mut replies).unwrap();
    assert!(replies.iter().all(|(to, _)| *to == client), "{replies:?}");
    assert!(replies.len() <= 1, "{replies:?}");
    replies.pop().map(|(_, reply)| reply)
}

fn effects(store: &mut Store, client: ClientId, request: Request) -> Replies {
    let mut replies = Vec::new();
    store.handle(client, request, &mut replies).unwrap();
    replies
}

fn refusal(store: &mut Store, request: Request) -> Refusal {
    let mut replies = Vec::new();
    let refused = store.handle(0, request, &mut replies).unwrap_err();
    assert_eq!(replies, []);
    refused
}

fn key(name: &str) -> Vec<u8> {
    name.into()
}

fn set(name: &str, value: &str) -> Request {
    Request::Set { key: key(name), value: value.into() }
}

fn wait(names: &[&str]) -> Request {
    Request::Wait { keys: names.iter().map(|name| key(name)).collect() }
}

#[test]
fn compare_set_stores_only_what_was_expected() {
    let mut store = store();
    let mut swap = |expected: &str, desired: &str| {
        let (expected, desired) = (expected.into(), desired.into());
        let request = Request::CompareSet { key: key("k"), expected, desired };
        match ask(&mut store, 0, request) {
            Some(Reply::Value(value)) => String::from_utf8(value).unwrap(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(swap("absent", "a"), "absent");
    assert_eq!(swap("", "a"), "a");
    assert_eq!(swap("", "b"), "a");
    assert_eq!(swap("a", "b"), "b");
}

#[test]
fn add_counts_in_decimal_and_refuses_the_rest() {
    let mut store = store();
    let add = |delta| Request::Add { key: key("n"), delta };
    assert_eq!(ask(&mut store, 0, add(5)), Some(Reply::Number(5)));
    assert_eq!(ask(&mut store, 0, add(-7)), Some(Reply::Number(-2)));
    assert_eq!(
        ask(&mut store, 0, Request::Get { key: key("n") }),
        Some(Reply::Value(b"-2".into()))
    );
    assert_eq!(refusal(&mut store, add(i64::MIN)), Refusal::Overflow { key: "n".into() });
    ask(&mut store, 0, set("n", "2 apples"));
    assert_eq!(refusal(&mut store, add(1)), Refusal::NotANumber { key: "n".into() });
}

#[test]
fn a_wait_ends_with_its_last_key() {
    let mut store = store();
    ask(&mut store, 0, set("a", ""));
    assert_eq!(ask(&mut store, 1, wait(&["a"])), Some(Reply::Arrived));
    assert_eq!(ask(&mut store, 1, wait(&["a", "b", "c", "b"])), None);
    assert_eq!(ask(&mut store, 2, wait(&["c"])), None);
    assert_eq!(effects(&mut store, 0, set("b", "")), []);
    assert_eq!(effects(&mut store, 0, set("c", "")), [(1, Reply::Arrived), (2, Reply::Arrived)]);
    assert_eq!(effects(&mut store, 0, set("c", "")), []);
    assert_eq!(store.waiters.bytes(), 0);
}

#[test]
fn cancelled_and_departed_waiters_are_not_woken() {
    let mut store = store();
    for client in 1..4 {
        assert_eq!(ask(&mut store, client, wait(&["k", "l"])), None);
    }
    assert_eq!(ask(&mut store, 1, Request::CancelWait), Some(Reply::Cancelled));
    store.remove(2, &mut Vec::new());
    let request = Request::MultiSet { pairs: vec![(key("k"), vec![]), (key("l"), vec![])] };
    assert_eq!(effects(&mut store, 0, request), [(3, Reply::Arrived)]);
    assert_eq!(store.waiters.bytes(), 0);
}

#[test]
fn a_second_wait_is_refused() {
    let mut store = store();
    assert_eq!(ask(&mut store, 0, wait(&["k"])), None);
    assert_eq!(refusal(&mut store, wait(&["l"])), Refusal::WaitsAlready);
}

#[test]
fn bounds_are_kept() {
    let limits =
        Limits { value: 16, message: 64, keys: 3, memory: 3 * ENTRY + 40, ..Limits::default() };
    let mut store = Store::new(limits);
    let append = || Request::Append { key: key("a"), value: vec![0; 10] };
    ask(&mut store, 0, append());
    let refused = refusal(&mut store, append());
    assert_eq!(refused, Refusal::ValueTooLong { key: "a".into(), size: 20, limit: 16 });
    let request = Request::MultiGet { keys: vec![key("a"); 4] };
    assert_eq!(refusal(&mut store, request), Refusal::ReplyTooLong { size: 72, limit: 64 });
    ask(&mut store, 0, set("b", ""));
    ask(&mut store, 0, set("c", ""));
    assert_eq!(refusal(&mut store, set("d", "")), Refusal::TooManyKeys { limit: 3 });
    let far = "x".repeat(60);
    assert_eq!(refusal(&mut store, wait(&[&far])), Refusal::Full { limit: 3 * ENTRY + 40 });
    for name in ["a", "b", "c"] {
        let deleted = ask(&mut store, 0, Request::Delete { key: key(name) });
        assert_eq!(deleted, Some(Reply::Number(1)));
    }
    assert_eq!(ask(&mut store, 0, Request::Delete { key: key("a") }), Some(Reply::Number(0)));
    assert_eq!(store.bytes(), 0);
}

#[test]
fn a_will_is_carried_out_when_its_client_goes() {
    let mut store = store();
    let will = |target: &str, value: &str| set(&format!("/warpverbs-will/{target}"), value);
    let value = |store: &mut Store, name: &str| ask(store, 9, Request::Get { key: key(name) });
    let text = |text: &str| Some(Reply::Value(text.into()));
    let empty = store.bytes();
    for (client, name) in [(1, "a"), (2, "a"), (3, "b")] {
        assert_eq!(ask(&mut store, client, will(name, &format!("from {client}"))), None);
    }
    // A will replaces the one before; an empty one takes it back.
    ask(&mut store, 3, will("b", ""));
    assert_eq!(effects(&mut store, 4, wait(&["/a"])), []);
    let mut replies = Vec::new();
    for client in [2, 1, 3] {
        store.remove(client, &mut replies);
    }
    assert_eq!(replies, [(4, Reply::Arrived)]);
    // The first one counts.
    assert_eq!(value(&mut store, "/a"), text("from 2"));
    assert_eq!(value(&mut store, "/b"), text(""));
    ask(&mut store, 1, Request::Delete { key: key("/a") });
    assert_eq!(store.bytes(), empty);
}
