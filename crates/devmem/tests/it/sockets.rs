//! The running kernel's sockets, over loopback: nothing is ever in device memory there, and
//! completions say that bytes were copied.

use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};
use warpverbs_devmem::receive::{DeviceReceiver, Limits};
use warpverbs_devmem::send::{Outgoing, SendError, Zerocopy};
use warpverbs_devmem::{Fragment, Received, Source};
use warpverbs_gpu::Buffer;
use warpverbs_mem::HostBuf;

/// Ends a hang: nothing that comes at all takes this long, however slow the machine is.
const TIMEOUT: Duration = Duration::from_secs(600);

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let client = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
    let (server, _) = listener.accept().expect("accepted");
    (client, server)
}

fn host(len: usize) -> Buffer {
    Buffer::of_region(HostBuf::region(len).expect("memory"))
}

/// Until `done` says so.
fn within(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < TIMEOUT, "{what}");
        std::thread::yield_now();
    }
}

#[test]
fn bytes_sent_without_copies_arrive_in_landing_memory() {
    let (client, server) = pair();
    let total = 3_000_000u64;
    let from = HostBuf::region(total as usize).expect("memory");
    let sent: Vec<u8> = (0..total).map(|at| (at * 31 % 251) as u8).collect();
    from.write(0, &sent).expect("written");
    client.set_nonblocking(true).expect("a socket");
    let (mut sender, from) = (Zerocopy::enable(client.as_fd()).expect("TCP"), Outgoing::Host(from));
    let landing = host(256 << 10);
    let mut receiver = DeviceReceiver::new(server, landing.clone(), Limits::default());
    let (mut offset, mut calls, mut found) = (0, 0, Vec::new());
    let mut fragments: Vec<Fragment> = Vec::new();
    within("all bytes arrive", || {
        let len = (total - offset).min(100_000);
        let sent = (len > 0).then(|| sender.send(client.as_fd(), &from, offset, len));
        match sent {
            None => {}
            Some(Ok((number, bytes))) => {
                assert_eq!(number, calls);
                calls += 1;
                offset += bytes;
            }
            Some(Err(SendError::Socket { cause, .. })) => {
                let full = cause.kind() == ErrorKind::WouldBlock;
                assert!(full || cause.raw_os_error() == Some(libc::ENOBUFS), "{cause}");
            }
            Some(Err(error)) => panic!("{error}"),
        }
        sender.poll(client.as_fd()).expect("completions");
        while let Received::Bytes(_) = receiver.receive(1 << 20, &mut fragments).expect("received")
        {
            for fragment in fragments.drain(..) {
                assert_eq!((fragment.source, fragment.token), (Source::Plain, None));
                assert_eq!(fragment.at, found.len() as u64);
                let mut bytes = vec![0; fragment.len as usize];
                landing.region().read(fragment.offset, &mut bytes).expect("inside");
                found.extend(bytes);
                receiver.give_back(&[fragment]).expect("held");
            }
        }
        found.len() as u64 == total
    });
    assert!(found == sent);
    within("all sends complete", || {
        sender.poll(client.as_fd()).expect("completions").in_flight() == 0
    });
    assert_eq!(sender.sends().copied(), calls, "loopback copies");
    drop(client);
    within("the end", || receiver.receive(1, &mut fragments).expect("the end") == Received::End);
}

#[test]
fn sends_from_a_dmabuf_that_is_not_bound_are_refused() {
    let (client, _server) = pair();
    let from = Outgoing::Dmabuf { id: 12345, size: 1 << 20 };
    let mut sender = Zerocopy::enable(client.as_fd()).expect("TCP");
    let mut send = |offset, len| sender.send(client.as_fd(), &from, offset, len);
    let Err(SendError::Socket { cause, .. }) = send(0, 4096) else { panic!("accepted") };
    println!("{cause}");
    for (offset, len) in [(1 << 20, 1), (0, (1 << 20) + 1), (u64::MAX, 2)] {
        assert!(matches!(send(offset, len), Err(SendError::Outside { .. })));
    }
}

#[test]
fn a_reset_is_an_error_of_the_socket() {
    let (client, server) = pair();
    let mut receiver = DeviceReceiver::new(server, host(4096), Limits::default());
    let socket = socket2::SockRef::from(&client);
    socket.set_linger(Some(Duration::ZERO)).expect("linger");
    drop(client);
    let mut fragments = Vec::new();
    within("the reset", || match receiver.receive(4096, &mut fragments) {
        Ok(Received::WouldBlock) => false,
        Ok(other) => panic!("{other:?}"),
        Err(error) => {
            assert!(error.to_string().contains("recvmsg"), "{error}");
            true
        }
    });
}
