//! Which warps have something to run, which lanes sleep, and how a launch rests when all do.

use super::policy::Policy;
use super::warp::Warp;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::{Duration, Instant};

/// Warps with ready lanes. Entries may be out of date; they are dropped when met.
pub(crate) struct ReadyQueue {
    warps: VecDeque<usize>,
    queued: Vec<bool>,
    in_order: bool,
    /// The warp of the last turn, and its lanes that have not had one in this round.
    last: Option<(usize, u64)>,
}

impl ReadyQueue {
    /// `in_order`: warps and lanes in turn; else by chance.
    pub(crate) fn new(in_order: bool) -> Self {
        Self { warps: VecDeque::new(), queued: Vec::new(), in_order, last: None }
    }

    /// Adds the warp in slot `at`.
    pub(crate) fn push(&mut self, at: usize) {
        if self.queued.len() <= at {
            self.queued.resize(at + 1, false);
        }
        if !std::mem::replace(&mut self.queued[at], true) {
            self.warps.push_back(at);
        }
    }

    /// Adds the warp in slot `at` if any of its lanes may run.
    pub(crate) fn requeue(&mut self, at: usize, ready: u64) {
        if ready != 0 {
            self.push(at);
        }
    }

    /// The next lane to run.
    pub(crate) fn pick(
        &mut self,
        warps: &[Option<Warp>],
        policy: &mut Policy,
    ) -> Option<(usize, u32)> {
        let ready = |at: usize| warps[at].as_ref().map_or(0, Warp::runnable);
        if self.in_order {
            return self.pick_in_order(ready);
        }
        if let Some((at, _)) = self.last
            && ready(at) != 0
            && policy.stay()
        {
            return Some((at, policy.choose_bit(ready(at))));
        }
        while !self.warps.is_empty() {
            let i = policy.choose(self.warps.len());
            let at = self.warps[i];
            if ready(at) != 0 {
                self.last = Some((at, 0));
                return Some((at, policy.choose_bit(ready(at))));
            }
            self.warps.swap_remove_back(i);
            self.queued[at] = false;
        }
        None
    }

    /// A round of a warp gives each lane that is ready at its begin one turn.
    fn pick_in_order(&mut self, ready: impl Fn(usize) -> u64) -> Option<(usize, u32)> {
        loop {
            if let Some((at, round)) = self.last {
                let rest = round & ready(at);
                if rest != 0 {
                    self.last = Some((at, rest & (rest - 1)));
                    return Some((at, rest.trailing_zeros()));
                }
            }
            let at = self.warps.pop_front()?;
            self.queued[at] = false;
            self.last = Some((at, ready(at)));
            if ready(at) != 0 {
                // Behind all others, for what is ready after this round.
                self.push(at);
            }
        }
    }
}

/// Lanes that paused, by the time at which they go on.
#[derive(Default)]
pub(crate) struct Sleepers(BinaryHeap<Reverse<(u64, usize, u32)>>);

impl Sleepers {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn push(&mut self, due: u64, warp: usize, lane: u32) {
        self.0.push(Reverse((due, warp, lane)));
    }

    pub(crate) fn next_due(&self) -> Option<u64> {
        self.0.peek().map(|Reverse((due, ..))| *due)
    }

    /// A lane whose time has come, as warp slot and lane.
    pub(crate) fn pop_due(&mut self, now: u64) -> Option<(usize, u32)> {
        if self.next_due()? > now {
            return None;
        }
        self.0.pop().map(|Reverse((_, warp, lane))| (warp, lane))
    }
}

/// How long all lanes may spin in vain before the launch's thread sleeps instead of yielding.
const SPIN: Duration = Duration::from_millis(2);
/// The same on an only core: those that the lanes wait for need it, the system's own work too.
const SPIN_ALONE: Duration = Duration::from_micros(50);
const NAP: Duration = Duration::from_micros(50);

/// Leaves the CPU to those that the lanes wait for.
pub(crate) struct Idle {
    /// Pauses since a lane last did anything else.
    pauses: u64,
    since: Option<Instant>,
    spin: Duration,
}

impl Default for Idle {
    fn default() -> Self {
        let alone = std::thread::available_parallelism().is_ok_and(|cores| cores.get() == 1);
        let spin = if alone { SPIN_ALONE } else { SPIN };
        Self { pauses: 0, since: None, spin }
    }
}

impl Idle {
    /// A lane got on.
    pub(crate) fn progress(&mut self) {
        self.pauses = 0;
        self.since = None;
    }

    /// One of `lanes` paused. Yields the CPU whenever all of them may have done so.
    pub(crate) fn paused(&mut self, lanes: u32) {
        self.pauses += 1;
        if self.pauses.is_multiple_of(u64::from(lanes.max(64))) {
            self.give_way(NAP);
        }
    }

    /// All lanes sleep for at least `ns`.
    pub(crate) fn rest(&mut self, ns: u64) {
        self.give_way(Duration::from_nanos(ns));
    }

    fn give_way(&mut self, limit: Duration) {
        let now = Instant::now();
        let spun = now - *self.since.get_or_insert(now);
        if spun > self.spin || !warpverbs_mem::give_way() {
            std::thread::sleep(limit.min(NAP));
        }
    }
}
