//! Which world to join, and who runs its store.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use super::WorldError;
use crate::{Deadline, Launch, Limits, Server};

/// Most ranks of a world.
pub const MAX_WORLD_SIZE: u32 = 65536;

/// What a job may be called.
pub(crate) const JOB_NAME: &str = "1 to 128 bytes without '/'";

pub(crate) fn is_job_name(job: &str) -> bool {
    (1..=128).contains(&job.len()) && !job.contains('/')
}

/// Who runs the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// Rank 0, at the master's address and port.
    RankZero,
    /// Rank 0, at this address instead, for a master's address that is not one of its machine's.
    RankZeroAt(SocketAddr),
    /// Somebody else, such as torchrun's agent or a rank of PyTorch.
    Elsewhere,
}

/// Which world to join, as whom.
#[derive(Clone, Debug)]
pub struct WorldConfig {
    /// From 0 to `world_size` − 1.
    pub rank: u32,
    /// How many ranks.
    pub world_size: u32,
    /// Host of the store.
    pub master_addr: String,
    /// Port of the store.
    pub master_port: u16,
    /// Who runs it.
    pub host: Host,
    /// The job, so that several may share a store.
    pub job: String,
    /// Which start of the job this is: a higher one does not see what an earlier one left.
    pub generation: u64,
    /// How long to wait for other ranks, at the beginning and in each call.
    pub timeout: Duration,
    /// Bounds of the store and the connection.
    pub limits: Limits,
}

impl WorldConfig {
    /// What a launcher says, with five minutes to wait.
    pub fn new(launch: &Launch) -> WorldConfig {
        WorldConfig {
            rank: launch.rank,
            world_size: launch.world_size,
            master_addr: launch.master_addr.clone(),
            master_port: launch.master_port,
            host: if launch.store_is_launchers { Host::Elsewhere } else { Host::RankZero },
            job: launch.job.clone(),
            generation: launch.generation,
            timeout: Duration::from_secs(300),
            limits: Limits::default(),
        }
    }

    pub(super) fn check(&self) -> Result<(), WorldError> {
        let (rank, world_size) = (self.rank, self.world_size);
        if rank >= world_size || world_size > MAX_WORLD_SIZE {
            return Err(WorldError::Rank { rank, world_size });
        }
        if !is_job_name(&self.job) {
            return Err(WorldError::Job { job: self.job.chars().take(160).collect() });
        }
        Ok(())
    }

    /// The store, if it is this rank's to run.
    pub(super) fn serve(&self, deadline: Deadline) -> Result<Option<Server>, WorldError> {
        let limits = self.limits.clone();
        let server = match (&self.host, self.rank) {
            (Host::RankZero, 0) => {
                Server::bind_host(&self.master_addr, self.master_port, limits, deadline)
            }
            (Host::RankZeroAt(addr), 0) => Server::bind(*addr, limits),
            _ => return Ok(None),
        };
        server.map(Some).map_err(WorldError::Bind)
    }
}

/// Where a server that listens at `addr` is reached from its own machine.
pub(super) fn reachable(addr: SocketAddr) -> (String, u16) {
    let ip = match addr.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    (ip.to_string(), addr.port())
}
