//! Asynchronous events: what a device reports besides completions.

use crate::call::check;
use crate::sys::Api;
use crate::{CallError, sys};
use std::ptr::NonNull;
use warpverbs_rdma::{AsyncEvent, PortChange, Status};

/// Reads one event and acknowledges it; `EAGAIN` if there is none.
///
/// # Safety
/// `context` is live.
pub(super) unsafe fn take(
    api: &Api,
    context: NonNull<sys::ibv_context>,
) -> Result<AsyncEvent, CallError> {
    let mut raw = sys::zeroed();
    // SAFETY: a live context, says the caller, and a live local; acknowledged below.
    let code = unsafe { (api.ibv_get_async_event)(context.as_ptr(), &mut raw) };
    check("ibv_get_async_event", code)?;
    let event = decode(&raw);
    // At once, because destroying an object waits for it.
    // SAFETY: read above, acknowledged once.
    unsafe { (api.ibv_ack_async_event)(&mut raw) };
    Ok(event)
}

/// The meaning of an event that is not acknowledged yet.
fn decode(raw: &sys::ibv_async_event) -> AsyncEvent {
    let change = |change| AsyncEvent::PortChange { port: port(raw), change };
    match raw.event_type {
        sys::IBV_EVENT_CQ_ERR => AsyncEvent::CqError { cqn: cq(raw) },
        // libibverbs does not say why.
        sys::IBV_EVENT_QP_FATAL => AsyncEvent::QpFatal { qpn: qp(raw), status: Status::Fatal },
        sys::IBV_EVENT_QP_REQ_ERR => AsyncEvent::QpRequestError { qpn: qp(raw) },
        sys::IBV_EVENT_QP_ACCESS_ERR => AsyncEvent::QpAccessError { qpn: qp(raw) },
        sys::IBV_EVENT_COMM_EST => AsyncEvent::CommunicationEstablished { qpn: qp(raw) },
        sys::IBV_EVENT_SQ_DRAINED => AsyncEvent::SqDrained { qpn: qp(raw) },
        sys::IBV_EVENT_PATH_MIG => AsyncEvent::PathMigrated { qpn: qp(raw) },
        sys::IBV_EVENT_PATH_MIG_ERR => AsyncEvent::PathMigrationFailed { qpn: qp(raw) },
        sys::IBV_EVENT_QP_LAST_WQE_REACHED => AsyncEvent::LastWqeReached { qpn: qp(raw) },
        sys::IBV_EVENT_SRQ_ERR => AsyncEvent::SrqError { srqn: srq(raw) },
        sys::IBV_EVENT_SRQ_LIMIT_REACHED => AsyncEvent::SrqLimit { srqn: srq(raw) },
        sys::IBV_EVENT_DEVICE_FATAL => AsyncEvent::DeviceFatal,
        sys::IBV_EVENT_PORT_ACTIVE => AsyncEvent::Port { port: port(raw), active: true },
        sys::IBV_EVENT_PORT_ERR => AsyncEvent::Port { port: port(raw), active: false },
        sys::IBV_EVENT_LID_CHANGE => change(PortChange::Lid),
        sys::IBV_EVENT_PKEY_CHANGE => change(PortChange::Pkey),
        sys::IBV_EVENT_GID_CHANGE => change(PortChange::Gid),
        sys::IBV_EVENT_SM_CHANGE => change(PortChange::SubnetManager),
        sys::IBV_EVENT_CLIENT_REREGISTER => change(PortChange::Reregister),
        other => AsyncEvent::Unknown(other),
    }
}

// Each of these reads the element that the kind of event has. An object cannot be destroyed before
// its events are acknowledged.

fn port(raw: &sys::ibv_async_event) -> u8 {
    // SAFETY: any bits are a number; ports are numbered by a byte.
    unsafe { raw.element.port_num as u8 }
}

fn qp(raw: &sys::ibv_async_event) -> u32 {
    // SAFETY: the element of events of QPs.
    let qp = unsafe { raw.element.qp };
    // SAFETY: a live QP.
    unsafe { (*qp).qp_num }
}

fn cq(raw: &sys::ibv_async_event) -> u32 {
    // SAFETY: the element of events of CQs.
    let cq = unsafe { raw.element.cq };
    // SAFETY: a live CQ, whose context is its number.
    unsafe { (*cq).cq_context as usize as u32 }
}

fn srq(raw: &sys::ibv_async_event) -> u32 {
    // SAFETY: the element of events of shared queues.
    let srq = unsafe { raw.element.srq };
    // SAFETY: a live shared queue, whose context is its number.
    unsafe { (*srq).srq_context as usize as u32 }
}
