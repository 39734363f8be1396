//! Every rank connected to every other.

use super::rank::Rank;
use crate::common::{DEADLINE, Session};
use anyhow::{Context as _, Result, ensure};
use warpverbs::gpu::{Dim, KernelPtr, Place};
use warpverbs::kernels::loopback;
use warpverbs::transport::{
    Endpoint, EndpointConfig, EndpointHandle, MemoryRegion, QpState, RemoteRegion,
};

/// Codes of the time after which a packet is missed (0.27 s, of which seven pass before a peer is
/// given up) and after which a sender asks again for a receive (0.64 ms). Lost packets are sent
/// again much earlier; ranks that share the cores of one machine may be silent for a while.
const TIMERS: (u8, u8) = (16, 12);

/// One of the endpoints to a rank.
pub(crate) struct Link {
    /// The rank.
    pub(crate) peer: u32,
    pub(crate) endpoint: Endpoint,
}

/// The endpoints to other ranks: those to one rank stand together, ranks in order.
pub(crate) struct Mesh(Vec<Link>);

impl Mesh {
    /// Connects `qps` endpoints, each with room for `receives`, to every other rank that `with`
    /// takes, which must take this one in turn.
    pub(crate) fn new(
        rank: &mut Rank<'_>,
        with: impl Fn(u32) -> bool,
        qps: u32,
        receives: u32,
    ) -> Result<Self> {
        let config = endpoint_config(rank.session).recv_depth(receives);
        let endpoint = |_| Ok(rank.session.nic.endpoint(&config)?);
        let peers = rank.others().map(|peer| {
            let qps = if with(peer) { qps } else { 0 };
            Ok((peer, (0..qps).map(endpoint).collect::<Result<Vec<_>>>()?))
        });
        let peers = peers.collect::<Result<Vec<_>>>()?;
        let handles = peers.iter().map(|(_, endpoints)| {
            endpoints.iter().map(|endpoint| endpoint.handle().to_bytes()).collect()
        });
        let theirs = rank.trade("endpoints", &handles.collect::<Vec<_>>())?;
        let mut links = Vec::new();
        for ((peer, endpoints), handles) in peers.into_iter().zip(theirs) {
            let (sent, expected) = (handles.len(), endpoints.len());
            ensure!(sent == expected, "rank {peer} sent {sent} endpoints, expected {expected}");
            for (endpoint, handle) in endpoints.into_iter().zip(handles) {
                let who = || format!("the bytes from rank {peer}");
                let handle = EndpointHandle::from_bytes(&handle).with_context(who)?;
                let to = || format!("connecting to rank {peer}");
                endpoint.connect(&handle).with_context(to)?;
                links.push(Link { peer, endpoint });
            }
        }
        rank.barrier("connected")?;
        Ok(Self(links))
    }

    /// All of them.
    pub(crate) fn links(&self) -> impl Iterator<Item = &Link> {
        self.0.iter()
    }

    /// One more, whose peer is this rank itself.
    pub(crate) fn push(&mut self, link: Link) {
        self.0.push(link);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether work has failed, as the NIC knows without a look at the kernel's memory.
    pub(super) fn is_broken(&self) -> bool {
        self.links().any(|link| link.endpoint.state() == QpState::Err)
    }

    /// The rank that did not do as expected, as far as the endpoints know.
    pub(super) fn blame(&self) -> Option<String> {
        for Link { peer, endpoint } in &self.0 {
            let Ok(health) = endpoint.health() else { continue };
            if health.is_ok() {
                continue;
            }
            return Some(match health.syndrome() {
                Some(syndrome) => format!("work towards rank {peer} failed: {syndrome}"),
                None => format!("towards rank {peer}: {health}"),
            });
        }
        None
    }
}

/// Memory that another rank writes to, and the memory there that this one writes to.
pub(crate) struct Inbox {
    pub(crate) peer: u32,
    pub(crate) own: MemoryRegion,
    pub(crate) theirs: RemoteRegion,
}

impl Rank<'_> {
    /// Memory for each other rank, which `make` makes; the ranks are told.
    pub(crate) fn inboxes(
        &mut self,
        make: impl Fn(&Self) -> Result<MemoryRegion>,
    ) -> Result<Vec<Inbox>> {
        let own: Vec<_> = self.others().map(|_| make(self)).collect::<Result<_>>()?;
        let told: Vec<_> = own.iter().map(|region| vec![region.remote().to_bytes()]).collect();
        let theirs = self.trade("regions", &told)?;
        let peers = self.others().zip(own).zip(theirs);
        let inboxes = peers.map(|((peer, own), theirs)| {
            let who = || format!("the bytes from rank {peer}");
            let theirs = theirs.first().with_context(who)?;
            Ok(Inbox { peer, own, theirs: RemoteRegion::from_bytes(theirs).with_context(who)? })
        });
        inboxes.collect()
    }
}

/// An endpoint of these examples.
pub(crate) fn endpoint_config(session: &Session) -> EndpointConfig {
    EndpointConfig::for_gpu(&session.gpu).timeout(DEADLINE).timers(TIMERS.0, TIMERS.1)
}

/// Fills memory with the test pattern of `seed`.
pub(crate) fn fill(session: &Session, at: KernelPtr<u8>, bytes: u64, seed: u32) -> Result<()> {
    session.run(&loopback::Fill { data: at, bytes, seed }, Dim::new(1, 32))
}

/// How many bytes are not those of the test pattern.
pub(crate) fn wrong_bytes(
    session: &Session,
    at: KernelPtr<u8>,
    bytes: u64,
    seed: u32,
) -> Result<u64> {
    let wrong = session.gpu.alloc(8, Place::Device)?;
    let kernel = loopback::Check { data: at, bytes, seed, wrong: KernelPtr::new(&wrong) };
    session.run(&kernel, Dim::new(1, 32))?;
    let [wrong] = crate::common::words(&session.gpu, &wrong)?;
    Ok(wrong)
}

/// Differs for every rank and row.
pub(crate) fn seed(rank: u32, row: usize) -> u32 {
    (row as u32) << 16 | rank
}
