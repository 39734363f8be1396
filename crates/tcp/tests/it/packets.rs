//! Frames of a link, and their time, as the peer sees them on a plain socket: each small frame that
//! travels by itself is a packet, a system call at both ends, and perhaps a thread that is woken.

use crate::sockets::{LOCAL, LONG, raw};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use warpverbs_mem::{Access, HostBuf};
use warpverbs_tcp::protocol::{HEADER, Header, Kind};
use warpverbs_tcp::{Config, Domain, Link, RemoteKey, TcpError};

/// A link that never spins, and the socket of its peer.
fn connected() -> (Domain, Link, TcpStream) {
    let mut config = Config::default().sockets(1);
    config.spin = Duration::ZERO;
    let domain = Domain::new(config).unwrap();
    let (socket, link) = raw(&mut domain.listen(LOCAL).unwrap(), &domain);
    socket.set_nodelay(true).unwrap();
    socket.set_nonblocking(true).unwrap();
    (domain, link, socket)
}

/// The next header, if one has come.
fn header(socket: &mut TcpStream) -> Option<Header> {
    let mut bytes = [0; HEADER];
    match socket.read(&mut bytes) {
        Ok(count) => assert_eq!(count, HEADER, "frames are sent whole"),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
            return None;
        }
    }
    Some(Header::decode(&bytes).unwrap())
}

/// The peer writes eight bytes; the link receives them.
fn write(socket: &mut TcpStream, link: &Link, id: u64, to: RemoteKey) {
    let header =
        Header { id, len: 8, total: 8, addr: to.addr, key: to.key, ..Header::new(Kind::Write) };
    socket.write_all(&[&header.encode()[..], &[id as u8; 8]].concat()).unwrap();
    let began = Instant::now();
    while !link.progress().unwrap() {
        assert!(began.elapsed() < LONG, "the write does not arrive");
    }
}

#[test]
fn answers_travel_with_what_the_program_sends_next() {
    let (domain, link, mut socket) = connected();
    let memory = HostBuf::region(8).unwrap();
    let registered = domain.register(&memory, Access::REMOTE_WRITE).unwrap();
    for id in 0..5 {
        write(&mut socket, &link, id, registered.remote());
        assert_eq!(header(&mut socket), None, "the answer to write {id} has travelled by itself");
        link.isend(&HostBuf::region(0).unwrap()).unwrap();
        let answer = header(&mut socket).unwrap();
        assert_eq!((answer.kind, answer.id), (Kind::WriteDone, id));
        assert_eq!(header(&mut socket).unwrap().kind, Kind::Message);
    }
    // A program that has nothing to send answers with the next look.
    write(&mut socket, &link, 5, registered.remote());
    link.progress().unwrap();
    assert_eq!(header(&mut socket).unwrap().kind, Kind::WriteDone);
}

#[test]
fn receives_are_announced_by_themselves_only_to_a_peer_that_is_silent() {
    let (_endpoint, link, mut socket) = connected();
    let received = link.irecv(&HostBuf::region(8).unwrap()).unwrap();
    let wait = |timeout| {
        let outcome = link.wait(received, timeout);
        assert!(matches!(outcome, Err(TcpError::Timeout { .. })), "{outcome:?}");
    };
    // One nap, however long it takes: news travels by itself before the second.
    wait(Duration::from_millis(1));
    assert_eq!(header(&mut socket), None, "announced at once");
    let began = Instant::now();
    let update = loop {
        wait(Duration::from_millis(30));
        if let Some(update) = header(&mut socket) {
            break update;
        }
        assert!(began.elapsed() < LONG, "never announced");
    };
    assert_eq!((update.kind, update.posted), (Kind::Update, 1));
    // With something to send, it is part of that.
    link.irecv(&HostBuf::region(8).unwrap()).unwrap();
    link.isend(&HostBuf::region(0).unwrap()).unwrap();
    let message = header(&mut socket).unwrap();
    assert_eq!((message.kind, message.posted), (Kind::Message, 2));
    wait(Duration::from_millis(30));
    assert_eq!(header(&mut socket), None);
}
