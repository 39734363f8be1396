//! One rank of `perf shmem`: its heap, its part in each row, and the comparison.

use super::cases::{Call, Case, Group, Message, Plan};
use super::{LIMIT, ShmemRow};
use crate::perf::kernel::{self, Report};
use crate::perf::pattern::{compare, pattern, poison};
use crate::stats::Summary;
use anyhow::{Context as _, Result};
use std::sync::Arc;
use warpverbs::gpu::{Dim, Gpu, KernelPtr, SafeKernel};
use warpverbs::kernels::shm_perf as k;
use warpverbs::rendezvous::{World, WorldConfig};
use warpverbs::shmem::{Heap, HeapConfig, Route, Sym, TEAM_BLOCK_BYTES, mail_block_bytes};
use warpverbs::transport::Device;

/// Signals of a batch, and puts before them.
const BATCH: u64 = 8;
/// `mail_log_slots` of `kernels/src/shm_perf.cu`.
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
        let mut world = World::join(config)?;
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

    /// Ends the world, so that no other rank waits for this one.
    pub(super) fn leave(self, failed: Option<&anyhow::Error>) {
        let Self { mut world, heap, .. } = self;
        if let Some(error) = failed {
            world.fail(&format!("{error:#}"));
        } else if let Err(error) = world.barrier("end") {
            tracing::warn!(%error, "ranks do not end together");
        }
        drop(heap);
    }

    /// One row, which rank 0 gets.
    pub(super) fn measure(&mut self, plan: &Plan, case: &Case) -> Result<Option<ShmemRow>> {
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
        Ok(times.filter(|_| self.is_first()).map(|times| ShmemRow {
            p50_us: spread.as_ref().map(|spread| spread.p50_ns as f64 / 1e3),
            p99_us: spread.as_ref().map(|spread| spread.p99_ns as f64 / 1e3),
            ..row(plan, case, ns(times), &self.route())
        }))
    }

    /// Of single rounds, from how long all of them took in nanoseconds and in ticks.
    fn spread(&self, [ns, ticks]: [u64; 2]) -> Result<Option<Summary>> {
        let mut found = vec![0; self.samples.bytes() as usize];
        self.heap.read(&self.samples, &mut found)?;
        let scale = ns as f64 / ticks.max(1) as f64;
        let (words, _) = found.as_chunks::<8>();
        let rounds = words.iter().map(|word| (u64::from_le_bytes(*word) as f64 * scale) as u64);
        Ok(Summary::of(rounds.collect()))
    }

    /// All ranks run a row's kernel and compare what it moved; the times of this rank's, if it had one.
    fn pass(&mut self, plan: &Plan, case: &Case, sampled: bool) -> Result<Option<[u64; 2]>> {
        self.prepare(plan, case)?;
        let report = Report::new(&*self.gpu)?;
        let (kernel, dim) = self.kernel(plan, case, sampled, report.pointer());
        let dim = dim.shared(case.lent());
        self.world.barrier("ready")?;
        let times = kernel.map(|kernel| {
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
            Case::Meet { .. } => 0,
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

    /// What the row makes of the target of this rank, if anything.
    fn expected(&self, plan: &Plan, case: &Case) -> Option<Vec<u8>> {
        let rank = self.heap.rank();
        let whole = || pattern(self.peer().into(), Self::moved(plan, case) as usize);
        let sum = || (u64::from(plan.iters) + u64::from(plan.warmup)).to_le_bytes().to_vec();
        match *case {
            Case::Exchange { message: Message::Mail, bytes: 8, .. } => None,
            Case::Exchange { message: Message::Value, .. } if rank < 2 => Some(sum()),
            Case::Exchange {
                message: Message::PutSignal | Message::Mail | Message::Through,
                ..
            } if rank < 2 => Some(whole()),
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

    /// What this rank runs, if it takes part.
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
        let &Plan { iters, warmup, transfers, bytes, .. } = plan;
        match *case {
            Case::Exchange { message, group, threads, bytes } => {
                let side = self.side(plan, bytes, case.lent(), sampled);
                let kernel = (rank < 2).then(|| self.exchange(plan, message, group, side, report));
                (kernel, Dim::new(1, threads))
            }
            Case::Call { call, group, threads, bytes } => {
                let direct = u32::from(plan.direct);
                let (what, group) = (call as u32, group as u32);
                let kernel = k::ShmCalls {
                    heap,
                    direct,
                    what,
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
            Case::Stream { gets, blocks, threads } => {
                let (gets, iters) = (gets.into(), transfers);
                let dim = Dim::new(blocks, threads);
                if plan.direct {
                    let kernel = k::ShmStream { heap, gets, peer, to, from, bytes, iters, report };
                    (boxed(rank == 0, kernel), dim)
                } else {
                    let kernel =
                        k::ShmStreamRdma { heap, gets, peer, to, from, bytes, iters, report };
                    (boxed(rank == 0, kernel), dim)
                }
            }
            Case::Through { blocks } => {
                let (lent, iters) = (case.lent(), transfers);
                let kernel =
                    k::ShmStreamThrough { heap, lent, peer, to, from, bytes, iters, report };
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
        let (heap, what) = (self.heap.device(), message as u32);
        match (group, message) {
            _ if !plan.direct => Box::new(k::ShmExchangeRdma { heap, what, side, report }),
            (Group::Thread, _) => Box::new(k::ShmExchangeThread { heap, what, side, report }),
            (Group::Warp, _) => Box::new(k::ShmExchangeWarp { heap, what, side, report }),
            (Group::Block, Message::Mail) => Box::new(k::ShmMailBlock { heap, side, report }),
            (Group::Block, _) => Box::new(k::ShmPutSignalBlock { heap, side, report }),
        }
    }
}

fn boxed(runs: bool, kernel: impl SafeKernel + 'static) -> Option<Box<dyn SafeKernel>> {
    runs.then(|| Box::new(kernel) as Box<dyn SafeKernel>)
}

/// What orders a row's bytes, by loads and stores; by RDMA the queue pair does.
fn fence(case: &Case) -> &'static str {
    match case {
        Case::Exchange { message: Message::Mail | Message::Value, .. } => "none",
        Case::Exchange { message: Message::Batch, .. } => "one for 8",
        Case::Exchange { message: Message::Through, .. } => "bulk, release",
        Case::Exchange { .. } => "release",
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
                Message::PutSignal => "put_signal, there and back",
                Message::Mail => "mail, there and back",
                Message::Batch => "8 puts, 8 signals, a mail back",
                Message::Value => "put_value, there and back",
                Message::Through => "put_through and signal, there and back",
            };
            (what, group, 1, threads, u64::from(bytes))
        }
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
    let stream = matches!(case, Case::Stream { .. } | Case::Through { .. });
    let signal = matches!(case, Case::Exchange { message: Message::Signal, .. });
    let none = signal || matches!(case, Case::Meet { .. });
    ShmemRow {
        what,
        route: route.to_owned(),
        by: group.name(),
        blocks,
        threads,
        lent: case.lent(),
        bytes,
        fence: fence(case),
        clock: "rank 0's GPU",
        p50_us: None,
        p99_us: None,
        us: if stream { None } else { each(plan.iters) },
        gb_per_s: stream.then(|| moved / ns.max(1) as f64),
        data: if none { "none moved" } else { "equal" },
    }
}
