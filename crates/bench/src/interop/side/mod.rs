//! One NIC, as the cases need it.

mod soft;
mod verbs;

pub(crate) use soft::Soft;
pub(crate) use verbs::Rdma;

use crate::interop::case::{Group, Op};
use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::time::Duration;

/// The words for work that is not completed in time.
const NOT_IN_TIME: &str = "no completion in time";

/// Registered memory of [`AREA`](crate::interop::case::AREA) bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Area {
    /// For this side's work requests and receives.
    Local,
    /// Peers may write, read and work on words.
    Exposed,
}

/// Memory as a peer names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Remote {
    pub(crate) addr: u64,
    pub(crate) rkey: u32,
}

/// Everything a peer has to know of a queue pair and the memory beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Address {
    /// Where RoCEv2 packets for its NIC go.
    pub(crate) at: SocketAddr,
    pub(crate) qpn: u32,
    pub(crate) psn: u32,
    /// [`Area::Exposed`].
    pub(crate) exposed: Remote,
    /// Memory that peers may not touch.
    pub(crate) closed: Remote,
    /// Memory whose key a peer may invalidate, where the NIC can do that.
    pub(crate) spare: Option<Remote>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    pub(crate) op: Op,
    /// Offset in [`Area::Local`].
    pub(crate) local: u64,
    pub(crate) bytes: u32,
    pub(crate) remote: Remote,
    /// Immediate, or the key to invalidate.
    pub(crate) extra: u32,
    /// Addend, or compare and swap values.
    pub(crate) operands: [u64; 2],
}

#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    pub(crate) status: String,
    pub(crate) bytes: u32,
    pub(crate) imm: Option<u32>,
    pub(crate) invalidated: Option<u32>,
}

/// A NIC with one queue pair at a time.
pub(crate) trait Side {
    fn name(&self) -> String;

    /// Whether it is Linux's `rdma_rxe`.
    fn is_rxe(&self) -> bool;

    /// A new queue pair for a group of cases, and what peers have to know. The former one is gone.
    fn open(&mut self, group: &Group) -> Result<Address>;

    fn connect(&mut self, peer: &Address, group: &Group) -> Result<()>;

    fn write(&mut self, area: Area, offset: u64, bytes: &[u8]) -> Result<()>;

    fn read(&self, area: Area, offset: u64, len: usize) -> Result<Vec<u8>>;

    /// Posts a receive into [`Area::Local`].
    fn post_recv(&mut self, offset: u64, bytes: u32) -> Result<()>;

    /// Posts a signalled work request.
    fn post(&mut self, work: &Work) -> Result<()>;

    /// How the oldest work request that was posted and not asked about has ended.
    fn sent(&mut self, limit: Duration) -> Result<String>;

    /// The next receive that has completed, if one does in time.
    fn arrived(&mut self, limit: Duration) -> Result<Option<Arrival>>;
}
