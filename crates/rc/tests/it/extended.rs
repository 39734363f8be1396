//! Atomics with masks: their packets, and what is refused.

use crate::common::host::{BASE, REMOTE, RKEY};
use crate::common::pair::Node;
use warpverbs_rc::{Completion, Config, Instant, Op, Payload, Place, PostError, Request, WrId};
use warpverbs_wire::{Aeth, Extension, NakCode, Opcode, Psn, Qpn, Reth, Syndrome};

const SWAP: Op = Op::CompareSwap { remote: REMOTE, compare: 0, swap: 0 };
const ADD: Op = Op::FetchAdd { remote: REMOTE, add: 0 };

fn node() -> Node {
    Node::new(&Config::new(Qpn::default()), 64)
}

fn request(op: Op, size: u8, len: u32) -> Request {
    Request { extended: Some(size), ..Request::new(WrId(3), op, len) }
}

//= [req.extended-atomic]
#[test]
fn the_operands_are_the_payload() {
    let now = Instant::default();
    for (op, size, len, opcode) in [
        (SWAP, 4, 16, Opcode::ExtendedCompareSwap),
        (SWAP, 8, 32, Opcode::ExtendedCompareSwap),
        (ADD, 4, 8, Opcode::ExtendedFetchAdd),
        (ADD, 8, 16, Opcode::ExtendedFetchAdd),
    ] {
        let (mut here, mut there) = (node(), node());
        assert_eq!(
            here.connection.post(request(op, size, len + 1)),
            Err(PostError::AtomicLength { len: len + 1 })
        );
        here.connection.post(request(op, size, len)).unwrap();
        let sent = here.connection.poll_transmit(now, &mut here.memory).unwrap();
        let reth = Reth { va: BASE, rkey: RKEY, dma_len: size.into() };
        assert_eq!((sent.bth.opcode, sent.ext), (opcode, Extension::Reth(reth)));
        assert_eq!(sent.payload, Payload::Request { id: WrId(3), offset: 0, len });
        let place =
            there.connection.handle_packet(now, &sent.bth, &sent.ext, len, &mut there.memory);
        assert_eq!(place, Place::Nothing);
        let answer = there.connection.poll_transmit(now, &mut there.memory).unwrap();
        assert_eq!(answer.bth.opcode, Opcode::AtomicAcknowledge);
        let place =
            here.connection.handle_packet(now, &answer.bth, &answer.ext, 0, &mut here.memory);
        assert_eq!(place, Place::Original { id: WrId(3), value: 0 });
        let done = Completion::Request { id: WrId(3), result: Ok(()) };
        assert_eq!(here.connection.poll_completion(), Some(done));
    }
}

//= [resp.extended-atomic]
#[test]
fn other_sizes_and_operands_are_invalid_requests() {
    let now = Instant::default();
    let refused = |va, dma_len, len| {
        let mut node = node();
        let bth =
            warpverbs_wire::Bth::new(Opcode::ExtendedFetchAdd, Qpn::default(), Psn::default());
        let ext = Extension::Reth(Reth { va, rkey: RKEY, dma_len });
        let place = node.connection.handle_packet(now, &bth, &ext, len, &mut node.memory);
        assert_eq!(place, Place::Nothing);
        let answer = node.connection.poll_transmit(now, &mut node.memory).unwrap();
        match answer.ext {
            Extension::Aeth(Aeth { syndrome, .. }) => {
                assert_eq!(syndrome, Syndrome::Nak(NakCode::InvalidRequest));
                true
            }
            Extension::AethAtomicAck(..) => false,
            other => panic!("{other:?}"),
        }
    };
    assert!(!refused(BASE, 8, 16) && !refused(BASE + 4, 4, 8));
    for (va, dma_len, len) in [
        (BASE, 0, 0),
        (BASE, 2, 4),
        (BASE, 16, 32),
        (BASE, 8, 8),
        (BASE, 8, 32),
        (BASE, 4, 16),
        (BASE + 4, 8, 16),
        (BASE + 2, 4, 8),
        (BASE, u32::MAX, 8),
    ] {
        assert!(refused(va, dma_len, len), "{va:#x}, {dma_len}, {len}");
    }
}
