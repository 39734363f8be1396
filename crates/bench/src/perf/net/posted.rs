//! The timed parts with a kernel of the client's as the poster. The NIC's engine has a thread of
//! its own, and the server's end is the host's.

use super::messages::{Measure, Part};
use super::pair::PairEnd;
use super::request::Request;
use super::timed::Amount;
use crate::rig::kernel::{self, Posting, Report, Targets, op_code};
use crate::rig::plan::{MAX_ITERS, Op};
use anyhow::{Context as _, Result};
use std::time::{Duration, Instant};
use warpverbs::gpu::{Dim, Gpu, KernelPtr, Place};
use warpverbs_test_kernels::perf;

/// How long one answer may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Operations by which it is seen how many there is time for.
const PILOT: u32 = 64;
/// Receives that a kernel keeps open.
const RECEIVES: u32 = 2;

/// Posts the operations of one part.
pub(crate) struct KernelPoster<'a> {
    pub(crate) gpu: &'a dyn Gpu,
    pub(crate) request: &'a Request,
    pub(crate) pairs: &'a [PairEnd],
    pub(crate) part: Part,
}

impl<'a> KernelPoster<'a> {
    fn limit(&self) -> Duration {
        Duration::from_secs(self.request.setup.row_limit_s)
    }

    fn postings(&self) -> Result<Vec<Posting<'a>>> {
        let bytes = self.part.bytes;
        let posting = |PairEnd { endpoint, main, peer_main, .. }: &'a PairEnd| {
            let local = main.local().slice(0, bytes)?;
            Ok(Posting { endpoint, local, remote: peer_main.slice(0, bytes)? })
        };
        self.pairs.iter().map(posting).collect()
    }

    /// Operations to do, and those already done to find out.
    fn operations(&self, mut pilot: impl FnMut(u32) -> Result<Duration>) -> Result<(u32, u32)> {
        match self.request.amount {
            Amount::Operations(n) => Ok((n.min(MAX_ITERS.into()) as u32, 0)),
            Amount::Time(time) => {
                let one = pilot(PILOT)?.as_secs_f64() / f64::from(PILOT);
                let n = (time.as_secs_f64() / one.max(1e-9)).ceil();
                Ok((n.clamp(1.0, f64::from(MAX_ITERS)) as u32, PILOT))
            }
        }
    }

    /// Operations before `n` measured ones: no more than those where a time was asked for.
    fn warmup(&self, n: u32) -> u32 {
        let warmup = self.request.warmup as u32;
        match self.request.amount {
            Amount::Operations(_) => warmup,
            Amount::Time(_) => warmup.min(n),
        }
    }

    /// As many under way as the queues take. Operations on each queue pair, those of the warm-up
    /// and the pilot included; the measured ones; their time.
    pub(crate) fn stream(&self) -> Result<(u64, u64, Duration)> {
        let (postings, op, limit) = (self.postings()?, self.request.setup.op, self.limit());
        let dim = Dim::new(self.request.blocks, self.request.threads);
        let run = |n| kernel::stream(self.gpu, &postings, op, n, dim, limit);
        let warmup = self.request.warmup as u32;
        if warmup > 0 {
            run(warmup)?;
        }
        let (n, pilot) = self.operations(run)?;
        let time = run(n)?;
        Ok((u64::from(warmup) + u64::from(pilot) + u64::from(n), n.into(), time))
    }

    /// One at a time: nanoseconds of each, half of it where it is a message there and one back; and
    /// how many there were, with those of the warm-up and the pilot.
    pub(crate) fn latency(&self, fresh: bool) -> Result<(Vec<u64>, u64)> {
        debug_assert_eq!(self.part.measure, Measure::Latency);
        if self.request.setup.op.is_ping_pong() {
            return self.ping_pong(fresh);
        }
        let mut turns = 0;
        let mut run = |warmup, n| {
            let posting = self.postings()?.pop().context("no queue pair")?;
            turns += u64::from(warmup) + u64::from(n);
            let (op, limit) = (self.request.setup.op, self.limit());
            kernel::latency(self.gpu, posting, op, warmup, n, limit)
        };
        let pilot = |n| timed(|| run(0, n).map(drop));
        let (n, _) = self.operations(pilot)?;
        let samples = run(self.warmup(n), n)?;
        Ok((samples, turns))
    }

    fn ping_pong(&self, fresh: bool) -> Result<(Vec<u64>, u64)> {
        let rally = Rally::new(self)?;
        let offers = fresh && self.request.setup.op == Op::Send;
        let (mut turns, mut receives) = (0, if offers { RECEIVES } else { 0 });
        let mut run = |warmup, n| {
            let samples = rally.run(turns, receives, warmup, n)?;
            (turns, receives) = (turns + warmup + n, 0);
            anyhow::Ok(samples)
        };
        let (n, _) = self.operations(|n| timed(|| run(0, n).map(drop)))?;
        let samples = run(self.warmup(n), n)?;
        Ok((samples.into_iter().map(|ns| ns / 2).collect(), turns.into()))
    }
}

fn timed(work: impl FnOnce() -> Result<()>) -> Result<Duration> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed())
}

/// Arguments of the kernel of a ping-pong.
struct Rally<'p, 'a> {
    poster: &'p KernelPoster<'a>,
    postings: Vec<Posting<'a>>,
    targets: Targets,
    answers: KernelPtr<perf::Answers>,
}

impl<'p, 'a> Rally<'p, 'a> {
    fn new(poster: &'p KernelPoster<'a>) -> Result<Self> {
        let postings = poster.postings()?;
        let targets = Targets::new(poster.gpu, &postings)?;
        let pair = poster.pairs.first().context("no queue pair")?;
        let back = pair.back.as_ref().context("no memory for answers")?;
        let last = poster.part.bytes - 1;
        let inbox = back.local();
        let answers = perf::Answers {
            out: KernelPtr::at(pair.main.buffer(), last, 1)?,
            r#in: KernelPtr::at(back.buffer(), last, 1)?,
            at: inbox.into(),
            // All of it: receives that are left over are for the next size.
            bytes: inbox.len() as u32,
        };
        let answers = KernelPtr::upload(poster.gpu, &[answers])?;
        Ok(Self { poster, postings, targets, answers })
    }

    /// Round trips in nanoseconds.
    fn run(&self, first: u32, receives: u32, warmup: u32, iters: u32) -> Result<Vec<u64>> {
        let (gpu, report) = (self.poster.gpu, Report::new(self.poster.gpu)?);
        let samples = gpu.alloc(iters as usize * 8, Place::Device)?;
        let kernel = perf::PingPong {
            target: self.targets.pointer(),
            answers: self.answers.clone(),
            op: op_code(self.poster.request.setup.op),
            bytes: self.poster.part.bytes as u32,
            // Turns are counted from 1, as the server does.
            first: first + 1,
            receives,
            warmup,
            iters,
            patience_ns: PATIENCE.as_nanos() as u64,
            samples: KernelPtr::new(&samples),
            report: report.pointer(),
        };
        kernel::run(gpu, &kernel, Dim::new(1, 1), self.poster.limit())?;
        kernel::nanos(gpu, &samples, iters, report.times(gpu, &self.postings)?)
    }
}
