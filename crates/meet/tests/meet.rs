//! Both ends of a control connection, strangers at a server's port, and hostile bytes.

#[path = "common/robust.rs"]
mod robust;

use proptest::prelude::*;
use robust::{GREETING, Word, read_all};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};
use warpverbs_meet::{Connection, LONGEST, Listener, MeetError, PREAMBLE};

/// Longer than anything takes that is going to happen at all.
const SOON: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_millis(100);

fn listen() -> (Listener, SocketAddr) {
    let listener = Listener::bind(([127, 0, 0, 1], 0).into()).unwrap();
    let addr = listener.addr();
    (listener, addr)
}

fn connect(addr: SocketAddr) -> Result<Connection<Word>, MeetError> {
    Connection::connect("127.0.0.1", addr.port(), SOON)
}

#[test]
fn messages_travel_both_ways_and_a_failure_is_an_error() {
    let (listener, addr) = listen();
    let server = thread::spawn(move || {
        let mut client = listener.accept::<Word>(SOON).unwrap();
        let Word::Ask(numbers) = client.recv("question", SOON).unwrap() else { panic!() };
        client.send(Word::Answer(numbers.iter().sum::<u64>().to_string())).unwrap();
        let other = client.recv("question", SOON).unwrap();
        let found = client.out_of_turn(other, "question").to_string();
        assert!(found.starts_with(&format!("the client at {}:", client.peer())), "{found}");
        assert!(found.ends_with("sent \"answer\", expected \"question\""), "{found}");
        client.failing(|_| Err::<(), _>("no more")).unwrap_err();
    });
    let mut client = connect(addr).unwrap();
    client.send(Word::Ask(vec![1, 2, 39])).unwrap();
    assert_eq!(client.recv("answer", SOON).unwrap(), Word::Answer("42".into()));
    // The longest message there is, and one that is longer.
    let too_long = client.send(Word::Answer("x".repeat(LONGEST))).unwrap_err();
    assert!(matches!(too_long, MeetError::Unsendable { kind: "answer", .. }), "{too_long}");
    client.send(Word::Answer("x".repeat(LONGEST - 6))).unwrap();
    let error = client.recv("answer", SOON).unwrap_err();
    assert_eq!(error.to_string(), format!("the server at {addr}: no more"));
    server.join().unwrap();
    client.during("while it was asked");
    let error = client.recv("answer", SOON).unwrap_err().to_string();
    assert_eq!(error, format!("the server at {addr} ended the connection while it was asked"));
}

#[test]
fn silence_ends_at_the_limit() {
    let (listener, addr) = listen();
    let holder = thread::spawn(move || listener.accept::<Word>(SOON));
    let mut client = connect(addr).unwrap();
    let mut turns = 0;
    let error = client.wait("answer", SHORT, || turns += 1).unwrap_err();
    assert!(matches!(error, MeetError::Silent { awaited: "answer", .. }), "{error}");
    assert!(turns > 0);
    drop(holder.join().unwrap());
    let nobody = listen().0.accept::<Word>(Duration::ZERO).unwrap_err();
    assert!(matches!(nobody, MeetError::NoClient { turned_away: 0, last: None, .. }), "{nobody}");
}

#[test]
fn strangers_keep_no_client_from_the_server() {
    let (listener, addr) = listen();
    let raw = |bytes: &[u8]| {
        let mut stream = TcpStream::connect(addr).unwrap();
        stream.write_all(bytes).unwrap();
        stream
    };
    // More silent ones than a server keeps; then ends, other programs, versions and roles.
    let silent: Vec<_> = (0..100).map(|_| raw(b"")).collect();
    drop(raw(b""));
    let others = [&b"GET / HTTP/1.1\r\n"[..], b"wvtest\x09\x00c", b"wvtest\x07\x00s", b"wvte"];
    let others = others.map(raw);
    let server = thread::spawn(move || listener.accept::<Word>(SOON));
    let mut client = connect(addr).unwrap();
    let mut served = server.join().unwrap().unwrap();
    client.send(Word::Ask(vec![])).unwrap();
    assert_eq!(served.recv("question", SOON).unwrap(), Word::Ask(vec![]));
    drop((silent, others));
}

/// A client that was there first is not the one that goes, however many come after it.
#[test]
fn a_flood_pushes_out_no_client_whose_preamble_has_come() {
    let (listener, addr) = listen();
    let mut client = TcpStream::connect(addr).unwrap();
    client.write_all(b"wvtest\x07\x00c").unwrap();
    // The system keeps as many as wait to be accepted.
    let silent: Vec<_> = (0..100).map(|_| TcpStream::connect(addr).unwrap()).collect();
    listener.accept::<Word>(SOON).unwrap();
    drop(silent);
}

#[test]
fn a_server_without_a_client_says_whom_it_turned_away() {
    for (bytes, words) in [
        (
            &b"GET / HTTP/1.1\r\n"[..],
            "does not speak this version of `warpverbs test`: magic \"GET / \", expected \"wvtest\"",
        ),
        (b"G", "does not speak this version of `warpverbs test`: magic \"G\""),
        (
            b"wvtest\x09\x00c",
            "does not speak this version of `warpverbs test`: version 9 of the protocol, expected 7",
        ),
        (b"wvtest\x07\x00s", "is a server of `warpverbs test` as well, expected a client"),
        (b"wvtest\x07\x00x", "magic \"wvtest\\x07\\x00x\", expected \"wvtest\""),
    ] {
        let (listener, addr) = listen();
        let mut stream = TcpStream::connect(addr).unwrap();
        stream.write_all(bytes).unwrap();
        let error = listener.accept::<Word>(SHORT).unwrap_err().to_string();
        assert!(error.contains("1 connections were turned away, the last because"), "{error}");
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn a_client_says_what_it_met() {
    for (bytes, words) in [
        (
            &b"SSH-2.0-OpenSSH\r\n"[..],
            "does not speak this version of `warpverbs test`: magic \"SSH-2.",
        ),
        (b"wvtest\x08\x00s", "version 8 of the protocol, expected 7"),
        (b"wvtest\x07\x00c", "is a client of `warpverbs test` as well, expected a server"),
        (b"wvt", "ended the connection"),
    ] {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = socket.local_addr().unwrap();
        let other = thread::spawn(move || {
            let (mut stream, _) = socket.accept().unwrap();
            stream.read_exact(&mut [0; PREAMBLE]).unwrap();
            stream.write_all(bytes).unwrap();
        });
        let error = connect(addr).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
        other.join().unwrap();
    }
    let free = listen().1;
    let error = Connection::<Word>::connect("127.0.0.1", free.port(), SHORT).unwrap_err();
    assert!(matches!(error, MeetError::Unreachable { .. }), "{error}");
    let error = Connection::<Word>::connect("no-such-host.invalid", 1, SHORT).unwrap_err();
    assert!(matches!(error, MeetError::Unknown { .. }), "{error}");
}

/// The system takes a connection for a program that never accepts it: the limit holds for the preamble too.
#[test]
fn a_server_that_says_nothing_costs_no_more_than_the_limit() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let (start, limit) = (Instant::now(), Duration::from_millis(200));
    let error = Connection::<Word>::connect("127.0.0.1", port, limit).unwrap_err();
    // A preamble may take 5 s where there is so much time.
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}: {error}", start.elapsed());
    let MeetError::Silent { awaited: "preamble", waited, .. } = error else { panic!("{error}") };
    assert!(waited <= limit, "{waited:?}");
}

fn framed(body: &[u8]) -> Vec<u8> {
    [&(body.len() as u32).to_le_bytes(), body].concat()
}

#[test]
fn what_is_no_message_is_refused() {
    let after = |bytes: &[u8]| read_all([&GREETING[..], bytes].concat(), 5).1.to_string();
    assert!(after(&[0xff; 8]).contains("4294967295 bytes, expected at most 4194304"));
    assert!(after(&framed(&[9])).contains("sent a malformed message"));
    assert!(after(&framed(&[0, 0, 0, 7])).contains("1 bytes too many"));
    // A list that announces more than there is, and more than there is memory for.
    assert!(
        after(&framed(&[0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]))
            .contains("malformed message: cannot decode")
    );
    assert!(after(&[5, 0, 0, 0, 1]).contains("ended the connection"));
}

proptest! {
    /// Any bytes of a peer, however they are cut, are read as the format says.
    #[test]
    fn any_bytes_are_read_as_the_format_says(
        cut: u8,
        greeted: bool,
        frames in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..12), 0..6),
        tail in proptest::collection::vec(any::<u8>(), 0..12),
    ) {
        let frames: Vec<u8> = frames.iter().flat_map(|frame| framed(frame)).collect();
        robust::messages(&[&[cut % 40, greeted.into()][..], &frames, &tail].concat());
    }

    #[test]
    fn what_is_sent_arrives(numbers in proptest::collection::vec(any::<u64>(), 0..50), piece in 1..40usize) {
        let word = Word::Ask(numbers);
        let body = postcard::to_stdvec(&(0u8, &word)).unwrap();
        let bytes = [GREETING.to_vec(), framed(&body), framed(&body)].concat();
        let (words, error) = read_all(bytes, piece);
        prop_assert_eq!(words, vec![word.clone(), word]);
        prop_assert!(matches!(error, MeetError::Ended { .. }), "{error}");
    }
}

#[test]
fn the_fuzzers_seeds_are_read_as_the_format_says() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/control_message");
    let mut seeds = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        println!("{}", path.display());
        robust::messages(&std::fs::read(path).unwrap());
        seeds += 1;
    }
    assert!(seeds >= 9, "{seeds} seeds");
}
