//! Which world to join, and who runs its store.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use super::WorldError;
use crate::job::{MAX_WORLD_SIZE, is_job_name};
use crate::{Client, Deadline, Limits, RankInfo, Server};

/// Host of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// Rank 0, at the master's address and port.
    RankZero,
    /// Rank 0, at this address instead, for a master's address that is not one of its machine's.
    RankZeroAt(SocketAddr),
    /// Somebody else, such as torchrun's agent or a rank of PyTorch.
    Elsewhere,
}

/// The world to join, and the own rank.
///
/// ```
/// use std::time::Duration;
/// use warpverbs_rendezvous::WorldConfig;
///
/// let config = WorldConfig::at(0, 4, "127.0.0.1", 29500)
///     .job("training")
///     .timeout(Duration::from_secs(600))
///     .silence(Duration::from_secs(30));
/// assert_eq!(config.job, "training");
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WorldConfig {
    /// From 0 to `world_size` − 1.
    pub rank: u32,
    /// How many ranks.
    pub world_size: u32,
    /// Host of the store.
    pub master_addr: String,
    /// Port of the store.
    pub master_port: u16,
    /// The process that runs it.
    pub host: Host,
    /// The job, so that several may share a store.
    pub job: String,
    /// Number of this start of the job: a higher one does not see what an earlier one left.
    pub generation: u64,
    /// How long to wait for other ranks, at the beginning and in each call.
    pub timeout: Duration,
    /// How long a rank may show no sign of life. If this is less than `timeout`, every rank shows
    /// one all the while, by a thread and a connection of its own, whatever else it does: a rank
    /// that is stopped is lost after this time, and one that is only slow has `timeout`.
    pub silence: Duration,
    /// Bounds of the store and the connection.
    pub limits: Limits,
}

impl WorldConfig {
    /// Settings of a launcher, with five minutes to wait.
    pub fn new(launch: &RankInfo) -> WorldConfig {
        let RankInfo { rank, world_size, master_addr, master_port, .. } = launch;
        WorldConfig {
            host: if launch.store_is_launchers { Host::Elsewhere } else { Host::RankZero },
            job: launch.job.clone(),
            generation: launch.generation,
            ..Self::at(*rank, *world_size, master_addr.as_str(), *master_port)
        }
    }

    /// Rank `rank` of `world_size`, where rank 0 runs the store at this address.
    pub fn at(rank: u32, world_size: u32, addr: impl Into<String>, port: u16) -> WorldConfig {
        WorldConfig {
            rank,
            world_size,
            master_addr: addr.into(),
            master_port: port,
            host: Host::RankZero,
            job: "default".into(),
            generation: 0,
            timeout: Duration::from_secs(300),
            silence: Duration::from_secs(300),
            limits: Limits::default(),
        }
    }

    /// The host of the store; rank 0 by default.
    pub fn host(self, host: Host) -> Self {
        Self { host, ..self }
    }

    /// The job's name.
    pub fn job(self, job: impl Into<String>) -> Self {
        Self { job: job.into(), ..self }
    }

    /// Which start of the job this is, from 0.
    pub fn generation(self, generation: u64) -> Self {
        Self { generation, ..self }
    }

    /// How long to wait for other ranks, at the beginning and in each call.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// How long a rank may show no sign of life: see the field.
    pub fn silence(self, silence: Duration) -> Self {
        Self { silence, ..self }
    }

    /// Bounds of the store and the connection.
    pub fn limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
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

    /// A connection to the store, which may be this rank's.
    pub(super) fn connect(&self, server: Option<&Server>) -> Result<Client, WorldError> {
        let (host, port) = match server {
            Some(server) => reachable(server.local_addr()),
            None => (self.master_addr.clone(), self.master_port),
        };
        let silence = self.silence.min(self.timeout);
        Client::connect(&host, port, silence, self.limits.clone()).map_err(WorldError::Connect)
    }
}

/// Where a server that listens at `addr` is reached from its own machine.
fn reachable(addr: SocketAddr) -> (String, u16) {
    let ip = match addr.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    (ip.to_string(), addr.port())
}
