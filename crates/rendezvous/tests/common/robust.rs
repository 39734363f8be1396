//! Properties that must hold for any bytes at all. Also the body of the fuzz target.

use warpverbs_rendezvous::env::first_host;
use warpverbs_rendezvous::raw::{Decoder, Request, Store, read};
use warpverbs_rendezvous::{Flags, Limits, ProtocolError, RankInfo};

/// Small, so that a fuzzer reaches every bound.
pub(crate) fn limits() -> Limits {
    Limits {
        key: 16,
        value: 64,
        keys_per_message: 8,
        message: 256,
        keys: 6,
        memory: 1200,
        ..Limits::default()
    }
}

/// Gives `data` to everything that reads what a peer or a launcher says. The first byte says how
/// the rest is cut.
pub(crate) fn store_message(data: &[u8]) {
    let Some((&cut, data)) = data.split_first() else { return };
    let (requests, error) = decode(data, data.len());
    assert_eq!((&requests, &error), (&decode(data, 1).0, &decode(data, 1).1));
    let (again, same) = decode(data, 1 + usize::from(cut));
    assert_eq!((&requests, &error), (&again, &same));
    said_again(&requests, data);
    carried_out(requests);
    read_as_replies(data);
    read_as_text(&String::from_utf8_lossy(data));
}

/// The requests in `data`, fed in pieces of `cut` bytes, and what ended them.
fn decode(data: &[u8], cut: usize) -> (Vec<Request>, Option<ProtocolError>) {
    let mut decoder = Decoder::new(limits());
    let mut requests = Vec::new();
    for mut piece in data.chunks(cut.max(1)) {
        loop {
            match decoder.feed(&mut piece) {
                Ok(Some(request)) => requests.push(request),
                Ok(None) => break,
                Err(error) => return (requests, Some(error)),
            }
        }
        assert!(decoder.held() <= limits().message + 8, "{}", decoder.held());
    }
    (requests, None)
}

/// The requests are what the bytes say, and nothing else.
fn said_again(requests: &[Request], data: &[u8]) {
    let mut bytes = Vec::new();
    requests.iter().for_each(|request| request.emit(&mut bytes));
    assert_eq!(bytes, &data[..bytes.len()]);
}

/// Three clients take turns. The store keeps its bounds, and forgets clients that leave.
fn carried_out(requests: Vec<Request>) {
    let limits = limits();
    let mut store = Store::new(limits.clone());
    let mut replies = Vec::new();
    for (turn, request) in requests.into_iter().enumerate() {
        if store.handle(turn % 3, request, &mut replies).is_err() {
            store.remove(turn % 3, &mut replies);
        }
        assert!(store.bytes() <= limits.memory, "{}", store.bytes());
    }
    for (client, reply) in &replies {
        let mut bytes = Vec::new();
        reply.emit(&mut bytes);
        assert!(*client < 3 && bytes.len() <= limits.message + 16, "{reply:?}");
    }
    (0..3).for_each(|client| store.remove(client, &mut replies));
    replies.clear();
    for key in ["/k", "/l", "/m", "/q", "/b", ""] {
        let request = Request::Set { key: key.into(), value: vec![] };
        let _full = store.handle(3, request, &mut replies);
    }
    assert_eq!(replies, [], "told to those who have left");
}

fn read_as_replies(data: &[u8]) {
    let limits = limits();
    let _ = read::flag(&mut &data[..]);
    let _ = read::word(&mut &data[..]);
    if let Ok(value) = read::bytes(&mut &data[..], "value", limits.value) {
        assert!(value.len() <= limits.value);
    }
    if let Ok(all) = read::many(&mut &data[..], "value", 3, limits.value, limits.message) {
        assert_eq!(all.len(), 3);
    }
}

fn read_as_text(text: &str) {
    if let Ok(host) = first_host(text) {
        assert!((1..=255).contains(&host.len()) && !host.contains(['[', ']', ',']), "{host:?}");
    }
    let lookup = |name: &str| match name {
        "RANK" => Some("0".into()),
        "WORLD_SIZE" => Some("1".into()),
        "MASTER_ADDR" | "SLURM_NODELIST" => Some("host".into()),
        _ => Some(text.into()),
    };
    if let Ok(launch) = RankInfo::from_vars(&Flags::default(), &lookup) {
        assert!(launch.master_port > 0 && launch.rank < launch.world_size);
    }
}
