//! Random requests, and what must come of them: a model that executes them one after the other.

use std::collections::HashMap;
use std::ops::Range;

use crate::common::host::{BASE, RKEY, apply};
use rand::rngs::StdRng;
use rand::{Rng, RngExt};
use warpverbs_rc::{AtomicOp, Op, Received, ReceivedKind, Remote, Request, WrId};
use warpverbs_wire::Rkey;

pub(crate) const MEMORY: usize = 8192;
pub(crate) const INVALIDATABLE: Rkey = Rkey(0x0bad_0001);

/// A message that the peer's receives must see.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) received: Received,
    /// Bytes that the receive must hold; a write with immediate leaves it alone.
    pub(crate) payload: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) requests: Vec<(Request, Vec<u8>)>,
    /// Bytes that the buffers of READs and atomics must hold in the end.
    pub(crate) answers: HashMap<WrId, Vec<u8>>,
    pub(crate) messages: Vec<Message>,
    /// Bytes that the peer's memory must hold in the end.
    pub(crate) memory: Vec<u8>,
    pub(crate) atomics: u32,
    /// Ranges of READs that a later change must wait for, with a fence.
    unfenced: Vec<Range<usize>>,
}

impl Program {
    pub(crate) fn random(rng: &mut StdRng, requests: u64, mtu: usize) -> Program {
        let mut program = Program {
            requests: Vec::new(),
            answers: HashMap::new(),
            messages: Vec::new(),
            memory: vec![0; MEMORY],
            atomics: 0,
            unfenced: Vec::new(),
        };
        for id in 0..requests {
            program.add(rng, WrId(id), mtu);
        }
        program
    }

    fn add(&mut self, rng: &mut StdRng, id: WrId, mtu: usize) {
        let len = match rng.random_range(0..8) {
            0 => 0,
            1 => 8,
            2 => mtu - 1,
            3 => mtu,
            4 => mtu + 1,
            5 => 2 * mtu,
            _ => rng.random_range(0..MEMORY * 3 / 4),
        };
        let len = len.min(MEMORY);
        let start = rng.random_range(0..=MEMORY - len);
        let range = start..start + len;
        let (remote, imm) = (Remote { addr: BASE + start as u64, rkey: RKEY }, rng.random());
        let op = match rng.random_range(0..9) {
            0 => Op::Send,
            1 => Op::SendImm(imm),
            2 => Op::SendInvalidate(INVALIDATABLE),
            3 | 4 => Op::Write(remote),
            5 => Op::WriteImm(remote, imm),
            6 | 7 => Op::Read(remote),
            _ => return self.add_atomic(rng, id),
        };
        let mut buffer = vec![0xdd; len];
        if !matches!(op, Op::Read(_)) {
            rng.fill_bytes(&mut buffer);
        }
        let fence = rng.random_bool(0.05)
            | (matches!(op, Op::Write(_) | Op::WriteImm(..)) && self.overlaps(&range));
        let mut request = Request::new(id, op, len as u32);
        request.solicited = rng.random_bool(0.3);
        self.push(request, fence, buffer);
        self.model(id, range);
    }

    fn add_atomic(&mut self, rng: &mut StdRng, id: WrId) {
        // Few words, so that atomics meet each other.
        let start = 8 * rng.random_range(0..4);
        let remote = Remote { addr: BASE + start as u64, rkey: RKEY };
        let original = u64::from_le_bytes(self.memory[start..start + 8].try_into().unwrap());
        let op = match rng.random_range(0..3) {
            0 => Op::FetchAdd { remote, add: rng.next_u64() },
            1 => Op::CompareSwap { remote, compare: original, swap: rng.next_u64() },
            _ => Op::CompareSwap { remote, compare: rng.next_u64(), swap: rng.next_u64() },
        };
        let fence = self.overlaps(&(start..start + 8));
        self.push(Request::new(id, op, 8), fence, vec![0xdd; 8]);
        self.model(id, start..start + 8);
    }

    fn overlaps(&self, range: &Range<usize>) -> bool {
        self.unfenced.iter().any(|read| read.start < range.end && range.start < read.end)
    }

    fn push(&mut self, mut request: Request, fence: bool, buffer: Vec<u8>) {
        request.fence = fence;
        if fence {
            self.unfenced.clear();
        }
        self.requests.push((request, buffer));
    }

    /// Executes the last request.
    fn model(&mut self, id: WrId, range: Range<usize>) {
        let (request, buffer) = self.requests.last().expect("a request");
        let message = |kind| Message {
            received: Received { kind, len: request.len, solicited: request.solicited },
            payload: buffer.clone(),
        };
        let atomic = match request.op {
            Op::Send => return self.messages.push(message(ReceivedKind::Send)),
            Op::SendImm(imm) => return self.messages.push(message(ReceivedKind::SendImm(imm))),
            Op::SendInvalidate(rkey) => {
                return self.messages.push(message(ReceivedKind::SendInvalidate(rkey)));
            }
            Op::Write(_) => return self.memory[range].copy_from_slice(buffer),
            Op::WriteImm(_, imm) => {
                let payload = Vec::new();
                let message = Message { payload, ..message(ReceivedKind::WriteImm(imm)) };
                self.memory[range].copy_from_slice(buffer);
                return self.messages.push(message);
            }
            Op::Read(_) => {
                self.answers.insert(id, self.memory[range.clone()].to_vec());
                return self.unfenced.push(range);
            }
            Op::CompareSwap { compare, swap, .. } => AtomicOp::CompareSwap { compare, swap },
            Op::FetchAdd { add, .. } => AtomicOp::FetchAdd { add },
        };
        let original = u64::from_le_bytes(self.memory[range.clone()].try_into().unwrap());
        self.answers.insert(id, original.to_le_bytes().to_vec());
        self.memory[range].copy_from_slice(&apply(atomic, original).to_le_bytes());
        self.atomics += 1;
    }
}
