//! A cache line that goes to and fro between two threads: what the machine itself takes for a message
//! and its answer, beside which the rows of host SIMT stand. Caches know nothing of processes: between
//! two of them it takes as long.

use std::hint;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

/// Looks before a thread lets another have its core.
const LOOKS: u64 = 1000;

/// Of no other thread's.
#[repr(align(128))]
struct Line(AtomicU64);

impl Line {
    fn send(&self, number: u64) {
        // Release, pairs with the acquire of `wait`.
        self.0.store(number, Ordering::Release);
    }

    fn wait(&self, number: u64) {
        for look in 1_u64.. {
            if self.0.load(Ordering::Acquire) == number {
                return;
            }
            hint::spin_loop();
            if look % LOOKS == 0 {
                thread::yield_now();
            }
        }
    }
}

/// Nanoseconds of each of `iters` round trips, after `warmup` others.
pub(super) fn round_trips(warmup: u32, iters: u32) -> Vec<u64> {
    let (there, back) = (Line(AtomicU64::new(0)), Line(AtomicU64::new(0)));
    let last = u64::from(warmup) + u64::from(iters);
    let mut rounds = Vec::with_capacity(iters as usize);
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1..=last {
                there.wait(number);
                back.send(number);
            }
        });
        for number in 1..=last {
            let start = Instant::now();
            there.send(number);
            back.wait(number);
            if number > u64::from(warmup) {
                rounds.push(start.elapsed().as_nanos() as u64);
            }
        }
    });
    rounds
}
