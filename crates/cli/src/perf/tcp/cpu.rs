//! CPU time of this process.

use nix::sys::resource::{UsageWho, getrusage};

/// Seconds that this process has used, in user and system mode.
pub(super) fn seconds() -> f64 {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else { return 0.0 };
    let seconds =
        |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    seconds(usage.user_time()) + seconds(usage.system_time())
}
