//! Requester: turns requests into packets (vol. 1, 9.7.3). The effect of answers on it is in
//! [`completer`](crate::completer).

pub(crate) mod queue;
pub(crate) mod retry;
mod segment;
mod shown;
mod window;

use queue::{Entry, SendQueue};
use retry::{Due, Retry};
use segment::segment;
use warpverbs_wire::{Bth, Msn, Psn};
use window::Window;

use crate::{
    Completion, Config, Instant, MAX_MESSAGE, Op, Peer, PostError, Request, Stats, Status,
    Transmit, WrId,
};

#[derive(Debug)]
pub(crate) struct Requester {
    config: Config,
    mtu: u32,
    pub(crate) queue: SendQueue,
    pub(crate) retry: Retry,
    /// The oldest position without answer.
    pub(crate) una: u64,
    /// The next position to send. `una ≤ cursor ≤ high`.
    cursor: u64,
    /// One past the highest position ever sent.
    pub(crate) high: u64,
    /// The cost of the packets in `una..cursor` and their responses for their receivers, in bytes.
    in_flight: u64,
    window: Window,
    /// A timer has run out and nothing was answered since: only the packet before this position may
    /// be sent again. The peer may have received everything and be slow.
    probe: Option<u64>,
    /// READ requests and atomics in `una..cursor`.
    rd_atomic: u32,
    /// Packets since the last that asked for an acknowledgement.
    since_ack: u32,
    /// The last message that the peer has a receive for; `None`: no limit, as before the first
    /// credits.
    //= [exc.initial-credits]
    pub(crate) limit: Option<Msn>,
    /// A request that cannot be executed locally: it fails in its order, and nothing from it on is
    /// sent.
    pending_failure: Option<(WrId, Status)>,
    /// Why the head failed, until it is polled.
    failure: Option<Status>,
    failed: bool,
}

impl Requester {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            config: *config,
            mtu: config.mtu.bytes() as u32,
            queue: SendQueue::new(config),
            retry: Retry::new(config),
            una: 0,
            cursor: 0,
            high: 0,
            in_flight: 0,
            window: Window::new(config),
            probe: None,
            rd_atomic: 0,
            since_ack: 0,
            limit: None,
            pending_failure: None,
            failure: None,
            failed: false,
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
        if !self.failed {
            return None;
        }
        //= [conn.flush]
        let entry = self.queue.pop()?;
        let status = self.failure.take().unwrap_or(Status::Flushed);
        Some(Completion::Request { id: entry.request.id, result: Err(status) })
    }

    /// PSN of the next packet that is sent for the first time.
    pub(crate) fn next_psn(&self) -> Psn {
        self.psn(self.high)
    }

    /// Whether the connection has failed here.
    #[inline]
    pub(crate) fn has_failed(&self) -> bool {
        self.failed
    }

    /// Fails the head with `status`, or only flushes.
    pub(crate) fn fail(&mut self, status: Option<Status>) {
        if !self.failed {
            self.failed = true;
            self.failure = status;
            self.retry.stop();
        }
    }

    /// Request `id` cannot be executed locally: it fails once everything before it is complete.
    //= [req.local-error]
    pub(crate) fn fail_pending(&mut self, id: WrId, status: Status) {
        // An earlier request can fail later: its payload was gathered once, and is not again.
        let first = self
            .pending_failure
            .is_none_or(|(other, _)| other != id && self.queue.is_before(id, other));
        if first && self.queue.is_outstanding(id) {
            self.pending_failure = Some((id, status));
            self.check_pending_failure();
            self.ask_again();
        }
    }

    pub(crate) fn check_pending_failure(&mut self) {
        let head = self.queue.head().map(|head| head.request.id);
        if let Some((_, status)) = self.pending_failure.filter(|(id, _)| Some(*id) == head) {
            self.fail(Some(status));
        }
    }

    /// Whether requests are sent and not answered.
    pub(crate) fn is_outstanding(&self) -> bool {
        self.una < self.high
    }

    /// The last packet sent may not have requested an acknowledgement, because more were to follow.
    /// None follow now: sends it again with the request.
    pub(crate) fn ask_again(&mut self) {
        if self.is_outstanding() && self.since_ack > 0 {
            self.rewind();
        }
    }

    //= [req.go-back-n]
    pub(crate) fn rewind(&mut self) {
        self.cursor = self.una;
        self.in_flight = 0;
        self.queue.seek_head();
        self.rd_atomic = 0;
        self.since_ack = self.config.ack_interval;
        self.probe = None;
    }

    /// The peer answers more than the probe: what was sent before is arriving, and is not sent
    /// again.
    //= [req.probe]
    fn go_on(&mut self) {
        (self.cursor, self.in_flight, self.rd_atomic) = (self.high, 0, 0);
        // The last packet may not have asked for an acknowledgement.
        self.since_ack = self.since_ack.max(1);
        self.queue.seek(self.high);
        for entry in self.queue.sent() {
            let (from, to) = (entry.first.max(self.una), entry.end().min(self.high));
            self.in_flight += self.cost(entry, from, to);
            if entry.request.op.is_rd_atomic() {
                let chunk = u64::from(self.config.read_chunk);
                let first = u64::from(entry.packets_before(from)) / chunk;
                self.rd_atomic +=
                    (u64::from(entry.packets_before(to)).div_ceil(chunk) - first) as u32;
            }
        }
    }

    /// Position after the last one of the READ request that `position` belongs to.
    pub(crate) fn chunk_end(&self, entry: &Entry, position: u64) -> u64 {
        entry.chunk_end(position, self.config.read_chunk)
    }

    pub(crate) fn begins_chunk(&self, entry: &Entry, position: u64) -> bool {
        entry.packets_before(position).is_multiple_of(self.config.read_chunk)
    }

    /// Takes all requests that are complete and were executed; how many.
    #[inline]
    pub(crate) fn take_done(&mut self) -> usize {
        self.queue.take_done()
    }

    /// Everything before `to` is answered; a READ request or atomic ended there if `rd_atomic`.
    // Always: once for each request of an acknowledgement.
    #[inline(always)]
    pub(crate) fn advance(&mut self, to: u64, rd_atomic: bool) {
        let head = self.queue.head();
        let (cost, ends) =
            head.map_or((0, false), |head| (self.cost(head, self.una, to), head.end() == to));
        self.in_flight = self.in_flight.saturating_sub(cost);
        self.window.grow(cost);
        let probe = self.probe.take_if(|probe| to >= *probe);
        self.una = to;
        if ends {
            self.queue.finish_head();
        }
        if probe.is_some_and(|probe| to > probe) {
            self.go_on();
        } else if self.cursor < to {
            // Answered while it was about to be sent again.
            self.cursor = to;
            self.in_flight = 0;
            self.queue.seek_head();
            self.rd_atomic = 0;
        } else if rd_atomic {
            self.rd_atomic -= 1;
        }
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
            self.probe = self.queue.current().map(|entry| self.next_position(entry));
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
        let entry = self.queue.current()?;
        let next = self.next_position(entry);
        let cost = self.cost(entry, self.cursor, next);
        if !self.may_send(entry, next, cost, draining) {
            return None;
        }
        let ack_request = self.check_ack_request(entry, next, draining);
        let (opcode, ext, payload) = segment(entry, self.cursor, next, self.mtu);
        let ends = next == entry.end();
        let mut bth = Bth::new(opcode, self.config.dest_qpn, self.psn(self.cursor));
        bth.ack_request = ack_request;
        bth.solicited = entry.request.solicited && ends;
        self.rd_atomic += u32::from(entry.request.op.is_rd_atomic());
        self.in_flight += cost;
        if ends {
            self.queue.step();
        }
        self.sent(now, next, ack_request, stats);
        Some(Transmit { bth, ext, payload })
    }

    /// The checks of whether a packet of `entry` may leave, each one blocking until an answer.
    // Always: as `poll_transmit`.
    #[inline(always)]
    fn may_send(&self, entry: &Entry, next: u64, cost: u64, draining: bool) -> bool {
        let begins = self.cursor == entry.first;
        self.check_drain(begins, draining)
            && self.check_not_failing(entry)
            && self.check_fence(entry, begins)
            && self.check_rd_atomic(entry)
            && self.check_probe()
            && self.check_window(next, cost)
            && self.check_credits(entry)
    }

    //= [conn.drain]
    #[inline]
    fn check_drain(&self, begins: bool, draining: bool) -> bool {
        !(draining && begins && self.cursor >= self.high)
    }

    #[inline]
    fn check_not_failing(&self, entry: &Entry) -> bool {
        self.pending_failure.is_none_or(|(id, _)| id != entry.request.id)
    }

    //= [req.fence]
    #[inline]
    fn check_fence(&self, entry: &Entry, begins: bool) -> bool {
        !(entry.request.fence && begins && self.rd_atomic > 0)
    }

    //= [req.max-rd-atomic]
    #[inline]
    fn check_rd_atomic(&self, entry: &Entry) -> bool {
        !entry.request.op.is_rd_atomic() || self.rd_atomic < u32::from(self.config.max_rd_atomic)
    }

    //= [req.probe]
    #[inline]
    fn check_probe(&self) -> bool {
        self.probe.is_none() || self.cursor == self.una
    }

    /// Beyond the limit of bytes one may go that asks for an acknowledgement, if none did: the
    /// limit may have become smaller.
    //= [req.window]
    #[inline]
    fn check_window(&self, next: u64, cost: u64) -> bool {
        let fits = self.in_flight + cost <= self.window.bytes();
        let must_go = self.cursor == self.una || self.since_ack > 0;
        (fits || must_go) && next - self.una <= u64::from(self.config.window)
    }

    /// The cost of the packets of `entry` in `from..to` for the receiver of their payload.
    #[inline]
    fn cost(&self, entry: &Entry, from: u64, to: u64) -> u64 {
        (to - from) * (u64::from(entry.request.len.min(self.mtu)) + Config::PACKET_OVERHEAD)
    }

    /// Whether another packet as those of `entry` must wait for an answer after `next`.
    #[inline]
    fn fills_window(&self, entry: &Entry, next: u64) -> bool {
        let after = self.in_flight + self.cost(entry, self.cursor, next + 1);
        after > self.window.bytes() || next - self.una >= u64::from(self.config.window)
    }

    pub(crate) fn modify(&mut self, config: &Config) {
        self.config = *config;
        self.retry.modify(config);
    }

    #[inline]
    pub(crate) fn limit_bytes(&mut self, bytes: u64) {
        self.window.limit = bytes;
    }

    /// A packet was lost: the peer drops those in flight behind it.
    pub(crate) fn handle_lost(&mut self) {
        self.window.shrink();
        self.rewind();
    }

    /// One packet beyond the limit may go when nothing else is in flight: its answer brings new
    /// credits.
    //= [req.credits]
    #[inline]
    fn check_credits(&self, entry: &Entry) -> bool {
        self.cursor < self.high || self.cursor == self.una || !self.is_beyond_limit(entry)
    }

    #[inline]
    fn is_beyond_limit(&self, entry: &Entry) -> bool {
        entry.request.op.needs_receive()
            && self.limit.is_some_and(|limit| limit.is_before(entry.ssn))
    }

    /// The position after the packet at the cursor, or after the responses it asks for.
    #[inline]
    fn next_position(&self, entry: &Entry) -> u64 {
        match entry.request.op {
            Op::Read(_) => self.chunk_end(entry, self.cursor),
            _ => self.cursor + 1,
        }
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
                self.is_beyond_limit(following) || !self.check_not_failing(following)
            }
        };
        blocked
            || entry.request.op.is_rd_atomic()
            || (ends && draining)
            || self.since_ack + 1 >= self.config.ack_interval
            || self.fills_window(entry, next)
    }

    #[inline]
    fn sent(&mut self, now: Instant, next: u64, ack: bool, stats: &mut Stats) {
        stats.requests_sent += 1;
        let again = self.cursor < self.high;
        stats.resent += u64::from(again);
        self.since_ack = if ack { 0 } else { self.since_ack + 1 };
        self.cursor = next;
        self.high = self.high.max(next);
        self.retry.on_sent(now, (ack && !again).then_some(next));
    }

    pub(crate) fn mtu(&self) -> u32 {
        self.mtu
    }

    //= [req.psn]
    #[inline]
    fn psn(&self, position: u64) -> Psn {
        self.config.sq_psn + (position % u64::from(Psn::MODULUS)) as u32
    }

    /// The position of a response's PSN if it is outstanding.
    //= [comp.ghost]
    pub(crate) fn outstanding_position(&self, psn: Psn) -> Option<u64> {
        let offset = u64::try_from(psn.offset_from(self.psn(self.una))).ok()?;
        let position = self.una + offset;
        (position < self.high).then_some(position)
    }

    /// Whether a response repeats the last acknowledgement.
    pub(crate) fn is_last_answered(&self, psn: Psn) -> bool {
        psn + 1 == self.psn(self.una)
    }
}
