//! Events between two steps of the engine, which the public interface cannot cause.

use super::*;
use crate::keys::{Asked, RegisteredRegion};
use crate::protocol::{HEADER, Header, Kind, Offer};
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use warpverbs_mem::Access;

/// An engine, and the socket of its peer.
fn connected() -> (Engine, TcpStream) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (socket, _) = listener.accept().unwrap();
    let offer = Offer { sockets: 1, ..Offer::default() };
    let agreed = offer.agree(&offer);
    let met = Met { agreed, peer: offer, secret: [0; 16], sockets: vec![socket] };
    (Engine::new(met, Keys::new().unwrap(), None, None).unwrap(), peer)
}

#[test]
fn memory_deregistered_between_check_and_answer_is_not_read_as_zeros() {
    let (mut engine, mut peer) = connected();
    let expected = warpverbs_dev::pattern(50_000, warpverbs_dev::seed());
    let memory = HostBuf::region(expected.len()).unwrap();
    memory.write(0, &expected).unwrap();
    let registered =
        RegisteredRegion::new(&engine.place.keys, &memory, Access::REMOTE_READ).unwrap();
    let remote = registered.remote();
    let (key, addr, total) = (remote.key, remote.addr, remote.len);
    let request = Header { key, addr, total, ..Header::new(Kind::ReadRequest) };
    peer.write_all(&request.encode()).unwrap();
    while engine.place.protocol.is_quiet() {
        engine.receive(0).unwrap();
    }
    // As `transmit`, and another thread deregisters the memory meanwhile.
    let keys = engine.place.keys.clone();
    let mut asked = Asked::new(&keys);
    let frame = engine.place.protocol.next_frame(0, &mut asked).unwrap();
    let found = asked.found();
    drop(registered);
    engine.outbound[0].push(&frame.header);
    engine.attach(0, &frame.payload.unwrap(), found).unwrap();
    while !engine.outbound[0].is_empty() {
        engine.flush(0).unwrap();
    }
    let mut header = [0; HEADER];
    peer.read_exact(&mut header).unwrap();
    let header = Header::decode(&header).unwrap();
    assert_eq!((header.kind, header.status), (Kind::ReadReply, 0));
    let mut bytes = vec![0; header.len as usize];
    peer.read_exact(&mut bytes).unwrap();
    assert!(bytes == expected[..bytes.len()], "success with other bytes than those of the memory");
}
