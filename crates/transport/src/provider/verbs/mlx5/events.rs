//! Events of single objects, which libibverbs does not report of those that it has not made.

use super::super::events::{EventSource, Listener};
use super::super::opened::Opened;
use super::failed_call;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use warpverbs_rdma::{AsyncEvent, Status};
use warpverbs_verbs::VerbsError;
use warpverbs_verbs::mlx5dv::{Devx, EventChannel, Mlx5Event, Object};

/// The firmware's numbers of events (`MLX5_EVENT_TYPE_*` of the kernel).
const CQ_ERROR: u8 = 0x04;
const WQ_CATASTROPHIC: u8 = 0x05;
const SRQ_CATASTROPHIC: u8 = 0x12;
const LAST_WQE: u8 = 0x13;
const SRQ_LIMIT: u8 = 0x14;
const REQUEST_ERROR: u8 = 0x10;
const ACCESS_ERROR: u8 = 0x11;

pub(super) const OF_CQ: &[u8] = &[CQ_ERROR];
pub(super) const OF_QP: &[u8] = &[WQ_CATASTROPHIC, REQUEST_ERROR, ACCESS_ERROR, LAST_WQE];
pub(super) const OF_POOL: &[u8] = &[SRQ_CATASTROPHIC, SRQ_LIMIT];

/// The events of all objects of an open device, passed on until this is dropped.
pub(super) struct ObjectEvents {
    // Dropped first: it reads from the channel.
    _listener: Listener,
    channel: Arc<EventChannel>,
}

/// Source that a listener reads.
struct Source(Arc<EventChannel>);

impl EventSource for Source {
    fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    fn take(&self) -> Result<Option<AsyncEvent>, VerbsError> {
        let event = self.0.take().map_err(failed_call)?;
        // The number of an object is its cookie.
        Ok(event.map(|Mlx5Event { cookie, kind }| decode(kind, cookie as u32)))
    }
}

fn decode(kind: u8, number: u32) -> AsyncEvent {
    match kind {
        CQ_ERROR => AsyncEvent::CqError { cqn: number },
        // The firmware does not say why.
        WQ_CATASTROPHIC => AsyncEvent::QpFatal { qpn: number, status: Status::Fatal },
        REQUEST_ERROR => AsyncEvent::QpRequestError { qpn: number },
        ACCESS_ERROR => AsyncEvent::QpAccessError { qpn: number },
        LAST_WQE => AsyncEvent::LastWqeReached { qpn: number },
        SRQ_CATASTROPHIC => AsyncEvent::SrqError { srqn: number },
        SRQ_LIMIT => AsyncEvent::SrqLimit { srqn: number },
        other => AsyncEvent::Unknown(other.into()),
    }
}

impl ObjectEvents {
    /// `None` where library or firmware have no such events: QPs work without.
    pub(super) fn start(devx: &Devx, opened: &Opened) -> Option<Arc<Self>> {
        let started = EventChannel::new(devx).map_err(failed_call).and_then(|channel| {
            let channel = Arc::new(channel);
            let (source, nic) = (Source(channel.clone()), opened.running.nic.clone());
            let listener = Listener::start(opened.name(), source, nic, opened.gone.clone())?;
            Ok(Arc::new(Self { _listener: listener, channel }))
        });
        started.inspect_err(|error| no_events(opened.name(), error)).ok()
    }

    /// Passes on events of these kinds.
    pub(super) fn subscribe(&self, object: &Object, kinds: &[u8]) {
        let kinds: Vec<u16> = kinds.iter().copied().map(u16::from).collect();
        let subscribed = self.channel.subscribe(object, &kinds, object.number().into());
        if let Err(error) = subscribed {
            no_events(&format!("{object:?}"), &failed_call(error));
        }
    }
}

fn no_events(what: &str, error: &VerbsError) {
    tracing::warn!(what, %error, "asynchronous events are not reported");
}
