//! Rows on the life of a heap: how long it takes to make one, and to grow it beside a running kernel.

use super::cases::Plan;
use super::rank::Rank;
use super::{LIMIT, ShmemRow};
use crate::rig::kernel::{self, Report};
use crate::rig::threads::joined;
use anyhow::{Context as _, Result};
use std::thread;
use std::time::{Duration, Instant};
use warpverbs::gpu::Dim;
use warpverbs::shmem::{Heap, HeapConfig, TEAM_BLOCK_BYTES};
use warpverbs::transport::Device;
use warpverbs_test_kernels::shm_perf as k;

/// How long the kernel runs beside which a heap grows, if its barriers take as long as alone.
const BESIDE: Duration = Duration::from_millis(300);
/// The same where the host runs kernels, and growing takes a millisecond or two. Threads that share a processor with others
/// sleep between two looks, so a barrier may take 100 times as long as alone, and the kernel with it.
const BESIDE_ON_HOST: Duration = Duration::from_millis(20);
/// Barriers that say how long one takes.
const TRIAL: u32 = 2000;
/// One thread of each rank is in the kernel.
const ALONE: Dim = Dim::new(1, 1);

/// Times of one life.
struct Life {
    create: Duration,
    grow: Duration,
    /// Whether the kernel was still running when the heap had grown.
    beside: bool,
    /// A barrier of the kernel, without and with the growth.
    barriers: [Duration; 2],
}

impl Rank {
    /// Makes a heap of 1 GiB, 16 MiB on the host, and doubles it while all ranks are in a kernel of
    /// barriers on it.
    pub(super) fn life(&mut self, plan: &Plan, nic: &Device) -> Result<Vec<ShmemRow>> {
        let size: u64 = if plan.on_host { 16 << 20 } else { 1 << 30 };
        let beside = if plan.on_host { BESIDE_ON_HOST } else { BESIDE };
        let life = self.live(size, nic, beside)?;
        Ok(if self.is_first() { rows(&life, size, &self.route()) } else { Vec::new() })
    }

    fn live(&mut self, size: u64, nic: &Device, beside: Duration) -> Result<Life> {
        let config = HeapConfig::new(size).timeout(LIMIT);
        self.world.barrier("before a heap is made")?;
        let start = Instant::now();
        let mut heap = Heap::create(&mut self.world, &self.gpu, Some(nic), &config)?;
        let create = start.elapsed();
        let team = heap.alloc_zeroed::<u64>(&mut self.world, TEAM_BLOCK_BYTES / 8)?.offset();
        let (kernel, report) = self.meetings(&heap, team, TRIAL)?;
        kernel::run(&*self.gpu, &kernel, ALONE, LIMIT)?;
        let alone = Duration::from_nanos(report.times(&*self.gpu, &[])?[0]) / TRIAL;
        let iters = (beside.as_nanos() / alone.as_nanos().max(1)).clamp(1, 1 << 30) as u32;
        // As many on all ranks as rank 0 says.
        let iters = self.world.exchange("barriers", &iters.to_le_bytes())?.swap_remove(0);
        let iters = u32::from_le_bytes(iters.try_into().ok().context("rank 0 says how many")?);
        let (kernel, report) = self.meetings(&heap, team, iters)?;
        let gpu = self.gpu.clone();
        let (grow, beside) = thread::scope(|scope| -> Result<_> {
            let running = scope.spawn(move || kernel::run(&*gpu, &kernel, ALONE, LIMIT));
            let start = Instant::now();
            let grown = heap.grow(&mut self.world);
            let (took, beside) = (start.elapsed(), !running.is_finished());
            joined(running)?;
            grown?;
            Ok((took, beside))
        })?;
        let disturbed = Duration::from_nanos(report.times(&*self.gpu, &[])?[0]) / iters;
        self.world.barrier("grown")?;
        Ok(Life { create, grow, beside, barriers: [alone, disturbed] })
    }

    fn meetings(&mut self, heap: &Heap, team: u64, iters: u32) -> Result<(k::ShmMeetings, Report)> {
        let report = Report::new(&*self.gpu)?;
        let kernel = k::ShmMeetings {
            heap: heap.device(),
            group: 0,
            team_block: team,
            light: 0,
            warmup: 0,
            iters,
            report: report.pointer(),
        };
        self.world.barrier("before a kernel of barriers")?;
        Ok((kernel, report))
    }
}

fn rows(life: &Life, size: u64, route: &str) -> Vec<ShmemRow> {
    let of_host = |what, took: Duration| ShmemRow {
        what,
        route: route.to_owned(),
        by: "host",
        blocks: 0,
        threads: 0,
        lent: 0,
        bytes: size,
        fence: "none",
        clock: "rank 0's host",
        us: Some(took.as_secs_f64() * 1e6),
        p50_us: None,
        p99_us: None,
        gb_per_s: None,
        data: "none moved",
    };
    let of_kernel = |what, took| ShmemRow {
        by: "thread",
        blocks: 1,
        threads: 1,
        bytes: 0,
        fence: "acq_rel fence",
        clock: "rank 0's GPU",
        ..of_host(what, took)
    };
    let growth =
        if life.beside { "growth beside a kernel" } else { "growth, its kernel ended before" };
    vec![
        of_host("making a heap", life.create),
        of_host(growth, life.grow),
        of_kernel("its kernel's barriers, alone", life.barriers[0]),
        of_kernel("its kernel's barriers, growth beside", life.barriers[1]),
    ]
}
