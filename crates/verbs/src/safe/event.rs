//! Asynchronous events: what a device reports that no completion tells.

use super::Context;
use crate::{CallError, result, sys};

/// What happened (`enum ibv_event_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EventKind {
    /// A CQ overran or broke.
    CqError,
    /// A QP broke without a completion that says so.
    QpFatal,
    /// A peer's request was malformed.
    QpRequestError,
    /// A peer asked for what it may not.
    QpAccessError,
    /// The first packet came to a QP in RTR.
    CommunicationEstablished,
    /// A QP moved to SQD has nothing more in flight.
    SendQueueDrained,
    /// A QP changed to its alternate path.
    PathMigrated,
    /// A QP could not change to its alternate path.
    PathMigrationFailed,
    /// The device is broken or gone.
    DeviceFatal,
    /// A port has a link.
    PortActive,
    /// A port lost its link.
    PortError,
    /// A port's local identifier is another.
    LidChange,
    /// A port's partition keys are others.
    PkeyChange,
    /// The subnet manager is another.
    SubnetManagerChange,
    /// A shared receive queue broke.
    SrqError,
    /// Fewer receives than the limit are left.
    SrqLimit,
    /// A QP in ERR took its last receive from its shared queue.
    LastWqeReached,
    /// The subnet manager wants subscriptions again.
    ClientReregister,
    /// A port's GIDs are others.
    GidChange,
    /// A value that this crate does not know.
    Unknown(u32),
}

/// To what it happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EventSource {
    /// The whole device.
    Device,
    /// A port, from 1.
    Port(u32),
    /// [`Cq::id`](super::Cq::id).
    Cq(u64),
    /// [`Qp::qpn`](super::Qp::qpn).
    Qp(u32),
    /// [`Srq::id`](super::Srq::id).
    Srq(u64),
    /// Not known.
    Unknown,
}

/// An asynchronous event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AsyncEvent {
    /// What happened.
    pub kind: EventKind,
    /// To what.
    pub source: EventSource,
}

#[derive(Clone, Copy)]
enum Element {
    Device,
    Port,
    Cq,
    Qp,
    Srq,
}

const KINDS: [(u32, EventKind, Element); 19] = [
    (sys::IBV_EVENT_CQ_ERR, EventKind::CqError, Element::Cq),
    (sys::IBV_EVENT_QP_FATAL, EventKind::QpFatal, Element::Qp),
    (sys::IBV_EVENT_QP_REQ_ERR, EventKind::QpRequestError, Element::Qp),
    (sys::IBV_EVENT_QP_ACCESS_ERR, EventKind::QpAccessError, Element::Qp),
    (sys::IBV_EVENT_COMM_EST, EventKind::CommunicationEstablished, Element::Qp),
    (sys::IBV_EVENT_SQ_DRAINED, EventKind::SendQueueDrained, Element::Qp),
    (sys::IBV_EVENT_PATH_MIG, EventKind::PathMigrated, Element::Qp),
    (sys::IBV_EVENT_PATH_MIG_ERR, EventKind::PathMigrationFailed, Element::Qp),
    (sys::IBV_EVENT_DEVICE_FATAL, EventKind::DeviceFatal, Element::Device),
    (sys::IBV_EVENT_PORT_ACTIVE, EventKind::PortActive, Element::Port),
    (sys::IBV_EVENT_PORT_ERR, EventKind::PortError, Element::Port),
    (sys::IBV_EVENT_LID_CHANGE, EventKind::LidChange, Element::Port),
    (sys::IBV_EVENT_PKEY_CHANGE, EventKind::PkeyChange, Element::Port),
    (sys::IBV_EVENT_SM_CHANGE, EventKind::SubnetManagerChange, Element::Port),
    (sys::IBV_EVENT_SRQ_ERR, EventKind::SrqError, Element::Srq),
    (sys::IBV_EVENT_SRQ_LIMIT_REACHED, EventKind::SrqLimit, Element::Srq),
    (sys::IBV_EVENT_QP_LAST_WQE_REACHED, EventKind::LastWqeReached, Element::Qp),
    (sys::IBV_EVENT_CLIENT_REREGISTER, EventKind::ClientReregister, Element::Port),
    (sys::IBV_EVENT_GID_CHANGE, EventKind::GidChange, Element::Port),
];

/// Reads one event and acknowledges it; `EAGAIN` if there is none.
pub(super) fn take(context: &Context) -> Result<AsyncEvent, CallError> {
    // SAFETY: a live context; acknowledged below.
    let mut raw = unsafe { result::get_async_event(context.api(), context.ptr()) }?;
    let row = KINDS.iter().find(|row| row.0 == raw.event_type);
    let source = match row.map(|row| row.2) {
        None => EventSource::Unknown,
        Some(Element::Device) => EventSource::Device,
        // SAFETY: the element of events of ports.
        Some(Element::Port) => EventSource::Port(unsafe { raw.element.port_num } as u32),
        Some(Element::Cq) => {
            // SAFETY: the element of events of CQs.
            let cq = unsafe { raw.element.cq };
            // SAFETY: it cannot be destroyed before the event is acknowledged.
            EventSource::Cq(unsafe { (*cq).cq_context } as u64)
        }
        Some(Element::Qp) => {
            // SAFETY: the element of events of QPs.
            let qp = unsafe { raw.element.qp };
            // SAFETY: it cannot be destroyed before the event is acknowledged.
            EventSource::Qp(unsafe { (*qp).qp_num })
        }
        Some(Element::Srq) => {
            // SAFETY: the element of events of shared queues.
            let srq = unsafe { raw.element.srq };
            // SAFETY: it cannot be destroyed before the event is acknowledged.
            EventSource::Srq(unsafe { (*srq).srq_context } as u64)
        }
    };
    // At once, because destroying an object waits for it.
    // SAFETY: read above, acknowledged once.
    unsafe { result::ack_async_event(context.api(), &mut raw) };
    let kind = row.map_or(EventKind::Unknown(raw.event_type), |row| row.1);
    Ok(AsyncEvent { kind, source })
}
