//! The counters of an agent while it works: always, at the cost of a few nanoseconds a post.
//!
//! Locked instructions would cost the shortest post a tenth, so each thread that posts has cells of its
//! own in each agent, which it alone writes. The reader adds them up. Threads beyond [`SLOTS`] share the
//! last cells, and pay for it.

use crate::AgentError;
use crate::names::{Op, PathKind};
use std::array::from_fn;
use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Threads of this process that have cells of their own.
const SLOTS: usize = 64;
/// All paths, and several of them in one transfer.
const WAYS: usize = PathKind::ALL.len() + 1;

/// Why a transfer was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// Its time was up.
    Timeout,
    /// The peer, or the agent itself, ended, was lost or was replaced by a newer start of its name.
    PeerLost,
    /// Memory of either end was no longer registered.
    Deregistered,
    /// The path failed: a device, a NIC, the system, or the peer's part in it.
    Path,
    /// The blocks are in place, but the peer could not take the notification.
    Notification,
    /// The program cancelled it.
    Cancelled,
    /// Anything else.
    Other,
}

impl Cause {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Timeout,
        Self::PeerLost,
        Self::Deregistered,
        Self::Path,
        Self::Notification,
        Self::Cancelled,
        Self::Other,
    ];

    fn of(error: &AgentError) -> Self {
        match error {
            AgentError::Timeout { .. } => Self::Timeout,
            AgentError::PeerLost { .. } | AgentError::Stale { .. } => Self::PeerLost,
            AgentError::Deregistered { .. } => Self::Deregistered,
            AgentError::Path { .. }
            | AgentError::Refused { .. }
            | AgentError::Memory(_)
            | AgentError::Arena(_)
            | AgentError::Gpu(_)
            | AgentError::Nic(_)
            | AgentError::System { .. } => Self::Path,
            AgentError::Notification { .. } => Self::Notification,
            AgentError::Cancelled => Self::Cancelled,
            _ => Self::Other,
        }
    }
}

/// The word that monitoring knows it by.
impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Timeout => "timeout",
            Self::PeerLost => "peer_lost",
            Self::Deregistered => "deregistered",
            Self::Path => "path",
            Self::Notification => "notification",
            Self::Cancelled => "cancelled",
            Self::Other => "other",
        })
    }
}

/// Transfers of one way and direction that are done.
#[derive(Debug, Default)]
struct Moved {
    transfers: AtomicU64,
    bytes: AtomicU64,
    nanos: AtomicU64,
}

/// The cells of one thread. No two threads' share a line of the cache.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Cells {
    begun: AtomicU64,
    ended: AtomicU64,
    moved: [[Moved; 2]; WAYS],
}

/// Which slots have a thread, a bit each.
static TAKEN: AtomicU64 = AtomicU64::new(0);

/// Of a thread that has not counted anything yet.
const UNKNOWN: usize = usize::MAX;

thread_local! {
    /// The slot of this thread: a plain word, whose reading costs nothing.
    static AT: Cell<usize> = const { Cell::new(UNKNOWN) };
    /// Gives it back when the thread ends.
    static GUARD: Slot = Slot::take();
}

/// A slot until its thread ends.
struct Slot(usize);

impl Slot {
    fn take() -> Self {
        let free = |taken: u64| (taken != u64::MAX).then(|| taken | (taken + 1));
        // Acquire, pairs with the release in `drop`: a slot's next thread goes on from what the last one left.
        let before = TAKEN.fetch_update(Ordering::Acquire, Ordering::Relaxed, free);
        Self(before.map_or(SLOTS, |before| before.trailing_ones() as usize))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        // For counts of this thread from now on, in other destructors.
        AT.set(SLOTS);
        if self.0 < SLOTS {
            TAKEN.fetch_and(!(1 << self.0), Ordering::Release);
        }
    }
}

#[cold]
fn first_slot() -> usize {
    let at = GUARD.try_with(|slot| slot.0).unwrap_or(SLOTS);
    AT.set(at);
    at
}

/// Cells that this thread may write.
#[derive(Clone, Copy)]
struct Mine<'a> {
    cells: &'a Cells,
    shared: bool,
}

impl Mine<'_> {
    #[inline]
    fn add(self, cell: &AtomicU64, more: u64) {
        match self.shared {
            // This thread alone writes it, so nothing is lost between the two.
            false => cell.store(cell.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed),
            true => {
                cell.fetch_add(more, Ordering::Relaxed);
            }
        }
    }
}

/// Transfers of one path and direction that are done: how many, their bytes, their time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) transfers: u64,
    pub(crate) bytes: u64,
    pub(crate) time: Duration,
}

/// The counts of an agent.
#[derive(Debug)]
pub(crate) struct Tally {
    /// By slot; the last is that of all other threads.
    cells: Box<[Cells]>,
    failed: [[[AtomicU64; Cause::ALL.len()]; 2]; WAYS],
    chosen: [AtomicU64; PathKind::ALL.len()],
    pub(crate) no_path: AtomicU64,
    pub(crate) notifications_sent: AtomicU64,
    pub(crate) notifications_received: AtomicU64,
    pub(crate) notifications_declined: AtomicU64,
    pub(crate) peers_lost: AtomicU64,
}

/// Counts one more of something that is rare enough for it.
pub(crate) fn count(cell: &AtomicU64) {
    cell.fetch_add(1, Ordering::Relaxed);
}

fn way(path: Option<PathKind>) -> usize {
    path.map_or(WAYS - 1, |path| path as usize)
}

impl Tally {
    pub(crate) fn new() -> Self {
        Self {
            cells: (0..=SLOTS).map(|_| Cells::default()).collect(),
            failed: from_fn(|_| from_fn(|_| from_fn(|_| AtomicU64::new(0)))),
            chosen: from_fn(|_| AtomicU64::new(0)),
            no_path: AtomicU64::new(0),
            notifications_sent: AtomicU64::new(0),
            notifications_received: AtomicU64::new(0),
            notifications_declined: AtomicU64::new(0),
            peers_lost: AtomicU64::new(0),
        }
    }

    #[inline]
    fn mine(&self) -> Mine<'_> {
        let at = match AT.get() {
            UNKNOWN => first_slot(),
            at => at,
        };
        Mine { cells: &self.cells[at], shared: at == SLOTS }
    }

    /// A post goes on after its call has returned. Posts that end within their calls are not counted: that would slow the
    /// shortest ones down.
    pub(crate) fn begun(&self) {
        let mine = self.mine();
        mine.add(&mine.cells.begun, 1);
    }

    /// Such a post has ended.
    pub(crate) fn ended(&self) {
        let mine = self.mine();
        mine.add(&mine.cells.ended, 1);
    }

    /// A transfer is done, which has taken one path or, with `None`, several.
    pub(crate) fn done(&self, op: Op, path: Option<PathKind>, bytes: u64, took: Duration) {
        let mine = self.mine();
        let moved = &mine.cells.moved[way(path)][op as usize];
        mine.add(&moved.transfers, 1);
        mine.add(&moved.bytes, bytes);
        // Exact for posts of less than 584 years.
        let nanos = took.as_secs().wrapping_mul(1_000_000_000) + u64::from(took.subsec_nanos());
        mine.add(&moved.nanos, nanos);
    }

    /// A transfer has ended otherwise.
    pub(crate) fn failed(&self, op: Op, path: Option<PathKind>, why: &AgentError) {
        count(&self.failed[way(path)][op as usize][Cause::of(why) as usize]);
    }

    /// A path was found between two memories.
    pub(crate) fn chose(&self, path: PathKind) {
        count(&self.chosen[path as usize]);
    }

    /// How often a path was found to be the best.
    pub(crate) fn chosen(&self, path: PathKind) -> u64 {
        self.chosen[path as usize].load(Ordering::Relaxed)
    }

    /// All that is done of a path and a direction.
    pub(crate) fn all_done(&self, op: Op, path: Option<PathKind>) -> Done {
        let mut sum = Done::default();
        for cells in &self.cells {
            let moved = &cells.moved[way(path)][op as usize];
            sum.transfers += moved.transfers.load(Ordering::Relaxed);
            sum.bytes += moved.bytes.load(Ordering::Relaxed);
            sum.time += Duration::from_nanos(moved.nanos.load(Ordering::Relaxed));
        }
        sum
    }

    /// All that has failed of a path and a direction, by this cause.
    pub(crate) fn all_failed(&self, op: Op, path: Option<PathKind>, cause: Cause) -> u64 {
        self.failed[way(path)][op as usize][cause as usize].load(Ordering::Relaxed)
    }

    /// Posts whose calls have returned, and that have not ended.
    pub(crate) fn in_progress(&self) -> u64 {
        let sum = |cell: fn(&Cells) -> &AtomicU64| -> u64 {
            self.cells.iter().map(|cells| cell(cells).load(Ordering::Relaxed)).sum()
        };
        // Ends first, so that no end is counted without its begin.
        let ended = sum(|cells| &cells.ended);
        sum(|cells| &cells.begun).saturating_sub(ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    /// More threads than slots, some one after the other in the same slot, lose no count.
    #[test]
    fn threads_beyond_the_slots_and_threads_that_follow_each_other_lose_no_count() {
        const EACH: u64 = 2000;
        let tally = Tally::new();
        let work = || {
            for _ in 0..EACH {
                tally.begun();
                tally.done(Op::Write, Some(PathKind::Tcp), 3, Duration::from_nanos(7));
            }
        };
        let all_at_once = 2 * SLOTS as u64;
        let barrier = std::sync::Barrier::new(all_at_once as usize);
        thread::scope(|scope| {
            for _ in 0..all_at_once {
                scope.spawn(|| {
                    // All have their slots before one is given back.
                    tally.begun();
                    barrier.wait();
                    work();
                });
            }
        });
        for _ in 0..100 {
            thread::scope(|scope| drop(scope.spawn(work)));
        }
        let count = (all_at_once + 100) * EACH;
        let time = Duration::from_nanos(7 * count);
        let done = Done { transfers: count, bytes: 3 * count, time };
        assert_eq!(tally.all_done(Op::Write, Some(PathKind::Tcp)), done);
        assert_eq!(tally.all_done(Op::Read, Some(PathKind::Tcp)), Done::default());
        assert_eq!(tally.in_progress(), count + all_at_once);
        tally.ended();
        assert_eq!(tally.in_progress(), count + all_at_once - 1);
        let shared = tally.cells[SLOTS].begun.load(Ordering::Relaxed);
        assert!(shared >= (all_at_once - SLOTS as u64) * EACH, "{shared} in the shared cells");
    }

    #[test]
    fn each_cause_has_a_place_of_its_own() {
        let tally = Tally::new();
        for (at, cause) in Cause::ALL.into_iter().enumerate() {
            assert_eq!(at, cause as usize);
            assert_eq!(
                Cause::ALL.iter().filter(|one| one.to_string() == cause.to_string()).count(),
                1
            );
        }
        let (peer, why) = (String::new(), String::new());
        tally.failed(Op::Read, None, &AgentError::PeerLost { peer, why });
        tally.failed(Op::Read, None, &AgentError::NotPosted);
        let count = |cause| tally.all_failed(Op::Read, None, cause);
        assert_eq!(Cause::ALL.map(count), [0, 1, 0, 0, 0, 0, 1]);
        assert_eq!(tally.all_failed(Op::Write, None, Cause::PeerLost), 0);
    }
}
