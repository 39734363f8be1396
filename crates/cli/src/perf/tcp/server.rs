//! The end that answers.

use super::case::{
    Answer, Request, Test, fill, numbers, pipeline, poison, remote, verify, wait_for,
};
use super::{LIMIT, ServerArgs, cpu, memory};
use crate::local::LISTENING;
use crate::print;
use anyhow::{Context as _, Result};
use std::net::SocketAddr;
use std::time::Duration;
use warpverbs::devmem::transport::{Config, Connection, Endpoint, TransportError};
use warpverbs::gpu::{self, Gpu, GpuChoice, Place};
use warpverbs::raw::mem::Access;

/// Sockets of a connection at most: the client chooses how many.
const SOCKETS: u16 = 64;

/// The client measures others between two requests. One that is gone has closed the connection.
const BETWEEN: Duration = Duration::from_secs(3600);

pub(super) fn run(args: &ServerArgs) -> Result<()> {
    let gpu = gpu::open(args.gpu.parse::<GpuChoice>()?)?;
    let config = Config::default().sockets(SOCKETS).chunk(64 << 20);
    let endpoint = args.receive.endpoint(config, &gpu)?;
    let mut listener = endpoint.listen(SocketAddr::new(args.bind, args.port))?;
    print::line(format!("{LISTENING}{}", listener.address()))?;
    let connection = listener.accept(&endpoint, Duration::from_secs(args.wait))?;
    loop {
        let request = match connection.wait_notification(BETWEEN) {
            Ok(request) => request,
            Err(TransportError::Closed) => return Ok(connection.close(LIMIT)?),
            Err(error) => return Err(error.into()),
        };
        let request: Request = serde_json::from_slice(&request).context("the client's request")?;
        serve(&endpoint, &connection, &*gpu, &request)?;
    }
}

fn serve(
    endpoint: &Endpoint,
    connection: &Connection,
    gpu: &dyn Gpu,
    request: &Request,
) -> Result<()> {
    let Request { test, bytes, iterations, .. } = *request;
    // What an end polls is host memory.
    let region = match test {
        Test::WriteLatency => gpu.alloc(8, Place::Shared)?.region().clone(),
        _ => memory(gpu, bytes)?,
    };
    // One buffer for all messages and writes, as the bare loop and UCX have it: several would not
    // fit a cache that holds one.
    if !test.is_latency() {
        poison(&region)?;
    }
    let registered = endpoint.register(&region, Access::REMOTE_WRITE)?;
    let mut answer = Answer { memory: numbers(registered.remote()), cpu_s: 0.0 };
    let say = |answer: &Answer| -> Result<()> {
        connection.notify(&serde_json::to_vec(answer)?)?;
        Ok(())
    };
    say(&answer)?;
    let before = cpu::seconds();
    // Comparing what came is not part of it.
    let used = || cpu::seconds() - before;
    answer.cpu_s = match test {
        Test::MessageLatency => {
            fill(&region)?;
            let back = memory(gpu, bytes)?;
            for _ in 0..iterations {
                let received = connection.irecv(&back)?;
                connection.wait(received, LIMIT)?;
                let sent = connection.isend(&region)?;
                connection.wait(sent, LIMIT)?;
            }
            let used = used();
            verify(&back)?;
            used
        }
        Test::WriteLatency => {
            let (here, to) = (gpu.alloc(8, Place::Shared)?, remote(request.memory));
            let mut written = None;
            for n in 1..=iterations {
                wait_for(connection, &region, n)?;
                // The answer to the write before came with this number.
                if let Some(written) = written.take() {
                    connection.wait(written, LIMIT)?;
                }
                here.region().write(0, &n.to_ne_bytes())?;
                written = Some(connection.write(here.region(), to)?);
            }
            used()
        }
        Test::MessageBandwidth => {
            pipeline(connection, iterations, || Ok(connection.irecv(&region)?))?;
            connection.notify(b"complete")?;
            let used = used();
            verify(&region)?;
            used
        }
        Test::WriteBandwidth => {
            connection.wait_notification(LIMIT)?;
            let used = used();
            verify(&region)?;
            used
        }
    };
    say(&answer)
}
