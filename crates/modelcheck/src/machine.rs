//! One run: threads, memory, and the choices there are at each step.

mod access;
mod lockstep;
mod request;
mod rest;

use crate::fiber::{Body, Fiber};
use crate::memory::Memory;
use crate::op::{Access, Atomic, Op};
use crate::race::Race;
use crate::report::Failure;
use crate::scenario::{End, Mutant, NOTES, Scenario, SiteUse, ThreadSpec};
use corosensei::stack::DefaultStack;
use lockstep::Warps;
use rest::{QUIET, SPURIOUS};
use rustc_hash::{FxHashMap, FxHasher};
use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};
use std::rc::Rc;

/// One step: which thread, and which of the things that may happen to it. 0 is what a strongly
/// ordered machine would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) thread: usize,
    pub(crate) way: usize,
}

/// Read since the last pause.
#[derive(Clone, Copy, Hash)]
struct Seen {
    at: usize,
    position: usize,
    value: u64,
}

#[derive(Clone, Copy)]
enum Status {
    Waiting(Op),
    /// About to go on.
    Answered,
    Paused,
    Done,
}

#[derive(Clone)]
struct Thread {
    status: Status,
    /// Hash of all answers so far, which determine everything the thread knows; after
    /// [`Op::Knows`], of that and the answers since.
    history: u64,
    seen: Rc<Vec<Seen>>,
    pauses: u32,
    /// Under a mutant: what is still to be done, and comes next.
    delayed: Option<Atomic>,
    /// The answer that the thread gets when that has been done.
    deferred: Option<u64>,
    /// Under [`Change::Swapped`](crate::Change): waits for its successor.
    swapped: Option<Atomic>,
    /// The thread's next operation where it was no such successor.
    held_up: Option<Op>,
    /// Under [`Change::Torn`](crate::Change): an update of which only the load is done.
    torn: Option<Atomic>,
}

/// Everything but the coroutines. Cheap to clone.
#[derive(Clone)]
pub(crate) struct State {
    pub(crate) memory: Memory,
    threads: Vec<Thread>,
    /// Of warps in lockstep: the lanes that may run.
    warps: Warps,
    pub(crate) notes: [u64; NOTES],
    last: usize,
    switches: u32,
    spurious: u32,
    quiet: u32,
    /// How often time has passed: by more than any timeout each time.
    passed: u32,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) switches: Option<u32>,
    pub(crate) spurious: u32,
    pub(crate) pauses: u32,
}

/// Which threads read and write each location, in any run so far.
#[derive(Default)]
pub(crate) struct Sharing {
    users: FxHashMap<u64, (u32, u32)>,
    /// A location became shared after it was taken for private.
    pub(crate) grown: bool,
}

impl Sharing {
    fn note(&mut self, thread: usize, addr: u64, reads: bool, writes: bool) {
        let (readers, writers) = self.users.entry(addr).or_default();
        let before = (*readers, *writers);
        *readers |= u32::from(reads) << thread;
        *writers |= u32::from(writes) << thread;
        self.grown |= before != (*readers, *writers);
    }

    /// Whether no other thread ever does anything to `addr` that matters to such an access.
    fn private(&self, thread: usize, addr: u64, writes: bool) -> bool {
        let (readers, writers) = self.users.get(&addr).copied().unwrap_or_default();
        let conflicting = if writes { readers | writers } else { writers };
        conflicting & !(1 << thread) == 0
    }
}

/// Stacks of threads that have ended, for the next run.
pub(crate) type Stacks = Vec<DefaultStack>;

pub(crate) struct Machine<'a> {
    scenario: &'a Scenario,
    mutant: Option<&'a Mutant>,
    limits: Limits,
    pub(crate) state: State,
    fibers: Vec<Fiber>,
    /// Threads that were resumed and the answers they got, since the start.
    pub(crate) log: Vec<(usize, u64)>,
    /// Lines about each step, when wanted.
    pub(crate) trace: Option<Vec<String>>,
    pub(crate) sites: BTreeSet<SiteUse>,
    pub(crate) sharing: &'a mut Sharing,
}

type Step<T = ()> = Result<T, Failure>;

impl<'a> Machine<'a> {
    /// At its start: every thread stands before its first operation.
    pub(crate) fn new(
        scenario: &'a Scenario,
        mutant: Option<&'a Mutant>,
        limits: Limits,
        sharing: &'a mut Sharing,
        stacks: &mut Stacks,
    ) -> Self {
        let places: Vec<_> = scenario.threads.iter().map(|t| t.place).collect();
        let thread = Thread {
            status: Status::Paused,
            history: 0,
            seen: Rc::default(),
            pauses: 0,
            delayed: None,
            deferred: None,
            swapped: None,
            held_up: None,
            torn: None,
        };
        let state = State {
            memory: Memory::new(&places, &scenario.memory),
            threads: vec![thread; places.len()],
            warps: Warps::new(&scenario.threads),
            notes: [0; NOTES],
            last: 0,
            switches: limits.switches.unwrap_or(0),
            spurious: limits.spurious,
            quiet: 0,
            passed: 0,
        };
        let fibers = Self::fibers(scenario, stacks);
        let (log, trace, sites) = (Vec::new(), None, BTreeSet::new());
        Self { scenario, mutant, limits, state, fibers, log, trace, sites, sharing }
    }

    fn fibers(scenario: &Scenario, stacks: &mut Stacks) -> Vec<Fiber> {
        scenario.threads.iter().map(|t| Fiber::new(&t.body, stacks.pop())).collect()
    }

    pub(crate) fn start(&mut self) -> Step {
        (0..self.fibers.len()).try_for_each(|thread| self.advance(thread, 0))
    }

    /// Goes back to `state`, which the first `length` entries of the log led to.
    pub(crate) fn rewind(&mut self, state: State, length: usize, stacks: &mut Stacks) {
        self.give_stacks(stacks);
        self.fibers = Self::fibers(self.scenario, stacks);
        self.state = state;
        self.log.truncate(length);
        for &(thread, answer) in &self.log {
            let _ = self.fibers[thread].resume(answer);
        }
    }

    /// Ends the run; its stacks serve the next.
    pub(crate) fn give_stacks(&mut self, stacks: &mut Stacks) {
        stacks.extend(self.fibers.drain(..).filter_map(Fiber::stop));
    }

    /// A number that is equal for states with the same future.
    pub(crate) fn hash(&self) -> u64 {
        let mut hasher = FxHasher::default();
        let state = &self.state;
        state.memory.hash_into(&mut hasher);
        for (at, (thread, spec)) in state.threads.iter().zip(&self.scenario.threads).enumerate() {
            if matches!(thread.status, Status::Done) {
                // All that is left of it is in memory and in its notes.
                at.hash(&mut hasher);
                continue;
            }
            let pauses = if spec.daemon { 0 } else { thread.pauses };
            (thread.history, pauses, matches!(thread.status, Status::Paused)).hash(&mut hasher);
            thread.seen.hash(&mut hasher);
            (thread.delayed.is_some(), thread.deferred, thread.held_up.is_some()).hash(&mut hasher);
            thread.torn.is_some().hash(&mut hasher);
            state.memory.hash_thread(at, &mut hasher);
        }
        state.notes.hash(&mut hasher);
        state.warps.hash(&mut hasher);
        (state.spurious, state.quiet, state.passed).hash(&mut hasher);
        if self.limits.switches.is_some() {
            (state.last, state.switches).hash(&mut hasher);
        }
        hasher.finish()
    }

    /// Everything that can happen next; empty at the end of the run.
    pub(crate) fn choices(&self) -> Step<Vec<Choice>> {
        let mut choices = Vec::new();
        for offset in 0..self.state.threads.len() {
            let thread = (self.state.last + offset) % self.state.threads.len();
            let first = choices.len();
            if self.choices_of(thread, &mut choices)? {
                // Commutes with all that others can do.
                return Ok(choices.split_off(first));
            }
        }
        let mine = |choice: &Choice| choice.thread == self.state.last;
        let running = matches!(self.state.threads[self.state.last].status, Status::Waiting(_));
        if self.limits.switches.is_some()
            && self.state.switches == 0
            && running
            && choices.iter().any(mine)
        {
            choices.retain(mine);
        }
        if !choices.is_empty() {
            self.add_spurious(&mut choices);
            return Ok(choices);
        }
        let threads = || self.state.threads.iter().zip(&self.scenario.threads);
        if threads().all(|(t, spec)| spec.daemon || matches!(t.status, Status::Done)) {
            return Ok(choices);
        }
        self.quiet_choice().map(|choice| vec![choice])
    }

    fn add_spurious(&self, choices: &mut Vec<Choice>) {
        if self.state.spurious == 0 {
            return;
        }
        for (thread, t) in self.state.threads.iter().enumerate() {
            let paused = matches!(t.status, Status::Paused) && self.state.warps.allow(thread);
            if paused && !self.scenario.threads[thread].daemon {
                choices.push(Choice { thread, way: SPURIOUS });
            }
        }
    }

    fn stuck(&self) -> Failure {
        let threads = self.state.threads.iter().zip(&self.scenario.threads);
        let waiting: Vec<String> = threads
            .filter(|(t, spec)| !spec.daemon && !matches!(t.status, Status::Done))
            .map(|(t, spec)| match t.status {
                Status::Waiting(Op::Collective { site, .. } | Op::BlockSync { site }) => {
                    format!("{} at {site}", spec.name)
                }
                _ => spec.name.clone(),
            })
            .collect();
        Failure::new(format!("stuck: nothing will ever wake {}", waiting.join(", ")))
    }

    /// Adds what `thread` can do. True if it is something that commutes with all that other
    /// threads ever do, so that nothing else need be tried first.
    fn choices_of(&self, thread: usize, out: &mut Vec<Choice>) -> Step<bool> {
        if !self.state.warps.allow(thread) {
            return Ok(false);
        }
        let t = &self.state.threads[thread];
        let mut ways = |count: usize| out.extend((0..count).map(|way| Choice { thread, way }));
        match t.status {
            Status::Waiting(Op::Atomic(op)) => return self.ways_of_access(thread, &op, out),
            Status::Waiting(Op::Fence { .. }) => ways(1),
            Status::Waiting(Op::Clock) => ways(if self.time_may_pass() { 2 } else { 1 }),
            Status::Waiting(Op::Active { site }) => {
                let here =
                    self.lanes_at(thread, |op| matches!(op, Op::Active { site: s } if s == site));
                // Any set, each once: as a step of its lowest lane.
                let own = 1 << self.lane(thread);
                let others = here & !(own | (own - 1)) & self.state.warps.lanes(thread) as u32;
                let sets = (0..=others).filter(|set| set & !others == 0);
                out.extend(sets.map(|set| Choice { thread, way: (set | own) as usize }));
            }
            Status::Paused => {
                let changed = t.seen.iter().filter(|seen| self.change(seen).is_some()).count();
                ways(changed);
            }
            _ => {}
        }
        Ok(false)
    }

    fn ways_of_access(&self, thread: usize, op: &Atomic, out: &mut Vec<Choice>) -> Step<bool> {
        let memory = &self.state.memory;
        let at = memory.locate(op.addr, op.size).map_err(|race| self.race(thread, race))?;
        let newest = memory.newest(at);
        let mut way = |way| out.push(Choice { thread, way });
        match op.access {
            Access::Load => {
                (memory.floor(thread, at)..=newest).rev().for_each(|p| way(newest - p));
            }
            Access::Store(_) => {
                memory.store_positions(thread, at).for_each(|p| way(newest + 1 - p));
            }
            Access::CompareExchange(expected, _) => {
                way(0);
                let older = (memory.floor(thread, at)..newest).rev();
                let fails = older.filter(|&p| memory.value(at, p) != expected);
                fails.for_each(|p| way(newest - p));
            }
            _ => way(0),
        }
        let writes = !matches!(op.access, Access::Load);
        Ok(self.sharing.private(thread, op.addr, writes))
    }

    /// Position of the first store that would tell a thread something it has not seen.
    fn change(&self, seen: &Seen) -> Option<usize> {
        let memory = &self.state.memory;
        (seen.position + 1..=memory.newest(seen.at))
            .find(|&p| memory.value(seen.at, p) != seen.value)
    }

    fn lane(&self, thread: usize) -> u32 {
        match &self.scenario.threads[thread].body {
            Body::Kernel { lane, .. } => lane.lane,
            Body::Host(_) => 0,
        }
    }

    /// Threads of `thread`'s warp, or of its block.
    fn comrades(&self, thread: usize, whole_block: bool) -> impl Iterator<Item = usize> {
        let key = move |t: usize| match &self.scenario.threads[t] {
            ThreadSpec { body: Body::Kernel { lane, .. }, place, .. } => {
                Some((place.device, lane.block, if whole_block { 0 } else { lane.warp }))
            }
            _ => None,
        };
        let own = key(thread);
        (0..self.state.threads.len()).filter(move |&t| own.is_some() && key(t) == own)
    }

    /// Lanes of `thread`'s warp that wait for such an operation.
    fn lanes_at(&self, thread: usize, test: impl Fn(Op) -> bool) -> u32 {
        let waits =
            |t: &usize| matches!(self.state.threads[*t].status, Status::Waiting(op) if test(op));
        self.comrades(thread, false).filter(waits).fold(0, |mask, t| mask | 1 << self.lane(t))
    }

    pub(crate) fn apply(&mut self, choice: Choice) -> Step {
        let Choice { thread, way } = choice;
        let state = &mut self.state;
        if self.limits.switches.is_some()
            && thread != state.last
            && matches!(state.threads[state.last].status, Status::Waiting(_))
        {
            state.switches = state.switches.saturating_sub(1);
        }
        state.last = thread;
        match state.threads[thread].status {
            Status::Waiting(Op::Atomic(op)) => {
                let answer = self.access(thread, &op, way)?;
                self.answer(thread, answer)
            }
            Status::Waiting(Op::Fence { order, scope, site }) => {
                self.say(thread, || format!("fence {order:?} {scope:?}  {site}"));
                self.state.memory.fence(thread, order, scope);
                self.answer(thread, 0)
            }
            Status::Waiting(Op::Clock) => {
                self.state.passed += u32::from(way == 1);
                self.say(thread, || format!("looks at the clock, time passes: {}", way == 1));
                let now = self.clock();
                self.answer(thread, now)
            }
            Status::Waiting(Op::Active { site }) => {
                self.say(thread, || format!("lanes {way:#x} arrive together  {site}"));
                let chosen = |t: &usize| way >> self.lane(*t) & 1 == 1;
                let lanes: Vec<usize> = self.comrades(thread, false).filter(chosen).collect();
                lanes.into_iter().try_for_each(|t| self.advance(t, way as u64))
            }
            Status::Paused => self.wake(thread, way),
            Status::Waiting(_) | Status::Answered | Status::Done => {
                Err(Failure::new("the schedule does not fit"))
            }
        }
    }

    fn wake(&mut self, thread: usize, way: usize) -> Step {
        match way {
            SPURIOUS => self.state.spurious -= 1,
            QUIET => self.rest(),
            _ => {
                let seen = self.state.threads[thread].seen.clone();
                let mut changed = seen.iter().filter_map(|s| Some((s.at, self.change(s)?)));
                let Some((at, position)) = changed.nth(way) else {
                    return Err(Failure::new("the schedule does not fit"));
                };
                self.state.memory.raise_floor(thread, at, position);
                self.state.threads[thread].pauses += 1;
            }
        }
        self.say(thread, || "looks again".to_owned());
        self.state.threads[thread].seen = Rc::default();
        self.advance(thread, 0)
    }

    /// Whether a thread has paused more often than is looked at. A daemon only follows the others.
    pub(crate) fn overlong(&self) -> bool {
        let mut threads = self.state.threads.iter().zip(&self.scenario.threads);
        threads.any(|(t, spec)| !spec.daemon && t.pauses > self.limits.pauses)
    }

    /// Judges the end of a run.
    pub(crate) fn finish(&self) -> Step {
        let end = End { memory: &self.state.memory, notes: &self.state.notes };
        (self.scenario.finish)(&end).map_err(Failure::new)
    }

    fn race(&self, thread: usize, race: Race) -> Failure {
        let name = &self.scenario.threads[thread].name;
        let (Race::Unordered { addr, .. }
        | Race::Scope { addr, .. }
        | Race::Size { addr, .. }
        | Race::Plain { addr }
        | Race::Unknown { addr }) = race;
        let site = match self.state.threads[thread].status {
            Status::Waiting(Op::Atomic(op)) => format!(" at {}", op.site),
            _ => String::new(),
        };
        Failure::new(format!("{name}{site}: {}: {race}", (self.scenario.describe)(addr)))
    }

    fn say(&mut self, thread: usize, line: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>8}  {}", self.scenario.threads[thread].name, line()));
        }
    }
}

/// The history of a thread that has been given one more answer.
fn mix(history: u64, answer: u64) -> u64 {
    let mut hasher = FxHasher::default();
    (history, answer).hash(&mut hasher);
    hasher.finish()
}
