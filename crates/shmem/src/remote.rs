//! Queue pairs to other ranks, and the keys of their memory.

use crate::{RdmaRoute, ShmemError};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use warpverbs_gpu::{Buffer, Gpu, Local, Remote as Place};
use warpverbs_transport::{
    Access, Device, Endpoint, EndpointConfig, EndpointHandle, HandleError, Health, MemoryRegion,
    RemoteRegion, TransportError,
};

/// Queue pairs and keys of a rank for the other ranks, as versioned bytes.
#[derive(Serialize, Deserialize)]
pub(crate) struct Offer {
    /// Of each segment.
    regions: Vec<Vec<u8>>,
    /// For each rank.
    handles: Vec<Vec<Vec<u8>>>,
}

/// The RDMA routes.
pub(crate) struct Remote {
    rank: u32,
    device: Device,
    /// To each rank. To the own one twice as many: the second half answers the first.
    endpoints: Vec<Vec<Endpoint>>,
    regions: Vec<MemoryRegion>,
    /// Of each rank, its segments.
    theirs: Vec<Vec<RemoteRegion>>,
}

impl Remote {
    /// Makes `qps` queue pairs to each rank of which `wanted` says so.
    pub(crate) fn new(
        gpu: &Arc<dyn Gpu>,
        device: &Device,
        rank: u32,
        wanted: &[bool],
        (qps, timeout): (u32, Duration),
    ) -> Result<Self, ShmemError> {
        let endpoints = wanted.iter().map(|_| Vec::new()).collect();
        let theirs = vec![Vec::new(); wanted.len()];
        let mut remote =
            Self { rank, device: device.clone(), endpoints, regions: Vec::new(), theirs };
        remote.renew(gpu, wanted, (qps, timeout))?;
        Ok(remote)
    }

    /// Makes new queue pairs to the ranks of which `wanted` says so.
    pub(crate) fn renew(
        &mut self,
        gpu: &Arc<dyn Gpu>,
        wanted: &[bool],
        (qps, timeout): (u32, Duration),
    ) -> Result<(), ShmemError> {
        // Nothing is received; lines of mail are inline.
        let config = EndpointConfig::for_gpu(gpu).recv_depth(0).inline_bytes(96).timeout(timeout);
        for peer in (0..wanted.len()).filter(|peer| wanted[*peer]) {
            let count = if peer == self.rank as usize { 2 * qps } else { qps };
            let made = (0..count).map(|_| self.device.endpoint(&config));
            self.endpoints[peer] = made.collect::<Result<_, TransportError>>()?;
        }
        Ok(())
    }

    /// Ends the queue pairs to a rank, and forgets its keys.
    pub(crate) fn part_with(&mut self, peer: usize) {
        self.endpoints[peer].clear();
        self.theirs[peer].clear();
    }

    /// Registers a segment of this rank.
    pub(crate) fn register(&mut self, segment: &Buffer) -> Result<Vec<u8>, ShmemError> {
        let access = Access::LOCAL_WRITE
            | Access::REMOTE_WRITE
            | Access::REMOTE_READ
            | Access::REMOTE_ATOMIC;
        let region = self.device.register(segment.clone(), access)?;
        let bytes = region.remote().to_bytes();
        self.regions.push(region);
        Ok(bytes)
    }

    /// Registers a buffer of the user's.
    pub(crate) fn register_buffer(&self, buffer: &Buffer) -> Result<MemoryRegion, ShmemError> {
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        Ok(self.device.register(buffer.clone(), access)?)
    }

    /// Deregisters segment `index` and all later ones.
    pub(crate) fn give_up(&mut self, index: usize) {
        self.regions.truncate(index);
        self.theirs.iter_mut().for_each(|theirs| theirs.truncate(index));
    }

    /// For the other ranks.
    pub(crate) fn offer(&self) -> Offer {
        let handles = self.endpoints.iter();
        let bytes = |endpoint: &Endpoint| endpoint.handle().to_bytes();
        Offer {
            regions: self.regions.iter().map(|region| region.remote().to_bytes()).collect(),
            handles: handles.map(|to| to.iter().map(bytes).collect()).collect(),
        }
    }

    /// Connects every queue pair to some ranks, and stores their keys.
    pub(crate) fn connect(
        &mut self,
        offers: &[Option<Offer>],
        peers: &[usize],
    ) -> Result<(), ShmemError> {
        let own = self.rank as usize;
        for &peer in peers {
            let endpoints = &self.endpoints[peer];
            if endpoints.is_empty() {
                continue;
            }
            let none = Vec::new();
            let offered = offers[peer].as_ref().and_then(|offer| offer.handles.get(own));
            let handles = offered.unwrap_or(&none);
            if handles.len() != endpoints.len() {
                return Err(ShmemError::Unequal {
                    what: "number of queue pairs",
                    rank: self.rank,
                    value: endpoints.len().to_string(),
                    other: peer as u32,
                    other_value: handles.len().to_string(),
                });
            }
            // Each of the own half by half, with that of the other half.
            let turn = if peer == own { endpoints.len() / 2 } else { 0 };
            for (i, endpoint) in endpoints.iter().enumerate() {
                let handle = &handles[(i + turn) % handles.len()];
                endpoint
                    .connect(&EndpointHandle::from_bytes(handle).map_err(TransportError::from)?)?;
            }
        }
        for &peer in peers {
            for region in offers[peer].iter().flat_map(|offer| &offer.regions) {
                self.learn(peer, region)?;
            }
        }
        Ok(())
    }

    /// Stores the key of another rank's next segment.
    pub(crate) fn learn(&mut self, peer: usize, region: &[u8]) -> Result<(), ShmemError> {
        let region = RemoteRegion::from_bytes(region);
        let region = region.map_err(|error: HandleError| ShmemError::Nic(error.into()))?;
        self.theirs[peer].push(region);
        Ok(())
    }

    /// The own segments, for the own side of work requests.
    pub(crate) fn segments(&self) -> Vec<Local> {
        self.regions.iter().map(|region| region.local().into()).collect()
    }

    /// The RDMA route to a rank, if there is one.
    pub(crate) fn route(&self, peer: usize) -> Option<RdmaRoute> {
        let endpoints = &self.endpoints[peer];
        let half = if peer == self.rank as usize { endpoints.len() / 2 } else { endpoints.len() };
        let qps: Vec<_> = endpoints[..half].iter().map(Endpoint::device_qp).collect();
        let segments = || self.theirs[peer].iter().map(|&region| Place::from(region)).collect();
        (!qps.is_empty()).then(|| RdmaRoute { qps, segments: segments() })
    }

    /// Ends every wait on the queue pairs to a rank.
    pub(crate) fn abort(&self, peer: usize) -> Result<(), ShmemError> {
        Ok(self.endpoints[peer].iter().try_for_each(Endpoint::abort)?)
    }

    /// The queue pairs that are not in order, each with its peer.
    pub(crate) fn health(&self) -> Result<Vec<(u32, Health)>, ShmemError> {
        let mut bad = Vec::new();
        for (rank, endpoints) in (0..).zip(&self.endpoints) {
            for endpoint in endpoints {
                let health = endpoint.health()?;
                if !health.is_ok() {
                    bad.push((rank, health));
                }
            }
        }
        Ok(bad)
    }

    /// Which NIC, and how it reaches the own memory.
    pub(crate) fn describe(&self) -> String {
        let how = self.regions.first().map(|region| region.how().explain()).unwrap_or_default();
        format!("{}; memory: {how}", self.device.why())
    }
}
