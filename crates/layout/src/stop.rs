//! Launches that the host can withdraw, `kernels/include/warpverbs/stop.h`.

use crate::header::Header;

pub(crate) const HEADER: Header = Header {
    path: "layout/stop.h",
    table: "layout/src/stop.rs",
    namespace: "wv",
    includes: &["arch/types.h"],
    items: &[StopRecord::LAYOUT],
};

crate::layout! {
    /// By which the host withdraws a launch. All zero when it starts, and again when it has ended, unless
    /// it was withdrawn.
    pub struct StopRecord[16] align(16): Default, PartialEq, Eq {
        /// Blocks that have entered and not left.
        pub running: u64,
        /// Not 0: no further block does anything.
        pub stopped: u64,
    }
}
