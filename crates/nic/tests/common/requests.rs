//! Random requests, and the results that they must have.

use crate::conversation::{
    COUNTER, MESSAGE, PLACES, Promise, READS, RESULTS, SOURCE, SWAPPED, Side, WRITES, fresh_key,
};
use rand::rngs::StdRng;
use rand::{Rng, RngExt};
use warpverbs_dev::{Host, local, remote, sge};
use warpverbs_mlx5::cqe::ReceivedKind;
use warpverbs_mlx5::flags::Fence;
use warpverbs_mlx5::opcode::SendOpcode;
use warpverbs_mlx5::wqe::{Position, WqeBuilder};

/// A request, ready to be put into a ring.
pub(crate) struct Request<'b> {
    pub(crate) wqe: WqeBuilder<'b>,
    pub(crate) opcode: SendOpcode,
    pub(crate) promise: Option<Promise>,
    /// How many messages must have arrived when it is done.
    pub(crate) awaits: usize,
}

impl<'b> Request<'b> {
    fn new(wqe: WqeBuilder<'b>, opcode: SendOpcode) -> Self {
        Self { wqe, opcode, promise: None, awaits: 0 }
    }

    fn promises(self, at_peer: bool, place: u64, data: Vec<u8>) -> Self {
        Self { promise: Some(Promise { at_peer, place, data }), ..self }
    }
}

/// Random payload: in the WQE, in up to three pieces of memory, or first one and then the other. Its
/// bytes as well.
fn payload<'b>(
    mut wqe: WqeBuilder<'b>,
    side: &Side,
    rng: &mut StdRng,
) -> (WqeBuilder<'b>, Vec<u8>) {
    let mut data = vec![];
    // The NIC waits for the copies that bring the second half of such a request together.
    let both = side.buffer.copier.is_none();
    let (inline, pieces) = match rng.random_range(0..4) {
        0 => (rng.random_range(0..=200), 0),
        1 if both => (rng.random_range(1..=60), rng.random_range(1..=2)),
        2 => (0, 1),
        _ => (0, rng.random_range(0..=3)),
    };
    if inline > 0 {
        data.resize(inline, 0);
        rng.fill_bytes(&mut data);
        wqe = wqe.inline(&data);
    }
    for _ in 0..pieces {
        let len = rng.random_range(1..=(MESSAGE as usize - 60) / 3);
        let at = rng.random_range(0..=SOURCE - len);
        wqe = wqe.sge(sge(&side.buffer.mr, at as u64, len as u32));
        data.extend_from_slice(&side.buffer.source[at..at + len]);
    }
    (wqe, data)
}

/// A request of a host to its peer. Each side has places of its own at the other, so that what they
/// hold does not depend on which side was faster.
pub(crate) fn random<'b>(
    (side, host): (&mut Side, &mut Host),
    (peer, far): (&mut Side, &mut Host),
    rng: &mut StdRng,
    raw: &'b mut [u8],
    at: Position,
) -> Request<'b> {
    match rng.random_range(0..20) {
        0..4 => write(side, peer, rng, raw, at),
        4..8 => message(side, (peer, far), rng, raw, at),
        8..11 => read(side, peer, rng, raw, at),
        11..14 => atomic(side, peer, rng, raw, at),
        14 => {
            let key = fresh_key(host, side);
            Request::new(WqeBuilder::local_inval(raw, at, key), SendOpcode::LocalInval)
        }
        15 => {
            let len = rng.random_range(1..=MESSAGE);
            let memory = sge(&side.buffer.mr, rng.random_range(0..SOURCE as u64), len as u32);
            Request::new(WqeBuilder::dump(raw, at, memory), SendOpcode::Dump)
        }
        // For a message that was posted before: so nobody waits in a circle.
        16 | 17 if !peer.sent.is_empty() => {
            let nth = rng.random_range(0..peer.sent.len());
            let wqe = WqeBuilder::wait(raw, at, host.port.recv_cq().cqn(), nth as u32);
            Request { awaits: nth + 1, ..Request::new(wqe, SendOpcode::Wait) }
        }
        // For a request of its own.
        18 if side.cqes > 0 => {
            let nth = rng.random_range(0..side.cqes);
            let wqe = WqeBuilder::wait(raw, at, host.port.send_cq().cqn(), nth);
            Request::new(wqe, SendOpcode::Wait)
        }
        _ => Request::new(WqeBuilder::nop(raw, at), SendOpcode::Nop),
    }
}

fn write<'b>(
    side: &mut Side,
    peer: &Side,
    rng: &mut StdRng,
    raw: &'b mut [u8],
    at: Position,
) -> Request<'b> {
    let nth = rng.random_range(0..PLACES);
    let place = WRITES + nth * MESSAGE;
    let to = remote(&peer.buffer.mr, place);
    let imm = rng.random_range(0..3) == 0;
    let number = rng.random();
    let (wqe, opcode) = match imm {
        true => (WqeBuilder::write_imm(raw, at, to, number), SendOpcode::RdmaWriteImm),
        false => (WqeBuilder::write(raw, at, to), SendOpcode::RdmaWrite),
    };
    let (wqe, data) = payload(wqe, side, rng);
    // A READ that is answered again would bring the new bytes.
    let fence = side.read.contains(&nth) || rng.random_range(0..16) == 0;
    let wqe = if fence { wqe.fence(Fence::Fence) } else { wqe };
    if fence {
        side.read.clear();
    }
    if imm {
        side.sent.push((ReceivedKind::WriteImm(number), data.len(), vec![]));
    }
    // Behind what is shorter the older bytes stay.
    let written = &mut side.written[nth as usize];
    written.resize(written.len().max(data.len()), 0);
    written[..data.len()].copy_from_slice(&data);
    let written = written.clone();
    Request::new(wqe, opcode).promises(true, place, written)
}

fn message<'b>(
    side: &mut Side,
    (peer, far): (&mut Side, &mut Host),
    rng: &mut StdRng,
    raw: &'b mut [u8],
    at: Position,
) -> Request<'b> {
    let (wqe, opcode, kind) = match rng.random_range(0..4) {
        0 => (WqeBuilder::send(raw, at), SendOpcode::Send, ReceivedKind::Send),
        1 => {
            let key = fresh_key(far, peer);
            let kind = ReceivedKind::SendInvalidate(key);
            (WqeBuilder::send_inval(raw, at, key), SendOpcode::SendInval, kind)
        }
        _ => {
            let imm = rng.random();
            let kind = ReceivedKind::SendImm(imm);
            (WqeBuilder::send_imm(raw, at, imm), SendOpcode::SendImm, kind)
        }
    };
    let (wqe, data) = payload(wqe, side, rng);
    side.sent.push((kind, data.len(), data));
    Request::new(wqe, opcode)
}

/// Of what nobody changes, or of what was written before.
fn read<'b>(
    side: &mut Side,
    peer: &Side,
    rng: &mut StdRng,
    raw: &'b mut [u8],
    at: Position,
) -> Request<'b> {
    let nth = rng.random_range(0..PLACES);
    let written = &side.written[nth as usize];
    let (from, most) = match !written.is_empty() && rng.random() {
        true => (WRITES + nth * MESSAGE, written),
        false => (rng.random_range(0..SOURCE as u64 - MESSAGE), &peer.buffer.source),
    };
    let (from_written, len) = (from >= WRITES, most.len().min(MESSAGE as usize));
    let len = rng.random_range(1..=len);
    let first = if from_written { 0 } else { from as usize };
    let data = most[first..first + len].to_vec();
    if from_written {
        side.read.push(nth);
    }
    let place = READS + rng.random_range(0..PLACES) * MESSAGE;
    let cut = rng.random_range(0..len);
    let wqe = WqeBuilder::read(raw, at, remote(&peer.buffer.mr, from));
    let to = |at: usize, len: usize| sge(&side.buffer.mr, place + at as u64, len as u32);
    let wqe = if cut > 0 { wqe.sge(to(0, cut)) } else { wqe };
    let wqe = wqe.sge(to(cut, len - cut));
    Request::new(wqe, SendOpcode::RdmaRead).promises(false, place, data)
}

fn atomic<'b>(
    side: &mut Side,
    peer: &Side,
    rng: &mut StdRng,
    raw: &'b mut [u8],
    at: Position,
) -> Request<'b> {
    let place = RESULTS + side.results * 8;
    let result = local(&side.buffer.mr, place);
    side.results += 1;
    let word = |at| remote(&peer.buffer.mr, at);
    if rng.random() {
        let old = side.adds;
        side.adds += 1;
        let wqe = WqeBuilder::fetch_add(raw, at, word(COUNTER), 1, result);
        let data = old.to_le_bytes().to_vec();
        return Request::new(wqe, SendOpcode::AtomicFa).promises(false, place, data);
    }
    let (old, swap, equal): (_, u64, bool) = (side.swapped, rng.random(), rng.random());
    let compare = if equal { old } else { !old };
    if equal {
        side.swapped = swap;
    }
    let wqe = WqeBuilder::compare_swap(raw, at, word(SWAPPED), compare, swap, result);
    let data = old.to_le_bytes().to_vec();
    Request::new(wqe, SendOpcode::AtomicCs).promises(false, place, data)
}
