//! QPs whose work another device carries out: the software NIC reads, checks and completes their
//! queues, and a [`ProxyDevice`] takes the work requests to, say, a QP of libibverbs.
//!
//! The NIC keeps the order. Requests of one list are posted in that order; completions of a proxy
//! device may come late and in any portions, but those of one queue in order, as on every verbs
//! device. Nothing here knows which library drives the device.

mod keys;
mod list;
mod translate;

pub use keys::ProxyKeys;
pub use list::{ProxyReceives, ProxySends};
pub(crate) use translate::InTable;
pub use translate::{Bounds, OwnMemory, receive_status, translate_receive};

use std::fmt;
use thiserror::Error;
use warpverbs_mem::Region;
use warpverbs_rdma::{Completion, Lkey};

/// The limits of a proxy device's queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProxyLimits {
    /// Send work requests outstanding at most.
    pub send_depth: u32,
    /// Receives outstanding at most; 0 if they come from an SRQ, or not at all.
    pub recv_depth: u32,
    /// Entries of a send's list at most.
    pub send_sges: u32,
    /// Entries of a receive's list at most.
    pub recv_sges: u32,
    /// Bytes of inline data that the device takes itself. Longer inline data goes through
    /// [`ProxyDevice::staging`], and is refused without it.
    pub inline_bytes: u32,
}

/// Host memory that is registered with the device, in slots of one length, for inline data beyond
/// the device's own limit.
#[derive(Clone, Debug)]
pub struct Staging {
    /// The memory; as many slots as requests may be outstanding keep work from waiting for one.
    pub memory: Region,
    /// Its key of the device.
    pub lkey: Lkey,
    /// Bytes of a slot.
    pub slot: u32,
}

/// A QP of another device, and its completion queue, which holds all that may be outstanding. The
/// NIC calls it with its lock held: no call may wait.
///
/// The creator of the proxy device brings the device's QP to RTR and RTS before this NIC's, and to
/// RESET after it. Once it is dropped, the device does not access memory of its work any more.
pub trait ProxyDevice: Send + fmt::Debug {
    /// Number of the device's QP, which becomes that of the NIC's: 24 bits.
    fn qpn(&self) -> u32;

    /// The limits of its queues. They do not change.
    fn limits(&self) -> ProxyLimits;

    /// Memory for inline data beyond that. Does not change.
    fn staging(&self) -> Option<Staging> {
        None
    }

    /// Posts the requests of a list in order. Those that it does not take are offered again later,
    /// unless one was refused.
    fn post_send(&mut self, list: &ProxySends) -> Posted;

    /// Posts receives, from the first on.
    fn post_recv(&mut self, list: &ProxyReceives) -> Posted;

    /// Takes completions, as many as there are and as `out` holds. No error but the end of the
    /// device comes this way.
    fn poll(&mut self, out: &mut [Completion]) -> Result<usize, Gone>;

    /// Brings the device's QP to ERR, if it is not there: all that is outstanding completes.
    fn fail(&mut self);

    /// Whether the device's QP is in SQE or ERR, or does not answer. It is asked behind an event of a failure, which
    /// a device may report after the QP was reset.
    fn has_failed(&self) -> bool;
}

/// A shared receive queue of another device. The proxy devices of its QPs report the receives that
/// it completes.
pub trait ProxyReceiver: Send + fmt::Debug {
    /// Receives outstanding at most, and entries of a receive's list at most.
    fn limits(&self) -> (u32, u32);

    /// Posts receives, from the first on.
    fn post_recv(&mut self, list: &ProxyReceives) -> Posted;
}

/// The device is gone, or never answers again: nothing posted to it will complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the device that executes the QP's work is gone")]
pub struct Gone;

/// How much of a list was posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Posted {
    /// So many, from the first on.
    pub count: usize,
    /// Why the next one was not: an `errno` of the device. `None` if all were posted, or if its
    /// queue is full for now.
    pub refused: Option<i32>,
}
