//! Errors of control calls.

use crate::qp::Path;
use std::net::SocketAddr;
use std::path::PathBuf;
use thiserror::Error;
use warpverbs_link::{LinkError, PlanError};
use warpverbs_mem::{Access, AccessError, KeyError, MemError};
use warpverbs_rdma::{AttrMask, Mtu, TransitionError};

/// A refused control call: always the caller's error, except [`NicError::Spawn`] and
/// [`NicError::Stopped`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NicError {
    /// A number is outside of what the NIC supports.
    #[error("{what} is {value}, supported are {min} to {max}")]
    OutOfRange {
        /// The parameter.
        what: &'static str,
        /// The value given.
        value: u64,
        /// The smallest supported.
        min: u64,
        /// The largest supported.
        max: u64,
    },
    /// The memory of a queue or of the doorbell page is unsuitable.
    #[error("{what}: {cause}")]
    Memory {
        /// Which memory.
        what: &'static str,
        /// The reason.
        cause: MemError,
    },
    /// A region was not registered.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A key named in a fault does not exist.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// All objects of a kind are in use.
    #[error("all {max} {what} are in use")]
    Exhausted {
        /// The kind of object.
        what: &'static str,
        /// How many there are.
        max: u64,
    },
    /// CQEs that are not consumed leave no room in the old or the new ring of a CQ.
    #[error(
        "CQ {cqn} cannot go from {from} to {to} entries: {outstanding} CQEs are not consumed, \
         or it has failed"
    )]
    CqFull {
        /// The CQ.
        cqn: u32,
        /// CQEs that are not consumed.
        outstanding: u64,
        /// Entries of the old ring.
        from: u64,
        /// Entries of the new ring.
        to: u64,
    },
    /// A collapsed CQ has one entry, whatever its size.
    #[error("a collapsed CQ cannot be resized")]
    CollapsedResize,
    /// Queues of a format do not have it.
    #[error("queues of this format do not support {what}")]
    NotOfFormat {
        /// The feature asked for.
        what: &'static str,
    },
    /// An object of another NIC, or of another protection domain, was given.
    #[error("{what} belongs to another {owner}")]
    Foreign {
        /// The object.
        what: &'static str,
        /// Its owner.
        owner: &'static str,
    },
    /// Doorbells are to be recovered from a record that the NIC does not read.
    #[error("the NIC reads no doorbell record, expected Config::loses_doorbells or another policy")]
    RecordNotRead,
    /// No QP has this number.
    #[error("no QP {qpn:#x}")]
    UnknownQp {
        /// The number given.
        qpn: u32,
    },
    /// The number of a proxy device's QP is another QP's.
    #[error("QP number {qpn:#x} is in use")]
    QpnTaken {
        /// The number.
        qpn: u32,
    },
    /// No other device can execute this.
    #[error("{what} cannot be proxied by another device")]
    NotProxied {
        /// The feature asked for.
        what: &'static str,
    },
    /// A CQE of a datagram has no place for payload.
    #[error("a QP of datagrams cannot have payload in CQEs, which name the sender there")]
    DatagramInCqe,
    /// Peers cannot be given rights to memory with a bounce buffer: the NIC does not see their
    /// accesses, so it would not copy.
    #[error(
        "memory with a bounce buffer cannot grant {rights:?}: the NIC does not see accesses of peers"
    )]
    BouncedRights {
        /// The rights asked for.
        rights: Access,
    },
    /// A bounce buffer is host memory of the length of the GPU memory that it stands in for.
    #[error(
        "a bounce buffer must be host memory of the same length as the device region it stands for"
    )]
    UnfitBounceBuffer,
    /// The link could not be opened.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The capture's file could not be written.
    #[error("cannot write the capture {}: {kind}", path.display())]
    Capture {
        /// The file.
        path: PathBuf,
        /// The system's error.
        kind: std::io::ErrorKind,
    },
    /// Faults or a capture for a NIC without a link.
    #[error("{what} was asked for, but the NIC has no link: everything stays in this process")]
    NoWire {
        /// The setting asked for.
        what: &'static str,
    },
    /// An environment variable has an invalid value.
    #[error("{variable} is {value:?}: {cause}")]
    Variable {
        /// Its name.
        variable: &'static str,
        /// Its value.
        value: String,
        /// The reason.
        cause: PlanError,
    },
    /// `WARPVERBS_LINK` names no link.
    #[cfg(feature = "udp")]
    #[error("WARPVERBS_LINK: {cause}")]
    LinkVariable {
        /// The reason.
        cause: warpverbs_link::UnknownLink,
    },
    /// The engine's thread could not be started.
    #[error("cannot start the engine thread: {0}")]
    Spawn(std::io::ErrorKind),
    /// The NIC panicked, and has executed nothing since.
    #[error("NIC {name} stopped: {panic}")]
    Stopped {
        /// The NIC.
        name: String,
        /// The message of the panic.
        panic: String,
    },
}

/// Why a QP did not change its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ModifyError {
    /// There is no such transition, or not with these attributes.
    #[error(transparent)]
    Transition(#[from] TransitionError),
    /// The path leads over the network, and the NIC has no link.
    #[error("the path leads to {peer}, but the NIC has no link")]
    NoLink {
        /// The peer.
        peer: SocketAddr,
    },
    /// A QP of datagrams sends them by the NIC's link, and there is none.
    #[error("a QP of datagrams needs a link, and the NIC has none")]
    DatagramsNeedLink,
    /// [`Path::Proxied`](crate::Path::Proxied) is the path of proxied QPs, and of no others.
    #[error("the path is {path:?}, and the QP is {}proxied by another device", if *proxied { "" } else { "not " })]
    WrongPath {
        /// The path given.
        path: Path,
        /// Whether the QP is proxied.
        proxied: bool,
    },
    /// The peer cannot be reached from the link's address.
    #[error("the path leads to {peer}, which {local} does not reach")]
    Unreachable {
        /// The peer.
        peer: SocketAddr,
        /// The link's own address.
        local: SocketAddr,
    },
    /// Packets of this MTU do not fit the link.
    #[error("the path MTU is {mtu}, the link carries at most {max}")]
    MtuTooLarge {
        /// The MTU given.
        mtu: Mtu,
        /// The link's.
        max: Mtu,
    },
    /// The NIC panicked: see [`SoftNic::stopped`](crate::SoftNic::stopped).
    #[error("the NIC has stopped, QPs stay in ERR")]
    Stopped,
    /// An attribute is too large for its field.
    #[error("{attr} is {value}, at most {max}")]
    TooLarge {
        /// The attribute.
        attr: AttrMask,
        /// The value given.
        value: u32,
        /// The largest.
        max: u32,
    },
}
