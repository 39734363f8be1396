//! One rank of `perf shmem`: its heap, its part in each row, and the comparison.

use super::cases::{Call, Case, Group, Message, Plan};
use super::{LIMIT, ShmemRow};
use crate::perf::kernel::{self, Report};
use crate::perf::pattern::{compare, pattern, poison};
use anyhow::{Context as _, Result};
use std::sync::Arc;
use warpverbs::gpu::{Dim, Gpu, KernelPtr, SafeKernel};
use warpverbs::kernels::shm_perf as k;
use warpverbs::rendezvous::{World, WorldConfig};
use warpverbs::shmem::{Heap, HeapConfig, Route, Sym, TEAM_BLOCK_BYTES, mail_block_bytes};
use warpverbs::transport::Device;

/// Signals of a batch, and puts before them.
const BATCH: u64 = 8;
/// log2 of the slots of a mailbox: credits, which need a release, are rare.
const LOG_SLOTS: u8 = 6;
/// Largest message of the exchange rows.
const MOST: u64 = 64 << 10;

pub(super) struct Rank {
    world: World,
    gpu: Arc<dyn Gpu>,
    heap: Heap,
    to: Sym<u8>,
    from: Sym<u8>,
    /// Signals, a mailbox and a team's block, zeroed before each row.
    control: Sym<u8>,
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
    ) -> Result<Self> {
        let mut world = World::join(config)?;
        gpu.load(&k::IMAGE)?;
        let room = bytes.max(BATCH * MOST);
        let size = 2 * room + TEAM + TEAM_BLOCK_BYTES + 4096;
        let settings = HeapConfig::new(size).timeout(LIMIT);
        let mut heap = Heap::create(&mut world, &gpu, Some(nic), &settings)?;
        let (to, from) = (heap.alloc(room)?, heap.alloc(room)?);
        let control = heap.alloc(TEAM + TEAM_BLOCK_BYTES)?;
        let own = matches!(heap.routes().get(1), Some(Route::Direct));
        // Rows are the same on all ranks: as rank 0 has it.
        let direct = world.exchange("direct", &[own.into()])?[0] == [1];
        Ok(Self { world, gpu, heap, to, from, control, direct })
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
        self.prepare(plan, case)?;
        let report = Report::new(&*self.gpu)?;
        let (kernel, dim) = self.kernel(plan, case, report.pointer());
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
        let ns = |[start, end]: [u64; 2]| match case {
            Case::Stream { .. } => end.saturating_sub(!start),
            _ => start,
        };
        Ok(times.filter(|_| self.is_first()).map(|times| row(plan, case, ns(times), &self.route())))
    }

    fn route(&self) -> String {
        self.heap.routes()[self.peer() as usize].to_string()
    }

    /// How much of a rank's target a row fills.
    fn moved(plan: &Plan, case: &Case) -> u64 {
        match *case {
            Case::Exchange { message: Message::Batch, bytes, .. } => BATCH * u64::from(bytes),
            Case::Exchange { bytes, .. } | Case::Call { bytes, .. } => bytes.into(),
            Case::Stream { .. } => plan.bytes,
            Case::Meet { .. } => 0,
        }
    }

    fn prepare(&mut self, plan: &Plan, case: &Case) -> Result<()> {
        let len = Self::moved(plan, case) as usize;
        self.heap.write(&self.control, &vec![0; self.control.len() as usize])?;
        self.heap.write(&self.from, &pattern(self.heap.rank().into(), len))?;
        let before = match case {
            Case::Call { call: Call::FetchAdd, .. } => vec![0; len],
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
            Case::Exchange { message: Message::PutSignal | Message::Mail, .. } if rank < 2 => {
                Some(whole())
            }
            Case::Exchange { message: Message::Batch, .. } if rank == 1 => Some(whole()),
            Case::Call { call: Call::Put, .. } | Case::Stream { gets: false, .. } if rank == 1 => {
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
        report: KernelPtr<u64>,
    ) -> (Option<Box<dyn SafeKernel>>, Dim) {
        let rank = self.heap.rank();
        let heap = self.heap.device();
        let (to, from, peer) = (self.to.offset(), self.from.offset(), self.peer());
        let &Plan { iters, warmup, transfers, bytes, .. } = plan;
        match *case {
            Case::Exchange { message, group, threads, bytes } => {
                let kernel = (rank < 2).then(|| self.exchange(plan, message, group, bytes, report));
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
            Case::Meet { light, group, threads } => {
                let team_block = self.control.offset() + TEAM;
                let (group, light) = (group as u32, light.into());
                let kernel =
                    k::ShmMeetings { heap, group, team_block, light, warmup, iters, report };
                (boxed(true, kernel), Dim::new(1, threads))
            }
        }
    }

    fn exchange(
        &self,
        plan: &Plan,
        message: Message,
        group: Group,
        bytes: u32,
        report: KernelPtr<u64>,
    ) -> Box<dyn SafeKernel> {
        let (heap, what) = (self.heap.device(), message as u32);
        let side = k::Side {
            to: self.to.offset(),
            from: self.from.offset(),
            signal: self.control.offset(),
            r#box: self.control.offset() + MAILBOX,
            bytes,
            peer: self.peer(),
            begins: u32::from(self.is_first()),
            warmup: plan.warmup,
            iters: plan.iters,
            reserved: 0,
        };
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

fn row(plan: &Plan, case: &Case, ns: u64, route: &str) -> ShmemRow {
    let each = |times: u32| Some(ns as f64 / 1e3 / f64::from(times));
    let (what, group, blocks, threads, bytes) = match *case {
        Case::Exchange { message, group, threads, bytes } => {
            let what = match message {
                Message::Signal => "signal, there and back",
                Message::PutSignal => "put_signal, there and back",
                Message::Mail => "mail, there and back",
                Message::Batch => "8 puts, 8 signals, a mail back",
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
        Case::Meet { light, group, threads } => {
            (if light { "sync of all" } else { "barrier of all" }, group, 1, threads, 0)
        }
    };
    let moved = f64::from(plan.transfers) * plan.bytes as f64;
    let stream = matches!(case, Case::Stream { .. });
    let signal = matches!(case, Case::Exchange { message: Message::Signal, .. });
    let none = signal || matches!(case, Case::Meet { .. });
    ShmemRow {
        what,
        route: route.to_owned(),
        by: group.name(),
        blocks,
        threads,
        bytes,
        us: if stream { None } else { each(plan.iters) },
        gb_per_s: stream.then(|| moved / ns.max(1) as f64),
        data: if none { "none moved" } else { "equal" },
    }
}
