//! From a send ring to a parsed WQE.

use crate::format::{self, LONGEST, SendFormat, Wqe};
use crate::objects::address::Addresses;
use crate::objects::send::{Executor, SendQueue};
use crate::violation::Rule;
use warpverbs_mem::{Block, SendRing};
use zerocopy::IntoBytes;

/// The WQE at `index`, whose first WQEBB is `block`, and its bytes, if its format has WQEBBs. The error
/// has the number of units that the bytes announce, and the rule that they break. `addresses` are those that
/// a datagram may name.
#[inline(always)]
pub(crate) fn read_wqe<'a>(
    q: &SendQueue,
    ring: &SendRing,
    (index, block): (u64, &'a Block),
    addresses: Option<Addresses<'_>>,
    long: &'a mut [Block; LONGEST],
) -> Result<(&'a [u8], Wqe<'a>), (u64, Rule)> {
    let at = q.place(index);
    let announced = at.announced;
    match &q.format {
        SendFormat::Mlx5 => {}
        SendFormat::Bnxt(sends) => return Ok((&[], sends.wqe(ring, at, addresses, long)?)),
        SendFormat::Ionic(sends) => return Ok((&[], sends.wqe(ring, at, addresses, long)?)),
    }
    let wqebbs = format::wqebbs(block);
    let raw = match wqebbs {
        1 => format::block_of(block).as_slice(),
        _ => fetch(ring, index, wqebbs, long),
    };
    let parsed = match q.executor {
        Executor::Dynamic => return Err((wqebbs, Rule::DynamicConnection)),
        executor => format::send_wqe(raw, (q.qpn, index), executor == Executor::Datagram),
    };
    match parsed {
        Ok(wqe) if wqebbs <= announced => Ok((raw, wqe)),
        Ok(_) => Err((wqebbs, Rule::BeyondAnnounced { wqebbs, announced })),
        Err(violation) => Err((wqebbs, format::explain(violation, block, q.ring.depth))),
    }
}

/// The WQEBBs of a long WQE, wrap undone.
fn fetch<'a>(ring: &SendRing, index: u64, wqebbs: u64, out: &'a mut [Block; LONGEST]) -> &'a [u8] {
    let blocks = &mut out[..wqebbs as usize];
    for (i, block) in (index..).zip(blocks.iter_mut()) {
        *block = ring.load(i);
    }
    blocks.as_bytes()
}

/// The first word that differs from what was there at the doorbell.
pub(crate) fn rewritten(q: &SendQueue, index: u64, raw: &[u8]) -> Option<Rule> {
    for (i, now) in raw.chunks_exact(size_of::<Block>()).enumerate() {
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
