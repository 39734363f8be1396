//! Copies of payload that take time: longer than a slice, or by a copy engine. Every backend moves
//! such payload through a [`CopyQueue`] of the QP.
//!
//! **Order.** The copies of a queue become visible in the order in which they were asked for.
//! Copies of one engine end in the order of their start, so they follow each other without waiting;
//! one of another engine, or by the CPU, starts when those before it have ended. The bytes of one
//! copy arrive in any order.

mod behind;
mod grant;
mod pieces;

pub(crate) use behind::Behind;
pub(crate) use grant::{Fault, Grant, grants};
pub(crate) use pieces::{Source, engine, move_now};

use std::collections::VecDeque;
use std::time::Duration;
use warpverbs_mem::{KeyTable, Kind, MemError, Pending, Progress, Region, SmallBuf, Span, copy};

/// A copy that takes longer than this, from when it is the oldest, fails: its engine hangs. Real
/// ones take milliseconds.
const TIMEOUT: Duration = Duration::from_secs(10);

const HANGS: MemError = MemError::CopyFailed { code: -1, what: "a copy that does not end" };

/// One side of a copy.
#[derive(Debug)]
struct Side {
    region: Region,
    offset: u64,
    grant: Option<Grant>,
}

impl Side {
    fn new(span: &Span<'_>, grant: Option<Grant>) -> Self {
        Self { region: span.region.clone(), offset: span.offset, grant }
    }

    /// The same, `bytes` further on.
    fn skip(&mut self, bytes: u32) {
        self.offset += u64::from(bytes);
        if let Some(grant) = &mut self.grant {
            grant.skip(bytes);
        }
    }

    fn is_before(&self, len: u32, next: &Span<'_>) -> bool {
        let at = |region: &Region| (region.addr(), region.len(), region.kind());
        at(&self.region) == at(next.region) && self.offset + u64::from(len) == next.offset
    }
}

enum State {
    Waiting,
    Started(Pending),
    Over(Result<(), Fault>),
}

struct Job<T> {
    number: u64,
    from: Side,
    to: Side,
    len: u32,
    tag: T,
    state: State,
    /// When it was first seen as the oldest.
    since: Option<u64>,
}

impl<T> Job<T> {
    /// The engine that does it, as [`warpverbs_mem::copy`] decides.
    fn engine(&self) -> Kind {
        match self.to.region.kind() {
            Kind::Host => self.from.region.kind(),
            kind => kind,
        }
    }

    fn start(&self, keys: Option<&KeyTable>) -> State {
        let Self { from, to, len, .. } = self;
        let granted = keys.map_or(Ok(()), |keys| {
            [from, to].iter().filter_map(|side| side.grant).try_for_each(|it| it.check(keys, *len))
        });
        if let Err(fault) = granted {
            return State::Over(Err(fault));
        }
        let len = *len as usize;
        match copy(&to.region, to.offset, &from.region, from.offset, len) {
            Ok(Progress::Done) => State::Over(Ok(())),
            Ok(Progress::Pending(pending)) => State::Started(pending),
            Err(error) => State::Over(Err(error.into())),
        }
    }
}

/// A copy that has ended.
pub(crate) struct Ended<T> {
    pub(crate) number: u64,
    pub(crate) tag: T,
    /// Whose engine it was.
    pub(crate) engine: Kind,
    pub(crate) result: Result<(), Fault>,
    /// Its engine may still touch both sides.
    pub(crate) hangs: bool,
}

/// Copies of one QP, numbered in the order in which they were asked for. See the module.
pub(crate) struct CopyQueue<T> {
    copies: VecDeque<Job<T>>,
    /// How many of them, from the front, are started.
    started: usize,
    /// Number of the next copy.
    next: u64,
    /// Copies that hang, and what they may still touch.
    stuck: Vec<Pending>,
    /// Copies that [`Self::poll`] found to have failed.
    failed: Vec<(u64, Fault)>,
    /// Copies started, and their bytes.
    pub(crate) count: u64,
    pub(crate) bytes: u64,
}

impl<T> Default for CopyQueue<T> {
    fn default() -> Self {
        Self {
            copies: VecDeque::new(),
            started: 0,
            next: 0,
            stuck: Vec::new(),
            failed: Vec::new(),
            count: 0,
            bytes: 0,
        }
    }
}

impl<T> std::fmt::Debug for CopyQueue<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CopyQueue({} of {} started)", self.started, self.copies.len())
    }
}

/// Asking for copies.
impl<T: Copy> CopyQueue<T> {
    /// Copies asked for and not ended.
    pub(crate) fn len(&self) -> usize {
        self.copies.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.copies.is_empty()
    }

    /// The number of the next copy. All before it have ended if [`Self::has_ended`] of it.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Every copy with a number below this has ended.
    pub(crate) fn has_ended(&self, upto: u64) -> bool {
        self.copies.front().is_none_or(|first| first.number >= upto)
    }

    /// A copy by `engine` would start now.
    pub(crate) fn follows(&self, engine: Kind) -> bool {
        let behind = |last: &Job<T>| self.is_started() && last.engine() == engine;
        engine != Kind::Host && self.copies.back().is_none_or(behind)
    }

    /// Every copy was started.
    pub(crate) fn is_started(&self) -> bool {
        self.started == self.copies.len()
    }

    /// Asks for a copy between two pieces of one length, which becomes part of the one asked for
    /// last if that has not started, this one continues it on both sides, and `join` agrees, which
    /// may change the other's tag.
    pub(crate) fn push_or_join(
        &mut self,
        from: &Span<'_>,
        to: &Span<'_>,
        tag: T,
        join: impl FnOnce(&mut T) -> bool,
    ) {
        if self.started < self.copies.len()
            && let Some(last) = self.copies.back_mut()
            && last.from.is_before(last.len, from)
            && last.to.is_before(last.len, to)
            && join(&mut last.tag)
        {
            last.len += from.len;
            return;
        }
        self.push(Side::new(from, None), Side::new(to, None), from.len, tag);
        self.next += 1;
    }

    /// Asks for copies of `len` bytes from pieces to pieces, which have one number. Each checks its
    /// grants when it starts: there are as many as pieces, or none. The number after theirs.
    pub(crate) fn push_all(
        &mut self,
        from: Source<'_>,
        to: &[Span<'_>],
        [from_grants, to_grants]: &[Vec<Grant>; 2],
        tag: T,
    ) -> u64 {
        let (buffer, whole);
        let from = match from {
            Source::Spans(spans) => spans,
            Source::Bytes(bytes) => {
                // The WQE's slot is reused before a copy engine may have read it.
                buffer = SmallBuf::of(bytes);
                let len = bytes.len() as u32;
                whole = [Span { region: &buffer, offset: 0, len, proxy_lkey: None }];
                &whole[..]
            }
        };
        let grant = |grants: &[Grant], (piece, skipped): (usize, u32)| {
            let mut grant = *grants.get(piece)?;
            grant.skip(skipped);
            Some(grant)
        };
        for pair in pieces::pairs(from, to) {
            let from = Side::new(&pair.from, grant(from_grants, pair.from_at));
            let to = Side::new(&pair.to, grant(to_grants, pair.to_at));
            self.push(from, to, pair.from.len, tag);
        }
        self.next += 1;
        self.next
    }

    fn push(&mut self, from: Side, to: Side, len: u32, tag: T) {
        let (number, state, since) = (self.next, State::Waiting, None);
        self.copies.push_back(Job { number, from, to, len, tag, state, since });
    }
}

/// Starting and ending copies.
impl<T: Copy> CopyQueue<T> {
    /// Starts copies that may start, of `budget` bytes at most; the last one waits if it
    /// `may_grow`. Grants are checked if `keys` are given. Never blocks.
    pub(crate) fn start(&mut self, keys: Option<&KeyTable>, mut budget: u64, may_grow: bool) {
        while self.started < self.copies.len() - usize::from(may_grow && !self.is_empty()) {
            let at = self.started;
            let follows = at == 0 || self.copies[at].engine() == self.copies[at - 1].engine();
            if budget == 0 || !follows {
                break;
            }
            self.split(at, budget.min(u64::from(u32::MAX)) as u32);
            let job = &mut self.copies[at];
            job.state = job.start(keys);
            let (number, failed) = (job.number, matches!(job.state, State::Over(Err(_))));
            budget -= u64::from(job.len);
            self.bytes += u64::from(job.len);
            (self.count, self.started) = (self.count + 1, at + 1);
            if failed {
                self.cancel(number);
            }
        }
    }

    /// Copy `at` is no longer than `len`: the rest is another, of the same number, behind it.
    fn split(&mut self, at: usize, len: u32) {
        let job = &mut self.copies[at];
        if job.len <= len {
            return;
        }
        let side = |side: &Side| Side { region: side.region.clone(), ..*side };
        let (from, to) = (side(&job.from), side(&job.to));
        let first = Job { from, to, len, state: State::Waiting, ..*job };
        job.len -= len;
        job.from.skip(len);
        job.to.skip(len);
        self.copies.insert(at, first);
    }

    /// A copy of this number failed: those of it that have not started are left out.
    #[cold]
    fn cancel(&mut self, number: u64) {
        let mut waiting = self.copies.split_off(self.started);
        waiting.retain(|copy| copy.number != number);
        self.copies.append(&mut waiting);
    }

    /// The oldest copy, once it has ended. Never blocks.
    pub(crate) fn take_ended(&mut self, now: u64) -> Option<Ended<T>> {
        if self.started == 0 {
            return None;
        }
        let front = self.copies.front_mut()?;
        let overdue =
            now.saturating_sub(*front.since.get_or_insert(now)) > crate::clock::nanos(TIMEOUT);
        let hangs = match &front.state {
            State::Started(pending) => match pending.is_done() {
                Ok(false) if !overdue => return None,
                Ok(done) => !done,
                Err(error) => {
                    front.state = State::Over(Err(error.into()));
                    false
                }
            },
            _ => false,
        };
        let front = self.copies.pop_front()?;
        self.started -= 1;
        let (number, tag, engine) = (front.number, front.tag, front.engine());
        let result = match front.state {
            State::Over(result) => result,
            State::Started(pending) if hangs => {
                self.stuck.push(pending);
                Err(HANGS.into())
            }
            State::Waiting | State::Started(_) => Ok(()),
        };
        if result.is_err() {
            self.cancel(number);
        }
        Some(Ended { number, tag, engine, result, hangs })
    }

    /// Starts and ends copies, and records failures for [`Self::outcome`].
    pub(crate) fn poll(&mut self, now: u64, keys: Option<&KeyTable>, mut budget: u64) {
        loop {
            let before = self.bytes;
            self.start(keys, budget, false);
            budget -= self.bytes - before;
            let Some(Ended { number, result, .. }) = self.take_ended(now) else { return };
            self.failed.extend(result.err().map(|fault| (number, fault)));
        }
    }

    /// Whether all copies below `upto` have ended; the fault of those just below it. As of the last
    /// [`Self::poll`].
    pub(crate) fn outcome(&self, upto: u64) -> Result<bool, Fault> {
        if !self.has_ended(upto) {
            return Ok(false);
        }
        let failed = self.failed.iter().find(|(number, _)| number + 1 == upto);
        failed.map_or(Ok(true), |(_, fault)| Err(fault.clone()))
    }
}

#[cfg(test)]
mod tests;
