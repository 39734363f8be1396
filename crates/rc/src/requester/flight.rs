//! The packets between the oldest that is not answered and the next to be sent: their positions and
//! cost, and how many may follow.

use super::queue::{Entry, SendQueue};
use super::window::Window;
use crate::{Config, Op};
use warpverbs_wire::{Aeth, Msn, Psn, Syndrome};

#[derive(Debug)]
pub(crate) struct Flight {
    /// PSN of position 0.
    first: Psn,
    pub(crate) mtu: u32,
    read_chunk: u32,
    ack_interval: u32,
    /// Packets that may be outstanding.
    packets: u32,
    /// The oldest position without answer.
    pub(crate) una: u64,
    /// The next position to send. `una ≤ cursor ≤ high`.
    pub(crate) cursor: u64,
    /// One past the highest position ever sent.
    pub(crate) high: u64,
    /// The cost of the packets in `una..cursor` and their responses for their receivers, in bytes.
    bytes: u64,
    window: Window,
    /// A timer has run out and nothing was answered since: only the packet before this position may
    /// be sent again. The peer may have received everything and be slow.
    probe: Option<u64>,
    /// READ requests and atomics in `una..cursor`.
    pub(crate) rd_atomic: u32,
    /// Packets since the last that asked for an acknowledgement.
    pub(crate) since_ack: u32,
    /// The last message that the peer has a receive for; `None`: no limit, as before the first
    /// credits.
    //= [exc.initial-credits]
    limit: Option<Msn>,
}

impl Flight {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            first: config.sq_psn,
            mtu: config.mtu.bytes() as u32,
            read_chunk: config.read_chunk,
            ack_interval: config.ack_interval,
            packets: config.window,
            una: 0,
            cursor: 0,
            high: 0,
            bytes: 0,
            window: Window::new(config),
            probe: None,
            rd_atomic: 0,
            since_ack: 0,
            limit: None,
        }
    }

    //= [req.psn]
    #[inline]
    pub(crate) fn psn(&self, position: u64) -> Psn {
        self.first + (position % u64::from(Psn::MODULUS)) as u32
    }

    /// PSN of the next packet that is sent for the first time.
    pub(crate) fn next_psn(&self) -> Psn {
        self.psn(self.high)
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

    /// Whether requests are sent and not answered.
    #[inline]
    pub(crate) fn is_outstanding(&self) -> bool {
        self.una < self.high
    }

    /// The position after the packet at the cursor, or after the responses it asks for.
    #[inline]
    pub(crate) fn next_position(&self, entry: &Entry) -> u64 {
        match entry.request.op {
            Op::Read(_) => self.chunk_end(entry, self.cursor),
            _ => self.cursor + 1,
        }
    }

    /// Position after the last one of the READ request that `position` belongs to.
    pub(crate) fn chunk_end(&self, entry: &Entry, position: u64) -> u64 {
        entry.chunk_end(position, self.read_chunk)
    }

    pub(crate) fn begins_chunk(&self, entry: &Entry, position: u64) -> bool {
        entry.packets_before(position).is_multiple_of(self.read_chunk)
    }

    /// The cost of the packets of `entry` in `from..to` for the receiver of their payload.
    #[inline]
    pub(crate) fn cost(&self, entry: &Entry, from: u64, to: u64) -> u64 {
        (to - from) * (u64::from(entry.request.len.min(self.mtu)) + Config::PACKET_OVERHEAD)
    }

    /// The packet at the cursor has left, up to `next`. Whether it had before.
    #[inline]
    pub(crate) fn sent(&mut self, next: u64, cost: u64, rd_atomic: bool, asks: bool) -> bool {
        let again = self.cursor < self.high;
        self.rd_atomic += u32::from(rd_atomic);
        self.bytes += cost;
        self.since_ack = if asks { 0 } else { self.since_ack + 1 };
        self.cursor = next;
        self.high = self.high.max(next);
        again
    }

    /// Everything before `to` is answered; a READ request or atomic ended there if `rd_atomic`.
    // Always: once for each request of an acknowledgement.
    #[inline(always)]
    pub(crate) fn advance(&mut self, queue: &mut SendQueue, to: u64, rd_atomic: bool) {
        let head = queue.head();
        let (cost, ends) =
            head.map_or((0, false), |head| (self.cost(head, self.una, to), head.end() == to));
        self.bytes = self.bytes.saturating_sub(cost);
        self.window.grow(cost);
        let probe = self.probe.take_if(|probe| to >= *probe);
        self.una = to;
        if ends {
            queue.finish_head();
        }
        if probe.is_some_and(|probe| to > probe) {
            self.go_on(queue);
        } else if self.cursor < to {
            // Answered while it was about to be sent again.
            self.cursor = to;
            self.bytes = 0;
            queue.seek_head();
            self.rd_atomic = 0;
        } else if rd_atomic {
            self.rd_atomic -= 1;
        }
    }

    /// The peer answers more than the probe: what was sent before is arriving, and is not sent
    /// again.
    //= [req.probe]
    fn go_on(&mut self, queue: &mut SendQueue) {
        (self.cursor, self.bytes, self.rd_atomic) = (self.high, 0, 0);
        // The last packet may not have asked for an acknowledgement.
        self.since_ack = self.since_ack.max(1);
        queue.seek(self.high);
        for entry in queue.sent() {
            let (from, to) = (entry.first.max(self.una), entry.end().min(self.high));
            self.bytes += self.cost(entry, from, to);
            if entry.request.op.is_rd_atomic() {
                let chunk = u64::from(self.read_chunk);
                let first = u64::from(entry.packets_before(from)) / chunk;
                self.rd_atomic +=
                    (u64::from(entry.packets_before(to)).div_ceil(chunk) - first) as u32;
            }
        }
    }

    /// Everything without answer is sent again.
    pub(crate) fn rewind(&mut self) {
        self.cursor = self.una;
        self.bytes = 0;
        self.rd_atomic = 0;
        self.since_ack = self.ack_interval;
        self.probe = None;
    }

    /// Only the packet of `entry` at the cursor may be sent until it is answered.
    pub(crate) fn probe(&mut self, entry: Option<&Entry>) {
        self.probe = entry.map(|entry| self.next_position(entry));
    }

    //= [req.probe]
    #[inline]
    pub(crate) fn check_probe(&self) -> bool {
        self.probe.is_none() || self.cursor == self.una
    }

    /// Beyond the limit of bytes one may go that asks for an acknowledgement, if none did: the
    /// limit may have become smaller.
    //= [req.window]
    #[inline]
    pub(crate) fn check_window(&self, next: u64, cost: u64) -> bool {
        let fits = self.bytes + cost <= self.window.bytes();
        let must_go = self.cursor == self.una || self.since_ack > 0;
        (fits || must_go) && next - self.una <= u64::from(self.packets)
    }

    /// Whether another packet as those of `entry` must wait for an answer after `next`.
    #[inline]
    pub(crate) fn fills_window(&self, entry: &Entry, next: u64) -> bool {
        let after = self.bytes + self.cost(entry, self.cursor, next + 1);
        after > self.window.bytes() || next - self.una >= u64::from(self.packets)
    }

    /// Whether the packet at the cursor is one of every [`Config::ack_interval`].
    #[inline]
    pub(crate) fn is_ack_due(&self) -> bool {
        self.since_ack + 1 >= self.ack_interval
    }

    #[inline]
    pub(crate) fn limit_bytes(&mut self, bytes: u64) {
        self.window.limit = bytes;
    }

    /// As after a loss.
    pub(crate) fn shrink_window(&mut self) {
        self.window.shrink();
    }

    /// One packet beyond the limit may go when nothing else is in flight: its answer brings new
    /// credits.
    //= [req.credits]
    #[inline]
    pub(crate) fn check_credits(&self, entry: &Entry) -> bool {
        self.cursor < self.high || self.cursor == self.una || !self.is_beyond_limit(entry)
    }

    #[inline]
    pub(crate) fn is_beyond_limit(&self, entry: &Entry) -> bool {
        entry.request.op.needs_receive()
            && self.limit.is_some_and(|limit| limit.is_before(entry.ssn))
    }

    //= [comp.credits]
    pub(crate) fn learn_credits(&mut self, aeth: &Aeth) {
        if let Syndrome::Ack(credits) = aeth.syndrome {
            self.limit = credits.count().map(|count| aeth.msn + u32::from(count));
        }
    }
}
