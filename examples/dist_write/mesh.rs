//! Every rank connected to every other, with memory for each.

use crate::common::{DEADLINE, Session};
use anyhow::{Context as _, Result, bail, ensure};
use std::sync::Arc;
use std::time::Duration;
use warpverbs::gpu::{Dim, KernelPtr, Place};
use warpverbs::kernels::{loopback, perf};
use warpverbs::transport::{
    Access, Endpoint, EndpointConfig, EndpointHandle, MemoryRegion, RemoteRegion,
};
use warpverbs_rendezvous::World;

/// Bytes of a handle and of a region, as they travel.
const HANDLE: usize = 56;
const REGION: usize = 28;

/// What this rank has for one other.
struct Peer {
    rank: u32,
    endpoints: Vec<Endpoint>,
    /// Where that rank writes.
    inbox: MemoryRegion,
}

pub(crate) struct Mesh {
    world: World,
    peers: Vec<Peer>,
    /// What is sent, to all the same.
    source: MemoryRegion,
    targets: KernelPtr,
    count: usize,
}

impl Mesh {
    /// Connects `qps` endpoints to every other rank, with room for messages of `bytes`.
    pub(crate) fn new(session: &Session, mut world: World, bytes: u64, qps: u32) -> Result<Self> {
        let (rank, len) = (world.rank(), usize::try_from(bytes)?);
        // Host memory that GPU and NIC share: the NIC's packets are made by the CPU.
        let memory = |access| -> Result<MemoryRegion> {
            Ok(session.nic.register(session.gpu.alloc(len, Place::Shared)?, access)?)
        };
        let config = EndpointConfig::for_gpu(&session.gpu).recv_depth(0).timeout(DEADLINE);
        let others = (0..world.world_size()).filter(|&other| other != rank);
        let peer = |rank| -> Result<Peer> {
            let endpoints = (0..qps).map(|_| Ok(session.nic.endpoint(&config)?));
            let inbox = memory(Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
            Ok(Peer { rank, endpoints: endpoints.collect::<Result<_>>()?, inbox })
        };
        let peers = others.map(peer).collect::<Result<Vec<_>>>()?;
        let source = memory(Access::empty())?;
        let shape = [u64::from(qps).to_le_bytes(), bytes.to_le_bytes()].concat();
        let mut mine = shape.clone();
        for peer in &peers {
            for endpoint in &peer.endpoints {
                mine.extend(endpoint.handle().to_bytes());
            }
            mine.extend(peer.inbox.remote().to_bytes());
        }
        let all = world.exchange("endpoints", &mine)?;
        let mut table = Vec::new();
        for peer in &peers {
            let theirs = &all[peer.rank as usize];
            let who = || format!("what rank {} sent", peer.rank);
            ensure!(
                theirs.get(..16) == Some(&shape),
                "rank {} was started with another --qps or --end than rank {rank}",
                peer.rank
            );
            // Each rank leaves itself out of its list.
            let place = rank as usize - usize::from(rank > peer.rank);
            let each = HANDLE * qps as usize + REGION;
            let part = theirs.get(16 + place * each..16 + (place + 1) * each).with_context(who)?;
            let (handles, region) = part.split_at(each - REGION);
            let region = RemoteRegion::from_bytes(region).with_context(who)?;
            for (endpoint, handle) in peer.endpoints.iter().zip(handles.chunks(HANDLE)) {
                endpoint.connect(&EndpointHandle::from_bytes(handle).with_context(who)?)?;
                table.push((endpoint.device_qp(), region));
            }
        }
        let (targets, count) = targets(session, &source, table)?;
        session.gpu.load(&perf::IMAGE)?;
        session.gpu.load(&loopback::IMAGE)?;
        world.barrier("connected")?;
        Ok(Self { world, peers, source, targets, count })
    }

    pub(crate) fn rank(&self) -> u32 {
        self.world.rank()
    }

    /// Peers times queue pairs.
    pub(crate) fn targets(&self) -> usize {
        self.count
    }

    /// New contents for a row, everywhere: nothing of an earlier row passes for this one's.
    pub(crate) fn prepare(&mut self, session: &Session, row: usize, size: u64) -> Result<()> {
        fill(session, &self.source, size, seed(self.rank(), row))?;
        for peer in &self.peers {
            fill(session, &peer.inbox, size, !seed(peer.rank, row))?;
        }
        Ok(self.world.barrier("prepared")?)
    }

    /// A kernel writes `iters` messages to every target; how long it took.
    pub(crate) fn write(
        &self,
        session: &Session,
        dim: Dim,
        size: u64,
        iters: u32,
    ) -> Result<Duration> {
        let report = session.gpu.alloc(24, Place::Device)?;
        let kernel = perf::Stream {
            targets: self.targets.clone(),
            count: u32::try_from(self.count)?,
            op: 0,
            bytes: u32::try_from(size)?,
            iters,
            report: KernelPtr::new(&report),
        };
        session.run(&kernel, dim)?;
        let [status, start, end] = crate::common::words(&session.gpu, &report)?;
        if status != 0 {
            let broken = self.peers.iter().flat_map(|peer| &peer.endpoints);
            let mut health = broken.filter_map(|endpoint| endpoint.health().ok());
            match health.find(|health| !health.is_ok()).map(|health| health.to_string()) {
                Some(health) => {
                    let line = health.lines().map(str::trim).collect::<Vec<_>>().join("; ");
                    bail!("the kernel ended with status {status:#x}: {line}")
                }
                None => bail!("the kernel ended with status {status:#x}"),
            }
        }
        // The start is left as its complement, so that the earliest one is the largest.
        let took = end.checked_sub(!start).filter(|&took| took > 0);
        Ok(Duration::from_nanos(took.context("the device's clock stood still")?))
    }

    /// The longest time of all ranks, once all have ended.
    pub(crate) fn slowest(&mut self, own: Duration) -> Result<Duration> {
        let own = u64::try_from(own.as_nanos())?.to_le_bytes();
        let all = self.world.exchange("time", &own)?;
        let nanos =
            all.iter().filter_map(|time| Some(u64::from_le_bytes(time[..].try_into().ok()?)));
        Ok(Duration::from_nanos(nanos.max().context("no times")?))
    }

    /// What every peer wrote is what it sent. All WRITEs are complete everywhere.
    pub(crate) fn verify(&mut self, session: &Session, row: usize, size: u64) -> Result<()> {
        for peer in &self.peers {
            let wrong = session.gpu.alloc(8, Place::Device)?;
            let kernel = loopback::Check {
                data: KernelPtr::new(peer.inbox.buffer()),
                bytes: size,
                seed: seed(peer.rank, row),
                wrong: KernelPtr::new(&wrong),
            };
            session.run(&kernel, Dim::new(1, 32))?;
            let [wrong] = crate::common::words(&session.gpu, &wrong)?;
            ensure!(wrong == 0, "{wrong} of {size} bytes from rank {} are wrong", peer.rank);
        }
        Ok(self.world.barrier("verified")?)
    }

    /// Ends together with the others.
    pub(crate) fn leave(self) -> Result<()> {
        Ok(self.world.leave()?)
    }
}

/// What the kernel reads: {QP, local address, remote address, lkey, rkey} of each target.
fn targets(
    session: &Session,
    source: &MemoryRegion,
    table: Vec<(KernelPtr, RemoteRegion)>,
) -> Result<(KernelPtr, usize)> {
    let (count, mut bytes, mut qps) = (table.len(), Vec::new(), Vec::new());
    for (qp, to) in table {
        for word in [qp.addr(), source.addr(), to.addr()] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.extend_from_slice(&source.lkey().to_le_bytes());
        bytes.extend_from_slice(&to.rkey().to_le_bytes());
        qps.push(qp);
    }
    let buffer = session.gpu.alloc(bytes.len(), Place::Device)?;
    session.gpu.write(&buffer, 0, &bytes)?;
    Ok((KernelPtr::new(&buffer).keeping(Arc::new(qps)), count))
}

fn fill(session: &Session, region: &MemoryRegion, bytes: u64, seed: u32) -> Result<()> {
    let data = KernelPtr::new(region.buffer());
    session.run(&loopback::Fill { data, bytes, seed }, Dim::new(1, 32))
}

/// Differs for every rank and row.
fn seed(rank: u32, row: usize) -> u32 {
    (row as u32) << 16 | rank
}
