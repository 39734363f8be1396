//! Sequences of the core's calls, made of any bytes, on two agents of this process and beside a model: the body of the
//! fuzz target `nixl_calls`, also run by the ordinary tests.

mod model;
mod script;

use arbitrary::{Arbitrary, Unstructured};
use model::{ARENA, Listed, Made, Range, Side, Verdict, if_so, moved};
use script::{Call, Rows, Step, Whose};
use std::cell::Cell;
use std::net::Ipv4Addr;
use std::rc::Rc;
use std::time::{Duration, Instant};
use warpverbs_gpu::Buffer;
use warpverbs_mem::{HostBuf, Region};
use warpverbs_nixl::{
    Agent, Config, Desc, Error, Kind, List, Op, Params, Prepared, RegDesc, RegList, Status,
    Strided, Transfer,
};

/// Calls of one script.
const CALLS: usize = 40;
/// Within this everything ends that ends.
const SOON: Duration = Duration::from_secs(20);
const NAMES: [&str; 2] = ["a", "b"];
const PLUGINS: [&str; 3] = ["UCX", "POSIX", "UVX"];

/// Ranges to be registered, and their offsets if all of them are in the arena.
type Ranges = (RegList, Option<Vec<(u64, u64)>>);

/// Outcome of a script.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) calls: usize,
    pub(crate) made: usize,
    pub(crate) done: usize,
    pub(crate) notified: usize,
}

struct Bed {
    agents: [Agent; 2],
    memory: [Region; 2],
    sides: [Side; 2],
    lists: [Vec<(Prepared, Listed)>; 2],
    transfers: [Vec<(Transfer, Made, Option<u8>)>; 2],
    backends: [[bool; 2]; 2],
    outcome: Outcome,
}

/// Panics if a call does, if it works or fails where it must not, or if bytes, notifications or memory are not where they
/// belong in the end.
pub(crate) fn exercise(input: &[u8]) -> Outcome {
    let mut bytes = Unstructured::new(input);
    let mut bed = Bed::new();
    if bool::arbitrary(&mut bytes).unwrap_or_default() {
        // As most programs begin.
        for who in [0, 1, 0] {
            bed.step(who, &Call::RegisterAll);
            bed.step(who, &Call::Load { part: None, spoilt: None });
        }
    }
    while bed.outcome.calls < CALLS && !bytes.is_empty() {
        let Ok(Step { by_b, call }) = Step::arbitrary(&mut bytes) else { break };
        bed.outcome.calls += 1;
        bed.step(usize::from(by_b), &call);
    }
    bed.end()
}

fn note_of(note: Option<u8>) -> Option<Vec<u8>> {
    note.map(|note| vec![note; usize::from(note % 5)])
}

fn op_of(read: bool) -> Op {
    if read { Op::Read } else { Op::Write }
}

impl Bed {
    fn new() -> Self {
        let config =
            Config { address: Ipv4Addr::LOCALHOST.into(), deadline: SOON, ..Config::default() };
        let agents = NAMES.map(|name| Agent::new(name, config.clone()).unwrap());
        let content: [Vec<u8>; 2] =
            [3, 7].map(|step| (0..ARENA).map(|i| (i * step % 251) as u8).collect());
        let memory = content.each_ref().map(|content| {
            let region = HostBuf::region(ARENA as usize).unwrap();
            region.write(0, content).unwrap();
            region
        });
        let sides = content.map(|content| Side::new(&content));
        for agent in &agents {
            agent.create_backend("UCX", &Params::new()).unwrap();
        }
        Self {
            agents,
            memory,
            sides,
            lists: Default::default(),
            transfers: Default::default(),
            backends: [[true, false]; 2],
            outcome: Outcome::default(),
        }
    }

    fn base(&self, who: usize) -> u64 {
        self.memory[who].addr()
    }

    fn step(&mut self, who: usize, call: &Call) {
        match call {
            Call::Backend(plugin) => self.backend(who, usize::from(*plugin) % 3),
            Call::Register(rows) => self.register(who, &self.ranges(who, rows)),
            Call::RegisterAll => self.register(who, &self.whole(who, (0, ARENA))),
            Call::Deregister(rows) => self.deregister(who, &self.ranges(who, rows)),
            Call::DeregisterOne(at) => {
                if let Some(range) = pick(&self.sides[who].ranges, *at) {
                    self.deregister(who, &self.whole(who, (range.at, range.len)));
                }
            }
            Call::Prepare(whose, rows) => self.prepare(who, *whose, rows, false),
            Call::PrepareStrided(whose, rows) => self.prepare(who, *whose, rows, true),
            Call::Make { read, lists, index, count, note, posts } => {
                let index = &index[..usize::from(count % 4)];
                let made = self.make(who, op_of(*read), *lists, index, *note);
                made.filter(|_| *posts).iter().for_each(|at| self.post(who, *at, None, true));
            }
            Call::Create { read, local, remote, alike, whose, note, posts } => {
                let remote = if *alike { remote.alike(local) } else { *remote };
                let made = self.create(who, op_of(*read), (local, &remote), *whose, *note);
                made.filter(|_| *posts).iter().for_each(|at| self.post(who, *at, None, true));
            }
            Call::Post { transfer, note, waits } => self.post(who, *transfer, *note, *waits),
            Call::Look(at) => self.look(who, *at),
            Call::Cancel(at) => {
                if let Some((transfer, _, _)) = pick(&self.transfers[who], *at) {
                    transfer.cancel();
                }
            }
            Call::Release(at) => remove(&mut self.transfers[who], *at),
            Call::ReleaseList(at) => remove(&mut self.lists[who], *at),
            Call::Load { part, spoilt } => self.load(who, part.as_ref(), *spoilt),
            Call::LoadAny(bytes) => Verdict::Fails.judge(call, &self.agents[who].load(bytes)),
            Call::Withdraw => {
                let gone = self.agents[1 - who].invalidation().unwrap();
                Verdict::Works.judge(call, &self.agents[who].load(&gone));
                self.sides[who].forget();
            }
            Call::Forget => {
                let verdict = self.sides[who].forget();
                verdict.judge(call, &self.agents[who].forget(NAMES[1 - who]));
            }
            Call::Notify(whose, note) => self.notify(who, *whose, *note),
            Call::Take => self.take(who),
            Call::Knows(rows) => self.knows(who, rows),
        }
    }

    fn backend(&mut self, who: usize, plugin: usize) {
        let new = self.backends[who].get(plugin).is_some_and(|made| !made);
        let made = self.agents[who].create_backend(PLUGINS[plugin], &Params::new());
        if_so(new).judge(&PLUGINS[plugin], &made);
        if new {
            self.backends[who][plugin] = true;
        }
    }

    /// A list of one range.
    fn whole(&self, who: usize, (at, len): (u64, u64)) -> Ranges {
        let desc = Desc { addr: self.base(who) + at, len, dev: 0 };
        let descs = vec![RegDesc { desc, meta: Vec::new() }];
        (RegList { kind: Kind::Dram, descs }, Some(vec![(at, len)]))
    }

    /// A list, and its ranges as offsets if all of them are in the arena.
    fn ranges(&self, who: usize, rows: &Rows) -> Ranges {
        let base = self.base(who);
        let descs: Vec<Desc> = rows.rows().iter().map(|row| row.desc(base)).collect();
        let inside = |desc: &Desc| {
            let at = desc.addr.checked_sub(base)?;
            let end = at.checked_add(desc.len)?;
            (desc.len > 0 && end <= ARENA).then_some((at, desc.len))
        };
        let kind = rows.kind.get();
        let found = if kind == Kind::Dram { descs.iter().map(inside).collect() } else { None };
        let descs = descs.into_iter().map(|desc| RegDesc { desc, meta: Vec::new() }).collect();
        (RegList { kind, descs }, found)
    }

    fn register(&mut self, who: usize, (list, ranges): &Ranges) {
        let memory = &self.memory[who];
        let made = self.agents[who].register(list, &mut |gpu, desc| {
            assert!(gpu.is_none(), "{desc:?}: there is no GPU");
            let at = desc.addr.checked_sub(memory.addr()).ok_or("below the arena")?;
            let len = usize::try_from(desc.len).map_err(|error| error.to_string())?;
            Ok(Buffer::of_region(memory.slice(at, len).map_err(|error| error.to_string())?))
        });
        let open = list.kind != Kind::Dram && list.descs.is_empty();
        let verdict = if open { Verdict::Open } else { if_so(ranges.is_some()) };
        verdict.judge(list, &made);
        for &(at, len) in ranges.iter().flatten() {
            self.sides[who].ranges.push(Range { at, len, alive: Rc::new(Cell::new(true)) });
        }
    }

    fn deregister(&mut self, who: usize, (list, ranges): &Ranges) {
        let result = self.agents[who].deregister(list);
        let verdict = match ranges {
            Some(ranges) => self.sides[who].deregister(ranges),
            None if list.descs.is_empty() => Verdict::Open,
            None => Verdict::Fails,
        };
        verdict.judge(list, &result);
    }

    /// The name by which an agent is called, and whether it is the other one.
    fn named(who: usize, whose: Whose) -> (&'static str, Option<bool>) {
        match whose {
            Whose::Mine => ("", Some(false)),
            Whose::Itself => (NAMES[who], Some(false)),
            Whose::Other => (NAMES[1 - who], Some(true)),
            Whose::Nobody => ("nobody", None),
        }
    }

    /// The right outcome of looking rows up.
    fn listed(
        &self,
        who: usize,
        whose: Whose,
        kind: Kind,
        rows: &[Strided],
    ) -> (Verdict, Option<Listed>) {
        if kind == Kind::File && rows.is_empty() {
            return (Verdict::Open, None);
        }
        let (_, peer) = Self::named(who, whose);
        let Some(peer) = peer.filter(|_| kind == Kind::Dram) else { return (Verdict::Fails, None) };
        let base = self.base(if peer { 1 - who } else { who });
        let (verdict, listed) = self.sides[who].listed(peer, rows, base);
        (verdict, Some(listed))
    }

    fn prepare(&mut self, who: usize, whose: Whose, rows: &Rows, strided: bool) {
        let (name, peer) = Self::named(who, whose);
        let base = self.base(if peer == Some(true) { 1 - who } else { who });
        let kind = rows.kind.get();
        let (made, all): (_, Vec<Strided>) = match strided {
            true => {
                let all: Vec<_> = rows.rows().iter().map(|row| row.strided(base)).collect();
                (self.agents[who].prepare_strided(name, kind, &all), all)
            }
            false => {
                let descs: Vec<_> = rows.rows().iter().map(|row| row.desc(base)).collect();
                let all = descs.iter().copied().map(Strided::from).collect();
                (self.agents[who].prepare(name, &List { kind, descs }), all)
            }
        };
        let (verdict, listed) = self.listed(who, whose, kind, &all);
        verdict.judge(&(whose, kind, &all), &made);
        if let (Ok(made), Some(listed)) = (made, listed) {
            assert_eq!(made.len(), listed.blocks.len(), "{all:?}");
            self.lists[who].push((made, listed));
        }
    }

    fn make(
        &mut self,
        who: usize,
        op: Op,
        (local, remote): (u8, u8),
        index: &[(u8, u8)],
        note: Option<u8>,
    ) -> Option<u8> {
        let lists = &self.lists[who];
        let (local, remote) = (pick(lists, local)?, pick(lists, remote)?);
        let pairs: Vec<(u32, u32)> =
            index.iter().map(|(a, b)| (u32::from(a % 12), u32::from(b % 12))).collect();
        let (here, there): (Vec<u32>, Vec<u32>) = pairs.iter().copied().unzip();
        let made = self.agents[who].make(op, (&local.0, &here), (&remote.0, &there), note_of(note));
        let (verdict, model) = self.sides[who].made(op, &local.1, &remote.1, &pairs);
        verdict.judge(&(op, &local.0, &remote.0, &pairs), &made);
        self.keep(who, made, model, note)
    }

    fn create(
        &mut self,
        who: usize,
        op: Op,
        (local, remote): (&Rows, &Rows),
        whose: Whose,
        note: Option<u8>,
    ) -> Option<u8> {
        let (name, peer) = Self::named(who, whose);
        let there = if peer == Some(true) { 1 - who } else { who };
        let list = |rows: &Rows, of: usize| {
            let descs = rows.rows().iter().map(|row| row.desc(self.base(of))).collect();
            List { kind: rows.kind.get(), descs }
        };
        let (local, remote) = (list(local, who), list(remote, there));
        let made = self.agents[who].create(op, &local, &remote, name, note_of(note));
        let rows = |list: &List| list.descs.iter().copied().map(Strided::from).collect::<Vec<_>>();
        let mine = self.listed(who, Whose::Mine, local.kind, &rows(&local));
        let theirs = self.listed(who, whose, remote.kind, &rows(&remote));
        let (mut verdict, mut model) = (mine.0.and(theirs.0), None);
        if local.descs.len() != remote.descs.len() {
            verdict = Verdict::Fails;
        } else if let (Some(mine), Some(theirs)) = (mine.1, theirs.1) {
            let pairs: Vec<_> = (0..local.descs.len() as u32).map(|at| (at, at)).collect();
            let made = self.sides[who].made(op, &mine, &theirs, &pairs);
            (verdict, model) = (verdict.and(made.0), Some(made.1));
        }
        verdict.judge(&(op, &local, &remote, name), &made);
        self.keep(who, made, model?, note)
    }

    /// Keeps a transfer that was made, and says under which number.
    fn keep(
        &mut self,
        who: usize,
        made: Result<Transfer, Error>,
        model: Made,
        note: Option<u8>,
    ) -> Option<u8> {
        let transfer = made.ok()?;
        let fresh = transfer.status().unwrap_err().status;
        assert_eq!(fresh, Status::NotPosted);
        self.outcome.made += 1;
        self.transfers[who].push((transfer, model, note));
        u8::try_from(self.transfers[who].len() - 1).ok()
    }

    /// Posts; a transfer that is not waited for is one whose end is not known.
    fn post(&mut self, who: usize, at: u8, note: Option<u8>, waits: bool) {
        let Some((transfer, made, own)) = pick(&self.transfers[who], at) else { return };
        let was_going = matches!(transfer.status(), Ok(Status::InProgress));
        let verdict = self.sides[who].ends(made);
        let posted = transfer.post(note_of(note));
        let result = match waits {
            true => posted.and_then(|_| transfer.wait(SOON)),
            false => posted,
        };
        let (known, made, note) =
            (waits && !was_going, made.clone(), note_of(note).or(note_of(*own)));
        if known {
            verdict.judge(&made, &result);
        }
        let done = known && matches!(result, Ok(Status::Success));
        if done || result.is_ok() || was_going || verdict != Verdict::Fails {
            moved(&mut self.sides, who, &made, done);
        }
        self.outcome.done += usize::from(done);
        if let Some(note) = note {
            let to = if made.peer.is_some() { 1 - who } else { who };
            self.sides[to].notes.push((who == 1, note));
            self.sides[to].all_notes &= done;
        }
    }

    /// Calls that only look.
    fn look(&self, who: usize, at: u8) {
        let Some((transfer, made, _)) = pick(&self.transfers[who], at) else { return };
        assert_eq!(transfer.bytes(), made.pairs.iter().map(|(here, _)| here.len).sum::<u64>());
        let _ = (transfer.status(), transfer.estimate(), transfer.plugin());
        assert_eq!(transfer.telemetry().unwrap_err().status, Status::NoTelemetry);
    }

    /// The other agent's metadata, all or a part of them, perhaps damaged on the way.
    fn load(&mut self, who: usize, part: Option<&Rows>, spoilt: Option<(u16, u8)>) {
        let other = 1 - who;
        let (metadata, ranges) = match part {
            None => (self.agents[other].metadata(), Some(self.sides[other].ranges.clone())),
            Some(rows) => {
                let (list, wanted) = self.ranges(other, rows);
                let ranges = match wanted {
                    Some(wanted) => self.sides[other].named(&wanted),
                    None => list.descs.is_empty().then(Vec::new),
                };
                (self.agents[other].partial_metadata(&list), ranges)
            }
        };
        if_so(ranges.is_some()).judge(&part, &metadata);
        let (Ok(mut metadata), Some(ranges)) = (metadata, ranges) else { return };
        let spoilt = spoilt.filter(|(_, change)| *change != 0);
        if let Some((at, change)) = spoilt {
            let at = usize::from(at) % metadata.len();
            metadata[at] ^= change;
        }
        let loaded = self.agents[who].load(&metadata);
        if_so(spoilt.is_none()).judge(&("metadata", spoilt), &loaded);
        if spoilt.is_none() {
            assert_eq!(loaded.unwrap(), NAMES[other]);
            self.sides[who].learn(ranges, part.is_none());
        }
    }

    fn notify(&mut self, who: usize, whose: Whose, note: u8) {
        let (name, peer) = Self::named(who, whose);
        let to = if peer == Some(true) { 1 - who } else { who };
        let bytes = note_of(Some(note)).unwrap_or_default();
        let result = self.agents[who].notify(name, &bytes);
        let known =
            whose == Whose::Itself || (peer == Some(true) && self.sides[who].known.is_some());
        if_so(known).judge(&("notify", name), &result);
        if result.is_ok() {
            self.sides[to].notes.push((who == 1, bytes));
        }
    }

    /// Takes notifications: those that must be there, in the order of each sender, and no others.
    fn take(&mut self, who: usize) {
        let all = self.agents[who].notifications();
        let side = &mut self.sides[who];
        for (from, name) in NAMES.iter().enumerate() {
            let found = all.get(*name).cloned().unwrap_or_default();
            let sent = side.notes.iter().filter(|(by_b, _)| usize::from(*by_b) == from);
            let sent: Vec<_> = sent.map(|(_, bytes)| bytes.clone()).collect();
            self.outcome.notified += found.len();
            match side.all_notes {
                true => assert_eq!(found, sent, "of {name}"),
                false => {
                    found.iter().for_each(|one| assert!(sent.contains(one), "of {name}: {one:?}"))
                }
            }
        }
        assert!(all.keys().all(|from| NAMES.contains(&&**from)), "{all:?}");
        if side.all_notes {
            side.notes.clear();
        }
    }

    fn knows(&self, who: usize, rows: &Rows) {
        let (agent, name) = (&self.agents[who], NAMES[1 - who]);
        assert_eq!(agent.knows(name, None), self.sides[who].known.is_some());
        assert!(!agent.knows("nobody", None));
        let descs: Vec<_> = rows.rows().iter().map(|row| row.desc(self.base(1 - who))).collect();
        let all: Vec<_> = descs.iter().copied().map(Strided::from).collect();
        let (verdict, _) = self.listed(who, Whose::Other, Kind::Dram, &all);
        if !descs.is_empty() && verdict != Verdict::Open {
            let knows = agent.knows(name, Some(&List { kind: Kind::Dram, descs }));
            assert_eq!(knows, verdict == Verdict::Works, "{all:?}");
        }
    }

    /// Ends all, and looks at what is left.
    fn end(mut self) -> Outcome {
        // First, so that nothing is written below.
        self.transfers = Default::default();
        self.lists = Default::default();
        (0..2).for_each(|who| self.take(who));
        for agent in &self.agents {
            agent.deregister_all().unwrap();
        }
        for (memory, side) in self.memory.iter().zip(&self.sides) {
            let mut bytes = vec![0; ARENA as usize];
            memory.read(0, &mut bytes).unwrap();
            let wrong = bytes
                .iter()
                .zip(&side.bytes)
                .position(|(byte, known)| known.is_some_and(|known| known != *byte));
            assert_eq!(wrong, None, "a byte is not what was written");
        }
        let Self { agents, memory, outcome, .. } = self;
        drop(agents);
        let left = memory.map(|memory| memory.downgrade());
        let end = Instant::now() + SOON;
        while left.iter().any(|memory| memory.upgrade().is_some()) {
            assert!(Instant::now() < end, "memory is kept by agents that have ended");
            std::thread::yield_now();
        }
        outcome
    }
}

fn pick<T>(all: &[T], at: u8) -> Option<&T> {
    all.get(usize::from(at) % all.len().max(1))
}

fn remove<T>(all: &mut Vec<T>, at: u8) {
    if !all.is_empty() {
        all.remove(usize::from(at) % all.len());
    }
}
