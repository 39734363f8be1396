//! The end that answers.

use super::args::SideArgs;
use super::case::{
    Answer, LIMIT, Message, Request, Test, cpu_seconds, fill, memory, next, pipeline, poisoned,
    verify, wait_for,
};
use crate::rig::talk::Talk;
use anyhow::{Context as _, Result, ensure};
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;
use warpverbs::gpu::{Gpu, Place};
use warpverbs::raw::mem::Access;
use warpverbs::tcp::{Config, Domain, Link, RemoteKey};

/// Sockets of a link at most: the client chooses how many.
const SOCKETS: u16 = 64;

/// The client measures others between two requests.
const BETWEEN: Duration = Duration::from_secs(3600);
/// Sizes that a request may ask for, as clients do.
const SIZES: RangeInclusive<u64> = 8..=1 << 30;

/// Devices of the server.
pub(super) struct Server {
    domain: Domain,
    gpu: Arc<dyn Gpu>,
    secret: [u8; 16],
}

impl Server {
    pub(super) fn open(args: &SideArgs) -> Result<Self> {
        let mut secret = [0; 16];
        getrandom::fill(&mut secret).context("a secret")?;
        let config = Config::default().sockets(SOCKETS).chunk(64 << 20).secret(secret);
        let (opened, domain) = args.open(config)?;
        Ok(Self { domain, gpu: opened.gpu, secret })
    }

    pub(super) fn follow(&self, talk: &mut Talk<Message>) -> Result<()> {
        let Self { domain, gpu, secret } = self;
        let mut listener = domain.listen(SocketAddr::new(talk.local_ip()?, 0))?;
        talk.send(Message::Met { at: listener.address(), secret: *secret })?;
        let link = listener.accept(domain, LIMIT)?;
        talk.during("while it measured");
        loop {
            match next(talk, &link, "request", BETWEEN)? {
                Message::Request(request) => serve(domain, talk, &link, &**gpu, &request)?,
                Message::End => {
                    // The client has closed it already, or does.
                    let _ = link.close(LIMIT);
                    return Ok(());
                }
                other => return Err(talk.out_of_turn(other, "request or end").into()),
            }
        }
    }
}

impl Request {
    /// Checks what comes from outside.
    fn check(&self) -> Result<()> {
        let bytes = self.bytes;
        ensure!(SIZES.contains(&bytes), "{bytes} bytes are asked for, expected {SIZES:?}");
        Ok(())
    }
}

fn serve(
    domain: &Domain,
    talk: &mut Talk<Message>,
    link: &Link,
    gpu: &dyn Gpu,
    request: &Request,
) -> Result<()> {
    request.check()?;
    let Request { test, bytes, iterations, .. } = *request;
    // The word that an end polls lies in host memory.
    let region = match test {
        Test::WriteLatency => gpu.alloc(8, Place::Shared)?.region().clone(),
        _ => memory(gpu, bytes)?,
    };
    // One buffer for all messages and writes, as the bare loop and UCX have it: several would not
    // fit a cache that holds one.
    if !test.is_latency() {
        poisoned(&region)?;
    }
    let registered = domain.register(&region, Access::REMOTE_WRITE)?;
    let mut answer = Answer { memory: registered.remote().to_bytes().to_vec(), cpu_s: 0.0 };
    talk.send(Message::Answer(answer.clone()))?;
    let before = cpu_seconds();
    // Comparing what came is not part of it.
    let used = || cpu_seconds() - before;
    answer.cpu_s = match test {
        Test::MessageLatency => {
            fill(&region)?;
            let back = memory(gpu, bytes)?;
            for _ in 0..iterations {
                let received = link.irecv(&back)?;
                link.wait(received, LIMIT)?;
                let sent = link.isend(&region)?;
                link.wait(sent, LIMIT)?;
            }
            let used = used();
            verify(&back)?;
            used
        }
        Test::WriteLatency => {
            let (here, to) =
                (gpu.alloc(8, Place::Shared)?, RemoteKey::from_bytes(&request.memory)?);
            let mut written = None;
            for n in 1..=iterations {
                wait_for(link, &region, n)?;
                // The answer to the write before came with this number.
                if let Some(written) = written.take() {
                    link.wait(written, LIMIT)?;
                }
                here.region().write(0, &n.to_ne_bytes())?;
                written = Some(link.write(here.region(), to)?);
            }
            used()
        }
        Test::MessageBandwidth => {
            pipeline(link, iterations, || Ok(link.irecv(&region)?))?;
            link.notify(b"complete")?;
            let used = used();
            verify(&region)?;
            used
        }
        Test::WriteBandwidth => {
            link.wait_notification(LIMIT)?;
            let used = used();
            verify(&region)?;
            used
        }
    };
    Ok(talk.send(Message::Answer(answer))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_for_too_many_bytes_is_refused() {
        let of =
            |bytes| Request { test: Test::WriteBandwidth, bytes, iterations: 1, memory: vec![] };
        let error = of(9_000_000_000_000).check().unwrap_err().to_string();
        assert!(error.starts_with("9000000000000 bytes are asked for"), "{error}");
        assert!(of(8).check().is_ok() && of(7).check().is_err());
    }
}
