//! Health of an endpoint: which queue failed, at which index, and why.

use crate::post::index_of;
use crate::{AsyncEvent, ErrorKind, FirstError, QpState, TransportError};
use std::fmt;
use warpverbs_gpu::DeviceStatus;
pub use warpverbs_mlx5::export::WaitFor;
use warpverbs_mlx5::export::{FAULT_COMPLETE, Fault, Outcome as Code, QueueState, Status};
use warpverbs_mlx5::syndrome::Syndrome;
use warpverbs_nic::NicError;

/// An examination of an [`Endpoint`](crate::Endpoint). Prints as one line per finding.
#[derive(Debug)]
#[non_exhaustive]
pub struct Health {
    /// The endpoint.
    pub qpn: u32,
    /// Why the NIC executes nothing any more: the cause of all else that happened since.
    pub nic_stopped: Option<NicError>,
    /// State of its QP.
    pub state: QpState,
    /// The send queue, in WQEBBs.
    pub send: Progress,
    /// The receive queue, in work requests.
    pub receive: Progress,
    /// The first error completion that a poster saw.
    pub error: Option<TransportError>,
    /// The first error of the send queue as the NIC saw it, with the rule that was broken. A
    /// collapsed CQ may show posters only the flush that followed.
    pub first_error: Option<FirstError>,
    /// The first wait of a kernel that failed.
    pub fault: Option<FaultReport>,
    /// The first event that ended the endpoint since it was made or reset: an overrun of a CQ, a
    /// broken shared receive queue, a device that is gone, or what is behind a QP in ERR.
    pub failure: Option<AsyncEvent>,
    /// Events that the NIC reported since the last examination of the QP, its CQs, its shared
    /// receive queue, the port and the device.
    pub events: Vec<AsyncEvent>,
    /// [`Endpoint::abort`](crate::Endpoint::abort) was called.
    pub aborted: bool,
}

/// Counters of one queue: `reserved` ≥ `published` ≥ `completed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Indexes handed out to posters.
    pub reserved: u64,
    /// The index up to which doorbells have been rung.
    pub published: u64,
    /// Indexes known to be complete.
    pub completed: u64,
}

impl Progress {
    /// `packets`: its posters count packets besides.
    pub(crate) fn of(queue: &QueueState, packets: bool) -> Self {
        let QueueState { published, .. } = *queue;
        let completed = queue.completed();
        let reserved = if packets { index_of(queue.reserved, completed) } else { queue.reserved };
        Self { reserved, published, completed }
    }
}

/// The first wait of a kernel that did not end well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FaultReport {
    /// How it ended.
    pub outcome: Outcome,
    /// The kind of wait.
    pub what: WaitFor,
    /// The index or value waited for.
    pub expected: u64,
    /// The index or value found when it gave up.
    pub actual: u64,
    /// Flat number of the thread: block × threads per block + thread.
    pub thread: u64,
}

/// How a call of a kernel ended: `wv::outcome`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The deadline passed.
    Timeout,
    /// Aborted by the host, or another poster gave up.
    Aborted,
    /// No room, or nothing arrived, and the call does not wait.
    NoRoom,
    /// A send work request failed.
    Requester(Syndrome),
    /// A receive failed.
    Responder(Syndrome),
    /// A length beyond what the queue takes.
    TooLong,
    /// The error word of the queue is of a kind unknown to the device library.
    BadError,
    /// The NIC reported a completion of work that is not in flight.
    StrayCqe,
    /// A place that is not in the heap for all its length, or not aligned for its word.
    BadAddress,
    /// A rank that the heap does not have, or that is not reached in the way that was asked for.
    NoPeer,
    /// The host has given up the rank that was waited for.
    PeerLost,
    /// An atomic on a heap that other ranks reach by RDMA and this rank does not.
    MixedRoutes,
    /// A token that names an expert that there is not, or one twice.
    BadRouting,
    /// A rank is ahead of the call in which it was waited for.
    Skew,
    /// An atomic that the queue pair's NIC does not have.
    Unsupported,
    /// A code unknown here.
    Unknown(u32),
}

impl Outcome {
    /// Outcome of a kernel's status; `Ok` for success.
    pub fn of(status: DeviceStatus) -> Result<(), Self> {
        if status.0 == 0 { Ok(()) } else { Err(Self::from_code(status.0)) }
    }

    /// Outcome of a status word that a kernel left, a `wv::Status`, unless that is 0, which is
    /// success.
    pub fn from_code(code: u32) -> Self {
        let status = Status(code);
        let syndrome = || Syndrome::from_value(status.syndrome());
        match Code::from_value(status.kind()) {
            Some(Code::Timeout) => Self::Timeout,
            Some(Code::Aborted) => Self::Aborted,
            Some(Code::NoRoom) => Self::NoRoom,
            Some(Code::Requester) => Self::Requester(syndrome()),
            Some(Code::Responder) => Self::Responder(syndrome()),
            Some(Code::TooLong) => Self::TooLong,
            Some(Code::BadError) => Self::BadError,
            Some(Code::StrayCqe) => Self::StrayCqe,
            Some(Code::BadAddress) => Self::BadAddress,
            Some(Code::NoPeer) => Self::NoPeer,
            Some(Code::PeerLost) => Self::PeerLost,
            Some(Code::MixedRoutes) => Self::MixedRoutes,
            Some(Code::BadRouting) => Self::BadRouting,
            Some(Code::Skew) => Self::Skew,
            Some(Code::Unsupported) => Self::Unsupported,
            Some(Code::Ok) | None => Self::Unknown(code),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout => f.write_str("a wait timed out"),
            Self::Aborted => f.write_str("aborted by the host or by another poster"),
            Self::NoRoom => f.write_str("no room, or nothing arrived"),
            Self::Requester(syndrome) => write!(f, "send work failed: {syndrome}"),
            Self::Responder(syndrome) => write!(f, "a receive failed: {syndrome}"),
            Self::TooLong => f.write_str("a length is more than the queue takes"),
            Self::BadError => f.write_str("the queue's error word is not understood"),
            Self::StrayCqe => f.write_str("a completion of work that is not in flight"),
            Self::BadAddress => f.write_str("a place that is not in the heap, or not aligned"),
            Self::NoPeer => f.write_str("a rank that the heap does not have or reach in that way"),
            Self::PeerLost => f.write_str("the rank that was waited for has been given up"),
            Self::MixedRoutes => {
                f.write_str("an atomic on a heap that only other ranks reach by RDMA")
            }
            Self::BadRouting => {
                f.write_str("a token names an expert that there is not, or one twice")
            }
            Self::Skew => f.write_str("the rank that was waited for is in a later call"),
            Self::Unsupported => f.write_str("an atomic that the NIC does not have"),
            Self::Unknown(code) => write!(f, "status {code:#x}, unknown here"),
        }
    }
}

impl Health {
    /// Nothing has gone wrong so far.
    pub fn is_ok(&self) -> bool {
        self.nic_stopped.is_none()
            && self.error.is_none()
            && self.first_error.is_none()
            && self.failure.is_none()
            && self.fault.is_none()
            && !self.aborted
            && self.state != QpState::Err
            && self.state != QpState::Sqe
    }

    /// Whose doing the first error is.
    pub fn kind(&self) -> Option<ErrorKind> {
        self.error.as_ref().map(TransportError::kind)
    }

    /// Syndrome of the first failure, as far as it is known.
    pub fn syndrome(&self) -> Option<Syndrome> {
        let of_poster = match &self.error {
            Some(TransportError::Work(work)) => Some(work.syndrome),
            _ => None,
        };
        self.first_error.as_ref().map(|first| Syndrome::of_failure(first.status)).or(of_poster)
    }
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { reserved, published, completed } = self;
        write!(f, "{reserved} reserved, {published} published, {completed} completed")
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { qpn, state, send, receive, .. } = self;
        write!(f, "endpoint {qpn:#x} in {state}; send: {send}; receive: {receive}")?;
        if let Some(cause) = &self.nic_stopped {
            write!(f, "\n  {cause}")?;
        }
        if let Some(error) = &self.error {
            write!(f, "\n  {error}")?;
        }
        if let Some(FirstError { index, status, rule }) = &self.first_error {
            write!(f, "\n  NIC: send work request {index} failed: {status}")?;
            if let Some(rule) = rule {
                write!(f, ": {rule}")?;
            }
        }
        if let Some(FaultReport { outcome, what, expected, actual, thread }) = self.fault {
            write!(f, "\n  kernel thread {thread}: wait for {what:?} ended with {outcome:?}, ")?;
            write!(f, "expected {expected:#x}, was {actual:#x}")?;
        }
        for event in self.failure.iter().filter(|event| !self.events.contains(event)) {
            write!(f, "\n  earlier event {event:?}")?;
        }
        for event in &self.events {
            write!(f, "\n  event {event:?}")?;
        }
        if self.aborted { f.write_str("\n  aborted by the host") } else { Ok(()) }
    }
}

impl FaultReport {
    /// Report that a kernel wrote of its wait, if it is whole.
    pub(crate) fn of(fault: &Fault) -> Option<Self> {
        // 2: all other fields are written.
        (fault.claim == FAULT_COMPLETE).then(|| Self {
            outcome: Outcome::from_code(fault.status),
            what: WaitFor::from_value(fault.what),
            expected: fault.expected,
            actual: fault.actual,
            thread: fault.thread,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_counts_once_it_is_whole() {
        let fault = Fault { claim: 1, status: 1, what: 2, expected: 9, ..Fault::default() };
        assert_eq!(FaultReport::of(&fault), None);
        let report = FaultReport::of(&Fault { claim: 2, ..fault }).unwrap();
        assert_eq!((report.outcome, report.what), (Outcome::Timeout, WaitFor::Completion));
    }

    #[test]
    fn codes_of_kernels_keep_what_they_say() {
        assert_eq!(Outcome::from_code(0x0088_1304), Outcome::Requester(Syndrome::RemoteAccess));
        assert_eq!(Outcome::from_code(0x0505), Outcome::Responder(Syndrome::WrFlush));
        assert_eq!(Outcome::from_code(0x1_00ff), Outcome::Unknown(0x1_00ff));
        assert_eq!(WaitFor::from_value(77), WaitFor::Unknown(77));
    }
}
