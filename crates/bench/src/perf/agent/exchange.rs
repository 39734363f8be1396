//! Kernels of both ends put bytes into each other's memory and raise each other's counter.

use super::memory::Side;
use super::messages::{Exchange, LIMIT};
use anyhow::{Context as _, Result};
use std::time::Duration;
use warpverbs::KernelStatus;
use warpverbs::agent::{Agent, PathKind, Registration, Views};
use warpverbs::gpu::{Buffer, Dim, KernelPtr, Launch, Place, SafeKernel};
use warpverbs_test_kernels::nixl as k;

/// Under which each end registers its counter.
pub(super) const COUNTER: &str = "counter";
/// Bytes of a counter.
pub(super) const COUNTER_BYTES: u64 = 16;

/// Compiles the kernels, unless that was done before.
pub(super) fn compile(side: &Side) -> Result<()> {
    Ok(side.gpu.load(&k::IMAGE)?)
}

/// A kernel that exchanges.
pub(super) struct Running {
    launch: Launch,
    views: Views,
    peer: String,
    status: KernelStatus,
    took: Buffer,
    rounds: u32,
}

impl Exchange {
    /// Starts this end's kernel. Its memory has the message in front and room for the peer's behind
    /// it; its counter is zero.
    pub(super) fn start(
        &self,
        side: &Side,
        agent: &Agent,
        (memory, counter): (&Registration, &Registration),
        peer: &str,
    ) -> Result<Running> {
        let data = agent.remote(peer, super::memory::LABEL)?;
        let raised = agent.remote(peer, COUNTER)?;
        let views = agent.views(&[memory, counter], &[Some(&data), Some(&raised)])?;
        let (status, took) = (KernelStatus::new(&side.gpu)?, side.gpu.alloc(8, Place::Shared)?);
        let Self { bytes, threads, begins, warmup, rounds: iters } = *self;
        let path = views.path(peer).context("the peer has no entry")?;
        // Kernels name the route, as a program would that knows it.
        let direct = u32::from(path != PathKind::Network);
        let how = k::Exchange { bytes, begins: begins.into(), warmup, iters, direct };
        let (local, remote) = (views.local(), views.remote());
        let (report, out): (KernelPtr<u64>, _) = (KernelPtr::new(&took), status.pointer());
        let kernel: Box<dyn SafeKernel> = match threads {
            1 => Box::new(k::NixlExchangeThread { local, remote, how, report, status: out }),
            _ => Box::new(k::NixlExchangeWarp { local, remote, how, report, status: out }),
        };
        let launch = side.gpu.launch(&*kernel, Dim::new(1, 32), LIMIT)?;
        Ok(Running { launch, views, peer: peer.to_owned(), status, took, rounds: iters })
    }
}

impl Running {
    /// Waits for its end: the way to the peer, and the time of one round there and back.
    pub(super) fn finish(self) -> Result<(PathKind, Duration)> {
        self.launch.wait()?;
        self.status.check(&[])?;
        let path = self.views.path(&self.peer).context("the peer has no entry")?;
        let mut nanos = [0; 8];
        self.took.region().read(0, &mut nanos)?;
        Ok((path, Duration::from_nanos(u64::from_ne_bytes(nanos)) / self.rounds.max(1)))
    }
}
