//! put, get, put_value and put_signal: every group, size and alignment, all bytes of all ranks
//! compared after each call.

use crate::device::model::Model;
use crate::device::ranks::{Pace, Ranks, Routes};
use crate::numbers::Numbers;
use warpverbs::gpu::Dim;
use warpverbs_dev::simt_seeds;
use warpverbs_test_kernels::shm as k;

/// Thread, warp, block.
const GROUPS: [u32; 3] = [0, 1, 2];
/// Of one the last warp is not full; in neither has every thread something to copy.
const DIMS: [Dim; 2] = [Dim::new(2, 80), Dim::new(2, 64)];
const SMALL: [u64; 10] = [0, 1, 3, 4, 8, 15, 16, 17, 100, 4095];
const LARGE: u64 = (1 << 20) + 5;
/// Of target and source, behind a place that is 16-byte aligned.
const MISALIGNED: [(u64, u64); 8] =
    [(0, 0), (1, 1), (0, 1), (3, 8), (8, 0), (5, 13), (15, 2), (4, 12)];

#[derive(Clone, Copy, Debug)]
enum Call {
    Put,
    Get,
    PutSignal,
}

const CALLS: [Call; 3] = [Call::Put, Call::Get, Call::PutSignal];

struct Run {
    ranks: Ranks,
    model: Model,
    numbers: Numbers,
    /// Bytes for targets, and as many behind them for sources; a signal follows.
    half: u64,
}

impl Run {
    fn new(world: usize, half: u64, routes: Routes, pace: Pace, seed: u64) -> Self {
        let ranks = Ranks::new(world, 2 * half as usize + 64, routes, pace);
        let mut numbers = Numbers(seed);
        let model = Model::fill(&ranks, &mut numbers);
        Self { ranks, model, numbers, half }
    }

    /// Somewhere in a half, `shift` behind a multiple of 16.
    fn place(&mut self, base: u64, shift: u64, bytes: u64) -> u64 {
        let places = (self.half - shift - bytes) / 16 + 1;
        base + 16 * self.numbers.below(places) + shift
    }

    fn one(&mut self, call: Call, group: u32, bytes: u64, shifts: (u64, u64)) {
        let dim = DIMS[self.numbers.below(2) as usize];
        self.by(dim, call, group, bytes, shifts);
    }

    fn by(&mut self, dim: Dim, call: Call, group: u32, bytes: u64, shifts: (u64, u64)) {
        let world = self.ranks.heaps.len() as u64;
        let (me, pe) = (self.numbers.below(world) as usize, self.numbers.below(world) as usize);
        let half = self.half;
        let (to, from) = (self.place(0, shifts.0, bytes), self.place(half, shifts.1, bytes));
        let what = format!("{call:?} by group {group} of {bytes} bytes from {from:#x} to {to:#x}");
        let what = format!("{what}, rank {me} to {pe}, {dim:?}");
        let (heap, peer) = (self.ranks.heaps[me].clone(), pe as u32);
        let len = bytes as usize;
        match call {
            Call::Put => {
                self.ranks.run(dim, |status| k::ShmPut {
                    heap,
                    group,
                    to,
                    from,
                    bytes,
                    pe: peer,
                    status,
                });
                self.model.copy((me, from), (pe, to), len);
            }
            Call::Get => {
                self.ranks.run(dim, |status| k::ShmGet {
                    heap,
                    group,
                    to,
                    from,
                    bytes,
                    pe: peer,
                    status,
                });
                self.model.copy((pe, from), (me, to), len);
            }
            Call::PutSignal => {
                let (signal, set, value) = (2 * half, 0, self.numbers.next());
                let status = |status| k::ShmPutSignal {
                    heap,
                    group,
                    to,
                    from,
                    bytes,
                    signal,
                    set,
                    value,
                    pe: peer,
                    status,
                };
                self.ranks.run(dim, status);
                self.await_signal(pe, signal, me, value, &what);
                self.model.copy((me, from), (pe, to), len);
            }
        }
        self.model.compare(&self.ranks, &what);
    }

    /// The peer waits until its signal has grown by `value`; the model's word of the route that was
    /// taken grows as well.
    fn await_signal(&mut self, pe: usize, signal: u64, from: usize, value: u64, what: &str) {
        let word = |offset| {
            let bytes = &self.model.heaps[pe][offset as usize..][..8];
            u64::from_le_bytes(bytes.try_into().expect("8 bytes"))
        };
        let (direct, remote) = (word(signal), word(signal + 8));
        let expected = direct.wrapping_add(remote).wrapping_add(value);
        let heap = self.ranks.heaps[pe].clone();
        self.ranks.run(Dim::new(1, 32), |status| k::ShmWait {
            heap,
            group: 0,
            signal,
            how: 0,
            value: expected,
            ns: 0,
            from: from as u32,
            status,
        });
        let moved = [self.ranks.word(pe, signal), self.ranks.word(pe, signal + 8)];
        let (add, add_8) = (moved[0] != direct, moved[1] != remote);
        assert!(add != add_8 || value == 0, "{what}: one word of the signal must have grown");
        self.model.add(pe, signal + if add { 0 } else { 8 }, value);
    }
}

fn every_small_call(routes: Routes, pace: Pace, seed: u64) {
    let mut run = Run::new(3, 1 << 17, routes, pace, seed);
    for call in CALLS {
        for group in GROUPS {
            for bytes in SMALL {
                for shifts in MISALIGNED {
                    run.one(call, group, bytes, shifts);
                }
            }
        }
    }
}

#[test]
fn every_call_moves_its_bytes_and_no_others() {
    for routes in [Routes::Direct, Routes::Rdma, Routes::Mixed] {
        every_small_call(routes, Pace::Real, 0x5eed);
    }
}

#[test]
fn lent_shared_memory_carries_puts_of_one_thread() {
    for routes in [Routes::Direct, Routes::Rdma] {
        let mut run = Run::new(2, 1 << 16, routes, Pace::Seeded(11), 11);
        // Nothing, too little for a tile, tiles of 16 bytes, tiles of 1 KiB.
        for lent in [0, 128, 256, 128 + (8 << 10)] {
            for bytes in [0, 1, 15, 16, 17, 100, 4095, 9 << 10, (1 << 15) + 5] {
                for shifts in MISALIGNED {
                    let place = |run: &mut Run, base| run.place(base, 0, bytes + 16);
                    let to = place(&mut run, 0) + shifts.0;
                    let from = place(&mut run, 1 << 16) + shifts.1;
                    let heap = run.ranks.heaps[0].clone();
                    let dim = Dim::new(2, 40).shared(lent);
                    run.ranks.run(dim, |status| k::ShmPutThrough {
                        heap,
                        lent,
                        to,
                        from,
                        bytes,
                        pe: 1,
                        status,
                    });
                    run.model.copy((0, from), (1, to), bytes as usize);
                    let what = format!("{bytes} bytes from {from:#x} to {to:#x} by {lent} lent");
                    run.model.compare(&run.ranks, &what);
                }
            }
        }
    }
}

#[test]
fn long_transfers_cross_segments() {
    for routes in [Routes::Direct, Routes::Rdma] {
        let mut run = Run::new(2, 1 << 21, routes, Pace::Real, 7);
        for call in CALLS {
            for group in GROUPS {
                for shifts in [(0, 0), (5, 5), (5, 13)] {
                    for dim in DIMS {
                        run.by(dim, call, group, LARGE, shifts);
                    }
                }
            }
        }
    }
}

#[test]
fn calls_are_right_in_whatever_order_lanes_and_nic_take_turns() {
    for seed in simt_seeds(0x40, 6) {
        for routes in [Routes::Direct, Routes::Rdma, Routes::Mixed] {
            let mut run = Run::new(3, 1 << 17, routes, Pace::Seeded(seed), seed);
            for call in CALLS {
                for group in GROUPS {
                    for bytes in [0, 3, 17, 1000] {
                        let shifts = (run.numbers.below(16), run.numbers.below(16));
                        run.one(call, group, bytes, shifts);
                    }
                }
            }
        }
    }
}

#[test]
fn single_words_arrive() {
    for routes in [Routes::Direct, Routes::Rdma] {
        let mut run = Run::new(2, 1 << 10, routes, Pace::Seeded(3), 3);
        for group in GROUPS {
            for width in [1, 4, 8] {
                let (to, value) = (64 + 3 * u64::from(width), run.numbers.next());
                let heap = run.ranks.heaps[0].clone();
                run.ranks.run(DIMS[0], |status| k::ShmPutValue {
                    heap,
                    group,
                    to,
                    value,
                    width,
                    pe: 1,
                    status,
                });
                run.model.store(1, to, &value.to_le_bytes()[..width as usize]);
                run.model.compare(&run.ranks, &format!("put_value of {width} bytes"));
            }
        }
    }
}

#[test]
fn a_named_route_does_the_same() {
    for (routes, route) in [(Routes::Direct, 1), (Routes::Rdma, 2)] {
        let mut run = Run::new(2, 1 << 12, routes, Pace::Seeded(9), 9);
        let (to, from, bytes) = (5, (1 << 12) + 3, 1000);
        let heap = run.ranks.heaps[0].clone();
        let group = 2;
        run.ranks.run(DIMS[0], |status| k::ShmPutBy {
            heap,
            group,
            route,
            to,
            from,
            bytes,
            pe: 1,
            status,
        });
        run.model.copy((0, from), (1, to), bytes as usize);
        run.model.compare(&run.ranks, "put by a named route");
    }
}

#[test]
fn lanes_of_a_warp_may_take_different_routes() {
    for seed in simt_seeds(0x70, 4) {
        let (world, threads, bytes) = (3u64, 70u64, 24u64);
        let mut run = Run::new(world as usize, 1 << 12, Routes::Mixed, Pace::Seeded(seed), seed);
        let (to, from, signal) = (16, (1 << 12) + 8, 1 << 13);
        let sums = |run: &Run, pe: usize| {
            run.ranks.word(pe, signal).wrapping_add(run.ranks.word(pe, signal + 8))
        };
        let old: Vec<_> = (0..world as usize).map(|pe| sums(&run, pe)).collect();
        let heap = run.ranks.heaps[1].clone();
        run.ranks.run(Dim::new(1, threads as u32), |status| k::ShmScatter {
            heap,
            to,
            from,
            bytes,
            signal,
            status,
        });
        for (pe, old) in old.into_iter().enumerate() {
            let mine = (0..threads).filter(|t| t % world == pe as u64);
            let count = mine.clone().count() as u64;
            let heap = run.ranks.heaps[pe].clone();
            run.ranks.run(Dim::new(1, 32), |status| k::ShmWait {
                heap,
                group: 1,
                signal,
                how: 0,
                value: old.wrapping_add(count),
                ns: 0,
                from: 1,
                status,
            });
            for t in mine {
                let at = t * bytes;
                run.model.copy((1, from + at), (pe, to + at), bytes as usize);
            }
            // The words of the signal are random numbers before; each route has its own.
            let direct = Routes::Mixed.direct(1, pe);
            run.model.add(pe, signal + if direct { 0 } else { 8 }, count);
        }
        run.model.compare(&run.ranks, "puts of single lanes");
    }
}
