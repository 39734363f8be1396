//! Asynchronous events: what a device reports besides completions.

use crate::Status;

/// An asynchronous event; in brackets its name in `enum ibv_event_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[doc(alias = "ibv_event_type")]
pub enum AsyncEvent {
    /// A CQ overran or broke, and delivers nothing more (`CQ_ERR`).
    CqError {
        /// The CQ.
        cqn: u32,
    },
    /// A QP failed (`QP_FATAL`).
    QpFatal {
        /// The QP.
        qpn: u32,
        /// Its first error; [`Status::Fatal`] if the device does not report it.
        status: Status,
    },
    /// A request of the peer was malformed; the QP is in ERR (`QP_REQ_ERR`).
    QpRequestError {
        /// The QP.
        qpn: u32,
    },
    /// A request of the peer was refused for its key or range; the QP is in ERR
    /// (`QP_ACCESS_ERR`).
    QpAccessError {
        /// The QP.
        qpn: u32,
    },
    /// The first packet arrived at a QP in RTR (`COMM_EST`).
    CommunicationEstablished {
        /// The QP.
        qpn: u32,
    },
    /// In SQD, nothing of the QP is in flight any more (`SQ_DRAINED`).
    SqDrained {
        /// The QP.
        qpn: u32,
    },
    /// A QP in ERR takes no more receives from its shared queue (`QP_LAST_WQE_REACHED`).
    LastWqeReached {
        /// The QP.
        qpn: u32,
    },
    /// A QP changed to its alternate path (`PATH_MIG`).
    PathMigrated {
        /// The QP.
        qpn: u32,
    },
    /// A QP could not change to its alternate path (`PATH_MIG_ERR`).
    PathMigrationFailed {
        /// The QP.
        qpn: u32,
    },
    /// A shared receive queue broke and gives no more receives (`SRQ_ERR`).
    SrqError {
        /// The shared receive queue.
        srqn: u32,
    },
    /// Fewer receives are left than the limit, which is now disarmed (`SRQ_LIMIT_REACHED`).
    SrqLimit {
        /// The shared receive queue.
        srqn: u32,
    },
    /// A port came up or went down (`PORT_ACTIVE`, `PORT_ERR`).
    Port {
        /// Its number, from 1.
        port: u8,
        /// Whether it is up.
        active: bool,
    },
    /// Something else of a port changed.
    PortChange {
        /// Its number, from 1.
        port: u8,
        /// The changed property.
        change: PortChange,
    },
    /// The device is broken or gone (`DEVICE_FATAL`).
    DeviceFatal,
    /// Work that asked for an event completed.
    Completion {
        /// The CQ.
        cqn: u32,
    },
    /// A value without a name here.
    Unknown(u32),
}

/// Changed property of a port that stays up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PortChange {
    /// Its local identifier (`LID_CHANGE`).
    Lid,
    /// Its partition keys (`PKEY_CHANGE`).
    Pkey,
    /// Its GIDs (`GID_CHANGE`).
    Gid,
    /// The subnet manager (`SM_CHANGE`).
    SubnetManager,
    /// The subnet manager lost its subscriptions (`CLIENT_REREGISTER`).
    Reregister,
}

impl AsyncEvent {
    /// The QP that it is about.
    pub const fn qpn(&self) -> Option<u32> {
        match *self {
            Self::QpFatal { qpn, .. }
            | Self::QpRequestError { qpn }
            | Self::QpAccessError { qpn }
            | Self::CommunicationEstablished { qpn }
            | Self::SqDrained { qpn }
            | Self::LastWqeReached { qpn }
            | Self::PathMigrated { qpn }
            | Self::PathMigrationFailed { qpn } => Some(qpn),
            _ => None,
        }
    }

    /// The CQ that it is about.
    pub const fn cqn(&self) -> Option<u32> {
        match *self {
            Self::CqError { cqn } | Self::Completion { cqn } => Some(cqn),
            _ => None,
        }
    }

    /// The shared receive queue that it is about.
    pub const fn srqn(&self) -> Option<u32> {
        match *self {
            Self::SrqError { srqn } | Self::SrqLimit { srqn } => Some(srqn),
            _ => None,
        }
    }
}
