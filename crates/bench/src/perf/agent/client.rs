//! The end that posts, and measures.

use super::exchange::{COUNTER, COUNTER_BYTES, compile};
use super::memory::{LABEL, Side};
use super::messages::{COMPILE_LIMIT, Exchange, Filling, LIMIT, Message, Request, check};
use super::plan::{Amount, Case, MeasureArgs, Pair, Plan, Way};
use super::row::AgentRow;
use crate::rig::cases::each;
use crate::rig::pattern::poison;
use crate::rig::plan::word;
use crate::rig::talk::{Talk, only};
use crate::rig::threads::joined;
use crate::stats::Summary;
use anyhow::{Context as _, Result};
use std::net::SocketAddr;
use std::sync::Barrier;
use std::time::{Duration, Instant};
use warpverbs::agent::{
    Agent, AgentConfig, BlockList, Op, PostOptions, Registration, RemoteMemory, State, Transfer,
};

pub(super) struct Client<'a> {
    side: &'a Side,
    control: Talk<Message>,
    agent: Agent,
    server: String,
    address: SocketAddr,
    /// Data of each row differ.
    tag: u64,
}

impl<'a> Client<'a> {
    pub(super) fn connect(
        side: &'a Side,
        args: &MeasureArgs,
        mut control: Talk<Message>,
    ) -> Result<Self> {
        let at = control.local_ip()?;
        let config = side.config(at)?.listen(SocketAddr::new(at, 0));
        let config = config.queue_pairs(args.queue_pairs);
        let config = config.copy_by(args.copy_by);
        let config = args.require.into_iter().fold(config, AgentConfig::require);
        let config = args.kernel_blocks.into_iter().fold(config, AgentConfig::kernel_blocks);
        // Several clients of one server differ.
        let name = format!("perf client {}", std::process::id());
        let agent = Agent::new(&name, config)?;
        control.send(Message::Meet { client: name })?;
        let found = control.recv("met", LIMIT)?;
        let address = only!(control, found, "met", Message::Met { agent } => agent);
        control.during("while it measured");
        let server = agent.fetch_metadata(address, LIMIT).context("the server's metadata")?;
        agent.send_metadata(address, &agent.metadata()?, LIMIT)?;
        Ok(Self { side, control, agent, server, address, tag: 0 })
    }

    /// All rows; those that were measured are in `rows` whatever happens. `notes` gets how each pair
    /// of memories is reached.
    pub(super) fn measure(
        &mut self,
        plan: &Plan,
        rows: &mut Vec<AgentRow>,
        notes: &mut Vec<String>,
    ) -> Result<()> {
        let bytes = plan.cases.iter().map(Case::total).max().unwrap_or(1);
        if plan.cases.iter().any(|case| case.way == Way::Exchange) {
            self.ask(Request::Compile)?;
            compile(self.side)?;
        }
        for pair in &plan.pairs {
            let Pair { here, there } = *pair;
            let local = self.side.register(&self.agent, here, bytes)?;
            self.ask(Request::Register { mem: there, bytes })?;
            self.agent.fetch_metadata(self.address, LIMIT)?;
            let remote = self.agent.remote(&self.server, LABEL)?;
            let counter = self.agent.alloc(COUNTER_BYTES, COUNTER)?;
            self.agent.send_metadata(self.address, &self.agent.metadata()?, LIMIT)?;
            let names = format!("{} to {}", word(here), word(there));
            let name = |case: &Case| format!("{names}: {case:?}");
            each(&plan.cases, rows, name, |case, _| match case.way.op() {
                Some(op) => self.row(plan, (pair, case, op), &local, &remote),
                None => self.exchange(plan, (pair, case), &local, &counter),
            })?;
            notes.push(format!("{names}: {}", self.agent.explain(&local, &remote)?));
        }
        Ok(())
    }

    /// Tells the server how it ended.
    pub(super) fn finish(mut self, end: Result<()>) -> Result<()> {
        match end {
            Ok(()) => self.ask(Request::Finish),
            Err(error) => self.control.failing(|_| Err(error)),
        }
    }

    /// Asks the server, and waits for its answer.
    fn ask(&mut self, request: Request) -> Result<()> {
        let limit = if matches!(request, Request::Compile) { COMPILE_LIMIT } else { LIMIT };
        self.control.send(Message::Request(request))?;
        let found = self.control.recv("done", limit)?;
        only!(self.control, found, "done", Message::Done => Ok(()))
    }

    fn row(
        &mut self,
        plan: &Plan,
        (pair, case, op): (&Pair, &Case, Op),
        local: &Registration,
        remote: &RemoteMemory,
    ) -> Result<AgentRow> {
        self.tag += 1;
        let (tag, bytes) = (self.tag, case.total());
        let order = case.layout.order(case.shape.count);
        // The bytes of all of the peer's memory, in the order in which they lie here.
        let expected = arranged(&Filling::Data(tag).bytes(bytes as usize), case, &order);
        match op {
            Op::Write => {
                self.ask(Request::Fill { bytes, with: Filling::Poison(tag) })?;
                local.write(0, &expected)?;
            }
            Op::Read => {
                self.ask(Request::Fill { bytes, with: Filling::Data(tag) })?;
                local.write(0, &poison(&expected))?;
            }
        }
        let lists: Vec<_> = (0..u64::from(case.threads))
            .map(|thread| Lists::new(case, &order, thread * case.span(), local, remote))
            .collect::<Result<_>>()?;
        let making = self.making(op, case, &lists[0], plan.makes)?;
        let transfers: Vec<Transfer> = lists
            .iter()
            .map(|lists| self.agent.transfer(op, &lists.local, &lists.remote))
            .collect::<Result<_, _>>()?;
        let ran = run(&transfers, plan)?;
        match op {
            Op::Write => self.ask(Request::Compare { bytes, tag })?,
            Op::Read => check(local, &expected)?,
        }
        let mut row = AgentRow::of(*pair, case, &transfers[0].telemetry()?, making);
        row.add(ran.post, ran.transfer, ran.transfers, ran.took);
        Ok(row)
    }

    /// Messages of kernels, there and back.
    fn exchange(
        &mut self,
        plan: &Plan,
        (pair, case): (&Pair, &Case),
        local: &Registration,
        counter: &Registration,
    ) -> Result<AgentRow> {
        self.tag += 1;
        let (tag, bytes) = (self.tag, case.shape.bytes);
        // At the end the peer's memory holds its own message and, behind it, that of this end.
        let all = Filling::Data(tag).bytes(2 * bytes as usize);
        let (theirs, ours) = all.split_at(bytes as usize);
        self.ask(Request::Fill { bytes: 2 * bytes, with: Filling::Poison(tag) })?;
        self.ask(Request::Fill { bytes, with: Filling::Data(tag) })?;
        local.write(0, &[ours, &poison(theirs)].concat())?;
        counter.write(0, &[0; COUNTER_BYTES as usize])?;
        let rounds = match plan.amount {
            Amount::Transfers(count) => count.min(1 << 20) as u32,
            Amount::Time(_) => 2000,
        };
        let warmup = plan.warmup.min(1 << 20) as u32;
        let here = Exchange { bytes, threads: case.threads, begins: true, warmup, rounds };
        self.ask(Request::Exchange(Exchange { begins: false, ..here }))?;
        let running = here.start(self.side, &self.agent, (local, counter), &self.server)?;
        let (path, each) = running.finish()?;
        self.ask(Request::Compare { bytes: 2 * bytes, tag })?;
        check(local, &[ours, theirs].concat())?;
        let mut row = AgentRow::new(*pair, case, path.to_string());
        let rounds = u64::from(rounds);
        row.add(Vec::new(), vec![each.as_nanos() as u64], rounds, each * rounds as u32);
        Ok(row)
    }

    /// The times that preparing lists takes, making a transfer of them, and making one of lists.
    fn making(
        &self,
        op: Op,
        case: &Case,
        lists: &Lists,
        count: u32,
    ) -> Result<[Option<Summary>; 3]> {
        let (mut prepare, mut make, mut initialize) = (Vec::new(), Vec::new(), Vec::new());
        let index: Vec<u32> = (0..case.shape.count as u32).collect();
        for _ in 0..count {
            let start = Instant::now();
            let local = self.agent.prepare(&lists.local)?;
            let remote = self.agent.prepare(&lists.remote)?;
            prepare.push(nanos(start));
            let start = Instant::now();
            let made = self.agent.prepared_transfer(op, &local, &index, &remote, &index)?;
            make.push(nanos(start));
            drop(made);
            let start = Instant::now();
            let made = self.agent.transfer(op, &lists.local, &lists.remote)?;
            initialize.push(nanos(start));
            drop(made);
        }
        Ok([prepare, make, initialize].map(Summary::of))
    }
}

/// Blocks of one thread on both sides.
struct Lists {
    local: BlockList,
    remote: BlockList,
}

impl Lists {
    fn new(
        case: &Case,
        order: &[u64],
        base: u64,
        local: &Registration,
        remote: &RemoteMemory,
    ) -> Result<Self> {
        let len = case.shape.bytes;
        let there: Vec<_> = order.iter().map(|block| base + block * len).collect();
        let local = local.blocks(base, len, order.len())?;
        Ok(Self { local, remote: remote.blocks_at(&there, len)? })
    }
}

/// The blocks of `there` in the order in which they lie here.
fn arranged(there: &[u8], case: &Case, order: &[u64]) -> Vec<u8> {
    let len = case.shape.bytes as usize;
    let mut here = Vec::with_capacity(there.len());
    for span in there.chunks_exact(case.span() as usize) {
        for &block in order {
            here.extend_from_slice(&span[block as usize * len..][..len]);
        }
    }
    here
}

struct Ran {
    post: Vec<u64>,
    transfer: Vec<u64>,
    transfers: u64,
    took: Duration,
}

/// Posts every transfer by a thread of its own, again and again.
fn run(transfers: &[Transfer], plan: &Plan) -> Result<Ran> {
    let barrier = Barrier::new(transfers.len());
    let each: Vec<Result<Ran>> = std::thread::scope(|scope| {
        let (first, others) = transfers.split_at(1);
        let others: Vec<_> = others
            .iter()
            .map(|transfer| scope.spawn(|| one_thread(transfer, plan, &barrier)))
            .collect();
        let first = one_thread(&first[0], plan, &barrier);
        std::iter::once(first).chain(others.into_iter().map(joined)).collect()
    });
    let mut all = Ran { post: vec![], transfer: vec![], transfers: 0, took: Duration::ZERO };
    for ran in each {
        let ran = ran?;
        all.post.extend(ran.post);
        all.transfer.extend(ran.transfer);
        all.transfers += ran.transfers;
        all.took = all.took.max(ran.took);
    }
    Ok(all)
}

fn one_thread(transfer: &Transfer, plan: &Plan, barrier: &Barrier) -> Result<Ran> {
    let warm = (0..plan.warmup).try_for_each(|_| once(transfer).map(drop));
    // A thread that has failed lets the others go on, too.
    barrier.wait();
    warm?;
    let mut ran = Ran { post: vec![], transfer: vec![], transfers: 0, took: Duration::ZERO };
    let begin = Instant::now();
    loop {
        let (post, whole) = once(transfer)?;
        ran.post.push(post);
        ran.transfer.push(whole);
        ran.transfers += 1;
        ran.took = begin.elapsed();
        let over = match plan.amount {
            Amount::Transfers(count) => ran.transfers >= count,
            Amount::Time(time) => ran.took >= time,
        };
        if over {
            return Ok(ran);
        }
    }
}

/// Time inside of the call that posts, and from there until the transfer is done.
fn once(transfer: &Transfer) -> Result<(u64, u64)> {
    let start = Instant::now();
    let state = transfer.post(PostOptions::new())?;
    let post = nanos(start);
    if state != State::Done {
        transfer.wait(LIMIT)?;
    }
    Ok((post, nanos(start)))
}

fn nanos(since: Instant) -> u64 {
    since.elapsed().as_nanos() as u64
}
