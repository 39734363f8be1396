//! One run: threads, memory, and the choices there are at each step.

use crate::fiber::{Body, Fiber};
use crate::memory::{Memory, Race};
use crate::op::{Access, Atomic, Collective, Op, Order, Scope};
use crate::report::Failure;
use crate::scenario::{Change, End, Mutant, NOTES, Rule, Scenario, SiteUse};
use corosensei::stack::DefaultStack;
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

/// A paused thread looks again although nothing has changed.
const SPURIOUS: usize = 100;
/// The same, because nobody else can do anything.
const QUIET: usize = 101;

/// Looks of all threads at unchanged memory before time is said to pass.
const QUIET_ROUNDS: u32 = 40;

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
    Paused,
    Done,
}

#[derive(Clone)]
struct Thread {
    status: Status,
    /// Hash of all answers so far, which determine everything the thread knows.
    history: u64,
    seen: Rc<Vec<Seen>>,
    pauses: u32,
    /// Under [`Change::Later`]: what is still to be done.
    delayed: Option<Atomic>,
    /// The answer that the thread gets when that has been done.
    deferred: Option<u64>,
}

/// Everything but the coroutines. Cheap to clone.
#[derive(Clone)]
pub(crate) struct State {
    pub(crate) memory: Memory,
    threads: Vec<Thread>,
    pub(crate) notes: [u64; NOTES],
    last: usize,
    switches: u32,
    spurious: u32,
    quiet: u32,
    late: bool,
}

/// Limits of a run.
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
    /// Who was resumed with what, since the start.
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
        };
        let state = State {
            memory: Memory::new(&places, &scenario.memory),
            threads: vec![thread; places.len()],
            notes: [0; NOTES],
            last: 0,
            switches: limits.switches.unwrap_or(0),
            spurious: limits.spurious,
            quiet: 0,
            late: false,
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
        for thread in &state.threads {
            (thread.history, thread.pauses, matches!(thread.status, Status::Paused))
                .hash(&mut hasher);
            thread.seen.hash(&mut hasher);
            (thread.delayed.is_some(), thread.deferred).hash(&mut hasher);
        }
        (state.spurious, state.quiet, state.late).hash(&mut hasher);
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
            if matches!(t.status, Status::Paused) && !self.scenario.threads[thread].daemon {
                choices.push(Choice { thread, way: SPURIOUS });
            }
        }
    }

    /// Nobody has anything new to look at: all who pause look again, one after another.
    fn quiet_choice(&self) -> Step<Choice> {
        let count = self.state.threads.len();
        let most = QUIET_ROUNDS * count as u32;
        let paused = |t: &usize| matches!(self.state.threads[*t].status, Status::Paused);
        let next = (1..=count).map(|i| (self.state.last + i) % count).find(paused);
        match next {
            Some(thread) if self.state.quiet < most || self.may_be_late() => {
                Ok(Choice { thread, way: QUIET })
            }
            _ => Err(self.stuck()),
        }
    }

    fn may_be_late(&self) -> bool {
        self.scenario.time_passes && !self.state.late
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
        let t = &self.state.threads[thread];
        let mut ways = |count: usize| out.extend((0..count).map(|way| Choice { thread, way }));
        match t.status {
            Status::Waiting(Op::Atomic(op)) => return self.ways_of_access(thread, &op, out),
            Status::Waiting(Op::Fence { .. }) => ways(1),
            Status::Waiting(Op::Active { site }) => {
                let here =
                    self.lanes_at(thread, |op| matches!(op, Op::Active { site: s } if s == site));
                // Any set, each once: as a step of its lowest lane.
                let own = 1 << self.lane(thread);
                let others = here & !(own | (own - 1));
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
                (memory.floor(thread, at)..=newest).for_each(|p| way(newest - p));
                out.reverse();
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
        let key = move |t: usize| match &self.scenario.threads[t].body {
            Body::Kernel { lane, .. } => {
                Some((lane.block, if whole_block { 0 } else { lane.warp }))
            }
            Body::Host(_) => None,
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

    /// Makes one step.
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
            Status::Waiting(Op::Active { site }) => {
                self.say(thread, || format!("lanes {way:#x} arrive together  {site}"));
                let chosen = |t: &usize| way >> self.lane(*t) & 1 == 1;
                let lanes: Vec<usize> = self.comrades(thread, false).filter(chosen).collect();
                lanes.into_iter().try_for_each(|t| self.advance(t, way as u64))
            }
            Status::Paused => self.wake(thread, way),
            Status::Waiting(_) | Status::Done => Err(Failure::new("the schedule does not fit")),
        }
    }

    fn wake(&mut self, thread: usize, way: usize) -> Step {
        match way {
            SPURIOUS => self.state.spurious -= 1,
            QUIET => {
                self.state.quiet += 1;
                let most = QUIET_ROUNDS * self.state.threads.len() as u32;
                if self.state.quiet > most && self.may_be_late() {
                    (self.state.late, self.state.quiet) = (true, 0);
                }
            }
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

    /// Whether a thread has paused more often than is looked at.
    pub(crate) fn overlong(&self) -> bool {
        self.state.threads.iter().any(|t| t.pauses > self.limits.pauses)
    }

    fn access(&mut self, thread: usize, op: &Atomic, way: usize) -> Step<u64> {
        let memory = &self.state.memory;
        let at = memory.locate(op.addr, op.size).map_err(|race| self.race(thread, race))?;
        let newest = memory.newest(at);
        let old = memory.value(at, newest);
        let stored = if way == 0 || matches!(op.access, Access::Store(_)) {
            op.access.result(old, op.size)
        } else {
            None
        };
        let reads = !matches!(op.access, Access::Store(_));
        self.sharing.note(thread, op.addr, reads, !matches!(op.access, Access::Load));
        if let Some(new) = stored {
            self.check_rules(thread, at, op, old, new)?;
            if new != old {
                self.state.quiet = 0;
            }
        }
        let memory = &mut self.state.memory;
        let (answer, position) = match (op.access, stored) {
            (Access::Store(value), _) => {
                let position = newest + 1 - way;
                (memory.store(thread, at, position, value, op).map(|()| value), position)
            }
            (_, Some(new)) => (memory.update(thread, at, new, op), newest + 1),
            (Access::Load, None) => {
                (memory.load(thread, at, newest - way, op.order, op.scope), newest - way)
            }
            (_, None) => {
                (memory.load(thread, at, newest - way, op.failure, op.scope), newest - way)
            }
        };
        let answer = answer.map_err(|race| self.race(thread, race))?;
        self.say_access(thread, op, answer, stored, way);
        self.remember(thread, Seen { at, position, value: stored.unwrap_or(answer) }, way);
        Ok(if reads { answer } else { 0 })
    }

    fn say_access(
        &mut self,
        thread: usize,
        op: &Atomic,
        answer: u64,
        new: Option<u64>,
        way: usize,
    ) {
        let describe = self.scenario.describe.clone();
        let Atomic { addr, access, order, scope, site, .. } = *op;
        self.say(thread, || {
            let what = format!("{} {order:?} {scope:?} {}", access.name(), describe(addr));
            let age = if way == 0 { String::new() } else { format!(" ({way} behind)") };
            match (access, new) {
                (Access::Store(value), _) => format!("{what} <- {value:#x}{age}  {site}"),
                (_, Some(new)) => format!("{what} {answer:#x} -> {new:#x}  {site}"),
                (_, None) => format!("{what} = {answer:#x}{age}  {site}"),
            }
        });
    }

    /// Keeps what a thread has last seen of a location.
    fn remember(&mut self, thread: usize, now: Seen, way: usize) {
        let moved = way != 0 && now.position <= self.state.memory.newest(now.at);
        for (index, t) in self.state.threads.iter_mut().enumerate() {
            // A store into the middle of the modification order has moved later ones up.
            if moved && index != thread && t.seen.iter().any(|s| s.at == now.at) {
                let later = |s: &&mut Seen| s.at == now.at && s.position >= now.position;
                Rc::make_mut(&mut t.seen).iter_mut().filter(later).for_each(|s| s.position += 1);
            }
        }
        let seen = Rc::make_mut(&mut self.state.threads[thread].seen);
        match seen.iter_mut().find(|s| s.at == now.at) {
            Some(before) => *before = now,
            None => seen.push(now),
        }
    }

    fn check_rules(&self, thread: usize, at: usize, op: &Atomic, old: u64, new: u64) -> Step {
        for (_, rule) in self.scenario.rules.iter().filter(|(addr, _)| *addr == op.addr) {
            let name = (self.scenario.describe)(op.addr);
            let broken = match *rule {
                Rule::Monotonic if new < old => {
                    Some(format!("{name} goes back from {old} to {new}"))
                }
                Rule::AtMost(note) if new > self.state.notes[note] => {
                    Some(format!("{name} becomes {new}, beyond {}", self.state.notes[note]))
                }
                Rule::Once if old != 0 => Some(format!("{name} is replaced, {old:#x} by {new:#x}")),
                Rule::OneWriter => self.state.memory.other_writer(thread, at).map(|(by, site)| {
                    let by = &self.scenario.threads[by].name;
                    format!("{name} has two writers: {by} wrote it at {site}, unordered")
                }),
                _ => None,
            };
            if let Some(what) = broken {
                let name = &self.scenario.threads[thread].name;
                return Err(Failure::new(format!("{what}, by {name} at {}", op.site)));
            }
        }
        Ok(())
    }

    /// Hands `thread` the answer to its request, unless something delayed comes first.
    fn answer(&mut self, thread: usize, answer: u64) -> Step {
        let t = &mut self.state.threads[thread];
        if let Some(op) = t.delayed.take() {
            t.status = Status::Waiting(Op::Atomic(op));
            t.deferred = Some(answer);
            return Ok(());
        }
        let answer = t.deferred.take().unwrap_or(answer);
        self.advance(thread, answer)
    }

    /// Runs `thread` on until its next request that others could notice.
    fn advance(&mut self, thread: usize, mut answer: u64) -> Step {
        loop {
            self.log.push((thread, answer));
            let t = &mut self.state.threads[thread];
            t.history = mix(t.history, answer);
            let Some(op) = self.fibers[thread].resume(answer) else {
                self.state.threads[thread].status = Status::Done;
                self.state.quiet = 0;
                return Ok(());
            };
            match self.request(thread, op)? {
                Some(now) => answer = now,
                None => return self.meet(thread),
            }
        }
    }

    /// Takes a request; the answer, if there is one without anybody's noticing.
    fn request(&mut self, thread: usize, op: Op) -> Step<Option<u64>> {
        let mut status = Status::Waiting(op);
        match op {
            Op::Plain { addr, write, site } => {
                let answer = self.plain(thread, addr, write, site)?;
                return Ok(Some(answer));
            }
            Op::Clock => return Ok(Some(if self.state.late { 1 << 60 } else { 0 })),
            Op::Note { index, value } => {
                self.state.notes[index] = value;
                return Ok(Some(0));
            }
            Op::Fail { what, site } => {
                let name = &self.scenario.threads[thread].name;
                return Err(Failure::new(format!("{what}, says {name} at {site}")));
            }
            Op::Pause => status = Status::Paused,
            Op::Atomic(atomic) => {
                let mut atomic = atomic;
                let (name, site) = (atomic.access.name(), atomic.site);
                self.use_site(SiteUse {
                    site,
                    access: name,
                    order: atomic.order,
                    scope: atomic.scope,
                });
                match self.change_of(site, name) {
                    Some(Change::Order(order)) => {
                        (atomic.order, atomic.failure) = (order, order.on_failure());
                    }
                    Some(Change::Scope(scope)) => atomic.scope = scope,
                    Some(Change::Later) if matches!(atomic.access, Access::Store(_)) => {
                        self.state.threads[thread].delayed = Some(atomic);
                        return Ok(Some(0));
                    }
                    _ => {}
                }
                status = Status::Waiting(Op::Atomic(atomic));
            }
            Op::Fence { order, scope, site } => {
                self.use_site(SiteUse { site, access: "fence", order, scope });
                let (mut order, mut scope) = (order, scope);
                match self.change_of(site, "fence") {
                    Some(Change::Nothing) => return Ok(Some(0)),
                    Some(Change::Order(o)) => order = o,
                    Some(Change::Scope(s)) => scope = s,
                    _ => {}
                }
                status = Status::Waiting(Op::Fence { order, scope, site });
            }
            Op::Collective { .. } | Op::BlockSync { .. } | Op::Active { .. } => {}
        }
        self.state.threads[thread].status = status;
        Ok(None)
    }

    fn plain(
        &mut self,
        thread: usize,
        addr: u64,
        write: Option<u64>,
        site: crate::op::Site,
    ) -> Step<u64> {
        let memory = &mut self.state.memory;
        let result = memory.locate(addr, 8).and_then(|at| match write {
            Some(value) => memory.write_plain(thread, at, value, site).map(|()| 0),
            None => memory.read_plain(thread, at),
        });
        let value = result.map_err(|race| {
            let mut failure = self.race(thread, race);
            failure.what.push_str(&format!(", plain access at {site}"));
            failure
        })?;
        let describe = self.scenario.describe.clone();
        self.say(thread, || match write {
            Some(value) => format!("write {} <- {value:#x}  {site}", describe(addr)),
            None => format!("read {} = {value:#x}  {site}", describe(addr)),
        });
        Ok(value)
    }

    fn use_site(&mut self, site: SiteUse) {
        if site.order != Order::Relaxed || site.scope == Scope::System {
            self.sites.insert(site);
        }
    }

    fn change_of(&self, site: crate::op::Site, access: &str) -> Option<Change> {
        let mutant = self.mutant.filter(|m| m.site == site && m.access == access)?;
        Some(mutant.change)
    }

    /// Completes a collective or a barrier if `thread` was the last to come.
    fn meet(&mut self, thread: usize) -> Step {
        let (members, name, site) = match self.state.threads[thread].status {
            Status::Waiting(Op::Collective { what, mask, site, .. }) => {
                let here = self.lanes_at(thread, |op| {
                    matches!(op, Op::Collective { what: w, mask: m, .. } if (w, m) == (what, mask))
                });
                if here & mask != mask {
                    return Ok(());
                }
                let member = |t: &usize| mask >> self.lane(*t) & 1 == 1;
                let members: Vec<usize> = self.comrades(thread, false).filter(member).collect();
                let orders = what == Collective::Sync;
                (members, orders.then_some("sync_warp"), site)
            }
            Status::Waiting(Op::BlockSync { site }) => {
                let members: Vec<usize> = self.comrades(thread, true).collect();
                let waits = |t: &usize| {
                    matches!(self.state.threads[*t].status, Status::Waiting(Op::BlockSync { .. }))
                };
                if !members.iter().all(waits) {
                    return Ok(());
                }
                (members, Some("sync_block"), site)
            }
            _ => return Ok(()),
        };
        if let Some(access) = name {
            self.use_site(SiteUse { site, access, order: Order::AcqRel, scope: Scope::Block });
            if self.change_of(site, access) != Some(Change::Nothing) {
                self.state.memory.barrier(&members);
            }
        }
        let answers: Vec<u64> = members.iter().map(|&t| self.collective(t, &members)).collect();
        members.into_iter().zip(answers).try_for_each(|(t, answer)| self.advance(t, answer))
    }

    fn collective(&self, thread: usize, members: &[usize]) -> u64 {
        let call = |t: usize| match self.state.threads[t].status {
            Status::Waiting(Op::Collective { what, value, arg, .. }) => Some((what, value, arg)),
            _ => None,
        };
        let Some((what, own, arg)) = call(thread) else { return 0 };
        let lanes = |test: &dyn Fn(u64) -> bool| {
            let hit = |t: &&usize| call(**t).is_some_and(|(_, value, _)| test(value));
            members.iter().filter(hit).fold(0, |mask, &t| mask | 1 << self.lane(t))
        };
        match what {
            Collective::Sync => 0,
            Collective::Shfl => {
                let source = members.iter().find(|&&t| self.lane(t) == arg);
                source.and_then(|&t| call(t)).map_or(0, |(_, value, _)| value)
            }
            Collective::Ballot => lanes(&|value| value != 0),
            Collective::MatchAny => lanes(&|value| value == own),
        }
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

fn mix(history: u64, answer: u64) -> u64 {
    let mut hasher = FxHasher::default();
    (history, answer).hash(&mut hasher);
    hasher.finish()
}
