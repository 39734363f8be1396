//! The client against stores that come late, lie, or are none.

use std::io::{Read, Write};
use std::thread;
use std::time::Duration;

use warpverbs_rendezvous::{
    Client, ClientError, ConnectError, Deadline, Limits, Opcode, ReplyError, Server,
};

use crate::{PATIENCE, connect, connect_with, dial, fake, free_port, serve};

const SHORT: Duration = Duration::from_millis(150);

#[test]
fn every_call_does_what_it_says() {
    let server = serve(Limits::default());
    let mut client = connect(&server);
    client.set("k", b"one").unwrap();
    assert_eq!(client.compare_set("k", b"two", b"x").unwrap(), b"one");
    assert_eq!(client.compare_set("k", b"one", b"two").unwrap(), b"two");
    client.append("k", b"+").unwrap();
    assert_eq!(client.get("k").unwrap(), b"two+");
    assert_eq!(client.add("n", 5).unwrap(), 5);
    assert_eq!(client.add("n", -7).unwrap(), -2);
    client.multi_set(&[("a", b""), ("b", b"2")]).unwrap();
    assert_eq!(client.multi_get(&["b", "a"]).unwrap(), [b"2".to_vec(), vec![]]);
    assert_eq!(client.present(&["a", "z", "b"]).unwrap(), [true, false, true]);
    assert!(client.check(&["a", "b"]).unwrap() && !client.check(&["a", "z"]).unwrap());
    assert_eq!(client.join_workers().unwrap(), 1);
    assert_eq!(client.num_keys().unwrap(), 5);
    assert!(client.delete_key("a").unwrap() && !client.delete_key("a").unwrap());
    assert_eq!(client.peer(), server.local_addr());
}

#[test]
fn a_store_may_begin_later_than_its_clients() {
    let port = free_port();
    let early = thread::spawn(move || {
        let mut client = Client::connect("localhost", port, PATIENCE, Limits::default()).unwrap();
        client.set("k", b"v").unwrap();
        client.get("k").unwrap()
    });
    // The client is likely to try in vain before, and nothing fails if it does not.
    thread::sleep(Duration::from_millis(50));
    let server = Server::bind(([127, 0, 0, 1], port).into(), Limits::default()).unwrap();
    assert_eq!(early.join().unwrap(), b"v");
    assert_eq!(server.stats().faults, 0);
}

#[test]
fn nobody_there_is_said_so() {
    let error = dial(free_port(), SHORT).unwrap_err();
    assert!(matches!(error, ConnectError::Refused { attempts: 2.., .. }), "{error}");
    let name = "no-such-host.invalid";
    let error = Client::connect(name, 1, SHORT, Limits::default()).unwrap_err();
    assert!(matches!(error, ConnectError::Resolve(_)), "{error}");
    assert!(error.to_string().contains(name), "{error}");
}

#[test]
fn other_protocols_are_recognised() {
    let http = fake::peer(|mut stream| stream.write_all(b"HTTP/1.1 400 Bad Request\r\n").unwrap());
    let error = dial(http.port(), PATIENCE).unwrap_err();
    assert!(error.to_string().contains("does not speak the store's protocol"), "{error}");
    let http = u32::from_le_bytes(*b"HTTP");
    assert!(matches!(error, ConnectError::NotAStore { got, .. } if got == http));
    let error = dial(fake::peer(drop).port(), PATIENCE).unwrap_err();
    assert!(matches!(error, ConnectError::Closed { times: 3, .. }), "{error}");
    let silent = fake::peer(|mut stream| _ = stream.read_to_end(&mut Vec::new()));
    let error = dial(silent.port(), SHORT).unwrap_err();
    assert!(matches!(error, ConnectError::Silent { .. }), "{error}");
}

#[test]
fn a_wait_that_ends_names_what_is_missing() {
    let server = serve(Limits::default());
    let mut client = connect(&server);
    client.set("here", b"").unwrap();
    let error = client.wait(&["here", "a", "b"], Deadline::after(SHORT)).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("2 of 3 keys: a, b"), "{text}");
    client.set_timeout(SHORT);
    let error = client.get("nowhere").unwrap_err();
    assert!(matches!(error, ClientError::Missing { call: Opcode::Wait, .. }), "{error}");
    // Also a deadline that has passed already; and the connection is still in step.
    let passed = Deadline::after(Duration::ZERO);
    assert!(matches!(client.wait(&["a"], passed), Err(ClientError::Missing { .. })));
    client.wait(&["here"], passed).unwrap();
    assert_eq!((client.timeout(), client.add("n", 1).unwrap()), (SHORT, 1));
    assert_eq!(server.stats().faults, 0);
}

#[test]
fn arrival_at_the_last_moment_is_arrival() {
    // Says that the wait is over only when it is cancelled, and then that it is cancelled.
    let late = fake::peer(|mut stream| {
        let mut bytes = [0; 10 + 1 + 8 + 8 + 2 + 1];
        stream.read_exact(&mut bytes[..10]).unwrap();
        stream.write_all(&bytes[6..10]).unwrap();
        stream.read_exact(&mut bytes[10..]).unwrap();
        assert_eq!(bytes.last(), Some(&Opcode::CancelWait.byte()));
        stream.write_all(&[0, 1]).unwrap();
        let _ = stream.read(&mut bytes);
    });
    dial(late.port(), PATIENCE).unwrap().wait(&["k"], Deadline::after(SHORT)).unwrap();
}

#[test]
fn lies_of_a_store_are_errors() {
    let mut client = dial(fake::store(&[0xff; 8]).port(), PATIENCE).unwrap();
    let error = client.compare_set("k", b"", b"").unwrap_err();
    let negative = ReplyError::Negative { what: "value", got: -1 };
    assert!(
        matches!(&error, ClientError::Protocol { cause, .. } if cause.to_string() == negative.to_string()),
        "{error}"
    );
    assert!(matches!(client.add("k", 1), Err(ClientError::Broken { call: Opcode::Add, .. })));

    let mut client = dial(fake::store(&[0, 0, 0, 1, 0, 0, 0, 0]).port(), PATIENCE).unwrap();
    let error = client.compare_set("k", b"", b"").unwrap_err();
    assert!(error.to_string().contains("value of 16777216"), "{error}");

    let mut client = dial(fake::store(&[7]).port(), PATIENCE).unwrap();
    let error = client.wait(&["k"], Deadline::after(PATIENCE)).unwrap_err();
    assert!(error.to_string().contains("0x07"), "{error}");

    let mut client = dial(fake::store(&[1, 2, 3]).port(), PATIENCE).unwrap();
    client.set_timeout(SHORT);
    let error = client.num_keys().unwrap_err();
    assert!(matches!(error, ClientError::Silent { call: Opcode::KeyCount, .. }), "{error}");
    // That was the connection's deadline: its end waits for no other.
    client.set_timeout(Duration::from_secs(24 * 3600));
    let ended = client.close();
    assert!(matches!(ended, Err(ClientError::Broken { .. })), "{ended:?}");
}

#[test]
fn what_is_too_large_is_not_sent() {
    let server = serve(Limits::default());
    let mut client = connect_with(&server, PATIENCE);
    let error = client.set("k", &vec![0; (8 << 20) + 1]).unwrap_err();
    assert!(matches!(error, ClientError::TooLarge { what: "value", .. }), "{error}");
    let error = client.set(&"k".repeat(8 << 10), b"").unwrap_err();
    assert!(matches!(error, ClientError::TooLarge { what: "key", .. }), "{error}");
    assert_eq!(client.num_keys().unwrap(), 0);
}
