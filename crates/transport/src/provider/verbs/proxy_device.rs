//! A QP of a device: lists of work requests to it, completions from it.

use crate::provider::{CompletionPort, SendPort};
use arrayvec::ArrayVec;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use warpverbs_nic::{
    Arrived, Completion, Gone, Posted, ProxyDevice, ProxyLimits, ProxyReceiver, ProxySge,
    ProxyStatus, RecvList, Request, SendList, Source, Staging, WorkRequest,
};
use warpverbs_verbs as verbs;
use warpverbs_verbs::{Data, Remote, SendFlags, SendOp, Sge, WcOpcode, WcStatus};

/// Requests of one list of the NIC's at most, and completions taken at a time.
const LIST: usize = 32;
/// Entries of one request at most: what a WQE has room for.
const SGES: usize = 64;

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

impl SendPort for Sender {
    fn post_send(&mut self, list: &SendList) -> Posted {
        self.list.clear();
        for work in list.iter() {
            if !push(&mut self.list, &work) {
                // Never: it was made for as much as the limits allow.
                self.list.signal_last();
                break;
            }
        }
        let count = self.list.len();
        posted(count, self.qp.post_send(&mut self.list))
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

    fn post_recv(&mut self, list: &RecvList) -> Posted {
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

    fn post_recv(&mut self, list: &RecvList) -> Posted {
        post_receives(list, &mut self.list, |receives| self.srq.post_recv(receives))
    }
}

fn post_receives(
    list: &RecvList,
    into: &mut verbs::RecvList,
    post: impl FnOnce(&mut verbs::RecvList) -> Result<(), verbs::PostError>,
) -> Posted {
    into.clear();
    let pushed = list.iter().take_while(|(id, sges)| into.push(*id, &entries(sges)).is_ok());
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
            *to = completion(from);
        }
        Ok(count)
    }
}

fn op(request: Request) -> SendOp {
    match request {
        Request::Send => SendOp::Send,
        Request::SendImm(imm) => SendOp::SendImm(imm),
        Request::SendInvalidate(rkey) => SendOp::SendInvalidate(rkey),
        Request::Write { addr, rkey } => SendOp::Write(Remote { addr, rkey }),
        Request::WriteImm { addr, rkey, imm } => SendOp::WriteImm(Remote { addr, rkey }, imm),
        Request::Read { addr, rkey } => SendOp::Read(Remote { addr, rkey }),
        Request::CompareSwap { addr, rkey, compare, swap } => {
            SendOp::CompareSwap { remote: Remote { addr, rkey }, compare, swap }
        }
        Request::FetchAdd { addr, rkey, add } => {
            SendOp::FetchAdd { remote: Remote { addr, rkey }, add }
        }
    }
}

fn entries(sges: &[ProxySge]) -> ArrayVec<Sge, SGES> {
    sges.iter().map(|sge| Sge::new(sge.addr, sge.len, sge.lkey)).collect()
}

/// Puts a request into the library's list; false if that is full.
#[inline]
fn push(list: &mut verbs::SendList, work: &WorkRequest<'_>) -> bool {
    let bit = |is: bool, flag: SendFlags| if is { flag } else { SendFlags::empty() };
    let flags = bit(work.signaled, SendFlags::SIGNALED)
        | bit(work.fence, SendFlags::FENCE)
        | bit(work.solicited, SendFlags::SOLICITED);
    match (work.request, work.source) {
        // The short way for the commonest.
        (Request::Write { addr, rkey }, Source::Sges([from])) => {
            let from = [Sge::new(from.addr, from.len, from.lkey)];
            let op = SendOp::Write(Remote { addr, rkey });
            list.push(work.id, op, Data::Sges(&from), flags).is_ok()
        }
        _ => push_any(list, work, flags),
    }
}

#[inline(never)]
fn push_any(list: &mut verbs::SendList, work: &WorkRequest<'_>, flags: SendFlags) -> bool {
    let pieces;
    let data = match work.source {
        Source::Inline(bytes) => Data::Inline(bytes),
        Source::Sges(sges) => {
            pieces = entries(sges);
            Data::Sges(&pieces)
        }
    };
    list.push(work.id, op(work.request), data, flags).is_ok()
}

/// How far `count` requests came.
fn posted(count: usize, result: Result<(), verbs::PostError>) -> Posted {
    use nix::errno::Errno;
    match result {
        Ok(()) => Posted { count, refused: None },
        // Its queue is full.
        Err(error) if matches!(error.source.errno, Errno::ENOMEM | Errno::EAGAIN) => {
            Posted { count: error.posted, refused: None }
        }
        Err(error) => {
            tracing::warn!(%error, "refused by the device");
            Posted { count: error.posted, refused: Some(error.source.errno as i32) }
        }
    }
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

    fn post_send(&mut self, list: &SendList) -> Posted {
        self.sender.post_send(list)
    }

    fn post_recv(&mut self, list: &RecvList) -> Posted {
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
}

fn completion(wc: &verbs::Completion) -> Completion {
    let status = status(wc.status());
    if status != ProxyStatus::Success {
        let (id, vendor) = (wc.id(), wc.vendor_error());
        return Completion { id, status, vendor, ..Completion::default() };
    }
    let arrived = match (wc.opcode(), wc.imm(), wc.invalidated_rkey()) {
        (WcOpcode::RecvWriteImm, imm, _) => Arrived::WriteImm(imm.unwrap_or(0)),
        (WcOpcode::Recv, Some(imm), _) => Arrived::SendImm(imm),
        (WcOpcode::Recv, None, Some(rkey)) => Arrived::SendInvalidate(rkey),
        _ => Arrived::Send,
    };
    Completion { id: wc.id(), status, vendor: 0, byte_len: wc.byte_len(), arrived }
}

#[inline]
fn status(status: WcStatus) -> ProxyStatus {
    match status {
        WcStatus::Success => ProxyStatus::Success,
        WcStatus::LocalLength => ProxyStatus::LocalLength,
        WcStatus::LocalQpOperation => ProxyStatus::LocalQpOp,
        WcStatus::LocalProtection => ProxyStatus::LocalProtection,
        WcStatus::Flushed => ProxyStatus::Flushed,
        WcStatus::WindowBind => ProxyStatus::WindowBind,
        WcStatus::BadResponse => ProxyStatus::BadResponse,
        WcStatus::LocalAccess => ProxyStatus::LocalAccess,
        WcStatus::RemoteInvalidRequest => ProxyStatus::RemoteInvalidRequest,
        WcStatus::RemoteAccess => ProxyStatus::RemoteAccess,
        WcStatus::RemoteOperation => ProxyStatus::RemoteOperation,
        WcStatus::RetryExceeded => ProxyStatus::RetryExceeded,
        WcStatus::RnrRetryExceeded => ProxyStatus::RnrRetryExceeded,
        WcStatus::RemoteAborted => ProxyStatus::RemoteAborted,
        WcStatus::Fatal => ProxyStatus::Fatal,
        WcStatus::ResponseTimeout => ProxyStatus::ResponseTimeout,
        WcStatus::General => ProxyStatus::General,
        WcStatus::Unknown(value) => ProxyStatus::from_value(value),
        // A name that came later.
        _ => ProxyStatus::General,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_of_the_library_keeps_its_number() {
        for value in 0..40 {
            let told = status(WcStatus::from_raw(value));
            assert_eq!(told, ProxyStatus::from_value(value), "{value}");
        }
    }
}
