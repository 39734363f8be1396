//! From a send ring to a parsed WQE.

use crate::objects::send::{Executor, SendQueue};
use crate::violation::Rule;
use warpverbs_mem::{Block, SendRing};
use warpverbs_mlx5::num::WqeIndex;
use warpverbs_mlx5::wqe::{self, Position, Wqe, WqeViolation};
use zerocopy::{IntoBytes, transmute_ref};

/// The WQE at `index`, whose first WQEBB is `block`, and its bytes. If it is none: how many WQEBBs
/// it says it has, and what is wrong.
#[inline(always)]
pub(crate) fn read_wqe<'a>(
    q: &SendQueue,
    ring: &SendRing,
    block: &'a Block,
    index: u64,
    long: &'a mut [Block; 16],
) -> Result<(&'a [u8], Wqe<'a>), (u64, Rule)> {
    let announced = q.progress.posted - index;
    let at = Position { qpn: q.qpn, index: WqeIndex::of(index) };
    let first: &[u8; 64] = transmute_ref!(block);
    let wqebbs = wqe::peek(first) as u64;
    let raw = match wqebbs {
        1 => first.as_slice(),
        _ => fetch(ring, index, wqebbs, long),
    };
    let parsed = match q.executor {
        Executor::Dynamic => return Err((wqebbs, Rule::DynamicConnection)),
        Executor::Datagram => wqe::parse_datagram(raw, at),
        _ => wqe::parse(raw, at),
    };
    match parsed {
        Ok(wqe) if wqebbs <= announced => Ok((raw, wqe)),
        Ok(_) => Err((wqebbs, Rule::BeyondAnnounced { wqebbs, announced })),
        Err(violation) => Err((wqebbs, classify(violation, block, q.ring.depth))),
    }
}

/// The WQEBBs of a long WQE, wrap undone.
fn fetch<'a>(ring: &SendRing, index: u64, wqebbs: u64, out: &'a mut [Block; 16]) -> &'a [u8] {
    let blocks = &mut out[..wqebbs as usize];
    for (i, block) in (index..).zip(blocks.iter_mut()) {
        *block = ring.load(i);
    }
    blocks.as_bytes()
}

/// Says more of a wrong index: a slot never written, or the WQE of an earlier lap.
#[cold]
pub(crate) fn classify(violation: WqeViolation, block: &Block, depth: u64) -> Rule {
    let fill = block.as_bytes()[0];
    if matches!(fill, 0 | 0xff) && block.as_bytes().iter().all(|&byte| byte == fill) {
        return Rule::NeverWritten { fill };
    }
    if let WqeViolation::Index { value, expected } = violation {
        let age = u64::from(expected.0.wrapping_sub(value.0));
        if age % depth == 0 && age / depth <= 2 {
            let laps = (age / depth) as u16;
            return Rule::StaleSlot { found: value.0, expected: expected.0, laps };
        }
    }
    Rule::Wqe(violation)
}

/// The first word that differs from what was there at the doorbell.
pub(crate) fn rewritten(q: &SendQueue, index: u64, raw: &[u8]) -> Option<Rule> {
    for (i, now) in raw.chunks_exact(64).enumerate() {
        let was = q.ring.snapshot[((index + i as u64) % q.ring.depth) as usize];
        for (word, (now, was)) in now.chunks_exact(8).zip(was).enumerate() {
            let found = now.try_into().map_or(0, u64::from_ne_bytes);
            if found != was {
                return Some(Rule::Rewritten { word: word as u8, found, was });
            }
        }
    }
    None
}
