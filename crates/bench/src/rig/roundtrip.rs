//! The yardstick for latencies: one cache line handed to another thread and back.

use super::threads::with_partner;
use crate::stats::Summary;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Looks before a thread gives its core away, which the other thread may be waiting for.
const LOOKS: u32 = 1000;

/// A word alone on its cache line, and on the neighbour that hardware fetches along with it.
#[derive(Default)]
#[repr(align(128))]
struct Line(AtomicU64);

/// Round trips between this thread and another, `warmup` more before the `iters` measured ones.
/// `None` if not one was done within `limit`.
pub(crate) fn cache_line(iters: u32, warmup: u32, limit: Duration) -> Option<Summary> {
    let (ping, pong) = (Line::default(), Line::default());
    let measure = || {
        let until = Instant::now() + limit;
        let mut samples = Vec::with_capacity(iters as usize);
        for turn in 1..=u64::from(iters) + u64::from(warmup) {
            let start = Instant::now();
            ping.0.store(turn, Ordering::Release);
            let mut looks = 0;
            while pong.0.load(Ordering::Acquire) != turn {
                if start > until || start.elapsed() > limit {
                    return Summary::of(samples);
                }
                yield_at_times(&mut looks);
            }
            if turn > warmup.into() {
                samples.push(start.elapsed().as_nanos() as u64);
            }
        }
        Summary::of(samples)
    };
    with_partner(|over| echo(&ping.0, &pong.0, over), measure).0
}

fn echo(ping: &AtomicU64, pong: &AtomicU64, over: &AtomicBool) {
    let (mut last, mut looks) = (0, 0);
    while !over.load(Ordering::Relaxed) {
        let now = ping.load(Ordering::Acquire);
        if now == last {
            yield_at_times(&mut looks);
        } else {
            (last, looks) = (now, 0);
            pong.store(now, Ordering::Release);
        }
    }
}

fn yield_at_times(looks: &mut u32) {
    *looks += 1;
    if looks.is_multiple_of(LOOKS) {
        thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_turn_is_timed_and_the_partner_ends() {
        let summary = cache_line(50, 5, Duration::from_secs(20)).unwrap();
        assert_eq!(summary.samples, 50);
        assert!(summary.min_ns > 0);
    }
}
