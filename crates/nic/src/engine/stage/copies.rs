//! Copies between a stage and memory, in order.
//!
//! What is placed becomes visible in the order in which it was asked for, as if it were placed at
//! once: copies of one engine end in the order of their start, so they follow each other without
//! waiting; one of another engine, or by the CPU, starts when those before it have ended.

use super::chunks::{Chunks, Slice};
use std::collections::VecDeque;
use std::time::Duration;
use warpverbs_mem::{Kind, MemError, Pending, Progress, Region, Span, copy};

/// A copy that takes longer than this fails: its engine hangs. Real ones take milliseconds.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Copies asked for and not ended, of one stage. Their bytes alone are no bound:
/// a peer that sends single bytes would make millions of them.
pub(crate) const MOST: usize = 4096;

const GONE: MemError = MemError::CopyFailed { code: -1, what: "a stage that is gone" };
const HANGS: MemError = MemError::CopyFailed { code: -1, what: "a copy that does not end" };

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// From memory into the stage.
    Gather,
    /// From the stage into memory.
    Place,
}

enum State {
    Waiting,
    UnderWay(Pending),
    Over(Result<(), MemError>),
}

struct Job<T> {
    way: Way,
    memory: Region,
    offset: u64,
    slice: Slice,
    why: T,
    state: State,
    /// When it was started.
    since: u64,
}

/// A copy that has ended.
pub(crate) struct Landed<T> {
    /// Its number.
    pub(crate) number: u64,
    pub(crate) why: T,
    pub(crate) kind: Kind,
    pub(crate) result: Result<(), MemError>,
    /// Bytes of the stage that nobody needs any more: those of what was placed.
    pub(crate) done_with: Option<Slice>,
}

/// Copies in the order in which they were asked for, which is that of their numbers.
pub(crate) struct Copies<T> {
    jobs: VecDeque<Job<T>>,
    /// How many of them, from the front, are started.
    started: usize,
    /// Number of the front.
    first: u64,
    /// Who does those that are started.
    lane: Kind,
    /// Copies that hang, and what they may still touch.
    stuck: Vec<Pending>,
    /// Copies started, and their bytes.
    pub(crate) count: u64,
    pub(crate) bytes: u64,
}

impl<T> Default for Copies<T> {
    fn default() -> Self {
        let (jobs, stuck) = (VecDeque::new(), Vec::new());
        Self { jobs, started: 0, first: 0, lane: Kind::Host, stuck, count: 0, bytes: 0 }
    }
}

impl<T: Copy> Copies<T> {
    pub(crate) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Another packet's copies can be asked for: it has at most as many pieces as a receive.
    pub(crate) fn have_room(&self) -> bool {
        self.jobs.len() + crate::engine::access::MAX_PIECES <= MOST
    }

    /// The number of the next copy. All before it have ended if [`Self::has_landed`] of it.
    pub(crate) fn next(&self) -> u64 {
        self.first + self.jobs.len() as u64
    }

    /// Every copy with a number below this has ended.
    pub(crate) fn has_landed(&self, upto: u64) -> bool {
        self.first >= upto
    }

    /// Asks for a copy, which becomes part of the one asked for last if it `joins` that and
    /// continues it on both sides. The bytes of one copy arrive in any order.
    pub(crate) fn push(
        &mut self,
        way: Way,
        memory: &Span<'_>,
        slice: Slice,
        why: T,
        joins: impl Fn(&T) -> bool,
    ) {
        let Span { region, offset, .. } = *memory;
        let open = (self.started < self.jobs.len()).then(|| self.jobs.back_mut()).flatten();
        let joined =
            |last: &&mut Job<T>| joins(&last.why) && last.continues(way, region, offset, &slice);
        if let Some(last) = open.filter(joined) {
            last.slice.len += slice.len;
            return;
        }
        let (memory, state) = (region.clone(), State::Waiting);
        self.jobs.push_back(Job { way, memory, offset, slice, why, state, since: 0 });
    }

    /// Starts what may start now. The newest waits if it `may_grow`.
    pub(crate) fn start(&mut self, now: u64, chunks: &Chunks, may_grow: bool) {
        let end = self.jobs.len() - usize::from(may_grow && !self.jobs.is_empty());
        while self.started < end {
            let job = &mut self.jobs[self.started];
            let lane = job.memory.kind();
            if self.started > 0 && lane != self.lane {
                break;
            }
            self.lane = lane;
            self.count += 1;
            self.bytes += u64::from(job.slice.len);
            (job.state, job.since) = (job.begin(chunks), now);
            self.started += 1;
        }
    }

    /// The oldest copy, once it has ended.
    pub(crate) fn land(&mut self, now: u64) -> Option<Landed<T>> {
        if self.started == 0 {
            return None;
        }
        let front = self.jobs.front_mut()?;
        let overdue = now.saturating_sub(front.since) > crate::clock::nanos(TIMEOUT);
        let hangs = match &front.state {
            State::UnderWay(pending) => match pending.is_done() {
                Ok(false) if !overdue => return None,
                Ok(done) => !done,
                Err(error) => {
                    front.state = State::Over(Err(error));
                    false
                }
            },
            _ => false,
        };
        let Job { way, memory, slice, why, state, .. } = self.jobs.pop_front()?;
        self.started -= 1;
        self.first += 1;
        let (number, kind) = (self.first - 1, memory.kind());
        let result = match state {
            State::Over(result) => result,
            State::UnderWay(pending) if hangs => {
                self.stuck.push(pending);
                Err(HANGS)
            }
            State::Waiting | State::UnderWay(_) => Ok(()),
        };
        // What a copy that hangs may still touch is used for nothing else.
        let done_with = (way == Way::Place && !hangs).then_some(slice);
        Some(Landed { number, why, kind, result, done_with })
    }
}

impl<T> Job<T> {
    fn continues(&self, way: Way, region: &Region, offset: u64, slice: &Slice) -> bool {
        let here = (self.way, self.memory.addr(), self.memory.len(), self.memory.kind());
        here == (way, region.addr(), region.len(), region.kind())
            && self.offset + u64::from(self.slice.len) == offset
            && self.slice.is_before(slice)
    }

    fn begin(&self, chunks: &Chunks) -> State {
        let Some((stage, at)) = chunks.memory(self.slice) else { return State::Over(Err(GONE)) };
        let (memory, offset, len) = (&self.memory, self.offset, self.slice.len as usize);
        let progress = match self.way {
            Way::Gather => copy(stage, at, memory, offset, len),
            Way::Place => copy(memory, offset, stage, at, len),
        };
        match progress {
            Ok(Progress::Done) => State::Over(Ok(())),
            Ok(Progress::Pending(pending)) => State::UnderWay(pending),
            Err(error) => State::Over(Err(error)),
        }
    }
}

impl<T> std::fmt::Debug for Copies<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Copies({} of {} started)", self.started, self.jobs.len())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Pool;
    use super::*;
    use std::sync::Arc;
    use warpverbs_mem::testing::{LazyCopier, LazyMemory};

    #[test]
    fn single_bytes_are_not_taken_without_end() {
        let copier = Arc::new(LazyCopier::default());
        let (region, _view) = LazyMemory::regions(1 << 16, 0, &copier).unwrap();
        let (mut pool, mut copies) = (Pool::default(), Copies::default());
        let mut chunks = Chunks::new(&mut pool, region.copier().unwrap()).unwrap();
        let mut taken = 0;
        while copies.have_room() && chunks.make_room(&mut pool, 1) {
            // Every other byte: no copy continues the one before it.
            let span = Span { region: &region, offset: taken % 1000 * 2, len: 1, proxy_lkey: None };
            let slice = chunks.take(1).unwrap();
            copies.push(Way::Place, &span, slice, (), |()| true);
            copies.start(0, &chunks, false);
            taken += 1;
        }
        assert!((1000..=MOST as u64).contains(&taken), "{taken} copies");
        copier.allow(u64::MAX / 2);
        while copies.land(0).is_some() {
            copies.start(0, &chunks, false);
        }
        assert!(copies.have_room());
    }
}
