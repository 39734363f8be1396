//! Interface of a kind of NIC: the queues of this crate use these traits and nothing else.

mod direct;
mod events;
mod soft;
#[cfg(feature = "verbs")]
mod verbs;

pub(crate) use direct::{CompletionPort, DirectPorts, NotPosted, RecvPort, SendPort};
pub(crate) use events::Events;
pub(crate) use soft::Soft;
#[cfg(feature = "verbs")]
pub use verbs::{DeviceSurvey, Reader, VerbsProvider};

use crate::{FabricAddress, NicId, RegisterOptions, TransportError};
use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::Weak;
use warpverbs_mem::{Access, Region, RegistrationPath};
use warpverbs_mlx5::export::{CqMode, NicFormat};
use warpverbs_nic::{FirstError, NicError, StopWatcher};
use warpverbs_rdma::{Decision, Mtu, QpState, Reason};

/// Description of a NIC, known before it is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NicInfo {
    /// Its name, good for [`Context::open`](crate::Context::open).
    pub name: String,
    /// The provider that drives it.
    pub provider: &'static str,
    /// One line about what it is.
    pub description: String,
}

/// The NIC of a provider that `auto` takes, or why it takes none.
pub(crate) type Offer = Result<Decision<String>, Vec<Reason>>;

/// A kind of NIC.
pub(crate) trait Provider: Send + Sync {
    /// The NIC that `auto` takes, if it takes one of this provider. `near` is the PCI address of a
    /// GPU that the NIC is to be close to. By default none.
    fn offer(&self, _near: Option<&str>) -> Result<Offer, TransportError> {
        Ok(Err(Vec::new()))
    }

    /// The NICs it drives here.
    fn devices(&self) -> Result<Vec<NicInfo>, TransportError>;

    /// Opens one, with a protection domain of its own.
    fn open(&self, name: &str) -> Result<Arc<dyn Nic>, TransportError>;
}

/// An open NIC with one protection domain. Its objects may outlive it.
pub(crate) trait Nic: Send + Sync + fmt::Debug {
    /// Description of the NIC.
    fn info(&self) -> &NicInfo;

    /// Two endpoints reach each other without a network iff their NICs have the same identity.
    fn id(&self) -> NicId;

    /// On which network it is, and where.
    fn reach(&self) -> FabricAddress {
        FabricAddress::Local
    }

    /// The largest path MTU of that network.
    fn max_mtu(&self) -> Option<Mtu> {
        None
    }

    /// The link to peers and the means it has used so far, in words for users.
    fn link(&self) -> Option<String> {
        None
    }

    /// READs and atomics that a QP can serve, and that it can have outstanding, at a time.
    fn max_rd_atomic(&self) -> [u8; 2] {
        [16, 16]
    }

    /// Reader of the queues that kernels post to, and why, in words for users; `None` if there is
    /// no choice.
    fn way(&self) -> Option<&str> {
        None
    }

    /// The format of its queues.
    fn format(&self) -> NicFormat {
        NicFormat::Mlx5
    }

    /// How a send CQ reports that was asked to report so.
    fn send_cq(&self, asked: CqMode) -> CqMode {
        asked
    }

    /// The memory that holds doorbell registers; a GPU maps it to ring them.
    fn doorbells(&self) -> &Region;

    /// Lets the NIC touch `region`, which the key keeps alive; addresses are the region's own.
    fn register(
        &self,
        region: &Region,
        options: &RegisterOptions,
    ) -> Result<MemoryKey, TransportError>;

    /// A QP with its two CQs, in the state INIT, on zeroed queue memory. CQ memory is set to 0xff.
    fn create_qp(&self, spec: &QpSpec<'_>) -> Result<Arc<dyn QueuePair>, TransportError>;

    /// A shared receive queue on zeroed memory.
    fn create_srq(&self, spec: &SrqSpec<'_>) -> Result<Arc<dyn SharedQueue>, TransportError>;

    /// Has `watcher` called when the NIC stops for good, at once if it has; a NIC that never does
    /// has no use for it.
    fn watch(&self, _watcher: Weak<dyn StopWatcher>) {}
}

/// A registration; dropping it takes the keys back.
pub(crate) struct MemoryKey {
    /// For the owner's work requests.
    pub(crate) lkey: u32,
    /// For peers.
    pub(crate) rkey: u32,
    /// The way to the memory.
    pub(crate) how: Decision<RegistrationPath>,
    /// The registrations behind the keys.
    _made: Box<dyn Any + Send + Sync>,
}

/// A CQ to make. Collapsed CQs have one entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CqSpec<'a> {
    /// How it reports.
    pub(crate) mode: CqMode,
    /// log2 of the number of CQEs.
    pub(crate) log_size: u8,
    /// The CQEs.
    pub(crate) buf: &'a Region,
    /// Its doorbell record, 8 bytes.
    pub(crate) record: &'a Region,
}

/// Where a QP's receives come from.
#[derive(Clone, Copy)]
pub(crate) enum RecvSpec<'a> {
    /// Nowhere.
    None,
    /// An own ring of 2^`log_depth` WQEs.
    Own {
        /// The ring.
        buf: &'a Region,
        /// log2 of the number of WQEs.
        log_depth: u8,
        /// Bytes of one.
        bytes: u16,
    },
    /// A shared receive queue of the same NIC.
    Shared(&'a dyn SharedQueue),
}

impl<'a> RecvSpec<'a> {
    /// The shared receive queue, if there is one, which the caller's provider must have made.
    fn shared<T: SharedQueue>(&self) -> Result<Option<&'a T>, NicError> {
        let Self::Shared(queue) = *self else { return Ok(None) };
        let queue: &dyn Any = queue;
        let foreign = NicError::Foreign { what: "SRQ", owner: "provider" };
        queue.downcast_ref().ok_or(foreign).map(Some)
    }
}

/// A QP to make.
// Without libibverbs no NIC takes calls or limits inline data.
#[cfg_attr(not(feature = "verbs"), allow(dead_code))]
pub(crate) struct QpSpec<'a> {
    /// The format of its queues.
    pub(crate) format: NicFormat,
    /// All parts lie in it, but for a send queue in memory of its own.
    pub(crate) memory: &'a Region,
    /// The table of packet numbers, of entries of 8 bytes behind the slots of the send queue, of a format that
    /// has one.
    pub(crate) packets: Option<&'a Region>,
    /// 2^`log_sq` WQEBBs.
    pub(crate) sq: &'a Region,
    /// log2 of the number of WQEBBs.
    pub(crate) log_sq: u8,
    /// Receives.
    pub(crate) recv: RecvSpec<'a>,
    /// The QP's doorbell record, 8 bytes.
    pub(crate) record: &'a Region,
    /// Completions of the send queue.
    pub(crate) send_cq: CqSpec<'a>,
    /// Completions of receives.
    pub(crate) recv_cq: CqSpec<'a>,
    /// Rights of peers through the QP.
    pub(crate) access: Access,
    /// Bytes of inline data of one work request at most.
    pub(crate) inline_bytes: usize,
    /// No kernel posts: a NIC that takes calls need not look at rings.
    pub(crate) host_only: bool,
    /// The NIC takes every announced WQEBB for a work request that succeeded, without a look at it.
    pub(crate) consume_only: bool,
}

/// A shared receive queue to make.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SrqSpec<'a> {
    /// All parts lie in it.
    #[cfg_attr(not(feature = "verbs"), allow(dead_code))]
    pub(crate) memory: &'a Region,
    /// 2^`log_depth` WQEs of 2^`log_stride` bytes.
    pub(crate) buf: &'a Region,
    /// log2 of the number of WQEs.
    pub(crate) log_depth: u8,
    /// log2 of the bytes of one, next segment included.
    pub(crate) log_stride: u8,
    /// Its doorbell record, 4 bytes.
    pub(crate) record: &'a Region,
}

/// A shared receive queue; dropping it destroys it.
pub(crate) trait SharedQueue: Any + Send + Sync {
    /// Its number.
    fn srqn(&self) -> u32;
    /// Asks for one [`AsyncEvent::SrqLimit`](warpverbs_rdma::AsyncEvent::SrqLimit) when fewer than
    /// `limit` receives are left; 0 asks for none.
    fn set_limit(&self, limit: u16);
}

/// Attributes that connect a QP to its peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathSpec {
    /// The peer's QP number.
    pub(crate) dest_qpn: u32,
    /// The peer's NIC; the own one for loopback.
    pub(crate) dest_nic: NicId,
    /// On which network that NIC is, and where.
    pub(crate) dest: FabricAddress,
    /// Path MTU.
    pub(crate) mtu: Mtu,
    /// First sequence number the peer sends.
    pub(crate) rq_psn: u32,
    /// First sequence number sent.
    pub(crate) sq_psn: u32,
    /// READs and atomics served at a time.
    pub(crate) max_dest_rd_atomic: u8,
    /// READs and atomics asked at a time.
    pub(crate) max_rd_atomic: u8,
    /// Code of the time after which an answer is missed.
    pub(crate) ack_timeout: u8,
    /// Times a request is sent again.
    pub(crate) retry: u8,
    /// Times a request is sent again when the peer has no receive.
    pub(crate) rnr_retry: u8,
    /// Code of the time a sender waits when there is no receive here.
    pub(crate) min_rnr_timer: u8,
}

/// A QP and its CQs; dropping it destroys them, whatever is in flight.
pub(crate) trait QueuePair: Send + Sync + fmt::Debug {
    /// Its number.
    fn qpn(&self) -> u32;
    /// Numbers of its send and receive CQ.
    fn cqns(&self) -> [u32; 2];
    /// Where its doorbell register lies in [`Nic::doorbells`], 8 bytes, or in [`QueuePair::own_doorbells`];
    /// `None` if work reaches it by [`QueuePair::direct`] alone.
    fn doorbell_offset(&self) -> Option<u64>;
    /// Offsets there of the registers by which receives are announced and consumed CQEs told, of formats without
    /// records; `None` if words of the endpoint's memory are in their place.
    fn other_doorbells(&self) -> Option<[u64; 2]> {
        None
    }
    /// Memory that holds its doorbell register, and that of no other QP.
    fn own_doorbells(&self) -> Option<&Region> {
        None
    }
    /// The NIC acts on the doorbell record, which may be ahead of the doorbells that it has received: a
    /// device behind PCIe, and a software NIC by its policy.
    fn reads_record(&self) -> bool {
        false
    }
    /// Its state.
    fn state(&self) -> QpState;
    /// The first error of its send queue, if the NIC remembers it. Not asked of one with
    /// [`QueuePair::direct`].
    fn first_error(&self) -> Option<FirstError>;
    /// Why its NIC executes nothing any more, if that is so.
    fn stopped(&self) -> Option<NicError> {
        None
    }
    /// Events of the QP, its CQs, its SRQ and its NIC.
    fn events(&self) -> Events;
    /// How the host posts to it, if not by rings. Asked once.
    fn direct(&self) -> Option<DirectPorts> {
        None
    }
    /// From INIT by RTR to RTS.
    fn connect(&self, path: &PathSpec) -> Result<(), TransportError>;
    /// To RESET: nothing is touched on its behalf any more.
    fn reset(&self) -> Result<(), TransportError>;
    /// From RESET to INIT.
    fn init(&self, access: Access) -> Result<(), TransportError>;
    /// To ERR: everything posted is flushed.
    fn fail(&self) -> Result<(), TransportError>;
}
