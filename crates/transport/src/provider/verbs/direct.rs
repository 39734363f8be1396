//! A QP that only the host posts to: the device's, and no ring.

use super::events::device_number;
use super::proxy_device::{Poller, Sender, posted};
use super::qp::DeviceQp;
use crate::TransportError;
use crate::provider::events::Subscription;
use crate::provider::soft::attributes;
use crate::provider::{DirectPorts, Events, NotPosted, PathSpec, QueuePair, RecvPort, SendPort};
use crate::sges::Pieces;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use warpverbs_mem::Access;
use warpverbs_nic::{
    Bounds, FirstError, NicError, Path, Posted, ProxyKeys, ProxyLimits, QpState, Rule,
    translate_receive,
};
use warpverbs_rdma::{Data, Sge, WorkRequest};
use warpverbs_verbs as verbs;

/// One that only the host posts to: the device's, and nothing else.
#[derive(Debug)]
pub(super) struct DirectQp {
    pub(super) device: DeviceQp,
    pub(super) limits: ProxyLimits,
    pub(super) keys: ProxyKeys,
    pub(super) fetches: Arc<AtomicBool>,
    pub(super) events: Subscription,
}

impl QueuePair for DirectQp {
    fn qpn(&self) -> u32 {
        self.device.qp.qpn()
    }

    /// Handles in this process: the library does not report the device's numbers.
    fn cqns(&self) -> [u32; 2] {
        let qp = &self.device.qp;
        [qp.send_cq().id(), qp.recv_cq().id()].map(device_number)
    }

    fn doorbell_offset(&self) -> Option<u64> {
        None
    }

    fn state(&self) -> QpState {
        self.device.state()
    }

    fn first_error(&self) -> Option<FirstError> {
        None
    }

    fn stopped(&self) -> Option<NicError> {
        self.device.opened.running.nic.stopped()
    }

    fn events(&self) -> Events {
        self.device.opened.running.events(&self.events).of_qp(self.qpn(), || self.state())
    }

    fn direct(&self) -> Option<DirectPorts> {
        let DirectQp { device: DeviceQp { qp, opened }, limits, keys, fetches, .. } = self;
        let poller = |cq: &verbs::Cq| Box::new(Poller::new(cq.clone(), opened.gone.clone()));
        let send = DirectSender {
            sender: Sender::new(qp.clone(), limits, 1),
            limits: *limits,
            keys: keys.clone(),
            fetches: fetches.clone(),
        };
        let recv = (limits.recv_depth > 0).then(|| DirectReceiver {
            qp: qp.clone(),
            list: verbs::RecvList::new(1, limits.recv_sges.max(1) as usize),
            max_sges: limits.recv_sges,
            keys: keys.clone(),
        });
        Some(DirectPorts {
            send_depth: limits.send_depth,
            recv_depth: limits.recv_depth,
            send: Box::new(send),
            recv: recv.map(|recv| Box::new(recv) as Box<dyn RecvPort>),
            sent: poller(qp.send_cq()),
            arrived: poller(qp.recv_cq()),
        })
    }

    fn connect(&self, path: &PathSpec) -> Result<(), TransportError> {
        // Everything is in range, or nothing is changed.
        attributes(path, Path::Proxied)?;
        self.fetches.store(path.max_rd_atomic > 0, Ordering::Relaxed);
        self.device.connect(path)
    }

    fn reset(&self) -> Result<(), TransportError> {
        self.device.go(QpState::Reset)?;
        self.device.opened.running.forget_events(&self.events);
        Ok(())
    }

    fn init(&self, access: Access) -> Result<(), TransportError> {
        self.device.init(access)
    }

    fn fail(&self) -> Result<(), TransportError> {
        self.device.go(QpState::Err)
    }
}

/// Posts one send at a time, within the device's limits and under its keys.
#[derive(Debug)]
struct DirectSender {
    sender: Sender,
    limits: ProxyLimits,
    keys: ProxyKeys,
    /// Set while the QP may have READs and atomics outstanding.
    fetches: Arc<AtomicBool>,
}

impl SendPort for DirectSender {
    #[inline]
    fn post_send(&mut self, work: &WorkRequest<'_>) -> Result<(), NotPosted> {
        let Self { sender, limits, keys, fetches } = self;
        let bounds = Bounds { limits, fetches: fetches.load(Ordering::Relaxed) };
        let mut pieces = Pieces::new();
        let data = match work.data {
            Data::Inline(bytes) => {
                bounds.check_inline(bytes)?;
                work.data
            }
            Data::Sges(sges) => {
                bounds.translate(work.op, sges.iter().copied(), keys, |sge| pieces.push(sge))?;
                Data::Sges(&pieces)
            }
        };
        outcome(sender.post_one(WorkRequest { data, ..*work }))
    }
}

/// Posts one receive at a time, likewise.
struct DirectReceiver {
    qp: Arc<verbs::Qp>,
    list: verbs::RecvList,
    max_sges: u32,
    keys: ProxyKeys,
}

impl fmt::Debug for DirectReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DirectReceiver({:?})", self.qp)
    }
}

impl RecvPort for DirectReceiver {
    fn post_recv(&mut self, id: u64, sges: &[Sge]) -> Result<(), NotPosted> {
        let pieces = translate_receive(sges.iter().copied(), self.max_sges, &mut self.keys)?;
        self.list.clear();
        // It has room: translation has checked the number of entries.
        let count = usize::from(self.list.push(id, &pieces).is_ok());
        outcome(posted(count, self.qp.post_recv(&mut self.list)))
    }
}

/// Outcome of posting a list of one request.
#[inline]
fn outcome(posted: Posted) -> Result<(), NotPosted> {
    match posted {
        Posted { count: 1.., .. } => Ok(()),
        Posted { refused: None, .. } => Err(NotPosted::Full),
        Posted { refused: Some(errno), .. } => Err(Box::new(Rule::DeviceRefused { errno }).into()),
    }
}
