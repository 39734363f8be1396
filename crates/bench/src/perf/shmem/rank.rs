//! One rank of `perf shmem`: its heap, its part in each row, and the comparison.

use super::cases::{Call, Case, Group, Message, Plan, SMALL};
use super::{LIMIT, LINE, OWN, PUT_SIGNAL, ShmemRow};
use crate::rig::kernel::{self, Report};
use crate::rig::pattern::{compare, pattern, poison};
use crate::rig::ranks::leave;
use crate::rig::roundtrip;
use crate::stats::Summary;
use anyhow::{Context as _, Result};
use std::sync::Arc;
use warpverbs::gpu::{Dim, Gpu, KernelPtr, SafeKernel};
use warpverbs::rendezvous::{World, WorldConfig};
use warpverbs::shmem::{Heap, HeapConfig, Route, Sym, TEAM_BLOCK_BYTES, mail_block_bytes};
use warpverbs::transport::Device;
use warpverbs_test_kernels::shm_perf as k;

/// Signals of a batch, and puts before them.
const BATCH: u64 = 8;
/// `mail_log_slots` of `crates/test-kernels/kernels/shm_perf.cu`.
const LOG_SLOTS: u8 = 7;
/// Largest message of the exchange rows.
const MOST: u64 = 64 << 10;

pub(super) struct Rank {
    pub(super) world: World,
    pub(super) gpu: Arc<dyn Gpu>,
    heap: Heap,
    to: Sym<u8>,
    from: Sym<u8>,
    /// Signals, a mailbox and a team's block, zeroed before each row.
    control: Sym<u8>,
    /// Ticks of each round.
    samples: Sym<u64>,
    /// Whether rank 0 reaches rank 1 by loads and stores.
    direct: bool,
}

/// Where the parts of `control` begin.
const MAILBOX: u64 = 16 * BATCH;
const TEAM: u64 = MAILBOX + mail_block_bytes(MOST as u32, LOG_SLOTS);

impl Rank {
    pub(super) fn join(
        config: &WorldConfig,
        gpu: Arc<dyn Gpu>,
        nic: &Device,
        bytes: u64,
        iters: u32,
    ) -> Result<Self> {
        Self::within(World::join(config)?, gpu, nic, bytes, iters)
    }

    /// In a world that there is.
    pub(super) fn within(
        mut world: World,
        gpu: Arc<dyn Gpu>,
        nic: &Device,
        bytes: u64,
        iters: u32,
    ) -> Result<Self> {
        gpu.load(&k::IMAGE)?;
        let room = bytes.max(BATCH * MOST);
        let size = 2 * room + TEAM + TEAM_BLOCK_BYTES + 8 * u64::from(iters) + 8192;
        let settings = HeapConfig::new(size).timeout(LIMIT);
        let mut heap = Heap::create(&mut world, &gpu, Some(nic), &settings)?;
        let (to, from) = (heap.alloc(room)?, heap.alloc(room)?);
        let control = heap.alloc(TEAM + TEAM_BLOCK_BYTES)?;
        let samples = heap.alloc(iters.into())?;
        let own = matches!(heap.routes().get(1), Some(Route::Direct));
        // Rows are the same on all ranks: as rank 0 has it.
        let direct = world.exchange("direct", &[own.into()])?[0] == [1];
        Ok(Self { world, gpu, heap, to, from, control, samples, direct })
    }

    pub(super) fn is_first(&self) -> bool {
        self.heap.rank() == 0
    }

    pub(super) fn is_direct(&self) -> bool {
        self.direct
    }

    /// The rank of the pair that this one is not.
    fn peer(&self) -> u32 {
        1 - self.heap.rank().min(1)
    }

    pub(super) fn leave(self, failed: Option<&anyhow::Error>) {
        leave(self.world, self.heap, failed);
    }

    /// The world, after all ranks have ended their rows.
    pub(super) fn into_world(self) -> World {
        self.world
    }

    /// One row, which rank 0 gets.
    pub(super) fn measure(&mut self, plan: &Plan, case: &Case) -> Result<Option<ShmemRow>> {
        if *case == Case::Line {
            return self.line(plan);
        }
        let times = self.pass(plan, case, false)?;
        let sampled = match case {
            Case::Exchange { .. } => self.pass(plan, case, true)?,
            _ => None,
        };
        let spread = sampled.map(|times| self.spread(times)).transpose()?.flatten();
        let ns = |[start, end]: [u64; 2]| match case {
            Case::Stream { .. } | Case::Through { .. } => end.saturating_sub(!start),
            _ => start,
        };
        let times = times.filter(|_| self.is_first());
        let row = times.map(|times| row(plan, case, ns(times), &self.route()));
        Ok(row.map(|row| with_spread(row, spread.as_ref())))
    }

    /// The round trip of a cache line, measured by rank 0 while the others do nothing.
    fn line(&mut self, plan: &Plan) -> Result<Option<ShmemRow>> {
        self.world.barrier("ready")?;
        let measure = || roundtrip::cache_line(plan.iters, plan.warmup, LIMIT);
        let rounds = self.is_first().then(measure);
        self.world.barrier("done")?;
        let Some(rounds) = rounds else { return Ok(None) };
        let rounds = rounds.context("no round trip in time")?;
        let all = rounds.mean_ns * f64::from(plan.iters);
        Ok(Some(with_spread(row(plan, &Case::Line, all as u64, &self.route()), Some(&rounds))))
    }

    /// Of single rounds, from how long all of them took in nanoseconds and in ticks.
    fn spread(&self, [ns, ticks]: [u64; 2]) -> Result<Option<Summary>> {
        let mut found = vec![0; self.samples.bytes() as usize];
        self.heap.read(&self.samples, &mut found)?;
        let scale = ns as f64 / ticks.max(1) as f64;
        let (words, _) = found.as_chunks::<8>();
        let ends: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let begun = ends.last().map(|end| end.wrapping_sub(ticks));
        let begins = begun.into_iter().chain(ends.iter().copied());
        let round = |(end, begin): (&u64, u64)| (end.wrapping_sub(begin) as f64 * scale) as u64;
        Ok(Summary::of(ends.iter().zip(begins).map(round).collect()))
    }

    /// All ranks run a row's kernel and compare what it moved; the times of this rank's, if it had one.
    fn pass(&mut self, plan: &Plan, case: &Case, sampled: bool) -> Result<Option<[u64; 2]>> {
        self.prepare(plan, case)?;
        let report = Report::new(&*self.gpu)?;
        let (kernel, dim) = self.kernel(plan, case, sampled, report.pointer());
        let dim = dim.shared(case.lent());
        // The same once before: a GPU and a link that were idle take their time to begin.
        let unmeasured = Report::new(&*self.gpu)?;
        let before = case.is_stream().then(|| self.kernel(plan, case, false, unmeasured.pointer()));
        self.world.barrier("ready")?;
        let times = kernel.map(|kernel| {
            if let Some((Some(before), _)) = before {
                kernel::run(&*self.gpu, &*before, dim, LIMIT)?;
            }
            kernel::run(&*self.gpu, &*kernel, dim, LIMIT)?;
            report.times(&*self.gpu, &[])
        });
        let times = times.transpose().with_context(|| match self.heap.health() {
            Ok(health) => format!("{case:?}: {health}"),
            Err(error) => format!("{case:?}: {error}"),
        })?;
        self.world.barrier("done")?;
        self.verify(plan, case).with_context(|| format!("{case:?}"))?;
        Ok(times)
    }

    pub(super) fn route(&self) -> String {
        self.heap.routes()[self.peer() as usize].to_string()
    }

    /// How much of a rank's target a row fills.
    fn moved(plan: &Plan, case: &Case) -> u64 {
        match *case {
            Case::Exchange { message: Message::Batch, bytes, .. } => BATCH * u64::from(bytes),
            Case::Exchange { bytes, .. } | Case::Call { bytes, .. } => bytes.into(),
            Case::Stream { .. } | Case::Through { .. } => plan.bytes,
            Case::Own => SMALL.into(),
            Case::Meet { .. } | Case::Line => 0,
        }
    }

    fn prepare(&mut self, plan: &Plan, case: &Case) -> Result<()> {
        let len = Self::moved(plan, case) as usize;
        self.heap.write(&self.control, &vec![0; self.control.len() as usize])?;
        self.heap.write(&self.from, &pattern(self.heap.rank().into(), len))?;
        let before = match case {
            Case::Call { call: Call::FetchAdd, .. }
            | Case::Exchange { message: Message::Value, .. } => vec![0; len],
            _ => poison(&pattern(self.peer().into(), len)),
        };
        Ok(self.heap.write(&self.to, &before)?)
    }

    /// Bytes that the row leaves in the target of this rank, if any.
    fn expected(&self, plan: &Plan, case: &Case) -> Option<Vec<u8>> {
        let rank = self.heap.rank();
        let of = |rank: u32| pattern(rank.into(), Self::moved(plan, case) as usize);
        let whole = || of(self.peer());
        let sum = || (u64::from(plan.iters) + u64::from(plan.warmup)).to_le_bytes().to_vec();
        match *case {
            Case::Exchange { message: Message::Value, .. } if rank < 2 => Some(sum()),
            Case::Exchange {
                message: Message::PutSignal | Message::Mail | Message::Through,
                ..
            } if rank < 2 => Some(whole()),
            Case::Own if rank == 0 => Some(of(0)),
            Case::Exchange { message: Message::Batch, .. } if rank == 1 => Some(whole()),
            Case::Call { call: Call::Put, .. }
            | Case::Stream { gets: false, .. }
            | Case::Through { .. }
                if rank == 1 =>
            {
                Some(whole())
            }
            Case::Call { call: Call::Get, .. } | Case::Stream { gets: true, .. } if rank == 0 => {
                Some(whole())
            }
            Case::Call { call: Call::FetchAdd, .. } if rank == 1 => Some(sum()),
            _ => None,
        }
    }

    fn verify(&self, plan: &Plan, case: &Case) -> Result<()> {
        let Some(expected) = self.expected(plan, case) else { return Ok(()) };
        let mut found = vec![0; expected.len()];
        self.heap.read(&self.to, &mut found)?;
        Ok(compare(0, &expected, &found)?)
    }

    /// The kernel that this rank runs, if it takes part.
    fn kernel(
        &self,
        plan: &Plan,
        case: &Case,
        sampled: bool,
        report: KernelPtr<u64>,
    ) -> (Option<Box<dyn SafeKernel>>, Dim) {
        let rank = self.heap.rank();
        let heap = self.heap.device();
        let (to, from, peer) = (self.to.offset(), self.from.offset(), self.peer());
        let &Plan { iters, warmup, .. } = plan;
        match *case {
            Case::Exchange { message, group, threads, bytes } => {
                let side = self.side(plan, bytes, case.lent(), sampled);
                let kernel = (rank < 2).then(|| self.exchange(plan, message, group, side, report));
                (kernel, Dim::new(1, threads))
            }
            Case::Call { call: Call::FetchAdd, threads, .. } => {
                let kernel = k::ShmFetchAdds { heap, peer, to, warmup, iters, report };
                (boxed(rank == 0, kernel), Dim::new(1, threads))
            }
            Case::Call { call, group, threads, bytes } => {
                let (direct, gets) = (plan.direct.into(), u32::from(call == Call::Get));
                let group = group as u32;
                let kernel = k::ShmTransfers {
                    heap,
                    direct,
                    gets,
                    group,
                    peer,
                    to,
                    from,
                    bytes,
                    warmup,
                    iters,
                    report,
                };
                (boxed(rank == 0, kernel), Dim::new(1, threads))
            }
            Case::Own => {
                let side = k::Side { peer: rank, ..self.side(plan, SMALL, 0, false) };
                let kernel = k::ShmPutSignalThread { heap, side, report };
                (boxed(rank == 0, kernel), Dim::new(1, 1))
            }
            Case::Line => (None, Dim::new(1, 1)),
            Case::Stream { gets, blocks, threads } => {
                let (gets, what) = (gets.into(), self.stream(plan));
                let dim = Dim::new(blocks, threads);
                if plan.direct {
                    let kernel = k::ShmStream { heap, gets, peer, what, report };
                    (boxed(rank == 0, kernel), dim)
                } else {
                    let kernel = k::ShmStreamRdma { heap, gets, peer, what, report };
                    (boxed(rank == 0, kernel), dim)
                }
            }
            Case::Through { blocks } => {
                let (lent, what) = (case.lent(), self.stream(plan));
                let kernel = k::ShmStreamThrough { heap, lent, peer, what, report };
                (boxed(rank == 0, kernel), Dim::new(blocks, 32))
            }
            Case::Meet { light, group, threads } => {
                let team_block = self.control.offset() + TEAM;
                let (group, light) = (group as u32, light.into());
                let kernel =
                    k::ShmMeetings { heap, group, team_block, light, warmup, iters, report };
                (boxed(true, kernel), Dim::new(1, threads))
            }
        }
    }

    fn stream(&self, plan: &Plan) -> k::Stream {
        let &Plan { bytes, transfers, .. } = plan;
        let (to, from) = (self.to.offset(), self.from.offset());
        k::Stream { to, from, bytes, iters: transfers }
    }

    fn side(&self, plan: &Plan, bytes: u32, lent: u32, sampled: bool) -> k::Side {
        k::Side {
            to: self.to.offset(),
            from: self.from.offset(),
            signal: self.control.offset(),
            r#box: self.control.offset() + MAILBOX,
            bytes,
            peer: self.peer(),
            begins: u32::from(self.is_first()),
            warmup: plan.warmup,
            iters: plan.iters,
            lent,
            samples: if sampled { self.samples.offset() } else { 0 },
        }
    }

    fn exchange(
        &self,
        plan: &Plan,
        message: Message,
        group: Group,
        side: k::Side,
        report: KernelPtr<u64>,
    ) -> Box<dyn SafeKernel> {
        use Group::{Block, Thread, Warp};
        let heap = self.heap.device();
        if !plan.direct {
            return Box::new(k::ShmExchangeRdma { heap, what: message as u32, side, report });
        }
        match (message, group) {
            (Message::Signal, Thread) => Box::new(k::ShmSignalThread { heap, side, report }),
            (Message::Value, Thread) => Box::new(k::ShmValueThread { heap, side, report }),
            (Message::Through, Warp) => Box::new(k::ShmThroughWarp { heap, side, report }),
            (Message::Batch, Warp) => Box::new(k::ShmBatchWarp { heap, side, report }),
            (Message::Word, Thread) => Box::new(k::ShmWordThread { heap, side, report }),
            (Message::Word, Warp) => Box::new(k::ShmWordWarp { heap, side, report }),
            (Message::Mail, Block) => Box::new(k::ShmMailBlock { heap, side, report }),
            (Message::Mail, Warp) => Box::new(k::ShmMailWarp { heap, side, report }),
            (Message::PutSignal, Thread) => Box::new(k::ShmPutSignalThread { heap, side, report }),
            (Message::PutSignal, Warp) => Box::new(k::ShmPutSignalWarp { heap, side, report }),
            (Message::PutSignal, Block) => Box::new(k::ShmPutSignalBlock { heap, side, report }),
            _ => unreachable!("no kernel for {message:?} by a {}", group.name()),
        }
    }
}

fn boxed(runs: bool, kernel: impl SafeKernel + 'static) -> Option<Box<dyn SafeKernel>> {
    runs.then(|| Box::new(kernel) as Box<dyn SafeKernel>)
}

fn with_spread(row: ShmemRow, spread: Option<&Summary>) -> ShmemRow {
    let us = |ns: u64| ns as f64 / 1e3;
    let (p50_us, p99_us) = (spread.map(|s| us(s.p50_ns)), spread.map(|s| us(s.p99_ns)));
    ShmemRow { p50_us, p99_us, ..row }
}

/// The fence of a row's bytes, by loads and stores; by RDMA the queue pair orders them.
fn fence(case: &Case) -> &'static str {
    match case {
        Case::Exchange { message: Message::Mail | Message::Word | Message::Value, .. } => "none",
        Case::Exchange { message: Message::Batch, .. } => "one for 8",
        Case::Exchange { message: Message::Through, .. } => "bulk, release",
        Case::Exchange { .. } | Case::Own | Case::Line => "release",
        Case::Call { call: Call::FetchAdd, .. } => "acq_rel",
        _ => "acq_rel fence",
    }
}

fn row(plan: &Plan, case: &Case, ns: u64, route: &str) -> ShmemRow {
    let each = |times: u32| Some(ns as f64 / 1e3 / f64::from(times));
    let (what, group, blocks, threads, bytes) = match *case {
        Case::Exchange { message, group, threads, bytes } => {
            let what = match message {
                Message::Signal => "signal, there and back",
                Message::PutSignal => PUT_SIGNAL,
                Message::Mail | Message::Word => "mail, there and back",
                Message::Batch => "8 puts, 8 signals, a mail back",
                Message::Value => "put_value, there and back",
                Message::Through => "put_through and signal, there and back",
            };
            (what, group, 1, threads, u64::from(bytes))
        }
        Case::Own => (OWN, Group::Thread, 1, 1, SMALL.into()),
        Case::Line => (LINE, Group::Thread, 0, 0, 0),
        Case::Call { call, group, threads, bytes } => {
            let what = match call {
                Call::Put => "put, quiet",
                Call::Get => "get, quiet",
                Call::FetchAdd => "fetch_add",
            };
            (what, group, 1, threads, bytes.into())
        }
        Case::Stream { gets, blocks, threads } => {
            let what = if gets { "get" } else { "put" };
            (what, Group::Block, blocks, threads, plan.bytes)
        }
        Case::Through { blocks } => ("put_through", Group::Thread, blocks, 32, plan.bytes),
        Case::Meet { light, group, threads } => {
            (if light { "sync of all" } else { "barrier of all" }, group, 1, threads, 0)
        }
    };
    let moved = f64::from(plan.transfers) * plan.bytes as f64;
    let stream = case.is_stream();
    let signal = matches!(case, Case::Exchange { message: Message::Signal, .. });
    let line = *case == Case::Line;
    let none = signal || line || matches!(case, Case::Meet { .. });
    ShmemRow {
        what,
        route: route.to_owned(),
        by: if line { "host" } else { group.name() },
        blocks,
        threads,
        lent: case.lent(),
        bytes,
        fence: fence(case),
        clock: if line { "rank 0's host" } else { "rank 0's GPU" },
        p50_us: None,
        p99_us: None,
        us: if stream { None } else { each(plan.iters) },
        gb_per_s: stream.then(|| moved / ns.max(1) as f64),
        data: if none { "none moved" } else { "equal" },
    }
}
