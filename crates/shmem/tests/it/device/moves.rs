//! put, get, put_value and put_signal: every group, size and alignment, all bytes of all ranks
//! compared after each call.

use crate::calls::{Move, WAIT, Wait, put_value};
use crate::device::ranks::{Pace, Ranks, Routes, faults};
use crate::model::Model;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
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
    rng: SmallRng,
    /// Bytes for targets, and as many behind them for sources; a signal follows.
    half: u64,
}

impl Run {
    fn new(world: u32, half: u64, routes: Routes, pace: Pace, seed: u64) -> Self {
        let ranks = Ranks::new(world, 2 * half + 64, routes, pace);
        let mut rng = SmallRng::seed_from_u64(seed);
        let model = ranks.fill_all(&mut rng);
        Self { ranks, model, rng, half }
    }

    /// Somewhere in a half, `shift` behind a multiple of 16.
    fn place(&mut self, base: u64, shift: u64, bytes: u64) -> u64 {
        base + 16 * self.rng.random_range(0..=(self.half - shift - bytes) / 16) + shift
    }

    fn one(&mut self, call: Call, group: u32, bytes: u64, shifts: (u64, u64)) {
        let dim = DIMS[self.rng.random_range(0..2)];
        self.by(dim, call, group, bytes, shifts);
    }

    fn by(&mut self, dim: Dim, call: Call, group: u32, bytes: u64, shifts: (u64, u64)) {
        let world = self.ranks.heaps.len() as u32;
        let [me, pe] = [0, 1].map(|_| self.rng.random_range(0..world));
        let half = self.half;
        let (to, from) = (self.place(0, shifts.0, bytes), self.place(half, shifts.1, bytes));
        let what = format!("{call:?} by group {group} of {bytes} bytes from {from:#x} to {to:#x}");
        let what = format!("{what}, rank {me} to {pe}, {dim:?}");
        let moved = Move { group, to, from, bytes, pe };
        match call {
            Call::Put => self.ranks.run_on(me, dim, moved.put()),
            Call::Get => self.ranks.run_on(me, dim, moved.get()),
            Call::PutSignal => {
                let (signal, value) = (2 * half, self.rng.random());
                self.ranks.run_on(me, dim, moved.put_signal(signal, false, value));
                self.await_signal(pe, signal, me, value, &what);
            }
        }
        let (reader, writer) = if matches!(call, Call::Get) { (pe, me) } else { (me, pe) };
        self.model.copy((reader, from), (writer, to), bytes);
        self.ranks.compare(&self.model, &what);
    }

    /// The peer waits until its signal has grown by `value`; the model's word of the route that was
    /// taken grows as well.
    fn await_signal(&mut self, pe: u32, signal: u64, from: u32, value: u64, what: &str) {
        let words = [signal, signal + 8];
        let old = words.map(|at| self.model.word(pe, at, 8));
        let expected = old[0].wrapping_add(old[1]).wrapping_add(value);
        let wait = Wait { signal, value: expected, from, ..WAIT };
        self.ranks.run_on(pe, Dim::new(1, 32), wait.kernel());
        let moved = words.map(|at| self.ranks.word(pe, at));
        let (add, add_8) = (moved[0] != old[0], moved[1] != old[1]);
        assert!(add != add_8 || value == 0, "{what}: one word of the signal must have grown");
        self.model.add(pe, words[usize::from(!add)], value);
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
    for routes in Routes::ALL {
        every_small_call(routes, Pace::Real, 0x5eed);
    }
}

#[test]
#[ignore = "needs a GPU"]
fn on_a_gpu_every_call_moves_its_bytes_and_no_others() {
    every_small_call(Routes::Mixed, Pace::Gpu, 0x5eed);
}

#[test]
fn lent_shared_memory_carries_puts_of_one_thread() {
    for routes in Routes::APART {
        let mut run = Run::new(2, 1 << 16, routes, Pace::Seeded(11), 11);
        // Nothing, too little for a tile, tiles of 16 bytes, tiles of 1 KiB.
        for lent in [0, 128, 256, 128 + (8 << 10)] {
            for bytes in [0, 1, 15, 16, 17, 100, 4095, 9 << 10, (1 << 15) + 5] {
                for shifts in MISALIGNED {
                    let place = |run: &mut Run, base| run.place(base, 0, bytes + 16);
                    let to = place(&mut run, 0) + shifts.0;
                    let from = place(&mut run, 1 << 16) + shifts.1;
                    let dim = Dim::new(2, 40).shared(lent);
                    run.ranks.run_on(0, dim, |heap, status| k::ShmPutThrough {
                        heap,
                        lent,
                        to,
                        from,
                        bytes,
                        pe: 1,
                        status,
                    });
                    run.model.copy((0, from), (1, to), bytes);
                    let what = format!("{bytes} bytes from {from:#x} to {to:#x} by {lent} lent");
                    run.ranks.compare(&run.model, &what);
                }
            }
        }
    }
}

#[test]
fn long_transfers_cross_segments() {
    for routes in Routes::APART {
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

/// Each call with a few lengths, at places that the seed chooses.
fn a_few_lengths(routes: Routes, pace: Pace, seed: u64) {
    let mut run = Run::new(3, 1 << 17, routes, pace, seed);
    for call in CALLS {
        for group in GROUPS {
            for bytes in [0, 3, 17, 1000] {
                let shifts = (run.rng.random_range(0..16), run.rng.random_range(0..16));
                run.one(call, group, bytes, shifts);
            }
        }
    }
}

#[test]
fn calls_are_right_in_whatever_order_lanes_and_nic_take_turns() {
    for seed in simt_seeds(0x40, 6) {
        for routes in Routes::ALL {
            a_few_lengths(routes, Pace::Seeded(seed), seed);
        }
    }
}

#[test]
fn calls_are_right_over_a_bad_network() {
    for seed in simt_seeds(0x60, 3) {
        for routes in [Routes::Rdma, Routes::Bnxt, Routes::Ionic] {
            a_few_lengths(routes, Pace::Networked(seed, faults(seed)), seed);
        }
    }
}

#[test]
fn single_words_arrive() {
    for routes in Routes::APART {
        let mut run = Run::new(2, 1 << 10, routes, Pace::Seeded(3), 3);
        for group in GROUPS {
            for width in [1, 4, 8] {
                let (to, value) = (64 + 3 * u64::from(width), run.rng.random::<u64>());
                run.ranks.run_on(0, DIMS[0], put_value(group, to, (value, width), 1));
                run.model.store(1, to, &value.to_le_bytes()[..width as usize]);
                run.ranks.compare(&run.model, &format!("put_value of {width} bytes"));
            }
        }
    }
}

#[test]
fn a_named_route_does_the_same() {
    for (routes, route) in
        [(Routes::Direct, 1), (Routes::Rdma, 2), (Routes::Bnxt, 2), (Routes::Ionic, 2)]
    {
        let mut run = Run::new(2, 1 << 12, routes, Pace::Seeded(9), 9);
        let (to, from, bytes) = (5, (1 << 12) + 3, 1000);
        let moved = Move { group: 2, to, from, bytes, pe: 1 };
        run.ranks.run_on(0, DIMS[0], moved.put_by(route));
        run.model.copy((0, from), (1, to), bytes);
        run.ranks.compare(&run.model, "put by a named route");
    }
}

#[test]
fn lanes_of_a_warp_may_take_different_routes() {
    for seed in simt_seeds(0x70, 4) {
        let (world, threads, bytes) = (3, 70, 24);
        let mut run = Run::new(world, 1 << 12, Routes::Mixed, Pace::Seeded(seed), seed);
        let (to, from, signal) = (16, (1 << 12) + 8, 1 << 13);
        let sum = |pe| run.ranks.word(pe, signal).wrapping_add(run.ranks.word(pe, signal + 8));
        let old: Vec<_> = (0..world).map(sum).collect();
        run.ranks.run_on(1, Dim::new(1, threads), |heap, status| k::ShmScatter {
            heap,
            to,
            from,
            bytes,
            signal,
            status,
        });
        for (pe, old) in (0..).zip(old) {
            let mine = (0..threads).filter(|t| t % world == pe);
            let count = mine.clone().count() as u64;
            let value = old.wrapping_add(count);
            let wait = Wait { group: 1, signal, value, from: 1, ..WAIT };
            run.ranks.run_on(pe, Dim::new(1, 32), wait.kernel());
            for t in mine {
                let at = u64::from(t) * bytes;
                run.model.copy((1, from + at), (pe, to + at), bytes);
            }
            // The words of the signal are random numbers before; each route has its own.
            let direct = Routes::Mixed.direct(1, pe);
            run.model.add(pe, signal + if direct { 0 } else { 8 }, count);
        }
        run.ranks.compare(&run.model, "puts of single lanes");
    }
}
