//! A QP of a device: lists of work requests to it, completions from it.

use crate::provider::CompletionPort;
use nix::errno::Errno;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use warpverbs_nic::{
    Gone, Posted, ProxyDevice, ProxyLimits, ProxyReceiver, ProxyReceives, ProxySends, Staging,
};
use warpverbs_rdma::{Completion, WorkRequest};
use warpverbs_verbs as verbs;

/// Requests of one list of the NIC's at most, and completions taken at a time.
const LIST: usize = 32;

/// A device's QP and its CQ, for the engine of the software NIC.
#[derive(Debug)]
pub(super) struct VerbsProxy {
    qp: Arc<verbs::Qp>,
    limits: ProxyLimits,
    /// For inline data beyond the device's limit, and its registration.
    slots: Option<(Staging, verbs::Mr)>,
    sender: Sender,
    receiver: Receiver,
    poller: Poller,
}

impl VerbsProxy {
    /// Work of at most `limits` goes to `qp`, whose both queues complete in one CQ.
    pub(super) fn new(qp: Arc<verbs::Qp>, limits: ProxyLimits, gone: Arc<AtomicBool>) -> Self {
        let sender = Sender::new(qp.clone(), &limits, LIST);
        let receiver = Receiver::new(qp.clone(), &limits, LIST);
        let poller = Poller::new(qp.send_cq().clone(), gone);
        Self { qp, limits, slots: None, sender, receiver, poller }
    }

    /// Sends inline data from registered memory, where it is more than the device takes.
    pub(super) fn with_slots(self, slots: Option<(Staging, verbs::Mr)>) -> Self {
        Self { slots, ..self }
    }
}

/// Posts sends to a QP.
pub(super) struct Sender {
    qp: Arc<verbs::Qp>,
    list: verbs::SendList,
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sender({:?})", self.qp)
    }
}

impl Sender {
    /// Of at most `requests` within `limits` at a time.
    pub(super) fn new(qp: Arc<verbs::Qp>, limits: &ProxyLimits, requests: usize) -> Self {
        let (sges, inline) = (limits.send_sges.max(1) as usize, limits.inline_bytes as usize);
        let list = verbs::SendList::new(requests, requests * sges, requests * inline);
        Self { qp, list }
    }
}

impl Sender {
    /// Posts a request alone.
    #[inline]
    pub(super) fn post_one(&mut self, work: WorkRequest<'_>) -> Posted {
        self.list.clear();
        match self.push(work) {
            true => self.post(),
            false => Posted { count: 0, refused: Some(Errno::EMSGSIZE as i32) },
        }
    }

    /// Adds a request; false if there is no room for it.
    #[inline(always)]
    fn push(&mut self, work: WorkRequest<'_>) -> bool {
        self.list.push(work.id, work.op, work.data, work.flags).is_ok()
    }

    #[inline]
    fn post(&mut self) -> Posted {
        let count = self.list.len();
        posted(count, self.qp.post_send(&mut self.list))
    }

    #[inline]
    fn post_list(&mut self, list: &ProxySends) -> Posted {
        self.list.clear();
        for work in list.iter() {
            if !self.push(work) {
                // Never: it was made for as much as the limits allow.
                self.list.signal_last();
                break;
            }
        }
        self.post()
    }
}

/// Posts receives to a QP's own queue.
#[derive(Debug)]
pub(super) struct Receiver {
    qp: Arc<verbs::Qp>,
    limits: (u32, u32),
    list: verbs::RecvList,
}

impl Receiver {
    /// Of at most `requests` within `limits` at a time.
    pub(super) fn new(qp: Arc<verbs::Qp>, limits: &ProxyLimits, requests: usize) -> Self {
        let sges = limits.recv_sges;
        let list = verbs::RecvList::new(requests, requests * sges.max(1) as usize);
        Self { qp, limits: (limits.recv_depth, sges), list }
    }
}

impl ProxyReceiver for Receiver {
    fn limits(&self) -> (u32, u32) {
        self.limits
    }

    fn post_recv(&mut self, list: &ProxyReceives) -> Posted {
        post_receives(list, &mut self.list, |receives| self.qp.post_recv(receives))
    }
}

/// Posts receives to a shared queue.
#[derive(Debug)]
pub(super) struct SharedReceiver {
    srq: verbs::Srq,
    room: verbs::SrqOptions,
    list: verbs::RecvList,
}

impl SharedReceiver {
    /// Receives of at most `room` go to `srq`.
    pub(super) fn new(srq: verbs::Srq, room: verbs::SrqOptions) -> Self {
        let list = verbs::RecvList::new(LIST, LIST * room.max_sge.max(1) as usize);
        Self { srq, room, list }
    }
}

impl ProxyReceiver for SharedReceiver {
    fn limits(&self) -> (u32, u32) {
        (self.room.max_wr, self.room.max_sge)
    }

    fn post_recv(&mut self, list: &ProxyReceives) -> Posted {
        post_receives(list, &mut self.list, |receives| self.srq.post_recv(receives))
    }
}

fn post_receives(
    list: &ProxyReceives,
    into: &mut verbs::RecvList,
    post: impl FnOnce(&mut verbs::RecvList) -> Result<(), verbs::PostError>,
) -> Posted {
    into.clear();
    let pushed = list.iter().take_while(|(id, sges)| into.push(*id, sges).is_ok());
    let count = pushed.count();
    posted(count, post(into))
}

/// Takes completions off a CQ.
#[derive(Debug)]
pub(super) struct Poller {
    cq: verbs::Cq,
    gone: Arc<AtomicBool>,
    done: Box<[verbs::Completion; LIST]>,
}

impl Poller {
    /// `gone` says that the device is.
    pub(super) fn new(cq: verbs::Cq, gone: Arc<AtomicBool>) -> Self {
        Self { cq, gone, done: Box::new([verbs::Completion::default(); LIST]) }
    }
}

impl CompletionPort for Poller {
    fn poll(&mut self, out: &mut [Completion]) -> Result<usize, Gone> {
        if self.gone.load(Ordering::Acquire) {
            return Err(Gone);
        }
        let most = out.len().min(LIST);
        let count = self.cq.poll(&mut self.done[..most]).map_err(|error| {
            tracing::warn!(%error, "the device's CQ is broken");
            Gone
        })?;
        for (to, from) in out.iter_mut().zip(&self.done[..count]) {
            *to = from.into();
        }
        Ok(count)
    }
}

/// How far `count` requests came.
#[inline]
pub(super) fn posted(count: usize, result: Result<(), verbs::PostError>) -> Posted {
    match result {
        Ok(()) => Posted { count, refused: None },
        Err(error) => cut_short(&error),
    }
}

/// Not all requests were posted.
#[cold]
fn cut_short(error: &verbs::PostError) -> Posted {
    let (count, errno) = (error.posted, error.source.errno);
    if matches!(errno, Errno::ENOMEM | Errno::EAGAIN) {
        // The queue is full.
        return Posted { count, refused: None };
    }
    tracing::warn!(%error, "refused by the device");
    Posted { count, refused: Some(errno as i32) }
}

impl ProxyDevice for VerbsProxy {
    fn qpn(&self) -> u32 {
        self.qp.qpn()
    }

    fn limits(&self) -> ProxyLimits {
        self.limits
    }

    fn staging(&self) -> Option<Staging> {
        self.slots.as_ref().map(|(staging, _)| staging.clone())
    }

    fn post_send(&mut self, list: &ProxySends) -> Posted {
        self.sender.post_list(list)
    }

    fn post_recv(&mut self, list: &ProxyReceives) -> Posted {
        self.receiver.post_recv(list)
    }

    fn poll(&mut self, out: &mut [Completion]) -> Result<usize, Gone> {
        self.poller.poll(out)
    }

    fn fail(&mut self) {
        let failed = self.qp.modify(verbs::QpState::Err, &verbs::QpAttrs::default());
        if let Err(error) = failed {
            tracing::warn!(%error, "the device's QP did not go to ERR");
        }
    }

    fn has_failed(&self) -> bool {
        self.qp
            .state()
            .map_or(true, |state| matches!(state, verbs::QpState::Sqe | verbs::QpState::Err))
    }
}
