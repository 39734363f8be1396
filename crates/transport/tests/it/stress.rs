//! Many threads on one endpoint, beyond its depth and across the 16-bit wrap.

use crate::common::{NICS, POLICIES, Pair, word};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use warpverbs_transport::{Context, CqMode, EndpointConfig, SendFlags, TransportError, UsageError};

/// Each of `threads` adds 1 to its own word and to a shared one, `rounds` times; the shared word's
/// old values must be all different.
pub(crate) fn add_up(pair: &Pair, threads: u64, rounds: u64) {
    let seen = AtomicU64::new(0);
    thread::scope(|scope| {
        for t in 0..threads {
            let (pair, seen) = (&pair, &seen);
            scope.spawn(move || {
                let host = pair.a.host().unwrap();
                let own = pair.dst.remote().slice(64 + t * 8, 8).unwrap();
                let result = pair.src.local().slice(t * 8, 8).unwrap();
                for n in 0..rounds {
                    let flags = [SendFlags::UNSIGNALED, SendFlags::SIGNALED][(n % 2) as usize];
                    let _ = host.post_fetch_add(result, own, 1, flags).unwrap();
                    let at = pair.dst.remote().slice(1024 + t * 8, 8).unwrap();
                    let _ = host.post_write_inline(&n.to_le_bytes(), at, flags).unwrap();
                    if n % 16 == 0 {
                        let old = host.fetch_add(pair.dst.remote(), 1).unwrap();
                        seen.fetch_add(old, Ordering::Relaxed);
                    }
                }
                host.quiet().unwrap();
                assert_eq!(word(&pair.src, t * 8), rounds - 1);
                assert_eq!(word(&pair.dst, 1024 + t * 8), rounds - 1);
            });
        }
    });
    for t in 0..threads {
        assert_eq!(word(&pair.dst, 64 + t * 8), rounds);
    }
    let shared = threads * rounds.div_ceil(16);
    assert_eq!(word(&pair.dst, 0), shared);
    assert_eq!(seen.into_inner(), shared * (shared - 1) / 2);
    let health = pair.a.health().unwrap();
    assert!(health.is_ok(), "{health}");
    assert_eq!(health.send.published, health.send.reserved);
}

#[test]
fn threads_share_an_endpoint_under_every_policy() {
    for (policy, seed) in POLICIES.into_iter().zip(10..) {
        let config = EndpointConfig::host().send_depth(128);
        add_up(&Pair::with_policy(policy, seed, &config), 4, 1000);
    }
}

#[test]
fn threads_share_an_endpoint_across_the_index_wrap() {
    let config = EndpointConfig::host().send_depth(128).send_cq(CqMode::Ring);
    for nic in NICS {
        let pair = Pair::over(nic, &config);
        add_up(&pair, 4, 9000);
        assert!(pair.a.health().unwrap().send.completed > 1 << 16);
    }
}

#[test]
fn the_deepest_ring_wraps_its_index_twice() {
    for nic in NICS {
        let depth = if nic == "soft-bnxt" { 16384 } else { 32768 };
        let pair = Pair::over(nic, &EndpointConfig::host().send_depth(depth));
        let host = pair.a.host().unwrap();
        for n in 0..140_000u64 {
            let at = pair.dst.remote().slice(n % 8 * 8, 8).unwrap();
            let _ = host.post_write_inline(&n.to_le_bytes(), at, SendFlags::UNSIGNALED).unwrap();
        }
        host.quiet().unwrap();
        for slot in 0..8 {
            assert_eq!(word(&pair.dst, slot * 8), 140_000 - 8 + slot);
        }
    }
}

#[test]
fn messages_are_taken_exactly_once_by_many_threads() {
    NICS.into_iter().for_each(take_messages);
}

fn take_messages(nic: &str) {
    const MESSAGES: u64 = 4000;
    let pair = Pair::over(nic, &EndpointConfig::host().recv_depth(64));
    let (sum, taken) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            let b = pair.b.host().unwrap();
            (0..MESSAGES).for_each(|_| assert!(b.post_recv([]).is_ok()));
        });
        for _ in 0..3 {
            scope.spawn(|| {
                let b = pair.b.host().unwrap();
                while taken.load(Ordering::Relaxed) < MESSAGES {
                    match b.poll_recv().unwrap() {
                        Some(received) => {
                            sum.fetch_add(received.index, Ordering::Relaxed);
                            taken.fetch_add(1, Ordering::Relaxed);
                        }
                        None => thread::yield_now(),
                    }
                }
            });
        }
        let a = pair.a.host().unwrap();
        for _ in 0..MESSAGES {
            let _ = a.post_send([], SendFlags::UNSIGNALED).unwrap();
        }
        a.quiet().unwrap();
    });
    assert_eq!(sum.into_inner(), MESSAGES * (MESSAGES - 1) / 2);
}

#[test]
fn work_posted_while_connecting_is_refused_or_done() {
    let device = Context::new().unwrap().open("soft").unwrap();
    for _ in 0..200 {
        let [a, b] = [(); 2].map(|()| device.endpoint(&EndpointConfig::host()).unwrap());
        let tried = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let host = a.host().unwrap();
                let posted = loop {
                    match host.post_nop(SendFlags::SIGNALED) {
                        Ok(posted) => break posted,
                        Err(TransportError::Usage(UsageError::NotConnected { .. })) => {
                            tried.store(true, Ordering::Relaxed);
                        }
                        Err(other) => panic!("{other}"),
                    }
                };
                host.wait(posted).unwrap();
            });
            while !tried.load(Ordering::Relaxed) {
                thread::yield_now();
            }
            a.connect(&b.handle()).unwrap();
        });
    }
}
