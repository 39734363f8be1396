//! Atomics with masks over the network: packets of this project's own.

use crate::rng;
use rand::RngExt;
use rand::rngs::StdRng;
use std::time::Duration;
use warpverbs_dev::{Net, PortConfig, bytes, local, remote};
use warpverbs_mlx5::amo::{MaskedCompareSwap, MaskedCs, MaskedFa, MaskedFetchAdd};
use warpverbs_mlx5::cqe::Cqe;
use warpverbs_mlx5::num::Rkey;
use warpverbs_mlx5::syndrome::Syndrome;
use warpverbs_mlx5::wqe::{Remote, WqeBuilder};
use warpverbs_nic::QpAttrs;
use warpverbs_nic::link::{Chance, FaultPlan};

/// One atomic: its word's size and operands, of 8 bytes.
#[derive(Clone, Copy, Debug)]
enum Atomic {
    Swap { size: u32, compare: u64, compare_mask: u64, swap: u64, swap_mask: u64 },
    Add { size: u32, add: u64, boundary: u64 },
}

impl Atomic {
    fn random(rng: &mut StdRng, word: u64) -> Self {
        let size = if rng.random() { 4 } else { 8 };
        if rng.random() {
            return Self::Add { size, add: rng.random(), boundary: rng.random() };
        }
        // Half of the comparisons succeed.
        let compare = if rng.random() { word } else { rng.random() };
        let [compare_mask, swap, swap_mask] = rng.random();
        Self::Swap { size, compare, compare_mask, swap, swap_mask }
    }

    fn size(self) -> u32 {
        match self {
            Self::Swap { size, .. } | Self::Add { size, .. } => size,
        }
    }

    /// The word afterwards, bit by bit: a field ends at each bit of the boundary.
    fn apply(self, old: u64) -> u64 {
        let bit = |word: u64, at: u32| word >> at & 1;
        match self {
            Self::Swap { size, compare, compare_mask, swap, swap_mask } => {
                let bits = 0..size * 8;
                let differs = |at| bit(compare_mask, at) == 1 && bit(compare, at) != bit(old, at);
                if bits.clone().any(differs) {
                    return old;
                }
                let from = |at| if bit(swap_mask, at) == 1 { swap } else { old };
                bits.map(|at| bit(from(at), at) << at).sum()
            }
            Self::Add { size, add, boundary } => {
                let (mut sum, mut carry) = (0, 0);
                for at in 0..size * 8 {
                    let here = bit(old, at) + bit(add, at) + carry;
                    sum |= (here & 1) << at;
                    carry = if bit(boundary, at) == 1 { 0 } else { here >> 1 };
                }
                sum
            }
        }
    }

    fn post(self, net: &mut Net, to: Remote, at: u64) {
        let back = local(&net.a.mr, at);
        net.a.port.post_wqe(|buf, place| {
            let wqe = match self {
                Self::Swap { size: 4, compare, compare_mask, swap, swap_mask } => {
                    let [compare, compare_mask, swap, swap_mask] =
                        [compare, compare_mask, swap, swap_mask].map(|word| word as u32);
                    let operands = MaskedCs { compare, compare_mask, swap, swap_mask };
                    let operands = MaskedCompareSwap::B4(operands);
                    WqeBuilder::masked_compare_swap(buf, place, to, operands, back)
                }
                Self::Swap { compare, compare_mask, swap, swap_mask, .. } => {
                    let operands = MaskedCs { compare, compare_mask, swap, swap_mask };
                    let operands = MaskedCompareSwap::B8(operands);
                    WqeBuilder::masked_compare_swap(buf, place, to, operands, back)
                }
                Self::Add { size: 4, add, boundary } => {
                    let operands = MaskedFa { add: add as u32, boundary: boundary as u32 };
                    let operands = MaskedFetchAdd::B4(operands);
                    WqeBuilder::masked_fetch_add(buf, place, to, operands, back)
                }
                Self::Add { add, boundary, .. } => {
                    let operands = MaskedFetchAdd::B8(MaskedFa { add, boundary });
                    WqeBuilder::masked_fetch_add(buf, place, to, operands, back)
                }
            };
            wqe.signaled()
        });
    }
}

#[test]
fn each_is_executed_once_whatever_the_link_does() {
    let (seed, mut rng) = rng();
    let some = Chance::thousandths(50);
    let plan =
        FaultPlan { seed, loss: some, duplicate: some, reorder: some, ..FaultPlan::default() };
    let mut net = Net::new(plan, &PortConfig::default(), QpAttrs::default()).unwrap();
    let mut word: u64 = rng.random();
    net.b.mr.region().write(64, &word.to_ne_bytes()).unwrap();
    for round in 0..200 {
        let mut expected = Vec::new();
        let count = rng.random_range(1..8u64);
        for i in 0..count {
            let atomic = Atomic::random(&mut rng, word);
            let (size, mask) = (atomic.size(), u64::MAX >> (64 - atomic.size() * 8));
            // A word of 4 bytes is the lower half of that of 8.
            let old = word & mask;
            word = word & !mask | atomic.apply(old) & mask;
            let mut result = vec![0; 8];
            match size {
                4 => result[..4].copy_from_slice(&(old as u32).to_be_bytes()),
                _ => result.copy_from_slice(&old.to_ne_bytes()),
            }
            expected.push(result);
            net.a.mr.region().write(i * 8, &[0; 8]).unwrap();
            let to = remote(&net.b.mr, 64);
            atomic.post(&mut net, to, i * 8);
        }
        let mut done = Vec::new();
        let all = net.run_until(Duration::from_secs(20), |net| {
            done.extend(net.a.port.sent());
            done.len() as u64 == count
        });
        assert!(all, "round {round}, seed {seed}: {done:?}");
        assert!(done.iter().all(|(_, error)| error.is_none()), "seed {seed}: {done:?}");
        for (i, result) in (0..).zip(&expected) {
            assert_eq!(bytes(net.a.mr.region(), i * 8, 8), *result, "round {round}, seed {seed}");
        }
        let found = bytes(net.b.mr.region(), 64, 8);
        assert_eq!(found, word.to_ne_bytes(), "round {round}, seed {seed}");
    }
    assert!(net.a.nic.stats().net.received > 0);
}

#[test]
fn what_may_not_be_done_is_refused() {
    let add = Atomic::Add { size: 4, add: 1, boundary: 0 };
    let end = 1 << 16;
    // Offset of the word, bits of the key that are wrong, and the syndrome.
    let cases = [
        // Aligned to 2 bytes only.
        (2, 0, Syndrome::RemoteInvalReq),
        (0, u32::MAX, Syndrome::RemoteAccess),
        // 4 bytes at the end of the region are inside, the next 4 are not.
        (end, 0, Syndrome::RemoteAccess),
    ];
    for (offset, wrong, syndrome) in cases {
        let mut net = Net::perfect(QpAttrs::default());
        let last = remote(&net.b.mr, end - 4);
        add.post(&mut net, last, 0);
        net.run();
        assert!(matches!(net.a.port.poll_send(), Some(Cqe::Requester { byte_cnt: 4, .. })));
        let Remote { addr, rkey } = remote(&net.b.mr, offset);
        let to = Remote { addr, rkey: Rkey(rkey.0 ^ wrong) };
        add.post(&mut net, to, 0);
        net.run();
        assert_eq!(net.a.port.sent(), [(1, Some(syndrome))]);
    }
}
