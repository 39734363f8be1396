//! Measuring with the CPU as the poster.

use super::machine::Pair;
use super::plan::Op;
use anyhow::Result;
use std::time::{Duration, Instant};
use thiserror::Error;
use warpverbs::transport::{LocalRegion, Posted, Poster, RemoteRegion, SendFlags, TransportError};

/// One in this many is signalled where only the rate counts.
pub(crate) const SIGNAL_EVERY: u32 = 32;

/// The NIC works, but a row would take too long.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("{done} of {of} operations in {limit:?}; ask for fewer, or for more time")]
pub(crate) struct TooSlow {
    done: u32,
    of: u32,
    limit: Duration,
}

/// Fails if more than `limit` has passed since `start`.
fn in_time(start: Instant, limit: Duration, done: u32, of: u32) -> Result<(), TooSlow> {
    if start.elapsed() <= limit { Ok(()) } else { Err(TooSlow { done, of, limit }) }
}

/// Posts one operation on the two pieces of memory.
#[inline]
pub(crate) fn post(
    host: &Poster<'_>,
    op: Op,
    (local, remote): (LocalRegion, RemoteRegion),
    flags: SendFlags,
) -> Result<Posted, TransportError> {
    match op {
        Op::Write => host.post_write(local, remote, flags),
        Op::Read => host.post_read(local, remote, flags),
        Op::Send => host.post_send(local, flags),
        Op::Atomic => host.post_fetch_add(local, remote, 1, flags),
    }
}

/// One operation at a time, each from post to polled completion: nanoseconds of each.
pub(crate) fn latency(
    pair: &Pair,
    op: Op,
    warmup: u32,
    iters: u32,
    limit: Duration,
) -> Result<Vec<u64>> {
    let host = pair.link.near.host()?.with_timeout(limit);
    let mut samples = Vec::with_capacity(iters as usize);
    let begin = Instant::now();
    for turn in 0..warmup + iters {
        in_time(begin, limit, turn, warmup + iters)?;
        let start = Instant::now();
        let posted = post(&host, op, pair.memory(), SendFlags::SIGNALED)?;
        host.wait(posted)?;
        if turn >= warmup {
            samples.push(start.elapsed().as_nanos() as u64);
        }
    }
    Ok(samples)
}

/// `iters` operations on every pair, queues kept full, one thread. The time they took together.
pub(crate) fn stream(pairs: &[Pair], op: Op, iters: u32, limit: Duration) -> Result<Duration> {
    let hosts: Vec<Poster<'_>> = pairs
        .iter()
        .map(|pair| Ok(pair.link.near.host()?.with_timeout(limit)))
        .collect::<Result<_>>()?;
    let start = Instant::now();
    for turn in 1..=iters {
        let flags = match turn % SIGNAL_EVERY == 0 || turn == iters {
            true => SendFlags::SIGNALED,
            false => SendFlags::UNSIGNALED,
        };
        if turn % 1024 == 0 {
            in_time(start, limit, turn, iters)?;
        }
        for (host, pair) in hosts.iter().zip(pairs) {
            let _ = post(host, op, pair.memory(), flags)?;
        }
    }
    hosts.iter().try_for_each(Poster::quiet)?;
    Ok(start.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_takes_too_long_says_how_far_it_came() {
        let start = Instant::now();
        assert_eq!(in_time(start, Duration::from_secs(60), 1, 2), Ok(()));
        std::thread::sleep(Duration::from_millis(2));
        let limit = Duration::from_millis(1);
        let error = in_time(start, limit, 7, 100);
        assert_eq!(error, Err(TooSlow { done: 7, of: 100, limit }));
    }
}
