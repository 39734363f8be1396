//! How ports and posters are made.

use std::sync::Arc;
use warpverbs_mem::testing::{LazyCopier, LazyMemory};
use warpverbs_mem::{HostBuf, Region};
use warpverbs_nic::{
    Announcement, Cq, CqMode, CqeSize, NicError, OnSendError, QpConfig, QpFormat, RqConfig,
    ScatterToCqe, Service, Srq,
};

/// Where a port takes receives from.
#[derive(Clone, Debug)]
pub enum Receives {
    /// Its own ring of 2^`log` WQEs of 64 bytes.
    Own {
        /// log2 of the number of WQEs.
        log: u8,
    },
    /// An SRQ.
    Shared(Srq),
    /// Nowhere.
    None,
}

/// How a port is made.
#[derive(Clone, Debug)]
pub struct PortConfig {
    /// log2 of the WQEBBs of the send queue.
    pub log_sq: u8,
    /// log2 of the CQEs of either CQ.
    pub log_cq: u8,
    /// Mode of the send CQ; the receive CQ is a ring.
    pub cq_mode: CqMode,
    /// Receives.
    pub receives: Receives,
    /// The QP's state after a failed send.
    pub on_send_error: OnSendError,
    /// The means to announce new work to the NIC.
    pub announcement: Announcement,
    /// The NIC only consumes.
    pub consume_only: bool,
    /// The transport service of the QP.
    pub service: Service,
    /// Bytes of the entries of either CQ.
    pub cqe_size: CqeSize,
    /// In the CQEs.
    pub user_index: Option<u32>,
    /// Payload in CQEs.
    pub scatter_to_cqe: ScatterToCqe,
    /// Where queues, CQs and doorbell records lie.
    pub memory: QueueMemory,
}

/// Where the queues of a port lie, and its CQs and records.
#[derive(Clone, Debug, Default)]
pub enum QueueMemory {
    /// In host memory.
    #[default]
    Host,
    /// In memory that only this copy engine reaches.
    Device(Arc<LazyCopier>),
}

impl QueueMemory {
    /// Memory as the NIC gets it, and as its owner sees it.
    pub(crate) fn alloc(&self, len: usize) -> Result<(Region, Region), NicError> {
        let memory = match self {
            Self::Host => HostBuf::region(len).map(|region| (region.clone(), region)),
            Self::Device(copier) => LazyMemory::regions(len, 0, copier),
        };
        memory.map_err(|cause| NicError::Memory { what: "test memory", cause })
    }
}

impl PortConfig {
    /// A QP with these queues, CQs of sends and receives, and record.
    pub(crate) fn qp(
        &self,
        format: QpFormat,
        [send_cq, recv_cq]: [&Cq; 2],
        sq: Region,
        rq: RqConfig,
        dbr: Region,
    ) -> QpConfig {
        QpConfig {
            format,
            service: self.service,
            user_index: self.user_index,
            scatter_to_cqe: self.scatter_to_cqe,
            announcement: self.announcement.clone(),
            send_cq: send_cq.clone(),
            recv_cq: recv_cq.clone(),
            sq,
            log_sq: self.log_sq,
            rq,
            dbr,
            on_send_error: self.on_send_error,
            consume_only: self.consume_only,
        }
    }
}

impl Default for PortConfig {
    fn default() -> Self {
        Self {
            log_sq: 6,
            log_cq: 8,
            cq_mode: CqMode::Ring,
            receives: Receives::Own { log: 6 },
            on_send_error: OnSendError::default(),
            announcement: Announcement::default(),
            consume_only: false,
            service: Service::default(),
            cqe_size: CqeSize::default(),
            user_index: None,
            scatter_to_cqe: ScatterToCqe::default(),
            memory: QueueMemory::default(),
        }
    }
}
