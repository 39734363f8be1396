//! Peers by their names, which may begin to listen later.

use crate::sockets::{LOCAL, LONG};
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;
use warpverbs_tcp::{Config, Domain, TcpError};

fn unused() -> SocketAddr {
    TcpListener::bind(LOCAL).unwrap().local_addr().unwrap()
}

#[test]
fn a_peer_is_reached_that_listens_later() {
    let (near, far) =
        (Domain::new(Config::default()).unwrap(), Domain::new(Config::default()).unwrap());
    let address = unused();
    let early = near.connect(address, LONG).unwrap_err();
    assert!(matches!(early, TcpError::Socket { .. }), "{early}");
    std::thread::scope(|scope| {
        let reaching = scope.spawn(|| near.reach("localhost", address.port(), LONG));
        // Nobody listens when it begins, most likely; no other order fails.
        std::thread::sleep(Duration::from_millis(50));
        let mut listener = far.listen(address).unwrap();
        let link = listener.accept(&far, LONG).unwrap();
        let reached = reaching.join().unwrap().unwrap();
        link.notify(b"hello").unwrap();
        assert_eq!(reached.wait_notification(LONG).unwrap(), b"hello");
    });
}

#[test]
fn a_peer_that_never_listens_and_a_name_of_nobody_are_told() {
    let domain = Domain::new(Config::default()).unwrap();
    let nobody =
        domain.reach("127.0.0.1", unused().port(), Duration::from_millis(300)).unwrap_err();
    match &nobody {
        TcpError::Socket { what: "connecting", error } => {
            assert_eq!(error.kind, ErrorKind::ConnectionRefused);
        }
        TcpError::Timeout { what: "connecting", .. } => {}
        other => panic!("{other}"),
    }
    let unknown = domain.reach("no such host", 1, LONG).unwrap_err();
    assert!(unknown.to_string().contains("resolving the name"), "{unknown}");
}
