//! A peer that sends any frames.

#[path = "peer.rs"]
mod peer;

use crate::ends::{BASE, End, KEY, READ_ONLY, REGION};
use std::collections::VecDeque;
use warpverbs_tcp::protocol::{
    Agreed, Cut, Event, Framing, HEADER, Header, Kind, Op, PeerError, Refusal,
};

const AGREED: Agreed = Agreed {
    sockets: 3,
    chunk: 64 << 10,
    open: 4,
    window: 300_000,
    peer_window: 300_000,
    receive: Framing::Inline,
    send: Framing::Inline,
};

fn chunk(kind: Kind, id: u64, offset: u64, len: u32, total: u64) -> Header {
    let key = if kind == Kind::Write { KEY } else { 0 };
    let addr = if kind == Kind::Write { BASE } else { 0 };
    Header { eager: kind == Kind::Message, id, offset, len, total, key, addr, ..Header::new(kind) }
}

/// Gives frames with their payload to an end, each on its socket.
fn deliver(end: &mut End, frames: &[Header]) -> Result<(), PeerError> {
    for header in frames {
        let mut bytes: VecDeque<u8> = header.encode().into();
        bytes.extend(std::iter::repeat_n(7, header.len as usize));
        while !bytes.is_empty() {
            end.receive(header.socket, &mut bytes, usize::MAX)?;
        }
        while end.placing() != 0 {
            end.place(0);
        }
        end.poll();
    }
    Ok(())
}

fn refused(frames: &[Header]) -> PeerError {
    deliver(&mut End::new(AGREED), frames).expect_err("the peer broke the protocol")
}

#[test]
fn chunks_that_do_not_fit_their_transfer_are_refused() {
    let kind = Kind::Message;
    let outside = |offset, len, total| PeerError::Outside { offset, len, total };
    assert_eq!(refused(&[chunk(kind, 0, 0, 9, 8)]), outside(0, 9, 8));
    assert_eq!(refused(&[chunk(kind, 0, 8, 1, 8)]), outside(8, 1, 8));
    assert_eq!(refused(&[chunk(kind, 0, u64::MAX, 2, 8)]), outside(u64::MAX, 2, 8));
    let wraps = chunk(Kind::Write, 0, u64::MAX - 1, 100, u64::MAX);
    assert_eq!(refused(&[wraps]), outside(u64::MAX - 1, 100, u64::MAX));
    let most = AGREED.chunk;
    let long = chunk(kind, 0, 0, most + 1, 1 << 20);
    assert_eq!(refused(&[long]), PeerError::ChunkTooLong { len: most + 1, most });
    assert_eq!(refused(&[chunk(kind, 0, 0, 0, 8)]), PeerError::EmptyChunk { total: 8 });
}

#[test]
fn chunks_that_contradict_earlier_ones_are_refused() {
    for kind in [Kind::Message, Kind::Write] {
        let first = chunk(kind, 0, 4, 4, 100);
        for (offset, len) in [(4, 4), (0, 5), (7, 1), (0, 100)] {
            let again = refused(&[first, chunk(kind, 0, offset, len, 100)]);
            assert_eq!(again, PeerError::Overlap { kind, id: 0, offset, len });
        }
        let longer = refused(&[first, chunk(kind, 0, 8, 4, 101)]);
        assert_eq!(longer, PeerError::Changed { kind, id: 0, first: 100, now: 101 });
        let whole = chunk(kind, 0, 0, 8, 8);
        let mut end = End::new(AGREED);
        end.post(Op::Receive, vec![0; 8], (0, 0)).unwrap();
        let again = deliver(&mut end, &[whole, whole]);
        assert_eq!(again, Err(PeerError::Repeated { kind, id: 0 }));
    }
    let first = chunk(Kind::Write, 0, 0, 4, 100);
    let moved = Header { addr: BASE + 8, ..chunk(Kind::Write, 0, 4, 4, 100) };
    assert!(matches!(refused(&[first, moved]), PeerError::Changed { .. }));
}

#[test]
fn holes_are_bounded() {
    let kind = Kind::Write;
    let frames: Vec<_> = (0..1025).map(|i| chunk(kind, 0, 2 * i, 1, 100_000)).collect();
    assert_eq!(refused(&frames), PeerError::Scattered { kind, id: 0, most: 1024 });
}

#[test]
fn the_window_and_the_number_of_open_transfers_are_enforced() {
    let unposted: Vec<_> = (0..5).map(|id| chunk(Kind::Message, id, 0, 1, 64 << 10)).collect();
    let (used, window) = (5 * ((64 << 10) + 256), AGREED.window);
    assert_eq!(refused(&unposted), PeerError::WindowExceeded { used, window });
    let huge = chunk(Kind::Message, 0, 0, 1, u64::MAX);
    let used = u64::MAX;
    assert_eq!(refused(&[huge]), PeerError::WindowExceeded { used, window });
    let empty: Vec<_> = (0..1173).map(|id| chunk(Kind::Message, id, 0, 0, 0)).collect();
    assert!(matches!(refused(&empty), PeerError::WindowExceeded { .. }));
    let without_leave = Header { eager: false, ..chunk(Kind::Message, 3, 0, 8, 8) };
    assert_eq!(refused(&[without_leave]), PeerError::NotPosted { id: 3, posted: 0 });
    let kind = Kind::Write;
    let far = PeerError::TooManyOpen { kind, id: 4, first: 0, most: 4 };
    assert_eq!(refused(&[chunk(kind, 4, 0, 1, 2)]), far);
    let last = Header { id: u64::MAX, total: 8, ..Header::new(Kind::ReadRequest) };
    assert!(matches!(refused(&[last]), PeerError::TooManyOpen { .. }));
    let note = chunk(Kind::Notification, 0, 0, 64 << 10, 1 << 20);
    assert!(matches!(refused(&[note]), PeerError::NotificationTooLong { .. }));
    // Notifications that wait for a write that never comes are charged as well.
    let held = |id| Header { addr: 1, ..chunk(Kind::Notification, id, 0, 64 << 10, 64 << 10) };
    let used = 5 * ((64 << 10) + 256);
    let held: Vec<_> = (0..5).map(held).collect();
    assert_eq!(refused(&held), PeerError::WindowExceeded { used, window });
}

/// A message comes without leave only if it is short: what it announces is bounded.
#[test]
fn long_messages_need_leave() {
    let long = chunk(Kind::Message, 0, 0, 1, (64 << 10) + 1);
    assert_eq!(refused(&[long]), PeerError::NotPosted { id: 0, posted: 0 });
}

/// Reads and writes cost an answer each: a peer that reads none does not make them pile up.
#[test]
fn a_peer_that_reads_no_answers_is_ended() {
    let refusals = |id| Header { id, key: 1, total: 8, ..Header::new(Kind::ReadRequest) };
    let empty = |id| chunk(Kind::Write, id, 0, 0, 0);
    for (kind, frames) in [
        (Kind::ReadRequest, (0..1000).map(refusals).collect::<Vec<_>>()),
        (Kind::Write, (0..1000).map(empty).collect()),
    ] {
        let most = 3 * AGREED.open;
        let unread = PeerError::Unread { kind, id: most.into(), waiting: most as usize };
        assert_eq!(refused(&frames), unread);
    }
}

#[test]
fn answers_to_no_question_are_refused() {
    for kind in [Kind::ReadReply, Kind::WriteDone, Kind::ReadRefused] {
        let status = u32::from(kind == Kind::ReadRefused);
        let header = Header { status, ..Header::new(kind) };
        assert_eq!(refused(&[header]), PeerError::NotAsked { kind, id: 0 });
    }
    let mut end = End::new(AGREED);
    end.post(Op::Write, vec![0; 8], (KEY, BASE)).unwrap();
    // The peer confirms what was not sent yet.
    let early = deliver(&mut end, &[Header::new(Kind::WriteDone)]);
    assert_eq!(early, Err(PeerError::NotAsked { kind: Kind::WriteDone, id: 0 }));
    let mut end = End::new(AGREED);
    end.post(Op::Read, vec![0; 8], (KEY, BASE)).unwrap();
    let longer = deliver(&mut end, &[chunk(Kind::ReadReply, 0, 0, 9, 9)]);
    assert!(matches!(longer, Err(PeerError::Changed { first: 8, now: 9, .. })));
    let credit = Header { credit: 1, ..Header::new(Kind::Update) };
    assert_eq!(refused(&[credit]), PeerError::TooMuchCredit { credit: 1, charged: 0 });
    let status = Header { status: 9, ..Header::new(Kind::Close) };
    assert_eq!(refused(&[status]), PeerError::UnknownStatus { kind: Kind::Close, status: 9 });
}

/// Refused accesses leave the link alive, and touch nothing.
#[test]
fn keys_and_bounds_are_checked_by_the_owner() {
    let mut end = End::new(AGREED);
    let end_of = BASE + REGION as u64;
    let cases = [
        (1, BASE, 8, Refusal::UnknownKey),
        (READ_ONLY, BASE, 8, Refusal::NotAllowed),
        (KEY, end_of - 7, 8, Refusal::OutOfBounds),
        (KEY, BASE - 1, 8, Refusal::OutOfBounds),
        (KEY, u64::MAX - 3, 8, Refusal::OutOfBounds),
        (KEY, BASE, u64::MAX, Refusal::OutOfBounds),
    ];
    let mut expected = Vec::new();
    for (id, (key, addr, total, refusal)) in (0..).zip(cases) {
        let len = total.min(8) as u32;
        if total == 8 {
            let write = Header { key, addr, ..chunk(Kind::Write, id, 0, len, total) };
            deliver(&mut end, &[write]).unwrap();
            expected.push((Kind::WriteDone, id, refusal));
        }
        if key != READ_ONLY {
            let read = Header { key, addr, total, id, ..Header::new(Kind::ReadRequest) };
            // Numbers of reads are those of this loop but for the one that is left out.
            let id = if id > 1 { id - 1 } else { id };
            deliver(&mut end, &[Header { id, ..read }]).unwrap();
            expected.push((Kind::ReadRefused, id, refusal));
        }
    }
    assert!(end.store.bytes.iter().all(|byte| *byte == 0), "a refused write touched memory");
    while end.transmit(0, false) {}
    let wire: Vec<u8> = end.wires[0].drain(..).collect();
    let sent: Vec<_> = wire.chunks(HEADER).map(|b| Header::decode(b.try_into().unwrap())).collect();
    let sent: Vec<_> = sent.into_iter().map(|h| h.map(|h| (h.kind, h.id, h.status))).collect();
    let expected: Vec<_> = expected.into_iter().map(|(k, id, r)| Ok((k, id, r as u32))).collect();
    assert_eq!(sent, expected);
}

#[test]
fn sockets_that_end_midway_are_noticed() {
    let mut end = End::new(AGREED);
    assert_eq!(end.link.ended(1), Err(Cut { socket: 1, missing: 0 }));
    let mut half: VecDeque<u8> = Header::new(Kind::Update).encode()[..10].to_vec().into();
    end.receive(1, &mut half, usize::MAX).unwrap();
    assert_eq!(end.link.ended(1), Err(Cut { socket: 1, missing: 54 }));
    let mut header: VecDeque<u8> = chunk(Kind::Write, 0, 0, 100, 200).encode().into();
    end.receive(0, &mut header, usize::MAX).unwrap();
    end.receive(0, &mut vec![1; 30].into(), usize::MAX).unwrap();
    assert_eq!(end.link.ended(0), Err(Cut { socket: 0, missing: 70 }));
    let close = |socket| Header { socket, ..Header::new(Kind::Close) };
    deliver(&mut end, &[close(2)]).unwrap();
    assert_eq!(end.link.ended(2), Ok(()));
    let after = deliver(&mut end, &[Header { socket: 2, ..chunk(Kind::Write, 1, 0, 1, 1) }]);
    assert_eq!(after, Err(PeerError::AfterClose { kind: Kind::Write }));
    let status = Header { status: 1, ..Header::new(Kind::Close) };
    let mut end = End::new(AGREED);
    deliver(&mut end, &[status]).unwrap();
    assert_eq!(end.count(|event| matches!(event, Event::Goodbye(_))), 1);
}

#[test]
fn payload_is_announced_on_sockets_that_can_carry_it() {
    let wrong = |named, carried| PeerError::WrongSocket { named, carried };
    let mut end = End::new(AGREED);
    let named = Header { socket: 2, ..chunk(Kind::Message, 0, 0, 1, 1) }.encode();
    let inline = end.receive(1, &mut named.into(), usize::MAX);
    assert_eq!(inline, Err(wrong(2, 1)));
    for (socket, len) in [(0, 1), (3, 1), (u16::MAX, 1)] {
        let mut end = End::new(Agreed { receive: Framing::Separate, ..AGREED });
        let header = Header { socket, ..chunk(Kind::Message, 0, 0, len, 1) }.encode();
        assert_eq!(end.receive(0, &mut header.into(), usize::MAX), Err(wrong(socket, 0)));
    }
}

/// Random frames, near valid ones: an error or a step, never a panic, never a byte outside.
#[test]
fn any_frames_are_survived() {
    use rand::{Rng, RngExt, SeedableRng, rngs::StdRng};
    for seed in 0..300 {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut data = vec![0; rng.random_range(0..4000)];
        rng.fill_bytes(&mut data);
        peer::frames(&data);
    }
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/tcp_frames");
    for file in std::fs::read_dir(folder).expect("the corpus") {
        peer::frames(&std::fs::read(file.unwrap().path()).unwrap());
    }
}
