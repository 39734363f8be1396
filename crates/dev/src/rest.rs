//! Driving NICs by hand, and waiting.

use std::time::{Duration, Instant};
use warpverbs_nic::{SoftNic, Step};

/// Tries until there is something.
///
/// # Panics
/// Nothing comes for minutes: this ends a hang.
#[track_caller]
pub fn until<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(240);
    loop {
        if let Some(found) = attempt() {
            return found;
        }
        assert!(Instant::now() < end, "nothing comes");
        std::thread::yield_now();
    }
}

/// Steps NICs until none of them has anything to do at this time; how many WQEs were done.
///
/// # Panics
/// They do not come to rest.
pub fn rest<const N: usize>(nics: [&SoftNic; N]) -> u32 {
    let mut done = 0;
    // NICs that never come to rest fail the test instead of hanging it.
    for _ in 0..1_000_000 {
        let steps = nics.map(SoftNic::step);
        if steps == [Step::Idle; N] {
            return done;
        }
        for step in steps {
            done += if let Step::Busy(count) = step { count } else { 0 };
        }
    }
    panic!("the NICs do not come to rest");
}
