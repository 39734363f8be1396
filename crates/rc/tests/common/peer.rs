//! A connection and whatever happens to it, from a peer that sends anything. Also the body of the
//! fuzz target `rc_packets`.

use warpverbs_rc::{Completion, Config, Instant, Op, Peer, Place, Request, State, Status, WrId};
use warpverbs_wire::{Bth, Extension, Mtu, Opcode, Psn, Qpn};

use super::host::{BASE, REMOTE, RKEY};
use super::pair::Node;

/// The next event of the connection.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Packet { bth: Bth, ext: Extension, len: u32 },
    Post(Request),
    Receive(usize),
    Transmit,
    Wait(u64),
    Owner(Owner),
}

/// Actions of the owner besides posting.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Owner {
    Drain,
    Resume,
    Fail,
    FailRequest(u64),
    /// Turns a fault of the memory on or off.
    Revoke,
    BreakReceives,
    Count,
}

pub(crate) fn config() -> Config {
    Config {
        mtu: Mtu::B256,
        window: 8,
        read_chunk: 2,
        send_depth: 8,
        max_rd_atomic: 2,
        max_dest_rd_atomic: 2,
        ..Config::new(Qpn::from_low_bits(7))
    }
}

/// Places the peer's payload where it may be; `Node` panics on anything outside.
fn place(node: &mut Node, place: Place, len: u32) {
    let payload = vec![0x66; len as usize];
    match place {
        Place::Nothing => {}
        Place::Region { rkey, va } => {
            assert_eq!(rkey, RKEY);
            node.memory.write(va, &payload);
        }
        Place::Receive { id, offset } => node.memory.scatter(id, offset, &payload),
        Place::Request { id, offset } => {
            let start = offset as usize;
            node.buffers.get_mut(&id).unwrap()[start..start + len as usize].fill(0x66);
        }
        Place::Original { id, .. } => assert_eq!(node.buffers[&id].len(), 8),
    }
}

/// The peer's state as reported when time passes.
fn peer(nanos: u64) -> Peer {
    match nanos % 8 {
        2 => Peer::Looked(nanos >> 3),
        3 => Peer::Looked(0),
        4 => Peer::Looked(u64::MAX),
        5 => Peer::Ended,
        _ => Peer::Unknown,
    }
}

/// Panics if the connection does, writes outside of what was checked, or completes out of order.
pub(crate) fn run(config: &Config, events: impl IntoIterator<Item = Event>) {
    let mut node = Node::new(config, 4096);
    let (mut now, mut posted, mut receives) = (0u64, 0, 0);
    for event in events {
        match event {
            Event::Packet { bth, ext, len } => {
                let instant = Instant::from_nanos(now);
                let answer =
                    node.connection.handle_packet(instant, &bth, &ext, len, &mut node.memory);
                place(&mut node, answer, len);
            }
            Event::Post(request) => {
                let request = Request { id: WrId(posted), ..request };
                posted += u64::from(node.post(request, vec![0; request.len as usize]));
            }
            Event::Receive(room) => {
                node.memory.post(receives, room);
                receives += 1;
                node.connection.receive_available();
            }
            Event::Transmit => {
                for _ in 0..20 {
                    let _ = node.transmit(now);
                }
            }
            Event::Wait(nanos) => {
                now = now.saturating_add(nanos);
                node.connection.handle_timeout(Instant::from_nanos(now), peer(nanos));
            }
            Event::Owner(what) => owner(&mut node, what),
        }
        node.poll_completions();
    }
    check_order(&node, posted);
}

fn owner(node: &mut Node, what: Owner) {
    match what {
        // Refused in most states.
        Owner::Drain => _ = node.connection.drain(),
        Owner::Resume => _ = node.connection.resume(),
        Owner::Fail => node.connection.fail(),
        Owner::FailRequest(id) => {
            node.connection.fail_request(WrId(id), Status::LocalProtection);
        }
        Owner::Revoke => node.memory.revoked ^= true,
        Owner::BreakReceives => node.memory.broken_receives ^= true,
        Owner::Count => node.memory.counts ^= true,
    }
}

fn check_order(node: &Node, posted: u64) {
    let mut expected = 0;
    let mut failed = false;
    for completion in &node.completions {
        if let Completion::Request { id, result } = completion {
            assert_eq!(id.0, expected, "completions are in order and none comes twice");
            assert!(!failed || *result == Err(Status::Flushed));
            failed |= result.is_err();
            expected += 1;
        }
    }
    assert!(expected <= posted);
    assert!(!failed || (node.connection.state() == State::Error && expected == posted));
}

/// Takes numbers off the front of bytes; zeros after their end.
struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (now, rest) = self.0.split_at(N.min(self.0.len()));
        self.0 = rest;
        let mut out = [0; N];
        out[..now.len()].copy_from_slice(now);
        out
    }

    fn byte(&mut self) -> u8 {
        let [byte] = self.take();
        byte
    }

    /// A packet; three of four are of a kind and at a place that get far.
    fn packet(&mut self) -> Event {
        let [opcode, flags, low, middle] = self.take();
        let opcode = Opcode::ALL[usize::from(opcode) % Opcode::ALL.len()];
        // Small distances either way from 0, or anywhere.
        let psn = match flags & 6 {
            6 => u32::from_be_bytes([0, flags, middle, low]),
            _ => i32::from(low as i8) as u32,
        };
        let mut raw = self.take::<28>();
        if flags & 0x18 != 0x18 && opcode.headers().len() >= 16 {
            // An address and a length in or near the region, and its key.
            let va = BASE + u64::from(u16::from_be_bytes([raw[6], raw[7]]) % 4200);
            raw[..8].copy_from_slice(&va.to_be_bytes());
            raw[8..12].copy_from_slice(&RKEY.0.to_be_bytes());
            raw[12..14].fill(0);
        }
        let ext = match Extension::parse(opcode.headers(), &raw) {
            Ok((ext, _)) => ext,
            Err(_) => Extension::Empty,
        };
        let len = match flags & 0x60 {
            0 => 0,
            0x20 => 256,
            _ => u32::from(u16::from_be_bytes([flags & 1, middle])),
        };
        let bth = Bth::new(opcode, Qpn::from_low_bits(7), Psn::from_low_bits(psn));
        Event::Packet { bth: Bth { ack_request: flags & 0x80 != 0, ..bth }, ext, len }
    }

    fn post(&mut self) -> Event {
        let [kind, high, low, more] = self.take();
        let op = match kind % 8 {
            0 => Op::Send,
            1 => Op::SendImm(1),
            2 => Op::SendInvalidate(RKEY),
            3 => Op::Write(REMOTE),
            4 => Op::WriteImm(REMOTE, 1),
            5 => Op::Read(REMOTE),
            6 => Op::CompareSwap { remote: REMOTE, swap: 1, compare: 2 },
            _ => Op::FetchAdd { remote: REMOTE, add: 1 },
        };
        let len = u32::from(u16::from_be_bytes([high % 16, low]));
        let len = if op.is_atomic() && more < 250 { 8 } else { len };
        let (fence, solicited) = (more & 1 != 0, more & 2 != 0);
        Event::Post(Request { fence, solicited, ..Request::new(WrId(0), op, len) })
    }

    fn event(&mut self) -> Event {
        match self.byte() % 16 {
            0..=7 => self.packet(),
            8 | 9 => self.post(),
            10 => Event::Receive(usize::from(u16::from_be_bytes(self.take())) % 2000),
            11 | 12 => Event::Transmit,
            13 | 14 => {
                let byte = self.byte();
                Event::Wait((1 << (byte % 40)) + u64::from(byte / 40))
            }
            _ => Event::Owner(match self.byte() % 16 {
                0..=3 => Owner::Drain,
                4..=7 => Owner::Resume,
                8 => Owner::Fail,
                9 => Owner::FailRequest(self.byte().into()),
                10 | 11 => Owner::Revoke,
                12 | 13 => Owner::BreakReceives,
                _ => Owner::Count,
            }),
        }
    }
}

/// Any bytes as attributes and up to 300 events.
pub(crate) fn packets(data: &[u8]) {
    let mut script = Script(data);
    let [retries, wide, sq_psn, rq_psn] = script.take();
    let psn = |low: u8| Psn::from_low_bits(i32::from(low as i8) as u32);
    let base = config();
    let config = Config {
        retry: retries & 7,
        rnr_retry: retries >> 3 & 7,
        window: if wide & 1 == 0 { base.window } else { 64 },
        ack_interval: 1 + u32::from(wide >> 1 & 3),
        max_rd_atomic: wide >> 3 & 3,
        max_dest_rd_atomic: wide >> 5 & 3,
        early_resend: base.early_resend.filter(|_| wide & 0x80 == 0),
        sq_psn: psn(sq_psn),
        rq_psn: psn(rq_psn),
        ..base
    };
    let events = (0..300).map_while(|_| (!script.0.is_empty()).then(|| script.event()));
    run(&config, events);
}
