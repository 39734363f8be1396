//! Queues are bounded: what does not fit is dropped before it has any effect, and comes again.

use crate::common::host::{BASE, Memory, REMOTE, RKEY};
use crate::common::pair::Node;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use warpverbs_rc::{
    AckTimeout, Attribute, Completion, Config, Connection, Instant, Op, Peer, Place, PostError,
    Request, StartError, State, Status, Transmit, WrId,
};
use warpverbs_wire::{
    Aeth, Bth, Extension, Msn, Mtu, NakCode, Opcode, Psn, Qpn, Reth, RnrTimer, Syndrome,
};

fn node() -> Node {
    Node::new(&Config { mtu: Mtu::B256, send_depth: 3, ..Config::new(Qpn::default()) }, 4096)
}

fn handle(node: &mut Node, opcode: Opcode, psn: u32, ext: Extension) -> Place {
    let bth = Bth::new(opcode, Qpn::default(), Psn::from_low_bits(psn));
    let bth = Bth { ack_request: true, ..bth };
    node.connection.handle_packet(Instant::default(), &bth, &ext, 0, &mut node.memory)
}

/// Acknowledges the packet at `psn`, with which `messages` are complete.
fn acknowledge(node: &mut Node, psn: Psn, messages: u32) -> Place {
    let syndrome = Syndrome::Ack(warpverbs_wire::Credits::UNLIMITED);
    let ext = Extension::Aeth(Aeth { syndrome, msn: Msn::from_low_bits(messages) });
    let ack = Bth::new(Opcode::Acknowledge, Qpn::default(), psn);
    node.connection.handle_packet(Instant::default(), &ack, &ext, 0, &mut node.memory)
}

//= [resp.overrun]
#[test]
fn receives_that_nobody_polls() {
    let mut node = node();
    for id in 0..200 {
        node.memory.post(id, 8);
    }
    for psn in 0..200 {
        assert_eq!(handle(&mut node, Opcode::SendOnly, psn, Extension::Empty), Place::Nothing);
    }
    assert!(node.connection.stats().overruns > 0);
    assert_eq!(node.connection.state(), State::ReadyToSend);
    node.poll_completions();
    let taken = node.completions.len() as u32;
    assert!(taken < 200 && node.memory.taken.len() == taken as usize);
    // The peer sends the rest again.
    for psn in taken..200 {
        let _ = handle(&mut node, Opcode::SendOnly, psn, Extension::Empty);
        node.poll_completions();
    }
    let ids = node.completions.iter().map(|completion| match completion {
        Completion::Receive { id, result: Ok(_) } => *id,
        other => panic!("{other:?}"),
    });
    assert!(ids.eq(0..200));
}

//= [resp.overrun] [resp.nak-fatal]
#[test]
fn responses_that_nobody_sends() {
    let mut node = node();
    let reth = Extension::Reth(Reth { va: BASE, rkey: RKEY, dma_len: 8 });
    // Sixteen READs are agreed on; between them writes that want acknowledgements.
    for psn in 0..32 {
        let opcode = if psn % 2 == 0 { Opcode::ReadRequest } else { Opcode::WriteOnly };
        let reth = match opcode {
            Opcode::WriteOnly => Extension::Reth(Reth { va: BASE, rkey: RKEY, dma_len: 0 }),
            _ => reth,
        };
        assert_eq!(handle(&mut node, opcode, psn, reth), Place::Nothing);
    }
    assert_eq!(node.connection.stats().overruns, 0);
    // Repeated many times, they take no more room.
    for psn in (0..32).cycle().take(3200) {
        if psn % 2 == 0 {
            let _ = handle(&mut node, Opcode::ReadRequest, psn, reth);
        } else {
            let _ = handle(&mut node, Opcode::WriteMiddle, psn, Extension::Empty);
        }
    }
    let answers = std::iter::from_fn(|| node.transmit(0)).count();
    assert!(answers <= 68, "{answers}");
    // A refusal goes out even if nothing else does.
    let _ = handle(&mut node, Opcode::SendMiddle, 32, Extension::Empty);
    let nak = node.connection.poll_transmit(Instant::default(), &mut node.memory).unwrap();
    let Extension::Aeth(Aeth { syndrome, .. }) = nak.ext else { panic!("{nak:?}") };
    assert_eq!(syndrome, Syndrome::Nak(NakCode::InvalidRequest));
}

//= [conn.post]
#[test]
fn bad_requests_are_refused_by_name() {
    let mut node = node();
    let mut post = |op, len| node.connection.post(Request::new(WrId(0), op, len));
    let len = (1 << 31) + 1;
    assert_eq!(post(Op::Send, len), Err(PostError::TooLong { len }));
    let add = Op::FetchAdd { remote: REMOTE, add: 1 };
    assert_eq!(post(add, 4), Err(PostError::AtomicLength { len: 4 }));
    for _ in 0..3 {
        assert_eq!(post(Op::Send, 8), Ok(()));
    }
    assert_eq!(post(Op::Send, 8), Err(PostError::Full { depth: 3 }));
    let config = Config { max_rd_atomic: 0, ..Config::new(Qpn::default()) };
    let mut node = Node::new(&config, 64);
    let read = Request::new(WrId(0), Op::Read(REMOTE), 8);
    assert_eq!(node.connection.post(read), Err(PostError::NoRdAtomic));
}

/// The longest message there is, at the smallest path MTU: 2^23 packets, of which no PSN is
/// outstanding twice.
//= [req.psn] [req.window]
#[test]
fn longest_message() {
    let config = Config { mtu: Mtu::B256, ack_interval: 128, ..Config::new(Qpn::default()) };
    let mut node = Node::new(&config, 64);
    let write = Op::Write(REMOTE);
    node.connection.post(Request::new(WrId(1), write, 1 << 31)).unwrap();
    let now = Instant::default();
    let mut offset = 0;
    while let Some(transmit) = node.connection.poll_transmit(now, &mut node.memory) {
        assert_eq!(transmit.bth.psn.get(), offset / 256);
        offset += transmit.payload.len();
        if transmit.bth.ack_request {
            let ends = transmit.bth.opcode.position().ends();
            let _ = acknowledge(&mut node, transmit.bth.psn, u32::from(ends));
        }
    }
    assert_eq!(offset, 1 << 31);
    let done = Completion::Request { id: WrId(1), result: Ok(()) };
    assert_eq!(node.connection.poll_completion(), Some(done));
}

/// The last packet sent asks for the answer that lets the rest go, however the limit of bytes
/// changes: no timer is needed, and nothing is sent twice.
//= [req.window] [req.ack-request]
#[test]
fn limits_of_bytes_that_change() {
    for seed in warpverbs_dev::seeds(200) {
        let mut rng = StdRng::seed_from_u64(seed);
        let config = Config {
            mtu: Mtu::B256,
            early_resend: None,
            send_depth: 100,
            ..Config::new(Qpn::default())
        };
        let mut node = Node::new(&config, 64);
        let (mut done, mut psn, mut messages) = (0, None, 0);
        for id in 0..100 {
            let len = rng.random_range(0..2000);
            let write = Op::Write(REMOTE);
            node.connection.post(Request::new(WrId(id), write, len)).unwrap();
        }
        while done < 100 {
            node.connection.limit_bytes(rng.random_range(0..10_000));
            for _ in 0..=rng.random_range(0..8) {
                let sent = node.connection.poll_transmit(Instant::default(), &mut node.memory);
                let Some(Transmit { bth, .. }) = sent else {
                    // Every answer that was asked for is here.
                    assert!(!node.connection.is_outstanding(), "{:?}", node.connection);
                    break;
                };
                assert!(psn.is_none_or(|psn| psn + 1 == bth.psn), "sent twice");
                psn = Some(bth.psn);
                messages += u32::from(bth.opcode.position().ends());
                if bth.ack_request {
                    let _ = acknowledge(&mut node, bth.psn, messages);
                }
            }
            node.poll_completions();
            done = node.completions.len();
        }
        assert_eq!(node.connection.stats().resent, 0);
    }
}

//= [resp.reserved-opcode]
#[test]
fn reserved_opcodes_are_refused_in_their_turn() {
    let mut node = node();
    let answer = |node: &mut Node, psn| {
        node.connection.handle_reserved(Psn::from_low_bits(psn), &mut node.memory);
        let sent = node.connection.poll_transmit(Instant::default(), &mut node.memory);
        sent.map(|transmit| (transmit.bth.psn.get(), transmit.ext))
    };
    let nak = |code| Extension::Aeth(Aeth { syndrome: Syndrome::Nak(code), msn: Msn::default() });
    assert_eq!(answer(&mut node, (1 << 24) - 1), None, "of the past");
    assert_eq!(answer(&mut node, 1), Some((0, nak(NakCode::PsnSequenceError))));
    assert_eq!(node.connection.state(), State::ReadyToSend);
    assert_eq!(answer(&mut node, 0), Some((0, nak(NakCode::InvalidRequest))));
    assert_eq!(node.connection.state(), State::Error);
    assert_eq!(answer(&mut node, 0), None);
}

//= [conn.modify]
#[test]
fn attributes_change_while_it_works() {
    let config = Config { early_resend: None, ..Config::new(Qpn::default()) };
    let mut node = Node::new(&config, 64);
    let bad = node.connection.modify(&Config { rnr_retry: 8, ..config });
    assert_eq!(bad.unwrap_err().attribute, Attribute::RnrRetry);
    let (timer, timeout) = (RnrTimer::from_code(3), AckTimeout::from_code(1).unwrap());
    let other = Config { retry: 0, timeout, min_rnr_timer: timer, ..config };
    // Attributes that both ends have agreed on stay.
    let other = Config { sq_psn: Psn::from_low_bits(9), mtu: Mtu::B256, ..other };
    node.connection.modify(&other).unwrap();
    let kept = node.connection.config();
    assert_eq!((kept.sq_psn, kept.mtu), (config.sq_psn, config.mtu));
    assert_eq!(handle(&mut node, Opcode::SendOnly, 0, Extension::Empty), Place::Nothing);
    let nak = node.connection.poll_transmit(Instant::default(), &mut node.memory).unwrap();
    let Extension::Aeth(Aeth { syndrome, .. }) = nak.ext else { panic!("{nak:?}") };
    assert_eq!(syndrome, Syndrome::RnrNak(timer));
    let write = Op::Write(REMOTE);
    assert!(node.post(Request::new(WrId(1), write, 8), vec![0; 8]));
    assert!(node.transmit(0).is_some());
    assert_eq!(node.connection.poll_timeout(), Some(Instant::from_nanos(8192)));
    node.connection.handle_timeout(Instant::from_nanos(8192), Peer::Unknown);
    let failed = Completion::Request { id: WrId(1), result: Err(Status::RetryExceeded) };
    assert_eq!(node.connection.poll_completion(), Some(failed));
}

/// All that follows a lost packet is sent in vain, so less follows the next time.
//= [req.loss-window]
#[test]
fn losses_make_the_window_smaller() {
    let config = Config { mtu: Mtu::B256, window: 1 << 20, ..Config::new(Qpn::default()) };
    let mut node = Node::new(&Config { window_bytes: 200 * 768, ..config }, 64);
    let write = Op::Write(REMOTE);
    node.connection.post(Request::new(WrId(1), write, 1 << 20)).unwrap();
    let mut sent = Vec::new();
    for loss in 0..4 {
        let burst = std::iter::from_fn(|| {
            node.connection.poll_transmit(Instant::default(), &mut node.memory)
        });
        sent.push(burst.count());
        // Another packet each time: the echo of a NAK means nothing.
        let nak = Aeth { syndrome: Syndrome::Nak(NakCode::PsnSequenceError), msn: Msn::default() };
        let bth = Bth::new(Opcode::Acknowledge, Qpn::default(), Psn::from_low_bits(loss));
        let (now, ext) = (Instant::default(), Extension::Aeth(nak));
        let _ = node.connection.handle_packet(now, &bth, &ext, 0, &mut node.memory);
    }
    assert_eq!(sent, [200, 100, 64, 64]);
}

/// A connection answers before the attributes of its own requests are known.
//= [conn.post] [req.psn]
#[test]
fn attributes_of_requests_come_later() {
    let config = Config { mtu: Mtu::B256, ..Config::new(Qpn::default()) };
    let mut connection = Connection::new(&config).unwrap();
    let mut memory = Memory::new(64);
    memory.post(1, 8);
    let now = Instant::default();
    let bth = Bth::new(Opcode::SendOnly, Qpn::default(), Psn::default());
    let _ = connection.handle_packet(now, &bth, &Extension::Empty, 0, &mut memory);
    assert!(matches!(connection.poll_completion(), Some(Completion::Receive { id: 1, .. })));

    let request = Request::new(WrId(0), Op::Send, 300);
    assert_eq!(connection.post(request), Err(PostError::NotStarted));
    let later = Config {
        sq_psn: Psn::from_low_bits(77),
        mtu: Mtu::B4096,
        rq_psn: Psn::from_low_bits(500),
        ..config
    };
    let bad = connection.start_with(&Config { retry: 8, ..later });
    assert!(matches!(bad, Err(StartError::Config(_))));
    connection.start_with(&later).unwrap();
    assert!(matches!(connection.start_with(&later), Err(StartError::State(_))));
    connection.post(request).unwrap();
    let first = connection.poll_transmit(now, &mut memory).unwrap();
    assert_eq!((first.bth.opcode, first.bth.psn.get()), (Opcode::SendFirst, 77));
    // The responder goes on where it was.
    assert_eq!(connection.config().rq_psn, config.rq_psn);
    let bth = Bth { psn: Psn::from_low_bits(1), opcode: Opcode::SendMiddle, ..bth };
    let _ = connection.handle_packet(now, &bth, &Extension::Empty, 0, &mut memory);
    assert_eq!(connection.state(), State::Error);
}
