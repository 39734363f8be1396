//! The end that measures.

use super::args::MeasureArgs;
use super::bare;
use super::case::{
    Answer, LIMIT, Request, Test, cpu_seconds, fill, memory, numbers, pipeline, remote, wait_for,
};
use super::row::TcpRow;
use crate::rig::cases::each;
use crate::ucx;
use anyhow::{Context as _, Result};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use warpverbs::gpu::{Gpu, Place};
use warpverbs::raw::mem::{Access, Region};
use warpverbs::tcp::{Domain, Link};

/// A connection to a server.
pub(super) struct Client<'a> {
    domain: &'a Domain,
    gpu: &'a dyn Gpu,
    connection: Link,
}

/// The result of one measurement.
struct Outcome {
    /// The whole test.
    took: Duration,
    /// Median of half a round trip, nanoseconds.
    p50_ns: f64,
    /// Of both ends, seconds.
    cpu_s: f64,
}

impl<'a> Client<'a> {
    pub(super) fn connect(
        domain: &'a Domain,
        gpu: &'a dyn Gpu,
        (address, wait): (SocketAddr, Duration),
    ) -> Result<Self> {
        let connection = domain.connect(address, wait)?;
        Ok(Self { domain, gpu, connection })
    }

    pub(super) fn explain(&self) -> String {
        self.connection.explain()
    }

    pub(super) fn close(self) -> Result<()> {
        Ok(self.connection.close(LIMIT)?)
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

    fn answer(&self) -> Result<Answer> {
        let bytes = self.connection.wait_notification(LIMIT)?;
        serde_json::from_slice(&bytes).context("the server's answer")
    }

    fn run(&mut self, test: Test, bytes: u64, iterations: u64) -> Result<Outcome> {
        let Self { domain, gpu, connection } = self;
        let region = match test {
            Test::WriteLatency => gpu.alloc(8, Place::Shared)?.region().clone(),
            _ => memory(*gpu, bytes)?,
        };
        let registered = domain.register(&region, Access::REMOTE_WRITE)?;
        let here = numbers(registered.remote());
        let request = Request { test, bytes, iterations, memory: here };
        connection.notify(&serde_json::to_vec(&request)?)?;
        let far = remote(self.answer()?.memory);
        if test != Test::WriteLatency {
            fill(&region)?;
        }
        let (connection, before, mut laps) = (&self.connection, cpu_seconds(), Vec::new());
        let began = Instant::now();
        match test {
            Test::MessageLatency => message_laps(connection, &region, iterations, &mut laps)?,
            Test::WriteLatency => {
                let word = self.gpu.alloc(8, Place::Shared)?.region().clone();
                for n in 1..=iterations {
                    let lap = Instant::now();
                    word.write(0, &n.to_ne_bytes())?;
                    let written = connection.write(&word, far)?;
                    wait_for(connection, &region, n)?;
                    laps.push(lap.elapsed());
                    connection.wait(written, LIMIT)?;
                }
            }
            Test::MessageBandwidth => {
                pipeline(connection, iterations, || Ok(connection.isend(&region)?))?;
                // A message is sent before it has arrived.
                connection.wait_notification(LIMIT)?;
            }
            Test::WriteBandwidth => {
                pipeline(connection, iterations, || Ok(connection.write(&region, far)?))?;
                connection.notify(b"complete")?;
            }
        }
        let took = began.elapsed();
        let cpu_s = cpu_seconds() - before + self.answer()?.cpu_s;
        laps.sort_unstable();
        let median = laps.get(laps.len() / 2).map_or(0.0, |lap| lap.as_nanos() as f64);
        Ok(Outcome { took, p50_ns: median / 2.0, cpu_s })
    }
}

/// Tests of a size.
fn tests(bytes: u64) -> [(Test, u64); 2] {
    match bytes {
        // Each end polls one word.
        0..=4096 => [(Test::MessageLatency, bytes), (Test::WriteLatency, 8)],
        _ => [(Test::MessageBandwidth, bytes), (Test::WriteBandwidth, bytes)],
    }
}

fn message_laps(
    connection: &Link,
    region: &Region,
    iterations: u64,
    laps: &mut Vec<Duration>,
) -> Result<()> {
    let back = region.clone();
    for _ in 0..iterations {
        let lap = Instant::now();
        let received = connection.irecv(&back)?;
        let sent = connection.isend(region)?;
        connection.wait(received, LIMIT)?;
        connection.wait(sent, LIMIT)?;
        laps.push(lap.elapsed());
    }
    Ok(())
}
