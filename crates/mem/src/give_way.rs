//! Giving up a core for a moment, the one way for all threads that poll for what another thread does.

use std::cell::Cell;
use std::thread;
use std::time::{Duration, Instant};

/// A yield that takes longer has given the core to a thread that does not wait for this one: it used
/// up its slice.
const SLICE: Duration = Duration::from_micros(700);
/// After such a yield, none follows for this many times its duration.
const REST: u32 = 16;
/// The sleep of [`pause`].
const NAP: Duration = Duration::from_micros(50);

thread_local! {
    /// No yield of this thread before then.
    static UNTIL: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Yields a core to threads that give it back soon, such as the one that this thread waits for. False,
/// at once and without a yield, for a while after a yield that lost a whole slice of the scheduler.
///
/// A thread that only computes keeps the core for its slice, some milliseconds, and the system counts
/// a yield as if this thread had used up its own. A thread that yields every 10 µs beside it gets next
/// to nothing. One that spins or sleeps in that time gets its share like every other.
pub fn give_way() -> bool {
    let mut until = UNTIL.get();
    let gives = turn(&mut until, Instant::now, thread::yield_now);
    UNTIL.set(until);
    gives
}

/// As [`give_way`]; sleeps for a moment where that does not yield.
pub fn pause() {
    if !give_way() {
        thread::sleep(NAP);
    }
}

/// [`give_way`] by a clock and a scheduler.
fn turn(until: &mut Option<Instant>, now: impl Fn() -> Instant, give: impl FnOnce()) -> bool {
    let before = now();
    if until.is_some_and(|until| before < until) {
        return false;
    }
    give();
    let after = now();
    let took = after - before;
    *until = (took > SLICE).then(|| after + took * REST);
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    /// A thread by a clock of its own.
    struct Scripted {
        now: Cell<Instant>,
        until: Option<Instant>,
    }

    impl Scripted {
        fn new() -> Self {
            Self { now: Cell::new(Instant::now()), until: None }
        }

        /// A turn whose yield, if there is one, takes `took`.
        fn turn(&mut self, took: Duration) -> bool {
            let advance = || self.now.set(self.now.get() + took);
            turn(&mut self.until, || self.now.get(), advance)
        }

        fn pass(&self, time: Duration) {
            self.now.set(self.now.get() + time);
        }
    }

    #[test]
    fn a_yield_that_lost_a_slice_is_followed_by_none_for_a_multiple_of_it() {
        let mut thread = Scripted::new();
        assert!(thread.turn(SLICE) && thread.turn(SLICE), "a slice was not exceeded");
        let long = SLICE + Duration::from_nanos(1);
        assert!(thread.turn(long));
        let began = thread.now.get();
        assert!(!thread.turn(long), "it yielded at once");
        assert_eq!(thread.now.get(), began, "a turn without a yield took time");
        thread.pass(long * REST - Duration::from_nanos(1));
        assert!(!thread.turn(Duration::ZERO), "it yielded before the end of the rest");
        thread.pass(Duration::from_nanos(1));
        assert!(thread.turn(Duration::ZERO), "it did not yield after the rest");
        assert!(thread.turn(Duration::ZERO), "a short yield was followed by a rest");
    }

    /// Beside threads that only compute, a thread loses next to nothing to them by its yields, whatever
    /// their slices are.
    #[test]
    fn of_the_time_between_long_yields_most_is_kept() {
        let seed: u64 = rand::random();
        println!("seed {seed}");
        let mut rng = StdRng::seed_from_u64(seed);
        let mut random = |most: u64| Duration::from_nanos(rng.random_range(0..most));
        let mut thread = Scripted::new();
        let (start, mut lost, mut last) = (thread.now.get(), Duration::ZERO, Duration::ZERO);
        for _ in 0..10_000 {
            let took = SLICE + Duration::from_nanos(1) + random(20_000_000);
            if thread.turn(took) {
                (lost, last) = (lost + took, took);
            }
            thread.pass(random(10_000_000));
        }
        let whole = thread.now.get() - start;
        assert!(last > Duration::ZERO && (lost - last) * REST <= whole, "{lost:?} of {whole:?}");
    }
}
