//! Requester: turns requests into packets (vol. 1, 9.7.3). The effect of answers on it is in
//! [`completer`](crate::completer).

mod failing;
mod flight;
pub(crate) mod queue;
pub(crate) mod retry;
mod segment;
mod shown;
mod window;

use failing::Failing;
use flight::Flight;
use queue::{Entry, SendQueue};
use retry::{Due, Retry};
use segment::segment;
use warpverbs_wire::Bth;

use crate::{
    Completion, Config, Instant, MAX_MESSAGE, Peer, PostError, Request, Stats, Status, Transmit,
    WrId,
};

#[derive(Debug)]
pub(crate) struct Requester {
    config: Config,
    pub(crate) queue: SendQueue,
    pub(crate) flight: Flight,
    pub(crate) retry: Retry,
    failing: Failing,
}

impl Requester {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            config: *config,
            queue: SendQueue::new(config),
            flight: Flight::new(config),
            retry: Retry::new(config),
            failing: Failing::default(),
        }
    }

    //= [conn.post]
    #[inline]
    pub(crate) fn post(&mut self, request: Request) -> Result<(), PostError> {
        let Request { op, len, .. } = request;
        if len > MAX_MESSAGE {
            return Err(PostError::TooLong { len });
        }
        if op.is_atomic() && len != request.atomic_len() {
            return Err(PostError::AtomicLength { len });
        }
        if op.is_rd_atomic() && self.config.max_rd_atomic == 0 {
            return Err(PostError::NoRdAtomic);
        }
        if self.queue.is_full() {
            return Err(PostError::Full { depth: self.config.send_depth });
        }
        self.queue.push(request);
        Ok(())
    }

    #[inline]
    pub(crate) fn poll_completion(&mut self) -> Option<Completion> {
        if let Some(id) = self.queue.pop_done() {
            return Some(Completion::Request { id, result: Ok(()) });
        }
        if !self.failing.has_failed() {
            return None;
        }
        //= [conn.flush]
        let entry = self.queue.pop()?;
        let status = self.failing.take_cause().unwrap_or(Status::Flushed);
        Some(Completion::Request { id: entry.request.id, result: Err(status) })
    }

    /// Whether the connection has failed here.
    #[inline]
    pub(crate) fn has_failed(&self) -> bool {
        self.failing.has_failed()
    }

    /// Fails the head with `status`, or only flushes.
    pub(crate) fn fail(&mut self, status: Option<Status>) {
        if self.failing.fail(status) {
            self.retry.stop();
        }
    }

    /// Request `id` cannot be executed locally: it fails once everything before it is complete.
    //= [req.local-error]
    pub(crate) fn fail_pending(&mut self, id: WrId, status: Status) {
        if self.failing.hold(id, status, &self.queue) {
            self.check_pending_failure();
            self.ask_again();
        }
    }

    pub(crate) fn check_pending_failure(&mut self) {
        if let Some(status) = self.failing.due(&self.queue) {
            self.fail(Some(status));
        }
    }

    /// The last packet sent may not have requested an acknowledgement, because more were to follow.
    /// None follow now: sends it again with the request.
    pub(crate) fn ask_again(&mut self) {
        if self.flight.is_outstanding() && self.flight.since_ack > 0 {
            self.rewind();
        }
    }

    //= [req.go-back-n]
    pub(crate) fn rewind(&mut self) {
        self.flight.rewind();
        self.queue.seek_head();
    }

    /// Takes all requests that are complete and were executed; how many.
    #[inline]
    pub(crate) fn take_done(&mut self) -> usize {
        self.queue.take_done()
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant, peer: Peer, stats: &mut Stats) {
        loop {
            match self.retry.on_time(now, peer) {
                Due::Nothing => return,
                Due::Paused => {
                    stats.pauses += 1;
                    return;
                }
                Due::Timeout => stats.timeouts += 1,
                Due::Early => stats.early_resends += 1,
                Due::RnrOver => {
                    self.rewind();
                    continue;
                }
                Due::Fail(status) => return self.fail(Some(status)),
            }
            self.rewind();
            self.flight.probe(self.queue.current());
        }
    }

    /// The next packet that may be sent now.
    // Always: the packet stays in registers.
    #[inline(always)]
    pub(crate) fn poll_transmit(
        &mut self,
        now: Instant,
        draining: bool,
        stats: &mut Stats,
    ) -> Option<Transmit> {
        if self.retry.waits_for_receive() {
            return None;
        }
        let (flight, entry) = (&self.flight, self.queue.current()?);
        let at = flight.cursor;
        let next = flight.next_position(entry);
        let cost = flight.cost(entry, at, next);
        if !self.may_send(entry, next, cost, draining) {
            return None;
        }
        let ack_request = self.check_ack_request(entry, next, draining);
        let (opcode, ext, payload) = segment(entry, at, next, flight.mtu);
        let ends = next == entry.end();
        let mut bth = Bth::new(opcode, self.config.dest_qpn, flight.psn(at));
        bth.ack_request = ack_request;
        bth.solicited = entry.request.solicited && ends;
        let rd_atomic = entry.request.op.is_rd_atomic();
        if ends {
            self.queue.step();
        }
        let again = self.flight.sent(next, cost, rd_atomic, ack_request);
        stats.requests_sent += 1;
        stats.resent += u64::from(again);
        self.retry.on_sent(now, (ack_request && !again).then_some(next));
        Some(Transmit { bth, ext, payload })
    }

    /// The checks of whether a packet of `entry` may leave, each one blocking until an answer.
    // Always: as `poll_transmit`.
    #[inline(always)]
    fn may_send(&self, entry: &Entry, next: u64, cost: u64, draining: bool) -> bool {
        let flight = &self.flight;
        let begins = flight.cursor == entry.first;
        //= [conn.drain]
        let held = draining && begins && flight.cursor >= flight.high;
        !held
            && !self.failing.holds(entry)
            && self.check_fence(entry, begins)
            && self.check_rd_atomic(entry)
            && flight.check_probe()
            && flight.check_window(next, cost)
            && flight.check_credits(entry)
    }

    //= [req.fence]
    #[inline]
    fn check_fence(&self, entry: &Entry, begins: bool) -> bool {
        !(entry.request.fence && begins && self.flight.rd_atomic > 0)
    }

    //= [req.max-rd-atomic]
    #[inline]
    fn check_rd_atomic(&self, entry: &Entry) -> bool {
        !entry.request.op.is_rd_atomic()
            || self.flight.rd_atomic < u32::from(self.config.max_rd_atomic)
    }

    pub(crate) fn modify(&mut self, config: &Config) {
        self.config = *config;
        self.retry.modify(config);
    }

    /// A packet was lost: the peer drops those in flight behind it.
    pub(crate) fn handle_lost(&mut self) {
        self.flight.shrink_window();
        self.rewind();
    }

    /// Asks for an acknowledgement where nothing later would bring one: at the end of what can be
    /// sent now, and every [`Config::ack_interval`] packets.
    //= [req.ack-request]
    #[inline]
    fn check_ack_request(&self, entry: &Entry, next: u64, draining: bool) -> bool {
        let ends = next == entry.end();
        let following = if ends { self.queue.following() } else { Some(entry) };
        let blocked = match following {
            None => true,
            Some(following) => {
                self.flight.is_beyond_limit(following) || self.failing.holds(following)
            }
        };
        blocked
            || entry.request.op.is_rd_atomic()
            || (ends && draining)
            || self.flight.is_ack_due()
            || self.flight.fills_window(entry, next)
    }
}
