//! The memory model by the classic litmus tests, each with the exact set of outcomes it allows.

use std::collections::BTreeSet;
use std::rc::Rc;
use warpverbs_modelcheck::Access::{Add, CompareExchange};
use warpverbs_modelcheck::Order::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use warpverbs_modelcheck::host::{access, fence, load, note, read, store, write};
use warpverbs_modelcheck::{
    Body, Initial, Order, Place, Report, Scenario, Settings, ThreadSpec, explore, replay,
};

const X: u64 = 0x100;
const Y: u64 = 0x108;
const DATA: u64 = 0x110;

fn scenario(threads: &[fn()]) -> Scenario {
    let thread = |(i, run): (usize, &fn())| ThreadSpec {
        name: format!("t{i}"),
        body: Body::Host(Rc::new(*run)),
        place: Place { device: i as u8, block: 0 },
        daemon: false,
    };
    let location = |addr, atomic| Initial { addr, size: 8, value: 0, atomic };
    Scenario {
        name: "litmus".into(),
        threads: threads.iter().enumerate().map(thread).collect(),
        memory: vec![location(X, true), location(Y, true), location(DATA, false)],
        rules: vec![],
        describe: Rc::new(|addr| match addr {
            X => "x".into(),
            Y => "y".into(),
            _ => "data".into(),
        }),
        finish: Rc::new(|_| Ok(())),
        time_passes: false,
    }
}

fn run(threads: &[fn()]) -> Report {
    // No walks: the exploration must find everything by itself.
    let report = explore(&scenario(threads), None, &Settings { walks: 0, ..Settings::default() });
    assert!(report.complete || report.failure.is_some());
    report
}

/// The first `N` notes of all runs.
fn outcomes<const N: usize>(threads: &[fn()]) -> BTreeSet<[u64; N]> {
    let report = run(threads);
    if let Some(failure) = report.failure {
        panic!("{failure}");
    }
    report.outcomes.iter().map(|notes| std::array::from_fn(|i| notes[i])).collect()
}

fn all_pairs(of: u64) -> BTreeSet<[u64; 2]> {
    (0..of).flat_map(|a| (0..of).map(move |b| [a, b])).collect()
}

fn except<const N: usize>(all: BTreeSet<[u64; N]>, never: &[[u64; N]]) -> BTreeSet<[u64; N]> {
    all.into_iter().filter(|outcome| !never.contains(outcome)).collect()
}

#[test]
fn message_passing() {
    let relaxed = outcomes(&[
        || {
            store(X, 8, 1, Relaxed);
            store(Y, 8, 1, Relaxed);
        },
        || {
            note(0, load(Y, 8, Relaxed));
            note(1, load(X, 8, Relaxed));
        },
    ]);
    assert_eq!(relaxed, all_pairs(2));
    let only_release = outcomes(&[
        || {
            store(X, 8, 1, Relaxed);
            store(Y, 8, 1, Release);
        },
        || {
            note(0, load(Y, 8, Relaxed));
            note(1, load(X, 8, Relaxed));
        },
    ]);
    assert_eq!(only_release, all_pairs(2));
    let ordered = outcomes(&[
        || {
            store(X, 8, 1, Relaxed);
            store(Y, 8, 1, Release);
        },
        || {
            note(0, load(Y, 8, Acquire));
            note(1, load(X, 8, Relaxed));
        },
    ]);
    assert_eq!(ordered, except(all_pairs(2), &[[1, 0]]));
}

#[test]
fn message_passing_by_fences() {
    let writer = || {
        store(X, 8, 1, Relaxed);
        fence(Release);
        store(Y, 8, 1, Relaxed);
    };
    let fenced = outcomes(&[writer, || {
        note(0, load(Y, 8, Relaxed));
        fence(Acquire);
        note(1, load(X, 8, Relaxed));
    }]);
    assert_eq!(fenced, except(all_pairs(2), &[[1, 0]]));
    let half = outcomes(&[writer, || {
        note(0, load(Y, 8, Relaxed));
        note(1, load(X, 8, Relaxed));
    }]);
    assert_eq!(half, all_pairs(2));
}

#[test]
fn store_buffering() {
    let acq_rel = outcomes(&[
        || {
            store(X, 8, 1, Release);
            note(0, load(Y, 8, Acquire));
        },
        || {
            store(Y, 8, 1, Release);
            note(1, load(X, 8, Acquire));
        },
    ]);
    assert_eq!(acq_rel, all_pairs(2));
    let seq_cst = outcomes(&[
        || {
            store(X, 8, 1, Relaxed);
            fence(SeqCst);
            note(0, load(Y, 8, Relaxed));
        },
        || {
            store(Y, 8, 1, Relaxed);
            fence(SeqCst);
            note(1, load(X, 8, Relaxed));
        },
    ]);
    assert_eq!(seq_cst, except(all_pairs(2), &[[0, 0]]));
    let half = outcomes(&[
        || {
            store(X, 8, 1, Relaxed);
            fence(SeqCst);
            note(0, load(Y, 8, Relaxed));
        },
        || {
            store(Y, 8, 1, Relaxed);
            fence(AcqRel);
            note(1, load(X, 8, Relaxed));
        },
    ]);
    assert_eq!(half, all_pairs(2));
}

#[test]
fn load_buffering_is_not_modelled() {
    // C11 allows [1, 1]; no thread here reads what is stored later than its own next store.
    let seen = outcomes(&[
        || {
            note(0, load(X, 8, Relaxed));
            store(Y, 8, 1, Relaxed);
        },
        || {
            note(1, load(Y, 8, Relaxed));
            store(X, 8, 1, Relaxed);
        },
    ]);
    assert_eq!(seen, except(all_pairs(2), &[[1, 1]]));
}

#[test]
fn coherence_of_one_location() {
    let seen: BTreeSet<[u64; 2]> = outcomes(&[
        || {
            store(X, 8, 1, Relaxed);
            store(X, 8, 2, Relaxed);
        },
        || {
            note(0, load(X, 8, Relaxed));
            note(1, load(X, 8, Relaxed));
        },
    ]);
    assert_eq!(seen, except(all_pairs(3), &[[1, 0], [2, 0], [2, 1]]));
}

/// What a second thread reads is not newer than what a third reads after it.
#[test]
fn coherence_across_threads() {
    let seen: BTreeSet<[u64; 3]> = outcomes(&[
        || store(X, 8, 1, Relaxed),
        || {
            note(0, load(X, 8, Relaxed));
            store(Y, 8, 1, Release);
        },
        || {
            note(1, load(Y, 8, Acquire));
            note(2, load(X, 8, Relaxed));
        },
    ]);
    let all = (0..8u64).map(|b| [b & 1, b >> 1 & 1, b >> 2 & 1]).collect();
    assert_eq!(seen, except(all, &[[1, 1, 0]]));
}

#[test]
fn two_writers_of_two_locations() {
    // 2+2W: the modification orders may contradict each other's program order.
    let seen = {
        let mut scenario = scenario(&[
            || {
                store(X, 8, 1, Relaxed);
                store(Y, 8, 2, Relaxed);
            },
            || {
                store(Y, 8, 1, Relaxed);
                store(X, 8, 2, Relaxed);
            },
        ]);
        let ends = Rc::new(std::cell::RefCell::new(BTreeSet::new()));
        let kept = ends.clone();
        scenario.finish = Rc::new(move |end| {
            kept.borrow_mut().insert([end.value(X), end.value(Y)]);
            Ok(())
        });
        assert!(explore(&scenario, None, &Settings::default()).complete);
        ends.take()
    };
    assert_eq!(seen, [[1, 1], [1, 2], [2, 1], [2, 2]].into());
}

fn iriw(readers: [fn(); 2]) -> BTreeSet<[u64; 4]> {
    outcomes(&[|| store(X, 8, 1, Relaxed), || store(Y, 8, 1, Relaxed), readers[0], readers[1]])
}

#[test]
fn independent_reads_of_independent_writes() {
    let all: BTreeSet<[u64; 4]> =
        (0..16u64).map(|b| [b & 1, b >> 1 & 1, b >> 2 & 1, b >> 3 & 1]).collect();
    let acquire = iriw([
        || {
            note(0, load(X, 8, Acquire));
            note(1, load(Y, 8, Acquire));
        },
        || {
            note(2, load(Y, 8, Acquire));
            note(3, load(X, 8, Acquire));
        },
    ]);
    assert_eq!(acquire, all);
    let seq_cst = iriw([
        || {
            note(0, load(X, 8, Relaxed));
            fence(SeqCst);
            note(1, load(Y, 8, Relaxed));
        },
        || {
            note(2, load(Y, 8, Relaxed));
            fence(SeqCst);
            note(3, load(X, 8, Relaxed));
        },
    ]);
    assert_eq!(seq_cst, except(all, &[[1, 0, 1, 0]]));
}

/// An update by another thread goes on with a release sequence; a store ends it.
#[test]
fn release_sequences() {
    fn middle(run: fn()) -> BTreeSet<[u64; 2]> {
        outcomes(&[
            || {
                store(X, 8, 1, Relaxed);
                store(Y, 8, 1, Release);
            },
            run,
            || {
                note(0, load(Y, 8, Acquire));
                note(1, load(X, 8, Relaxed));
            },
        ])
    }
    let updated = middle(|| {
        access(Y, 8, CompareExchange(1, 2), Relaxed);
    });
    assert_eq!(updated, [[0, 0], [0, 1], [1, 1], [2, 1]].into());
    let stored = middle(|| store(Y, 8, 2, Relaxed));
    assert_eq!(stored, [[0, 0], [0, 1], [1, 1], [2, 0], [2, 1]].into());
}

#[test]
fn updates_are_atomic() {
    fn add() {
        access(X, 8, Add(1), Relaxed);
    }
    let mut scenario = scenario(&[add, add, add]);
    scenario.finish = Rc::new(|end| match end.value(X) {
        3 => Ok(()),
        other => Err(format!("three additions of 1 made {other}")),
    });
    let report = explore(&scenario, None, &Settings::default());
    assert!(report.complete, "{:?}", report.failure);
}

/// A compare-and-swap that fails may have read an old value, one that succeeds has the newest.
#[test]
fn a_failed_swap_may_be_late() {
    let seen: BTreeSet<[u64; 1]> = outcomes(&[
        || {
            store(X, 8, 1, Relaxed);
            store(X, 8, 2, Relaxed);
        },
        || note(0, access(X, 8, CompareExchange(2, 7), Relaxed)),
    ]);
    assert_eq!(seen, [[0], [1], [2]].into());
}

fn hand_over(order: Order) -> [fn(); 2] {
    let writer: fn() = match order {
        Release => || {
            write(DATA, 7);
            store(X, 8, 1, Release);
        },
        _ => || {
            write(DATA, 7);
            store(X, 8, 1, Relaxed);
        },
    };
    [writer, || {
        if load(X, 8, Acquire) == 1 {
            note(0, read(DATA));
        }
    }]
}

#[test]
fn plain_accesses_must_be_ordered() {
    assert_eq!(outcomes(&hand_over(Release)), [[0], [7]].into());
    let failure = run(&hand_over(Relaxed)).failure.expect("a race");
    assert!(failure.what.contains("data race"), "{failure}");
    // The schedule alone leads to the same failure, step by step.
    let again =
        replay(&scenario(&hand_over(Relaxed)), None, &Settings::default(), &failure.schedule);
    let again = again.unwrap().expect("the same race");
    assert_eq!((again.what, again.trace), (failure.what, failure.trace));
}

#[test]
fn a_wait_for_nothing_is_found() {
    let report = run(&[|| {
        while load(X, 8, Relaxed) == 0 {
            warpverbs_modelcheck::host::pause();
        }
    }]);
    assert!(report.failure.expect("stuck").what.contains("stuck"));
}

#[test]
fn a_wait_ends() {
    let seen = outcomes(&[
        || {
            store(X, 8, 1, Relaxed);
            store(X, 8, 2, Relaxed);
        },
        || {
            while load(X, 8, Relaxed) != 2 {
                warpverbs_modelcheck::host::pause();
            }
            note(0, 1);
        },
    ]);
    assert_eq!(seen, [[1]].into());
}
