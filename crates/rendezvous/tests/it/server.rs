//! The server against many clients, dying clients and hostile ones.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use warpverbs_rendezvous::raw::{MAGIC, Request};
use warpverbs_rendezvous::{
    BindError, Cause, ClientError, ConnectError, Deadline, Limits, Opcode, ProtocolError, Refusal,
    Server,
};

use crate::{PATIENCE, connect, dial, eventually, serve};

/// A bare connection that has sent `bytes`.
fn raw(server: &Server, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(server.local_addr()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // The server may have closed it before it has read all.
    let _ = stream.write_all(bytes);
    stream
}

fn bytes_of(requests: &[Request]) -> Vec<u8> {
    let mut bytes = Vec::new();
    Request::<&[u8]>::Validate { magic: MAGIC }.emit(&mut bytes);
    requests.iter().for_each(|request| request.emit(&mut bytes));
    bytes
}

/// The cause for which the server closes its only bare connection.
fn cause(server: &Server) -> Cause {
    let mut faults = Vec::new();
    eventually("a connection closed for cause", || {
        faults.extend(server.take_faults());
        !faults.is_empty()
    });
    assert_eq!(faults.len(), 1, "{faults:?}");
    faults.remove(0).cause
}

fn is_ended(mut stream: TcpStream) -> bool {
    // Reset, if the server had not read all that was sent.
    !stream.read(&mut [0; 64]).is_ok_and(|read| read > 0)
}

#[test]
fn many_clients_count_together() {
    const CLIENTS: usize = 48;
    let server = serve(Limits::default());
    thread::scope(|scope| {
        for rank in 0..CLIENTS {
            let mut client = connect(&server);
            scope.spawn(move || {
                let (mine, next) = (format!("r{rank}"), format!("r{}", (rank + 1) % CLIENTS));
                client.set(&mine, mine.as_bytes()).unwrap();
                assert_eq!(client.get(&next).unwrap(), next.as_bytes());
                for _ in 0..20 {
                    client.add("count", 1).unwrap();
                }
                client.set(&format!("done{rank}"), b"").unwrap();
                let all: Vec<_> = (0..CLIENTS).map(|rank| format!("done{rank}")).collect();
                let all: Vec<_> = all.iter().map(String::as_str).collect();
                client.wait(&all, Deadline::after(PATIENCE)).unwrap();
                assert_eq!(client.add("count", 0).unwrap(), 20 * CLIENTS as i64);
            });
        }
    });
    eventually("all have gone", || server.stats().connections == 0);
    assert_eq!((server.stats().accepted, server.stats().faults), (CLIENTS as u64, 0));
}

#[test]
fn a_client_that_dies_while_it_waits_is_forgotten() {
    let server = serve(Limits::default());
    let wait = || Request::Wait { keys: vec![b"/k".to_vec()] };
    let quiet = raw(&server, &bytes_of(&[wait()]));
    let abrupt = raw(&server, &bytes_of(&[wait()]));
    eventually("both wait", || server.stats().requests == 2);
    socket2::SockRef::from(&abrupt).set_linger(Some(Duration::ZERO)).unwrap();
    drop((quiet, abrupt));
    eventually("both have gone", || server.stats().connections == 0);
    let mut client = connect(&server);
    client.set("k", b"v").unwrap();
    assert_eq!(client.get("k").unwrap(), b"v");
}

#[test]
fn malformed_input_ends_its_connection_and_no_other() {
    let server = serve(Limits { message: 1 << 20, ..Limits::default() });
    let mut client = connect(&server);
    let (opcode, limit) = (Opcode::Get, 8 << 10);
    let with = |tail: &[u8]| [&bytes_of(&[]), tail].concat();
    let ones = [0xff; 8];
    let pairs = (0..16).map(|_| (b"/k".to_vec(), vec![0; 1 << 16])).collect();
    let cases: Vec<(Vec<u8>, Cause)> = vec![
        (b"GET / HTTP/1.1\r\n\r\n".into(), ProtocolError::UnknownOpcode(b'G').into()),
        (vec![13, 1, 2, 3, 4], ProtocolError::NotValidated(Opcode::Ping).into()),
        (vec![0, 1, 2, 3, 4], ProtocolError::WrongMagic(0x0403_0201).into()),
        (with(&bytes_of(&[])), ProtocolError::ValidatedTwice.into()),
        (
            with(&[&[3][..], &ones].concat()),
            ProtocolError::KeyTooLong { opcode, size: u64::MAX, limit }.into(),
        ),
        (
            bytes_of(&[Request::MultiSet { pairs }]),
            ProtocolError::MessageTooLong {
                opcode: Opcode::MultiSet,
                size: 9 + 16 * ((1 << 16) + 18),
                limit: 1 << 20,
            }
            .into(),
        ),
        (
            bytes_of(&[
                Request::Set { key: b"/n".into(), value: b"seven".into() },
                Request::Add { key: b"/n".into(), delta: 1 },
            ]),
            Refusal::NotANumber { key: "/n".into() }.into(),
        ),
    ];
    for (bytes, expected) in cases {
        let stream = raw(&server, &bytes);
        assert_eq!(cause(&server), expected);
        assert!(is_ended(stream), "{expected}");
    }
    drop(raw(&server, &with(&[3, 1])));
    assert_eq!(cause(&server), ProtocolError::Truncated { have: 2 }.into());
    client.set("k", b"v").unwrap();
    assert_eq!(client.get("k").unwrap(), b"v");
}

#[test]
fn slow_peers_are_sent_away_and_idle_ones_kept() {
    let limit = Duration::from_secs(2);
    let server = serve(Limits { message_time: limit, ..Limits::default() });
    let mut idle = connect(&server);
    idle.set("k", b"v").unwrap();
    server.take_faults();
    // Waits, which is not slow, and for longer than the others have.
    let mut waiting = raw(&server, &bytes_of(&[Request::Wait { keys: vec![b"/late".to_vec()] }]));
    // Never validates; stops within that, or within a message.
    let parts = [vec![], bytes_of(&[])[..3].to_vec(), [bytes_of(&[]), vec![3, 2]].concat()];
    let slow = parts.map(|bytes| raw(&server, &bytes));
    let mut faults = Vec::new();
    eventually("all three closed for cause", || {
        faults.extend(server.take_faults());
        faults.len() >= slow.len()
    });
    assert_eq!(faults.len(), slow.len(), "{faults:?}");
    assert!(faults.iter().all(|fault| fault.cause == Cause::SlowToSend { limit }), "{faults:?}");
    assert!(slow.into_iter().all(is_ended));
    // That this time passes is what is tried.
    thread::sleep(limit);
    assert_eq!(idle.get("k").unwrap(), b"v");
    idle.set("late", b"").unwrap();
    let mut reply = [9];
    waiting.read_exact(&mut reply).unwrap();
    assert_eq!(reply, [0]);
}

#[test]
fn a_peer_that_does_not_read_gets_no_more() {
    // The value has this time to arrive, however busy the machine is.
    let limit = Duration::from_secs(5);
    let server = serve(Limits { message_time: limit, ..Limits::default() });
    connect(&server).set("big", &vec![7; 8 << 20]).unwrap();
    eventually("the value is there", || server.stats().connections == 0);
    let gets: Vec<_> = (0..8).map(|_| Request::Get { key: b"/big".to_vec() }).collect();
    let _greedy = raw(&server, &bytes_of(&gets));
    assert_eq!(cause(&server), Cause::SlowToRead { limit });
    // The set and the first get, or the first two if one reply fits the socket's buffers.
    assert!(server.stats().requests <= 4, "{:?}", server.stats());
}

#[test]
fn connections_and_memory_are_bounded() {
    let server = serve(Limits { connections: 2, memory: 100_000, ..Limits::default() });
    let (mut first, second) = (connect(&server), connect(&server));
    let mut third = raw(&server, &[]);
    assert_eq!(cause(&server), Cause::TooManyConnections { limit: 2 });
    let mut reason = Vec::new();
    third.read_to_end(&mut reason).unwrap();
    assert!(reason.ends_with(b"2 connections are open already"), "{reason:?}");
    first.set("k", &[0; 40_000]).unwrap();
    assert_eq!(first.get("k").unwrap().len(), 40_000);
    // The rest of the message never comes, so that only buffers grow.
    drop(second);
    eventually("one has gone", || server.stats().connections == 1);
    let mut part = bytes_of(&[Request::Set { key: b"/l".into(), value: vec![0; 70_000] }]);
    part.truncate(65_000);
    let _stream = raw(&server, &part);
    assert!(matches!(cause(&server), Cause::Memory { limit: 100_000, .. }));
    assert_eq!(first.num_keys().unwrap(), 1);
}

/// Nor does a client that has sent its validation give way to them, whether it was read or not.
#[test]
fn half_open_connections_keep_no_client_out() {
    let limits = Limits { connections: 4, message_time: PATIENCE, ..Limits::default() };
    let server = serve(limits);
    let mut early = raw(&server, &bytes_of(&[Request::Ping { nonce: 7 }]));
    let part = |n: usize| bytes_of(&[])[..n % 4].to_vec();
    let _silent: Vec<_> = (0..20).map(|n| raw(&server, &part(n))).collect();
    let mut late = connect(&server);
    late.set("k", b"v").unwrap();
    assert_eq!(late.get("k").unwrap(), b"v");
    let mut reply = [0; 4];
    early.read_exact(&mut reply).unwrap();
    assert_eq!(u32::from_le_bytes(reply), 7);
    let faults = server.take_faults();
    assert!(faults.iter().all(|fault| fault.cause == Cause::TooManyConnections { limit: 4 }));
    assert_eq!((faults.len(), server.stats().connections), (18, 4));
}

#[test]
fn a_server_listens_only_where_it_is_told() {
    let server = serve(Limits::default());
    let addr = server.local_addr();
    assert!(addr.ip().is_loopback() && addr.port() != 0);
    let taken = Server::bind(addr, Limits::default());
    assert!(matches!(taken, Err(BindError::InUse { addr: at }) if at == addr), "{taken:?}");
    // Loopback has all of 127.0.0.0/8 on Linux, and this server only one address of it.
    let other = SocketAddr::new("127.0.0.2".parse().unwrap(), addr.port());
    assert!(TcpStream::connect(other).is_err());
    // An address reserved for documentation, which no machine has.
    let far: SocketAddr = "192.0.2.1:0".parse().unwrap();
    let refused = Server::bind(far, Limits::default());
    assert!(matches!(refused, Err(BindError::NotLocal { addr }) if addr == far), "{refused:?}");
    let deadline = Deadline::after(PATIENCE);
    let named = Server::bind_host("localhost", 0, Limits::default(), deadline).unwrap();
    assert!(named.local_addr().ip().is_loopback());
}

#[test]
fn a_dropped_server_is_gone_at_once() {
    let server = serve(Limits::default());
    let addr = server.local_addr();
    let mut client = connect(&server);
    client.set("k", b"v").unwrap();
    let waiter = thread::spawn({
        let mut client = connect(&server);
        move || client.get("never")
    });
    eventually("one waits", || server.stats().requests == 4);
    drop(server);
    assert!(matches!(waiter.join().unwrap(), Err(ClientError::Ended { .. })));
    assert!(matches!(client.num_keys(), Err(ClientError::Ended { .. })));
    assert!(matches!(client.num_keys(), Err(ClientError::Broken { .. })));
    let again = Server::bind(addr, Limits::default()).unwrap();
    assert_eq!(connect(&again).num_keys().unwrap(), 0);
}

#[test]
fn a_full_store_says_so() {
    let server = serve(Limits { connections: 1, memory: 100_000, ..Limits::default() });
    let mut first = connect(&server);
    let addr = server.local_addr();
    let error = dial(addr.port(), Duration::from_millis(150)).unwrap_err();
    assert!(matches!(error, ConnectError::TurnedAway { peer, .. } if peer == addr), "{error}");
    assert!(error.to_string().contains("1 connections are open already"), "{error}");
    let causes: Vec<_> = server.take_faults().into_iter().map(|fault| fault.cause).collect();
    assert!(!causes.is_empty());
    assert!(causes.iter().all(|cause| *cause == Cause::TooManyConnections { limit: 1 }));
    // One that has no reply is refused in the next call.
    first.set("k", &[0; 120_000]).unwrap();
    let error = first.num_keys().unwrap_err();
    assert!(matches!(error, ClientError::Refused { call: Opcode::KeyCount, .. }), "{error}");
    assert!(error.to_string().contains("100000"), "{error}");
    assert!(matches!(first.num_keys(), Err(ClientError::Broken { .. })));
    let mut again = dial(addr.port(), PATIENCE).unwrap();
    again.set("n", b"seven").unwrap();
    let error = again.add("n", 1).unwrap_err();
    assert!(error.to_string().contains("\"/n\" is not a decimal number"), "{error}");
}

#[test]
fn a_client_of_pytorch_gets_no_reason_for_data() {
    let server = serve(Limits::default());
    let requests = [
        Request::Ping { nonce: std::process::id() },
        Request::Set { key: b"/n".into(), value: b"seven".into() },
        Request::Add { key: b"/n".into(), delta: 1 },
    ];
    let mut stream = raw(&server, &bytes_of(&requests));
    let mut reply = Vec::new();
    // Reset, if the server had not read all that was sent.
    let _ = stream.read_to_end(&mut reply);
    assert_eq!(reply, std::process::id().to_le_bytes(), "the pong, and nothing behind it");
}

/// The server of the next test, in a process of few descriptors.
const FEW: &str = "WARPVERBS_TEST_FEW_DESCRIPTORS";

#[test]
#[ignore = "a process that the next test starts"]
fn few_descriptors() {
    if std::env::var_os(FEW).is_none() {
        return;
    }
    let server = serve(Limits::default());
    println!("\nlistening at {}", server.local_addr());
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    // Now this process connects where it can open no socket.
    let mut open = Vec::new();
    while let Ok(socket) = std::net::UdpSocket::bind("127.0.0.1:0") {
        open.push(socket);
    }
    let error = dial(1, PATIENCE).unwrap_err();
    println!("\nclient: {error}");
}

#[cfg(unix)]
#[test]
fn a_process_without_descriptors_says_so() {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};
    let script = "ulimit -n 24; exec \"$0\" --exact server::few_descriptors --ignored --nocapture";
    let mut child = Command::new("sh")
        .args(["-c", script])
        .arg(std::env::current_exe().unwrap())
        .env(FEW, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut line = |word: &str| {
        let found = lines.by_ref().find_map(|line| Some(line.strip_prefix(word)?.to_owned()));
        found.unwrap_or_else(|| panic!("no line begins with {word:?}"))
    };
    let addr: SocketAddr = line("listening at ").parse().unwrap();
    // These give way, each when a client needs its descriptor.
    let _silent: Vec<_> = (0..40).map(|_| TcpStream::connect(addr).unwrap()).collect();
    let mut clients = Vec::new();
    let error = loop {
        match dial(addr.port(), Duration::from_secs(3)) {
            Ok(client) => clients.push(client),
            Err(error) => break error,
        }
        assert!(clients.len() < 24, "more connections than descriptors");
    };
    assert!(matches!(error, ConnectError::TurnedAway { .. }), "{error}");
    assert!(error.to_string().contains("out of file descriptors"), "{error}");
    clients[0].set("k", b"v").unwrap();
    assert_eq!(clients[0].get("k").unwrap(), b"v");
    // The next one finds room when one of the others has left.
    drop(clients.pop());
    let next = dial(addr.port(), PATIENCE).unwrap();
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    let said = line("client: ");
    // It stays until here: the server gets no descriptor back meanwhile.
    drop(next);
    assert!(said.contains("no socket") && said.contains("Too many open files"), "{said}");
    assert!(child.wait().unwrap().success());
}
