//! The memory model by the classic litmus tests, each with the exact set of outcomes it allows.

use Step::{F, Put, R, Take, U, W};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use warpverbs_modelcheck::Access::{self, Add, CompareExchange};
use warpverbs_modelcheck::Order::{self, AcqRel, Acquire, Relaxed, Release, SeqCst};
use warpverbs_modelcheck::host::{access, fence, load, note, pause, read, store, write};
use warpverbs_modelcheck::{
    Body, Initial, Place, Report, Scenario, Settings, ThreadSpec, Time, explore, replay,
};

const X: u64 = 0x100;
const Y: u64 = 0x108;
const DATA: u64 = 0x110;

/// One step of a thread.
#[derive(Clone, Copy)]
enum Step {
    /// Writes.
    W(u64, u64, Order),
    /// Reads; what it read is the next number of the outcome.
    R(u64, Order),
    /// Reads and writes; what it read is the next number of the outcome.
    U(u64, Access),
    /// A fence.
    F(Order),
    /// Writes DATA plainly.
    Put(u64),
    /// Reads DATA plainly if the thread's last read gave 1; the next number of the outcome.
    Take,
    /// Waits until the location has the value.
    Until(u64, u64),
}

/// Does `steps`; what they read are the notes from `first` on.
fn perform(steps: &[Step], first: usize) {
    let (mut next, mut last) = (first, 0);
    let mut outcome = |value| {
        note(next, value);
        next += 1;
        value
    };
    for &step in steps {
        match step {
            W(at, value, order) => store(at, 8, value, order),
            R(at, order) => last = outcome(load(at, 8, order)),
            U(at, what) => last = outcome(access(at, 8, what, Relaxed)),
            F(order) => fence(order),
            Put(value) => write(DATA, value),
            Take if last == 1 => _ = outcome(read(DATA)),
            Take => _ = outcome(0),
            Step::Until(at, value) => {
                while load(at, 8, Relaxed) != value {
                    pause();
                }
            }
        }
    }
}

fn scenario(threads: &[&'static [Step]]) -> Scenario {
    let reads = |steps: &[Step]| steps.iter().filter(|s| matches!(s, R(..) | U(..) | Take)).count();
    let mut first = 0;
    let thread = |(i, &steps): (usize, &&'static [Step])| {
        let from = first;
        first += reads(steps);
        ThreadSpec {
            name: format!("t{i}"),
            body: Body::Host(Rc::new(move || perform(steps, from))),
            place: Place { device: i as u8, block: 0 },
            daemon: false,
        }
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
        time: Time::Never,
        aborts: false,
    }
}

fn run(threads: &[&'static [Step]]) -> Report {
    // No walks: the exploration must find everything by itself.
    let report = explore(&scenario(threads), None, &Settings { walks: 0, ..Settings::default() });
    assert!(report.complete || report.failure.is_some());
    report
}

/// Values of the `N` reads, in every run.
fn outcomes<const N: usize>(threads: &[&'static [Step]]) -> BTreeSet<[u64; N]> {
    let report = run(threads);
    if let Some(failure) = report.failure {
        panic!("{failure}");
    }
    report.outcomes.iter().map(|notes| std::array::from_fn(|i| notes[i])).collect()
}

/// Values of X and Y at the end of every run.
fn ends(threads: &[&'static [Step]]) -> BTreeSet<[u64; 2]> {
    let mut scenario = scenario(threads);
    let ends = Rc::new(RefCell::new(BTreeSet::new()));
    let kept = ends.clone();
    scenario.finish = Rc::new(move |end| {
        kept.borrow_mut().insert([end.value(X), end.value(Y)]);
        Ok(())
    });
    assert!(explore(&scenario, None, &Settings::default()).complete);
    ends.take()
}

/// All outcomes of `N` numbers below `of`, but for `never`.
fn all_but<const N: usize>(of: u64, never: &[[u64; N]]) -> BTreeSet<[u64; N]> {
    let numbers = (0..of.pow(N as u32)).map(|n| std::array::from_fn(|i| n / of.pow(i as u32) % of));
    numbers.filter(|outcome| !never.contains(outcome)).collect()
}

#[test]
fn message_passing() {
    const RELAXED: &[Step] = &[W(X, 1, Relaxed), W(Y, 1, Relaxed)];
    const RELEASE: &[Step] = &[W(X, 1, Relaxed), W(Y, 1, Release)];
    const FENCED: &[Step] = &[W(X, 1, Relaxed), F(Release), W(Y, 1, Relaxed)];
    const READ: &[Step] = &[R(Y, Relaxed), R(X, Relaxed)];
    const ACQUIRE: &[Step] = &[R(Y, Acquire), R(X, Relaxed)];
    const READ_FENCED: &[Step] = &[R(Y, Relaxed), F(Acquire), R(X, Relaxed)];
    for (writer, reader, ordered) in [
        (RELAXED, READ, false),
        (RELAXED, ACQUIRE, false),
        (RELEASE, READ, false),
        (RELEASE, ACQUIRE, true),
        (FENCED, READ, false),
        (FENCED, READ_FENCED, true),
        (FENCED, ACQUIRE, true),
        (RELEASE, READ_FENCED, true),
    ] {
        let never: &[[u64; 2]] = if ordered { &[[1, 0]] } else { &[] };
        assert_eq!(outcomes(&[writer, reader]), all_but(2, never));
    }
}

#[test]
fn store_buffering() {
    let acq_rel = [&[W(X, 1, Release), R(Y, Acquire)][..], &[W(Y, 1, Release), R(X, Acquire)]];
    assert_eq!(outcomes(&acq_rel), all_but::<2>(2, &[]));
    let first: &[Step] = &[W(X, 1, Relaxed), F(SeqCst), R(Y, Relaxed)];
    let both = [first, &[W(Y, 1, Relaxed), F(SeqCst), R(X, Relaxed)]];
    assert_eq!(outcomes(&both), all_but(2, &[[0, 0]]));
    let half = [first, &[W(Y, 1, Relaxed), F(AcqRel), R(X, Relaxed)]];
    assert_eq!(outcomes(&half), all_but::<2>(2, &[]));
}

#[test]
fn load_buffering_is_not_modelled() {
    // C11 allows [1, 1]; no thread here reads what is stored later than its own next store.
    let seen = outcomes(&[&[R(X, Relaxed), W(Y, 1, Relaxed)], &[R(Y, Relaxed), W(X, 1, Relaxed)]]);
    assert_eq!(seen, all_but(2, &[[1, 1]]));
}

#[test]
fn coherence_of_one_location() {
    let seen = outcomes(&[&[W(X, 1, Relaxed), W(X, 2, Relaxed)], &[R(X, Relaxed), R(X, Relaxed)]]);
    assert_eq!(seen, all_but(3, &[[1, 0], [2, 0], [2, 1]]));
}

/// The value that a second thread reads is not newer than that which a third reads after it.
#[test]
fn coherence_across_threads() {
    let seen = outcomes(&[
        &[W(X, 1, Relaxed)],
        &[R(X, Relaxed), W(Y, 1, Release)],
        &[R(Y, Acquire), R(X, Relaxed)],
    ]);
    assert_eq!(seen, all_but(2, &[[1, 1, 0]]));
}

#[test]
fn two_writers_of_two_locations() {
    // 2+2W: the modification orders may contradict each other's program order.
    let seen =
        ends(&[&[W(X, 1, Relaxed), W(Y, 2, Relaxed)], &[W(Y, 1, Relaxed), W(X, 2, Relaxed)]]);
    assert_eq!(seen, [[1, 1], [1, 2], [2, 1], [2, 2]].into());
}

#[test]
fn independent_reads_of_independent_writes() {
    const WRITERS: [&[Step]; 2] = [&[W(X, 1, Relaxed)], &[W(Y, 1, Relaxed)]];
    let iriw = |a, b| outcomes::<4>(&[WRITERS[0], WRITERS[1], a, b]);
    let acquire = iriw(&[R(X, Acquire), R(Y, Acquire)], &[R(Y, Acquire), R(X, Acquire)]);
    assert_eq!(acquire, all_but(2, &[]));
    let fenced = iriw(
        &[R(X, Relaxed), F(SeqCst), R(Y, Relaxed)],
        &[R(Y, Relaxed), F(SeqCst), R(X, Relaxed)],
    );
    assert_eq!(fenced, all_but(2, &[[1, 0, 1, 0]]));
}

/// An update by another thread goes on with a release sequence; a store ends it.
#[test]
fn release_sequences() {
    let writer: &[Step] = &[W(X, 1, Relaxed), W(Y, 1, Release)];
    let reader: &[Step] = &[R(Y, Acquire), R(X, Relaxed)];
    let updated = outcomes(&[writer, reader, &[U(Y, CompareExchange(1, 2))]]);
    let updated: BTreeSet<[u64; 2]> = updated.iter().map(|&[y, x, _]: &[u64; 3]| [y, x]).collect();
    assert_eq!(updated, [[0, 0], [0, 1], [1, 1], [2, 1]].into());
    let stored = outcomes(&[writer, reader, &[W(Y, 2, Relaxed)]]);
    assert_eq!(stored, [[0, 0], [0, 1], [1, 1], [2, 0], [2, 1]].into());
}

#[test]
fn updates_are_atomic() {
    const ADD: &[Step] = &[U(X, Add(1))];
    assert_eq!(ends(&[ADD, ADD, ADD]), [[3, 0]].into());
}

/// A third thread's load of what nobody writes decides nothing between the first two.
#[test]
fn private_accesses_do_not_hide_an_order() {
    const ADD: &[Step] = &[U(X, Add(1))];
    let seen = outcomes(&[ADD, ADD, &[R(Y, Relaxed)]]);
    assert_eq!(seen, [[0, 1, 0], [1, 0, 0]].into());
}

/// A compare-and-swap that fails may have read an old value, one that succeeds has the newest.
#[test]
fn a_failed_swap_may_be_late() {
    let seen = outcomes(&[&[W(X, 1, Relaxed), W(X, 2, Relaxed)], &[U(X, CompareExchange(2, 7))]]);
    assert_eq!(seen, [[0], [1], [2]].into());
}

#[test]
fn plain_accesses_must_be_ordered() {
    const READER: &[Step] = &[R(X, Acquire), Take];
    assert_eq!(outcomes(&[&[Put(7), W(X, 1, Release)], READER]), [[0, 0], [1, 7]].into());
    let racing: [&'static [Step]; 2] = [&[Put(7), W(X, 1, Relaxed)], READER];
    let failure = run(&racing).failure.expect("a race");
    assert!(failure.what.contains("data race"), "{failure}");
    // The schedule alone leads to the same failure, step by step.
    let again = replay(&scenario(&racing), None, &Settings::default(), &failure.schedule);
    let again = again.unwrap().expect("the same race");
    assert_eq!((again.what, again.trace), (failure.what, failure.trace));
}

#[test]
fn a_wait_for_nothing_is_found() {
    let report = run(&[&[Step::Until(X, 1)]]);
    assert!(report.failure.expect("stuck").what.contains("stuck"));
}

#[test]
fn a_wait_ends() {
    let seen =
        outcomes(&[&[W(X, 1, Relaxed), W(X, 2, Relaxed)], &[Step::Until(X, 2), R(X, Relaxed)]]);
    assert_eq!(seen, [[2]].into());
}

/// A write in the epoch that a release closed is ordered by it, one after it is not.
#[test]
fn what_comes_after_a_release_is_not_ordered_by_it() {
    let failure = run(&[&[W(X, 1, Release), Put(7)], &[R(X, Acquire), Take]]).failure;
    assert!(failure.expect("a race").what.contains("data race"));
    let fenced: [&'static [Step]; 2] =
        [&[F(Release), Put(7), W(X, 1, Relaxed)], &[R(X, Acquire), Take]];
    assert!(run(&fenced).failure.expect("a race").what.contains("data race"));
}
