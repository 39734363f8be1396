//! The end that measures.

use super::args::MeasureArgs;
use super::bare;
use super::case::{
    Answer, LIMIT, Message, Request, Test, cpu_seconds, fill, memory, next, pipeline, wait_for,
};
use super::row::TcpRow;
use crate::output::{Chosen, Setting};
use crate::rig::cases::each;
use crate::rig::talk::{Talk, only};
use crate::ucx;
use anyhow::Result;
use std::time::{Duration, Instant};
use warpverbs::gpu::{Opened, Place};
use warpverbs::raw::mem::{Access, Region};
use warpverbs::tcp::{Config, Domain, Link, RemoteKey};

/// A client that has met its server, and the link to it.
pub(super) struct Client {
    talk: Talk<Message>,
    link: Link,
    domain: Domain,
    opened: Opened,
}

struct Outcome {
    took: Duration,
    /// Median of half a round trip, nanoseconds.
    p50_ns: f64,
    /// Of both ends, seconds.
    cpu_s: f64,
}

impl Client {
    pub(super) fn connect(args: &MeasureArgs, mut talk: Talk<Message>) -> Result<Self> {
        let (link, domain, opened) = talk.failing(|talk| {
            let found = talk.recv("met", LIMIT)?;
            let (at, secret) =
                only!(talk, found, "met", Message::Met { at, secret } => (at, secret));
            let config = Config::default().sockets(args.sockets).chunk(args.chunk as u32);
            let (opened, domain) = args.side.open(config.secret(secret))?;
            anyhow::Ok((domain.connect(at, LIMIT)?, domain, opened))
        })?;
        talk.during("while it was measured");
        Ok(Self { talk, link, domain, opened })
    }

    /// The device, and the way of the bytes.
    pub(super) fn setting(&self) -> Setting {
        let device = Chosen::new(self.opened.gpu.info().name.clone(), &self.opened.why);
        Setting { gpu: Some(device), nic: Chosen::new("TCP".to_owned(), &self.link.explain()) }
    }

    /// Tells the server how it ended.
    pub(super) fn finish(mut self, end: Result<()>) -> Result<()> {
        self.talk.failing(|talk| {
            end?;
            anyhow::Ok(talk.send(Message::End)?)
        })?;
        Ok(self.link.close(LIMIT)?)
    }

    /// Every test of every size. On one machine, beside a bare loop and UCX.
    pub(super) fn measure(
        &mut self,
        args: &MeasureArgs,
        local: bool,
        rows: &mut Vec<TcpRow>,
    ) -> Result<()> {
        let ucx = local.then(ucx::version);
        if let Some(Err(error)) = &ucx {
            eprintln!("{error}");
        }
        let with_ucx = ucx.is_some_and(|version| version.is_ok());
        let cases: Vec<(Test, u64)> = args.sizes.iter().flat_map(|&bytes| tests(bytes)).collect();
        let name = |(test, bytes): &(Test, u64)| format!("{} of {bytes} bytes", test.name());
        each(&cases, rows, name, |&(test, bytes), _| self.row(args, test, bytes, local, with_ucx))
    }

    fn row(
        &mut self,
        args: &MeasureArgs,
        test: Test,
        bytes: u64,
        local: bool,
        with_ucx: bool,
    ) -> Result<TcpRow> {
        let first = self.run(test, bytes, 8)?;
        let each = first.took.as_secs_f64() / 8.0;
        // A few there and back say little of their time on a machine that others use as well.
        let least = if test.is_latency() { 1000 } else { 8 };
        let iterations = ((args.seconds / each) as u64).clamp(least, 1 << 20);
        let mut row = TcpRow::new(test, bytes, iterations, args.sockets);
        for _ in 0..args.rounds {
            let ours = self.run(test, bytes, iterations)?;
            let volume = (bytes * iterations) as f64;
            match test.is_latency() {
                true => row.latency(ours.p50_ns),
                false => row.bandwidth(volume / ours.took.as_secs_f64(), ours.cpu_s / volume * 1e9),
            }
            if local && !test.is_latency() {
                row.bare(bare::run(bytes, iterations)?);
            }
            if with_ucx {
                row.ucx(test, bytes, iterations)?;
            }
        }
        Ok(row)
    }

    fn answer(&mut self) -> Result<Answer> {
        let found = next(&mut self.talk, &self.link, "answer", LIMIT)?;
        Ok(only!(self.talk, found, "answer", Message::Answer(answer) => answer))
    }

    fn run(&mut self, test: Test, bytes: u64, iterations: u64) -> Result<Outcome> {
        let gpu = self.opened.gpu.clone();
        let region = match test {
            Test::WriteLatency => gpu.alloc(8, Place::Shared)?.region().clone(),
            _ => memory(&*gpu, bytes)?,
        };
        let registered = self.domain.register(&region, Access::REMOTE_WRITE)?;
        let memory = registered.remote().to_bytes().to_vec();
        self.talk.send(Message::Request(Request { test, bytes, iterations, memory }))?;
        let far = RemoteKey::from_bytes(&self.answer()?.memory)?;
        if test != Test::WriteLatency {
            fill(&region)?;
        }
        let (link, before, mut laps) = (&self.link, cpu_seconds(), Vec::new());
        let began = Instant::now();
        match test {
            Test::MessageLatency => message_laps(link, &region, iterations, &mut laps)?,
            Test::WriteLatency => {
                let word = gpu.alloc(8, Place::Shared)?.region().clone();
                for n in 1..=iterations {
                    let lap = Instant::now();
                    word.write(0, &n.to_ne_bytes())?;
                    let written = link.write(&word, far)?;
                    wait_for(link, &region, n)?;
                    laps.push(lap.elapsed());
                    link.wait(written, LIMIT)?;
                }
            }
            Test::MessageBandwidth => {
                pipeline(link, iterations, || Ok(link.isend(&region)?))?;
                // A message is sent before it has arrived.
                link.wait_notification(LIMIT)?;
            }
            Test::WriteBandwidth => {
                pipeline(link, iterations, || Ok(link.write(&region, far)?))?;
                link.notify(b"complete")?;
            }
        }
        let took = began.elapsed();
        let cpu_s = cpu_seconds() - before + self.answer()?.cpu_s;
        laps.sort_unstable();
        let median = laps.get(laps.len() / 2).map_or(0.0, |lap| lap.as_nanos() as f64);
        Ok(Outcome { took, p50_ns: median / 2.0, cpu_s })
    }
}

fn tests(bytes: u64) -> [(Test, u64); 2] {
    match bytes {
        // Each end polls one word.
        0..=4096 => [(Test::MessageLatency, bytes), (Test::WriteLatency, 8)],
        _ => [(Test::MessageBandwidth, bytes), (Test::WriteBandwidth, bytes)],
    }
}

fn message_laps(
    link: &Link,
    region: &Region,
    iterations: u64,
    laps: &mut Vec<Duration>,
) -> Result<()> {
    let back = region.clone();
    for _ in 0..iterations {
        let lap = Instant::now();
        let received = link.irecv(&back)?;
        let sent = link.isend(region)?;
        link.wait(received, LIMIT)?;
        link.wait(sent, LIMIT)?;
        laps.push(lap.elapsed());
    }
    Ok(())
}
