//! Events of a NIC. One event may concern many endpoints, so events are kept in a log that every
//! endpoint reads at its own pace.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use warpverbs_rdma::{AsyncEvent, QpState};

/// Events kept: an endpoint that is examined less often misses the oldest.
const KEPT: usize = 1024;

/// The newest events of a NIC.
#[derive(Debug, Default)]
pub(super) struct EventLog {
    kept: VecDeque<AsyncEvent>,
    /// Number of the event after the newest.
    end: u64,
}

impl EventLog {
    pub(super) fn push(&mut self, event: AsyncEvent) {
        if self.kept.len() == KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back(event);
        self.end += 1;
    }

    /// For an endpoint that is made now.
    pub(super) fn subscribe(&self, objects: Objects) -> Subscription {
        let read = Read { next: self.end, since: self.end, failure: None };
        Subscription { objects, read: Mutex::new(read) }
    }

    /// Events of an endpoint that it has not read yet.
    pub(super) fn read(&self, subscription: &Subscription) -> Events {
        let mut read = subscription.lock();
        let first = self.end - self.kept.len() as u64;
        let skip = read.next.saturating_sub(first) as usize;
        let concerns = |(number, event): &(u64, AsyncEvent)| {
            subscription.objects.are_meant_by(event) && (*number >= read.since || is_of_all(event))
        };
        let numbered = (first..).zip(self.kept.iter().copied()).skip(skip);
        let new: Vec<_> = numbered.filter(concerns).map(|(_, event)| event).collect();
        read.next = self.end;
        read.failure = read.failure.or_else(|| new.iter().copied().find(is_failure));
        Events { new, failure: read.failure }
    }

    /// The endpoint was reset: its failure is over, and so are the events of its queues. Those of
    /// ports and the device stay.
    pub(super) fn reset(&self, subscription: &Subscription) {
        let mut read = subscription.lock();
        read.since = self.end;
        read.failure = read.failure.filter(is_of_all);
    }
}

/// Events of a NIC that concern an endpoint.
#[derive(Debug, Default)]
pub(crate) struct Events {
    /// Those that were not read before.
    pub(crate) new: Vec<AsyncEvent>,
    /// The first failure since the endpoint was made or reset.
    pub(crate) failure: Option<AsyncEvent>,
}

#[cfg_attr(not(feature = "verbs"), allow(dead_code))]
impl Events {
    /// Those that a QP in `state`, which was asked for after them, can have raised since it was
    /// reset. A device reports a failure at any time after it, so also after the reset.
    pub(super) fn of_qp(mut self, qpn: u32, state: impl FnOnce() -> QpState) -> Self {
        let failed = |event: &AsyncEvent| is_failure(event) && event.qpn() == Some(qpn);
        let reported = self.failure.iter().chain(&self.new).any(failed);
        if reported && !matches!(state(), QpState::Sqe | QpState::Err) {
            self.new.retain(|event| !failed(event));
            self.failure = self.failure.filter(|event| !failed(event));
        }
        self
    }
}

/// Numbers of the objects that an endpoint consists of.
#[derive(Debug)]
pub(super) struct Objects {
    pub(super) qpn: u32,
    pub(super) cqns: Vec<u32>,
    pub(super) srqns: Vec<u32>,
}

impl Objects {
    /// An event about a port or the device is about every endpoint.
    fn are_meant_by(&self, event: &AsyncEvent) -> bool {
        match event {
            event if is_of_all(event) => true,
            // Work of a poster that asked for an event: no finding.
            AsyncEvent::Completion { .. } => false,
            event => {
                event.qpn() == Some(self.qpn)
                    || event.cqn().is_some_and(|cqn| self.cqns.contains(&cqn))
                    || event.srqn().is_some_and(|srqn| self.srqns.contains(&srqn))
            }
        }
    }
}

/// Where an endpoint stands in the log.
#[derive(Debug)]
pub(super) struct Subscription {
    objects: Objects,
    read: Mutex<Read>,
}

#[derive(Debug)]
struct Read {
    next: u64,
    /// Number of the first event since the endpoint was made or reset.
    since: u64,
    failure: Option<AsyncEvent>,
}

impl Subscription {
    fn lock(&self) -> std::sync::MutexGuard<'_, Read> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Concerns every endpoint of the NIC.
fn is_of_all(event: &AsyncEvent) -> bool {
    matches!(
        event,
        AsyncEvent::Port { .. } | AsyncEvent::PortChange { .. } | AsyncEvent::DeviceFatal
    )
}

/// Ends an endpoint.
fn is_failure(event: &AsyncEvent) -> bool {
    matches!(
        event,
        AsyncEvent::CqError { .. }
            | AsyncEvent::QpFatal { .. }
            | AsyncEvent::QpRequestError { .. }
            | AsyncEvent::QpAccessError { .. }
            | AsyncEvent::SrqError { .. }
            | AsyncEvent::DeviceFatal
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpverbs_rdma::Status;

    #[test]
    fn a_failure_from_before_the_reset_is_none_of_a_qp_that_works() {
        let port = AsyncEvent::Port { port: 1, active: true };
        let fatal = AsyncEvent::QpFatal { qpn: 1, status: Status::Fatal };
        let others = AsyncEvent::QpFatal { qpn: 2, status: Status::Fatal };
        let events = |failure| Events { new: vec![port, fatal, others], failure: Some(failure) };
        let late = events(fatal).of_qp(1, || QpState::Rts);
        assert_eq!((late.new, late.failure), (vec![port, others], None));
        let gone = events(AsyncEvent::DeviceFatal).of_qp(1, || QpState::Rts);
        assert_eq!(gone.failure, Some(AsyncEvent::DeviceFatal));
        let failed = events(fatal).of_qp(1, || QpState::Err);
        assert_eq!((failed.new, failed.failure), (vec![port, fatal, others], Some(fatal)));
        // The device is asked only if it has to be.
        let none = Events { new: vec![port, others], failure: None };
        assert_eq!(none.of_qp(1, || unreachable!()).new, [port, others]);
    }

    #[test]
    fn every_endpoint_reads_what_concerns_it_once_and_keeps_the_first_failure() {
        let mut log = EventLog::default();
        log.push(AsyncEvent::DeviceFatal);
        let objects = |qpn, cqn| Objects { qpn, cqns: vec![cqn], srqns: vec![9] };
        let (a, b) = (log.subscribe(objects(1, 5)), log.subscribe(objects(2, 6)));
        assert!(log.read(&a).new.is_empty(), "events before the subscription");
        let port = AsyncEvent::Port { port: 1, active: false };
        let overrun = AsyncEvent::CqError { cqn: 5 };
        let fatal = AsyncEvent::QpFatal { qpn: 1, status: Status::LocalQpOperation };
        let limit = AsyncEvent::SrqLimit { srqn: 9 };
        let others = [AsyncEvent::SrqError { srqn: 8 }, AsyncEvent::Completion { cqn: 5 }];
        for event in [port, overrun, fatal, limit].into_iter().chain(others) {
            log.push(event);
        }
        let read = log.read(&a);
        assert_eq!((read.new, read.failure), (vec![port, overrun, fatal, limit], Some(overrun)));
        let read = log.read(&b);
        assert_eq!((read.new, read.failure), (vec![port, limit], None));
        let read = log.read(&a);
        assert_eq!((read.new, read.failure), (vec![], Some(overrun)));
        log.push(fatal);
        log.push(port);
        log.reset(&a);
        let read = log.read(&a);
        assert_eq!((read.new, read.failure), (vec![port], None), "the QP's own event is over");
        log.push(fatal);
        let read = log.read(&a);
        assert_eq!((read.new, read.failure), (vec![fatal], Some(fatal)));
        for _ in 0..2 * KEPT {
            log.push(limit);
        }
        assert_eq!(log.read(&b).new.len(), KEPT);
    }
}
