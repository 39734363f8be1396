//! A software RDMA NIC that consumes queues of mlx5, bnxt_re and ionic in user space, for machines without
//! one and for tests.
//!
//! Queues are plain memory: a poster (a thread, a GPU kernel) writes WQEs, doorbell records and
//! doorbells there in the format of the hardware, and the NIC, a function called
//! [`SoftNic::step`], reads them, moves the bytes and writes CQEs. QPs are connected to others of
//! the same NIC, or over a [`Link`] to those of other NICs, in packets of RoCEv2. Errors
//! that hardware would punish with a hang or a vague status are also reported as typed
//! [`Violation`]s.
//!
//! Nothing that is read from a queue is trusted: a WQE is copied once, then parsed, then checked,
//! then executed. See `docs/nic.md` for its way through the files.
#![forbid(unsafe_code)]

mod ah;
mod arm;
mod clock;
mod config;
mod cq;
mod engine;
mod error;
mod event;
mod fault;
mod format;
mod nic;
mod objects;
mod open_link;
mod pd;
mod proxy_device;
mod qp;
mod shared;
mod slots;
mod srq;
mod stats;
mod stop;
mod thread;
mod uar;
mod violation;

pub use ah::AddressHandle;
pub use arm::CompletionNotice;
pub use clock::{Clock, VirtualClock};
pub use config::{Config, DoorbellPolicy, Idle};
pub use cq::Cq;
pub use engine::Step;
pub use error::{ModifyError, NicError};
pub use fault::Faults;
pub use format::{
    BnxtLibrary, BnxtMode, BnxtQueues, Dialect, FormatViolation, IonicProtocol, PacketTable,
    QpFormat,
};
pub use nic::SoftNic;
pub use objects::cq::{CqConfig, CqMode, CqeSize, Delay};
pub use objects::srq::{SrqConfig, SrqOrder};
pub use pd::{Mr, Pd};
pub use proxy_device::{
    Bounds, Gone, OwnMemory, Posted, ProxyDevice, ProxyKeys, ProxyLimits, ProxyReceiver,
    ProxyReceives, ProxySends, Staging, receive_status, translate_receive,
};
pub use qp::{
    Announcement, AttrMask, DoorbellOnly, FirstError, OnSendError, Path, Qp, QpAttrs, QpConfig,
    QpInfo, QpState, RqConfig, ScatterToCqe, Service, ack_timeout, rnr_delay,
};
pub use srq::Srq;
pub use stats::{NetStats, NicStats, OpCounts, QpStats};
pub use stop::StopWatcher;
pub use thread::EngineThread;
pub use uar::UarPage;
pub use violation::{KeySide, QueueKind, Rule, Violation};
pub use warpverbs_link as link;
pub use warpverbs_link::{Link, LinkConfig};
#[cfg(feature = "udp")]
pub use warpverbs_link::{LinkKind, UdpConfig};
pub use warpverbs_rdma::{AsyncEvent, Completion, Mtu, Status, TransitionError};
