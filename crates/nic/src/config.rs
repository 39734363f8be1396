//! The configuration of a software NIC.

use crate::{Clock, LinkConfig, NicError};
use std::path::PathBuf;
use std::time::Duration;
use warpverbs_link::FaultPlan;

/// Which of the two announcements of new work counts. Correct posting code works under
/// each of them; see `docs/nic.md`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DoorbellPolicy {
    /// The value in the doorbell counts; the record is not read.
    #[default]
    DoorbellFirst,
    /// The doorbell only wakes the NIC; the record counts.
    RecordFirst,
    /// One or the other at every ring, drawn from [`Config::seed`].
    Random,
    /// Every doorbell is ignored; the doorbell record is read after this many polls of the NIC.
    DropThenRecover {
        /// Polls from the ring to the recovery.
        polls: u32,
    },
}

/// The engine thread's behaviour while idle. On a NIC with a link, where each poll asks the system,
/// a sixteenth of the polls count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Idle {
    /// Idle polls before the thread begins to yield its core after each; it yields after each 256th
    /// of these too.
    pub spin: u32,
    /// Idle polls with a yield after each, before the thread begins to sleep.
    pub yields: u32,
    /// How long it sleeps between polls then.
    pub sleep: Duration,
}

impl Default for Idle {
    fn default() -> Self {
        // On a single core, no other thread can run while the engine spins.
        let spin = if is_only_core() { 0 } else { 20_000 };
        Self { spin, yields: 200_000, sleep: Duration::from_micros(50) }
    }
}

impl Idle {
    /// For an engine whose QPs another device executes. On a single core, the device's work may run
    /// in the kernel, which gets no time while threads only yield to each other.
    pub fn proxied() -> Self {
        match is_only_core() {
            true => Self { spin: 0, yields: 32, sleep: Duration::from_micros(50) },
            false => Self::default(),
        }
    }
}

fn is_only_core() -> bool {
    std::thread::available_parallelism().is_ok_and(|cores| cores.get() == 1)
}

/// How a [`SoftNic`](crate::SoftNic) is made.
#[derive(Clone, Debug)]
pub struct Config {
    /// Name of the device.
    pub name: String,
    /// QPs at most, 1 to 65536: the length of the doorbell page.
    pub max_qps: u32,
    /// Makes keys, QP numbers and random choices repeatable. Without it, keys cannot be guessed.
    pub seed: Option<u64>,
    /// Which announcement of new work counts.
    pub policy: DoorbellPolicy,
    /// Polls after a ring during which the record may still lag behind, when the record counts.
    pub record_polls: u32,
    /// [`lose_doorbells`](crate::Faults::lose_doorbells) may have the record read. It must be set before
    /// there are QPs, because kernels order their WQEs before a record that is read.
    pub loses_doorbells: bool,
    /// Keeps a copy of every WQE from its doorbell on and compares it when it is executed.
    pub watch_rewrites: bool,
    /// Bytes moved at most for one WQE before other QPs run.
    pub slice_bytes: u64,
    /// The link that connects the NIC to peers.
    pub link: LinkConfig,
    /// Faults of packets that the link sends.
    pub faults: FaultPlan,
    /// A capture file of all packets on the link.
    pub capture: Option<PathBuf>,
    /// Time for the NIC's timers.
    pub clock: Clock,
    /// The engine thread's behaviour while idle.
    pub idle: Idle,
    /// Violations kept for [`take_violations`](crate::SoftNic::take_violations); all are counted.
    pub violations_kept: usize,
    /// Events kept for [`poll_event`](crate::SoftNic::poll_event); later ones are counted as lost.
    pub events_kept: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            name: "soft0".into(),
            max_qps: 1024,
            seed: None,
            policy: DoorbellPolicy::default(),
            record_polls: 10_000,
            loses_doorbells: false,
            watch_rewrites: false,
            slice_bytes: 1 << 20,
            link: LinkConfig::default(),
            faults: FaultPlan::default(),
            capture: None,
            clock: Clock::default(),
            idle: Idle::default(),
            violations_kept: 1024,
            events_kept: 1024,
        }
    }
}

impl Config {
    /// Whether the NIC may act on a doorbell record that is ahead of the doorbells it has received.
    pub fn reads_record(&self) -> bool {
        self.policy != DoorbellPolicy::DoorbellFirst || self.loses_doorbells
    }

    pub(crate) fn check(&self) -> Result<(), NicError> {
        let range = |what, value, min, max| {
            if (min..=max).contains(&value) {
                Ok(())
            } else {
                Err(NicError::OutOfRange { what, value, min, max })
            }
        };
        range("max_qps", u64::from(self.max_qps), 1, 65536)?;
        range("slice_bytes", self.slice_bytes, 4096, 1 << 40)
    }
}
