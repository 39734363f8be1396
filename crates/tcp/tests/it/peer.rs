//! A peer that sends any frames, near valid ones. The body of the fuzz target `tcp_frames`.

use warpverbs_tcp::protocol::{
    Agreed, Due, Event, Framing, Header, Kind, Memory, Need, Op, Protocol, Refusal, Request, Target,
};

const WINDOW: u64 = 300_000;
const REGION: u64 = 4096;

struct Region;

impl Memory for Region {
    fn check(&mut self, key: u32, addr: u64, len: u64, _: Need) -> Result<(), Refusal> {
        match (key, addr.checked_add(len)) {
            (1, Some(end)) if end <= REGION => Ok(()),
            (1, _) => Err(Refusal::OutOfBounds),
            _ => Err(Refusal::UnknownKey),
        }
    }
}

/// A small or a strange number.
fn number(byte: u8) -> u64 {
    match byte {
        0..=199 => u64::from(byte % 40),
        200..=229 => 1 << (byte - 200),
        230..=239 => u64::MAX - u64::from(byte - 230),
        _ => 65_500 + u64::from(byte),
    }
}

fn header(bytes: &[u8; 10]) -> Header {
    let kinds = [
        Kind::Message,
        Kind::Write,
        Kind::ReadRequest,
        Kind::ReadReply,
        Kind::WriteDone,
        Kind::ReadRefused,
        Kind::Notification,
        Kind::Update,
    ];
    let kind = kinds[usize::from(bytes[0] % 8)];
    Header {
        eager: bytes[0] & 0x40 != 0 && kind == Kind::Message,
        socket: u16::from(bytes[1] % 4),
        id: number(bytes[2]),
        offset: number(bytes[3]),
        len: if kind.has_payload() { number(bytes[4]) as u32 } else { 0 },
        total: number(bytes[5]),
        addr: number(bytes[6]),
        key: u32::from(bytes[7] % 3),
        status: u32::from(bytes[8] % 6),
        credit: number(bytes[9]) * u64::from(bytes[9] > 250),
        ..Header::new(kind)
    }
}

/// Bytes that are due are inside of their transfer.
fn check(due: &Due) {
    let end = due.offset.checked_add(due.len).expect("no wrap");
    assert!(end <= due.total && due.len != 0, "{due:?}");
    match due.target {
        Target::Request(Request { op, .. }) => {
            assert!(end <= if op == Op::Read { 64 } else { 100 }, "{due:?}");
        }
        Target::Region { addr, .. } => assert!(addr + end <= REGION, "{due:?}"),
        Target::Buffer => assert!(end <= WINDOW, "{due:?}"),
        Target::Discard => {}
    }
}

/// Plays `data` as frames of a peer, ten bytes each.
pub(crate) fn frames(data: &[u8]) {
    let (flags, data) = data.split_first().unwrap_or((&0, &[]));
    let separate = flags & 1 != 0;
    let receive = if separate { Framing::Separate } else { Framing::Inline };
    let mut link = Protocol::new(Agreed {
        sockets: 3,
        chunk: 64 << 10,
        open: 8,
        window: WINDOW,
        peer_window: WINDOW,
        receive,
        send: Framing::Inline,
    });
    for _ in 0..4 {
        for op in [Op::Read, Op::Write, Op::Send] {
            link.post(op, (), 64, (1, 0)).expect("open");
        }
    }
    for bytes in data.as_chunks::<10>().0 {
        let header = header(bytes);
        let carrier = if separate { 0 } else { header.socket.min(2) };
        if bytes[8] & 0x80 != 0 {
            link.post(Op::Receive, (), 100, (0, 0)).expect("always");
        }
        let mut encoded = &header.encode()[..];
        while !encoded.is_empty() && link.takes_headers(carrier) {
            match link.feed(carrier, encoded, &mut Region) {
                Ok(taken) => encoded = &encoded[taken..],
                Err(_) => return,
            }
        }
        for socket in 0..3 {
            while let Some(due) = link.due(socket) {
                check(&due);
                // Some bytes stay due, and some are placed in two steps.
                let part = if bytes[7] & 0x80 != 0 { due.len } else { due.len.div_ceil(2) };
                link.taken(socket, part);
                link.placed(due.kind, due.id, part);
                if bytes[7] & 0x40 != 0 && !separate {
                    break;
                }
            }
        }
        while let Some(frame) = link.next_frame(0, &mut Region) {
            if let Some(payload) = frame.payload {
                link.sent(payload.kind, payload.id, payload.len.into());
            }
        }
        while let Some(event) = link.poll_event() {
            match event {
                Event::Deliver { id, .. } => link.delivered(id, false),
                Event::Notification { len, .. } => link.consumed(len),
                _ => {}
            }
        }
    }
}
