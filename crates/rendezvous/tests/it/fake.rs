//! Peers that are no store, or a bad one.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use super::PATIENCE;

/// Listens, and does `act` with each connection in turn. The thread ends with the process.
pub(super) fn peer(act: impl Fn(TcpStream) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            act(stream);
        }
    });
    addr
}

/// Answers the handshake as a store does, and then sends `lies` after whatever comes.
pub(super) fn store(lies: &'static [u8]) -> SocketAddr {
    peer(move |mut stream| {
        let mut hello = [0; 10];
        if stream.read_exact(&mut hello).is_err() {
            return;
        }
        stream.write_all(&hello[6..]).unwrap();
        let mut request = [0; 1024];
        if stream.read(&mut request).is_ok_and(|read| read > 0) {
            let _ = stream.write_all(lies);
            let _ = stream.read(&mut request);
        }
    })
}
