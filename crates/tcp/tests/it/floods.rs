//! Strangers that connect and say nothing, or little, and real peers beside them.

use super::sockets::{LOCAL, LONG, bytes_of, filled, random};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use warpverbs_dev::is_alone;
use warpverbs_mem::{Access, HostBuf};
use warpverbs_tcp::protocol::{HELLO, Hello, Offer, Stage};
use warpverbs_tcp::{Config, Domain, Invitations, TcpError};

/// Sockets that the strangers hold at a time, more than a listener keeps.
const HELD: usize = 300;

/// Connects until told to stop, and holds the last sockets open: silent ones, and some that have said
/// a part of a message, or one without the secret.
fn flood(address: SocketAddr, stop: &AtomicBool, made: &AtomicUsize) {
    let offer = Offer::default();
    let hello = Hello { stage: Stage::First, socket: 0, token: [9; 16], offer }.encode();
    let mut held = std::collections::VecDeque::new();
    for turn in 0usize.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let Ok(mut stream) = TcpStream::connect(address) else { continue };
        let _ = stream.write(&hello[..[0, 0, 1, HELLO][turn % 4]]);
        made.fetch_add(1, Ordering::Relaxed);
        held.push_back(stream);
        if held.len() > HELD {
            held.pop_front();
        }
    }
}

#[test]
fn peers_connect_and_work_through_a_flood_of_strangers() {
    let secret = [0x5a; 16];
    let config = Config::default().secret(secret).sockets(3);
    let listening = Domain::new(config.clone()).unwrap();
    let mut listener = listening.listen(LOCAL).unwrap();
    let (address, stop, made) = (listener.address(), AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| flood(address, &stop, &made));
        let served = scope.spawn(|| {
            for _ in 0..5 {
                let link = listener.accept(&listening, LONG).unwrap();
                link.serve(LONG, || false).unwrap();
                link.close(LONG).unwrap();
            }
        });
        let memory = HostBuf::region(200_000).unwrap();
        let both = Access::REMOTE_READ | Access::REMOTE_WRITE;
        let registered = listening.register(&memory, both).unwrap();
        for turn in 0..5 {
            // Each after more strangers than the listener keeps have come.
            while made.load(Ordering::Relaxed) < (turn + 1) * HELD {
                std::thread::yield_now();
            }
            let peer = Domain::new(config.clone()).unwrap();
            let link = peer.connect(address, LONG).unwrap();
            let expected = random(memory.len());
            let write = link.write(&filled(&expected), registered.remote()).unwrap();
            assert_eq!(link.wait(write, LONG), Ok(memory.len() as u64));
            assert!(bytes_of(&memory) == expected);
            link.close(LONG).unwrap();
        }
        served.join().unwrap();
        stop.store(true, Ordering::Relaxed);
    });
}

/// Alone in its process, which runs out of descriptors.
#[test]
fn a_listener_without_a_descriptor_waits_for_one() {
    if !is_alone("floods::a_listener_without_a_descriptor_waits_for_one") {
        return;
    }
    let limit = Rlimit { current: Some(64), ..getrlimit(Resource::Nofile) };
    setrlimit(Resource::Nofile, limit).unwrap();
    let domain = Domain::new(Config::default()).unwrap();
    let mut listener = domain.listen(LOCAL).unwrap();
    let address = listener.address();
    let silent = TcpStream::connect(address).unwrap();
    let all: Vec<_> = std::iter::from_fn(|| silent.try_clone().ok()).collect();
    // No other socket of the listener could give way.
    let none = listener.accept(&domain, Duration::from_millis(200)).unwrap_err();
    assert!(matches!(none, TcpError::Timeout { .. }), "{none}");
    drop(all);
    std::thread::scope(|scope| {
        let accepted = scope.spawn(|| listener.accept(&domain, LONG).unwrap());
        let _near = domain.connect(address, LONG).unwrap();
        accepted.join().unwrap();
    });
}

/// A stranger, one with an invitation of somebody else that was used, and one whose invitation was
/// revoked reach nothing.
#[test]
fn nobody_uses_an_invitation_twice() {
    let invitations = Invitations::default();
    let listening = Domain::new(Config::default()).unwrap();
    let mut listener = listening.listen_for(&invitations, LOCAL).unwrap();
    let address = listener.address();
    let connect = |secret| {
        let domain = Domain::new(Config::default().secret(secret)).unwrap();
        domain.connect(address, LONG).map(|link| (domain, link))
    };
    invitations.add([1; 16]);
    invitations.add([2; 16]);
    assert!(invitations.revoke(&[2; 16]));
    std::thread::scope(|scope| {
        let accepted = scope.spawn(|| listener.accept(&listening, LONG).unwrap());
        for secret in [[0; 16], [2; 16], [3; 16]] {
            assert!(connect(secret).is_err(), "{secret:?}");
        }
        let _first = connect([1; 16]).unwrap();
        assert_eq!(accepted.join().unwrap().secret(), &[1; 16]);
    });
    std::thread::scope(|scope| {
        let again = scope.spawn(|| listener.accept(&listening, Duration::from_secs(1)).map(drop));
        assert!(connect([1; 16]).is_err());
        assert!(again.join().unwrap().is_err());
    });
}
