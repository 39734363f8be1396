//! put, get, put_signal, atomic_add, and what reads them: every group, route, size and alignment.

use crate::model::Model;
use crate::views::agents::{Agents, CHANNELS, DIM, GROUPS, ROUTES, Route};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use warpverbs::gpu::{Dim, KernelPtr, LocalView, RemoteView};
use warpverbs::transport::Outcome;
use warpverbs_dev::simt_seeds;
use warpverbs_test_kernels::nixl as k;

const SIZES: [u64; 10] = [0, 1, 3, 4, 8, 15, 16, 17, 100, 4095];
/// Of target and source, behind a place that is 16-byte aligned.
const MISALIGNED: [(u64, u64); 8] =
    [(0, 0), (1, 1), (0, 1), (3, 8), (8, 0), (5, 13), (15, 2), (4, 12)];

/// Entry 0 of both views is the first half of the memory, entry 1 the second, entry 2 a counter.
const HALF: u64 = 1 << 14;
const COUNTER: u64 = 2 * HALF;
const BYTES: u64 = 2 * HALF + 64;
const ENTRIES: [(u64, u64); 3] = [(0, HALF), (HALF, HALF), (COUNTER, 16)];

struct Run {
    agents: Agents,
    model: Model,
    rng: SmallRng,
    local: KernelPtr<LocalView>,
    remote: KernelPtr<RemoteView>,
}

impl Run {
    fn new(route: Route, seed: u64) -> Self {
        let agents = Agents::new(BYTES as usize, route, seed);
        let mut rng = SmallRng::seed_from_u64(seed);
        let model = agents.fill(&mut rng);
        let (local, remote) = (agents.local(0, &ENTRIES), agents.remote(0, &ENTRIES));
        Self { agents, model, rng, local, remote }
    }

    /// Somewhere in an entry of `HALF` bytes, `shift` behind a multiple of 16.
    fn place(&mut self, shift: u64, bytes: u64) -> u64 {
        16 * self.rng.random_range(0..=(HALF - shift - bytes) / 16) + shift
    }

    fn move_bytes(&mut self, reads: bool, group: u32, bytes: u64, shifts: (u64, u64)) {
        let (to, from) = (self.place(shifts.0, bytes), self.place(shifts.1, bytes));
        let channel = self.rng.random_range(0..2 * CHANNELS as u32);
        let (local, remote) = (self.local.clone(), self.remote.clone());
        let (from_at, to_at) = (HALF + from, to);
        if reads {
            self.agents.run(DIM, |status| k::NixlGet {
                local,
                remote,
                group,
                to_index: 0,
                to,
                from_index: 1,
                from,
                bytes,
                channel,
                status,
            });
            self.model.copy((1, from_at), (0, to_at), bytes);
        } else {
            self.agents.run(DIM, |status| k::NixlPut {
                local,
                remote,
                group,
                from_index: 1,
                from,
                to_index: 0,
                to,
                bytes,
                channel,
                status,
            });
            self.model.copy((0, from_at), (1, to_at), bytes);
        }
        let what = format!("group {group}, {bytes} bytes from {from:#x} to {to:#x}, get: {reads}");
        self.agents.compare(&self.model, &what);
    }

    fn put_signal(&mut self, group: u32, bytes: u64, shifts: (u64, u64)) {
        let (to, from) = (self.place(shifts.0, bytes), self.place(shifts.1, bytes));
        let value = self.rng.random();
        let before = self.agents.counter(1, COUNTER);
        let (local, remote) = (self.local.clone(), self.remote.clone());
        let counter = k::Counter { offset: 0, value, index: 2, channel: 1 };
        self.agents.run(DIM, |status| k::NixlPutSignal {
            local,
            remote,
            group,
            from_index: 1,
            from,
            to_index: 0,
            to,
            bytes,
            counter,
            status,
        });
        let local = self.agents.local(1, &ENTRIES);
        self.agents.run(Dim::new(1, 40), |status| k::NixlWait {
            local,
            group,
            index: 2,
            offset: 0,
            how: 0,
            value: before.wrapping_add(value),
            ns: 0,
            peer: 0,
            status,
        });
        self.model.copy((0, HALF + from), (1, to), bytes);
        self.model.add(1, COUNTER + self.agents.route.half(), value);
        self.agents.compare(&self.model, &format!("group {group}, {bytes} bytes with a counter"));
    }
}

#[test]
fn every_call_moves_its_bytes_and_no_others() {
    for (route, seed) in
        ROUTES.into_iter().flat_map(|route| simt_seeds(1, 2).map(move |s| (route, s)))
    {
        let mut run = Run::new(route, seed);
        for (group, bytes) in GROUPS.into_iter().flat_map(|g| SIZES.map(|bytes| (g, bytes))) {
            for (i, shifts) in MISALIGNED.into_iter().enumerate() {
                run.move_bytes(false, group, bytes, shifts);
                run.move_bytes(true, group, bytes, shifts);
                if i % 3 == 0 {
                    run.put_signal(group, bytes, shifts);
                }
            }
        }
    }
}

#[test]
fn adds_of_all_groups_and_channels_arrive_once_each() {
    for route in ROUTES {
        let mut run = Run::new(route, 3);
        for group in GROUPS {
            for channel in 0..2 * CHANNELS as u32 {
                let value = run.rng.random();
                let remote = run.remote.clone();
                let counter = k::Counter { offset: 0, value, index: 2, channel };
                run.agents.run(DIM, |status| k::NixlAdd { remote, group, counter, status });
                run.model.add(1, COUNTER + route.half(), value);
                run.agents.compare(&run.model, &format!("an add by group {group}"));
            }
        }
    }
}

#[test]
fn a_counter_is_read_and_a_mapped_place_has_a_pointer() {
    for route in ROUTES {
        let run = Run::new(route, 4);
        let out = run.agents.buffer(16);
        let look = |index, offset| {
            let (local, remote, value) =
                (run.local.clone(), run.remote.clone(), KernelPtr::new(&out));
            let outcome = run.agents.launch(Dim::new(1, 1), |status| k::NixlLook {
                local,
                remote,
                index,
                offset,
                value,
                status,
            });
            let words = run.agents.read(&out);
            let word =
                |at: usize| u64::from_le_bytes(words[at..at + 8].try_into().expect("8 bytes"));
            outcome.map(|()| (word(0), word(8)))
        };
        let mapped = |offset| match route {
            Route::Direct => run.agents.memory[1].kernel_addr() + offset,
            Route::Rdma => 0,
        };
        assert_eq!(look(2, 0), Ok((run.agents.counter(0, COUNTER), mapped(COUNTER))));
        assert_eq!(look(1, 32), Ok((run.agents.counter(0, HALF + 32), mapped(HALF + 32))));
        for (index, offset) in [(2, 8), (2, 16), (3, 0), (0, HALF - 8), (0, u64::MAX - 15)] {
            assert_eq!(look(index, offset), Err(Outcome::BadAddress), "{index} {offset:#x}");
        }
    }
}
