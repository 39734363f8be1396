//! Signals and what ends a wait for one.

use crate::calls::{AT_LEAST, EQUAL, Move, WAIT, Wait, signal_each};
use crate::device::ranks::{Pace, Ranks, Routes};
use std::time::{Duration, Instant};
use warpverbs::gpu::Dim;
use warpverbs::transport::Outcome;
use warpverbs_shmem::layout::{ALARM_OF_HEAP, HeapFault, NO_RANK};
use warpverbs_test_kernels::shm as k;

const SIGNAL: u64 = 32;
const DIM: Dim = Dim::new(1, 40);

/// For [`SIGNAL`] of rank 0.
fn wait(ranks: &Ranks, wait: Wait) -> Result<(), Outcome> {
    ranks.launch_on(0, DIM, Wait { signal: SIGNAL, ..wait }.kernel())
}

fn set(ranks: &Ranks, direct: u64, remote: u64) {
    ranks.fill(0, SIGNAL, &[direct.to_le_bytes(), remote.to_le_bytes()].concat());
}

#[test]
fn a_wait_compares_the_sum_of_both_words() {
    let ranks = Ranks::new(1, 1 << 12, Routes::Direct, Pace::Seeded(1));
    // Whether eq, ne, ge, gt, le, lt hold of 7 and the value.
    let table = [
        (6, [false, true, true, true, false, false]),
        (7, [true, false, true, false, true, false]),
        (8, [false, true, false, false, true, true]),
    ];
    set(&ranks, u64::MAX, 8);
    for (value, holds) in table {
        for (how, holds) in (0..).zip(holds) {
            let expected = if holds { Ok(()) } else { Err(Outcome::Timeout) };
            let found = wait(&ranks, Wait { how, value, ns: 100_000, ..WAIT });
            assert_eq!(found, expected, "{how} {value}");
        }
    }
}

#[test]
fn a_wait_that_nobody_answers_ends_and_says_for_what_it_was() {
    for group in [0, 1, 2] {
        let ranks = Ranks::new(2, 1 << 12, Routes::Rdma, Pace::Real);
        set(&ranks, 3, 2);
        let begun = Instant::now();
        let nine = Wait { group, how: AT_LEAST, value: 9, ns: 1_000_000, from: 1, ..WAIT };
        assert_eq!(wait(&ranks, nine), Err(Outcome::Timeout));
        // At least: the deadline is what is tried.
        assert!(begun.elapsed() >= Duration::from_millis(1));
        let fault = ranks.fault(0);
        let HeapFault { claim, status, what, peer, offset, expected, actual, thread } = fault;
        assert_eq!((claim, status, what, peer), (2, 1, 5, 1), "{fault:?}");
        assert_eq!((offset, expected, actual, thread), (SIGNAL, 9, 5, 0), "{fault:?}");
    }
}

#[test]
fn the_host_ends_waits_by_alarms() {
    // The heap's ends every wait, a rank's only those for this rank.
    for (alarm, from, outcome) in [
        (ALARM_OF_HEAP, NO_RANK, Outcome::Aborted),
        (ALARM_OF_HEAP, 1, Outcome::Aborted),
        (2, 1, Outcome::PeerLost),
        (2, 0, Outcome::Timeout),
        (2, NO_RANK, Outcome::Timeout),
    ] {
        let ranks = Ranks::new(2, 1 << 12, Routes::Direct, Pace::Seeded(5));
        ranks.raise_alarm(0, alarm);
        let one = Wait { group: 1, how: EQUAL, value: 1, ns: 50_000_000, from, ..WAIT };
        assert_eq!(wait(&ranks, one), Err(outcome), "{alarm} {from}");
        assert_eq!(ranks.fault(0).claim, 2);
    }
}

#[test]
fn an_alarm_reaches_a_wait_that_has_begun() {
    let ranks = Ranks::new(2, 1 << 12, Routes::Direct, Pace::Real);
    let one = Wait { group: 2, value: 1, ns: 60_000_000_000, from: 1, ..WAIT };
    let outcome = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| wait(&ranks, one));
        ranks.raise_alarm(0, 2);
        waiting.join().expect("the wait")
    });
    assert_eq!(outcome, Err(Outcome::PeerLost));
}

#[test]
fn a_signal_that_is_set_replaces_what_its_route_had() {
    for (routes, word) in [(Routes::Direct, SIGNAL), (Routes::Rdma, SIGNAL + 8)] {
        let ranks = Ranks::new(2, 1 << 12, routes, Pace::Seeded(6));
        for value in [5, 3] {
            let nothing = Move { group: 0, to: 0, from: 0, bytes: 0, pe: 0 };
            ranks.run_on(1, DIM, nothing.put_signal(SIGNAL, true, value));
            let seen = wait(&ranks, Wait { value, from: 1, ..WAIT });
            assert_eq!(seen, Ok(()), "{}", ranks.what);
            assert_eq!(ranks.word(0, word), value);
        }
    }
}

#[test]
fn every_rank_gets_its_own_of_many_signals() {
    for routes in Routes::ALL {
        for group in [0, 1, 2] {
            let ranks = Ranks::new(4, 1 << 12, routes, Pace::Seeded(7));
            let (from, signal, value) = (2, 512, 1 << 40 | 3);
            ranks.run_on(from, DIM, signal_each(group, signal, value, (0, 4)));
            for pe in 0..4 {
                let signal = signal + 16 * u64::from(pe);
                ranks.run_on(pe, DIM, Wait { group, signal, value, from, ..WAIT }.kernel());
                // No other signal of the rank has changed.
                let bytes = ranks.bytes(pe);
                let raised = bytes.chunks(8).filter(|word| word.iter().any(|b| *b != 0)).count();
                assert_eq!(raised, 1, "{}", ranks.what);
            }
        }
    }
}

const MANY: u32 = 70;

/// Waits of rank 0 until each of `MANY` signals is at least `value`.
fn wait_each(ranks: &Ranks, group: u32, value: u64, ns: u64) -> Result<(), Outcome> {
    ranks.launch_on(0, DIM, |heap, status| k::ShmWaitEach {
        heap,
        group,
        signal: SIGNAL,
        count: MANY,
        how: AT_LEAST,
        value,
        ns,
        from: 1,
        status,
    })
}

/// More signals than members, so that each of these looks at several.
#[test]
fn a_wait_for_many_signals_ends_when_the_last_has_come() {
    for routes in Routes::APART {
        for group in [0, 1, 2] {
            let ranks = Ranks::new(2, 1 << 12, routes, Pace::Seeded(9));
            for i in 0..MANY {
                // One word or the other; the last one wants 1.
                let value = 5 - u64::from(i + 1 == MANY);
                let at = SIGNAL + 16 * u64::from(i) + 8 * u64::from(i % 2);
                ranks.fill(0, at, &value.to_le_bytes());
            }
            assert_eq!(wait_each(&ranks, group, 4, 0), Ok(()), "{}", ranks.what);
            assert_eq!(wait_each(&ranks, group, 5, 1_000_000), Err(Outcome::Timeout));
            let fault = ranks.fault(0);
            let last = SIGNAL + 16 * u64::from(MANY - 1);
            assert_eq!((fault.offset, fault.expected, fault.actual), (last, 5, 4), "{fault:?}");
            ranks.run_on(1, DIM, signal_each(group, last, 1, (0, 1)));
            assert_eq!(wait_each(&ranks, group, 5, 0), Ok(()), "{}", ranks.what);
        }
    }
}

#[test]
fn a_wait_for_many_signals_that_has_begun_sees_them_come() {
    for group in [0, 1, 2] {
        let ranks = Ranks::new(2, 1 << 12, Routes::Direct, Pace::Real);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| wait_each(&ranks, group, 3, 60_000_000_000));
            // From the last to the first, in halves.
            for (i, value) in (0..MANY).rev().flat_map(|i| [(i, 1u64), (i, 3)]) {
                ranks.fill(0, SIGNAL + 16 * u64::from(i), &value.to_le_bytes());
            }
            assert_eq!(waiting.join().expect("the wait"), Ok(()));
        });
    }
}
