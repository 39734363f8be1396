//! The end that measures.

use super::messages::{EngineMode, Group, Measure, Message, Part};
use super::pair::{PairEnd, explained};
use super::posted::KernelPoster;
use super::request::Request;
use super::side::{Role, Side};
use super::timed;
use super::watch::Watch;
use crate::output::{Chosen, Setting};
use crate::perf::row::MessageRow;
use crate::rig::cases::each;
use crate::rig::ends::Place;
use crate::rig::kernel;
use crate::rig::plan::Mem;
use crate::rig::talk::{Talk, only};
use crate::stats::Summary;
use crate::units;
use anyhow::{Context as _, Result};
use std::time::Duration;
use warpverbs::gpu::{self, GpuChoice};

/// How long the server may take to set something up, or to check data.
const ANSWER: Duration = Duration::from_secs(60);

/// A connection to a server that has agreed to measure.
pub(crate) struct Client {
    control: Talk<Message>,
    pub(crate) side: Side,
    /// Timed parts that were run.
    parts: u32,
    /// The queue pairs are new: nothing was posted to them.
    fresh: bool,
    gpu_why: String,
}

impl Client {
    pub(crate) fn connect(request: &Request, place: &Place) -> Result<Self> {
        let gpu = match &request.gpu {
            Some(choice) => Some(gpu::open_explained(choice.parse::<GpuChoice>()?)?),
            None => None,
        };
        if let Some(opened) = &gpu {
            kernel::load(&*opened.gpu)?;
        }
        let mut control: Talk<Message> = place.connect()?;
        control.during("while it read what to measure");
        control.send(Message::Setup(request.setup.clone()))?;
        only!(control, control.recv("ready", ANSWER)?, "ready", Message::Ready => ());
        let at = (control.local_ip()?, request.udp_port);
        let (gpu, gpu_why) =
            gpu.map_or((None, String::new()), |opened| (Some(opened.gpu), opened.why));
        let side = Side::open(Role::Client, request.setup.clone(), (&request.nic, at), gpu)?;
        Ok(Self { control, side, parts: 0, fresh: true, gpu_why })
    }

    pub(crate) fn setting(&self) -> Setting {
        let gpu = self.side.gpu.as_ref().map(|gpu| Chosen::gpu(&**gpu, &self.gpu_why));
        let nic = Chosen::new(self.side.device.info().name.clone(), &self.describe());
        Setting { gpu, nic }
    }

    fn describe(&self) -> String {
        let setup = &self.side.setup;
        let peer = self.control.peer();
        let engine = match setup.engine {
            EngineMode::Inline => ", engine on the measuring thread",
            EngineMode::Thread => ", engine on its own thread",
        };
        let (link, engine) = match self.side.device.link().filter(|_| self.side.is_soft()) {
            Some(link) => (format!("RoCEv2 by {link}"), engine),
            None => (self.side.device.why().to_owned(), ""),
        };
        let faults = match &setup.faults {
            Some(faults) => format!(", both ends' links with {faults}"),
            None => String::new(),
        };
        let payload = match (&self.side.gpu, setup.mem) {
            (None, _) => "",
            (Some(_), Mem::Device) => ", our payload in the GPU's memory",
            (Some(_), Mem::Pinned) => ", our payload in host memory that the GPU maps",
        };
        format!("{link}, to {peer}{engine}{payload}{faults}")
    }

    /// Adds a row for each number of queue pairs and size, until one fails.
    pub(crate) fn measure(&mut self, request: &Request, rows: &mut Vec<MessageRow>) -> Result<()> {
        let outcome = self.rows(request, rows);
        self.control.failing(|talk| {
            outcome?;
            // If the server is gone, the rows are there all the same.
            let _ = talk.send(Message::End);
            Ok(())
        })
    }

    fn rows(&mut self, request: &Request, rows: &mut Vec<MessageRow>) -> Result<()> {
        for &qps in &request.qps {
            let max = request.sizes.last().copied().unwrap_or(1);
            let pairs = self.meet(qps, max).with_context(|| format!("{qps} queue pairs"))?;
            let name = |&bytes: &u64| format!("{} on {qps} queue pairs", units::bytes(bytes));
            each(&request.sizes, rows, name, |&bytes, _| {
                let row = self.row(request, &pairs, bytes);
                row.map_err(|error| explained(error, &self.side, &pairs))
            })?;
        }
        Ok(())
    }

    fn meet(&mut self, qps: u32, max_bytes: u64) -> Result<Vec<PairEnd>> {
        self.fresh = true;
        let mut pairs = self.side.pairs(qps, max_bytes)?;
        let ends = pairs.iter().map(PairEnd::end).collect();
        self.control.during("while queue pairs were made");
        self.control.send(Message::Group(Group { qps, max_bytes, ends }))?;
        let found = self.wait("group")?;
        let group = only!(self.control, found, "group", Message::Group(group) => group);
        self.side.connect(&mut pairs, &group.ends)?;
        Ok(pairs)
    }

    fn row(&mut self, request: &Request, pairs: &[PairEnd], bytes: u64) -> Result<MessageRow> {
        let mut row = MessageRow::new(request.setup.op, bytes, pairs.len() as u32);
        if request.latency {
            row.latency = Some(self.latency(request, &pairs[..1], bytes)?);
        }
        if request.bandwidth {
            let (messages, time) = self.bandwidth(request, pairs, bytes)?;
            row.add_rate(messages, time);
        }
        Ok(row)
    }

    fn latency(&mut self, request: &Request, pairs: &[PairEnd], bytes: u64) -> Result<Summary> {
        let part = self.begin(Measure::Latency, pairs, bytes)?;
        let timed = match self.side.gpu.clone() {
            Some(gpu) => {
                let fresh = std::mem::take(&mut self.fresh);
                KernelPoster { gpu: &*gpu, request, pairs, part }.latency(fresh)
            }
            None => self.latency_by_host(request, &pairs[0], &part),
        };
        let (samples, turns) = self.cause(timed)?;
        self.end(pairs, &part, vec![turns])?;
        Summary::of(samples).context("no samples")
    }

    fn latency_by_host(
        &mut self,
        request: &Request,
        pair: &PairEnd,
        part: &Part,
    ) -> Result<(Vec<u64>, u64)> {
        let (side, much) = (&self.side, (request.warmup, request.amount));
        let watch = &mut Watch::new(side, &mut self.control);
        match request.setup.op.is_ping_pong() {
            true => timed::ping_pong(side, pair, part, much, watch),
            false => timed::one_by_one(side, pair, part, much, watch),
        }
    }

    /// Measured operations of all queue pairs, and their time.
    fn bandwidth(
        &mut self,
        request: &Request,
        pairs: &[PairEnd],
        bytes: u64,
    ) -> Result<(u64, Duration)> {
        let part = self.begin(Measure::Bandwidth, pairs, bytes)?;
        let timed = match self.side.gpu.clone() {
            Some(gpu) => {
                let streamed = KernelPoster { gpu: &*gpu, request, pairs, part }.stream();
                streamed.map(|(all, measured, time)| {
                    (vec![all; pairs.len()], measured * pairs.len() as u64, time)
                })
            }
            None => self.stream_by_host(request, pairs, &part),
        };
        let (counts, messages, time) = self.cause(timed)?;
        self.end(pairs, &part, counts)?;
        Ok((messages, time))
    }

    fn stream_by_host(
        &mut self,
        request: &Request,
        pairs: &[PairEnd],
        part: &Part,
    ) -> Result<(Vec<u64>, u64, Duration)> {
        let side = &self.side;
        let watch = &mut Watch::new(side, &mut self.control);
        let bounds @ (_, time) = request.amount.bounds();
        let (before, _) = timed::stream(side, pairs, part, (request.warmup, time), watch)?;
        let (counts, time) = timed::stream(side, pairs, part, bounds, watch)?;
        let all = before.iter().zip(&counts).map(|(before, count)| before + count).collect();
        Ok((all, counts.iter().sum(), time))
    }

    /// Has both ends prepare their memory.
    fn begin(&mut self, measure: Measure, pairs: &[PairEnd], bytes: u64) -> Result<Part> {
        let part = Part { measure, number: self.parts, bytes };
        self.parts += 1;
        self.control.during("while it prepared");
        self.control.send(Message::Part(part))?;
        pairs.iter().try_for_each(|pair| pair.prepare(&part))?;
        let found = self.wait("go")?;
        only!(self.control, found, "go", Message::Go => ());
        self.control.during("in the middle of a measurement");
        tracing::info!(target: "warpverbs::perf", bytes, queue_pairs = pairs.len(), "measuring");
        Ok(part)
    }

    /// Has both ends compare their memory.
    fn end(&mut self, pairs: &[PairEnd], part: &Part, counts: Vec<u64>) -> Result<()> {
        self.control.during("while it compared data");
        self.control.send(Message::Stop(counts.clone()))?;
        pairs.iter().zip(&counts).try_for_each(|(pair, count)| pair.verify(part, *count))?;
        let found = self.wait("verified")?;
        only!(self.control, found, "verified", Message::Verified => Ok(()))
    }

    /// The engine goes on while the server is waited for: it may still need an answer.
    fn wait(&mut self, awaited: &'static str) -> Result<Message> {
        let (engine, mut fruitless) = (&self.side.engine, 0u32);
        Ok(self.control.wait(awaited, ANSWER, || {
            engine.turn(fruitless);
            fruitless = fruitless.saturating_add(1);
        })?)
    }

    /// A queue pair fails because its peer has ended: that is the better reason, if it is the case.
    fn cause<T>(&mut self, timed: Result<T>) -> Result<T> {
        timed.map_err(|error| match self.control.poll() {
            Err(ended) => anyhow::Error::from(ended).context(format!("{error:#}")),
            Ok(_) => error,
        })
    }
}
