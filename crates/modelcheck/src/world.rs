//! A queue pair in the checker's memory: addresses, first values, names and rules.

use crate::fiber::Body;
use crate::memory::{Initial, Place};
use crate::nic::{self, Nic, PlainNic};
use crate::receiver::Receiver;
use crate::scenario::{End, NOTES, Rule, Scenario, ThreadSpec, Time};
use std::mem::offset_of;
use std::rc::Rc;
use warpverbs_mlx5::export::{
    Cq, CqMode, FENCED_RECORD, Fault, NicFormat, PollWord, PostState, Qp, QueueState,
};

/// Note of the NIC's: everything below has been executed.
pub const DONE: usize = 0;
/// Note of the NIC's: everything below has been received.
pub const ARRIVED: usize = NOTES - 1;

/// Number of the queue pair.
pub(crate) const QPN: u32 = 0x42;
/// Device of the NIC, which only scope `System` reaches.
const NIC: u8 = 7;

const STATE: u64 = 0x10_0000;
const READY: u64 = STATE + 0x1000;
const SPAN: u64 = STATE + 0x1100;
const RECORD: u64 = STATE + 0x1800;
pub(crate) const DOORBELL: u64 = STATE + 0x1840;
const CQ_RECORD: u64 = STATE + 0x1880;
const ABORT: u64 = STATE + 0x18c0;
pub(crate) const CQ: u64 = STATE + 0x2000;
pub(crate) const SCRATCH: u64 = STATE + 0x4000;
/// Old values that nobody wants: the word behind 64 scratch slots.
const SINK: u64 = SCRATCH + 8 * 64;
const SOURCE: u64 = STATE + 0x5000;
const TARGET: u64 = STATE + 0x6000;
const SIGNAL: u64 = STATE + 0x7000;
pub(crate) const SQ: u64 = STATE + 0x8000;
pub(crate) const RQ: u64 = STATE + 0xb000;
const INBOX: u64 = STATE + 0xc000;
const RECV_CQ: u64 = STATE + 0xd000;
/// Posting state of a queue pair on another GPU, which posts nothing.
const FAR_STATE: u64 = STATE + 0x1_0000;
/// Stands for a block's shared memory; as in `arch/check.h`.
const SHARED: u64 = STATE + 0x1_1000;
/// The table of packet numbers.
pub(crate) const PACKETS: u64 = STATE + 0x1_2000;
const RQ_READY: u64 = READY + 0x80;
const RECV_CQ_RECORD: u64 = CQ_RECORD + 0x20;
const FAR_ABORT: u64 = ABORT + 4;
const UNSIGNALLED: u64 = STATE + offset_of!(QueueState, unsignalled) as u64;
pub(crate) const ERROR: u64 = STATE + offset_of!(PostState, error) as u64;
const SCRATCH_FREE: u64 = STATE + offset_of!(PostState, scratch_free) as u64;

/// Addresses of a queue's words: those of its `QueueState`, and what lies elsewhere.
#[derive(Clone, Copy)]
pub(crate) struct Queue {
    pub(crate) reserved: u64,
    pub(crate) published: u64,
    pub(crate) ring_token: u64,
    pub(crate) poll: u64,
    pub(crate) cq_ci: u64,
    pub(crate) ready: u64,
    pub(crate) record: u64,
    pub(crate) cq_record: u64,
}

pub(crate) const SENDS: Queue =
    Queue::at(STATE + offset_of!(PostState, sq) as u64, READY, RECORD + 4, CQ_RECORD);
pub(crate) const RECEIVES: Queue =
    Queue::at(STATE + offset_of!(PostState, rq) as u64, RQ_READY, RECORD, RECV_CQ_RECORD);

impl Queue {
    const fn at(state: u64, ready: u64, record: u64, cq_record: u64) -> Self {
        Self {
            reserved: state + offset_of!(QueueState, reserved) as u64,
            published: state + offset_of!(QueueState, published) as u64,
            ring_token: state + offset_of!(QueueState, ring_token) as u64,
            poll: state + offset_of!(QueueState, poll) as u64,
            cq_ci: state + offset_of!(QueueState, cq_ci) as u64,
            ready,
            record,
            cq_record,
        }
    }

    /// The words when everything below `next` has been posted, and below `done` completed.
    fn words(&self, done: u64, next: u64, depth: u64) -> Vec<Initial> {
        let mut words = vec![
            word(self.reserved, 8, next),
            word(self.published, 8, next),
            word(self.ring_token, 4, 0),
            word(self.poll, 8, PollWord::new(done, false).0),
            word(self.cq_ci, 8, done),
            word(self.record, 4, (next as u32 & 0xffff).to_be().into()),
            word(self.cq_record, 4, (done as u32 & 0xff_ffff).to_be().into()),
        ];
        let flips = |slot: u64| next.saturating_sub(slot).div_ceil(depth);
        for first in (0..depth).step_by(64) {
            let slots = first..depth.min(first + 64);
            let bits = slots.fold(0, |w, slot| w | (flips(slot) & 1) << (slot - first));
            words.push(word(self.ready + first / 8, 8, bits));
        }
        words
    }

    /// The rules of its words; the note `done` says how much has been executed.
    fn rules(&self, done: usize) -> Vec<(u64, Rule)> {
        vec![
            (self.reserved, Rule::Monotonic { shift: 0 }),
            (self.published, Rule::Monotonic { shift: 0 }),
            (self.published, Rule::OneWriter),
            (self.record, Rule::OneWriter),
            (self.cq_ci, Rule::OneWriter),
            (self.cq_ci, Rule::Monotonic { shift: 0 }),
            (self.poll, Rule::Monotonic { shift: 1 }),
            (self.poll, Rule::AtMost { shift: 1, note: done }),
        ]
    }

    fn names(&self) -> [(u64, &'static str); 7] {
        [
            (self.reserved, "reserved"),
            (self.published, "published"),
            (self.ring_token, "ring_token"),
            (self.poll, "poll"),
            (self.cq_ci, "cq_ci"),
            (self.record, "record"),
            (self.cq_record, "cq record"),
        ]
    }
}

/// Words of payload on either side.
const PAYLOAD: u64 = 64;

/// Sizes and history of a queue pair.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Whose format the queues have. Of other formats than mlx5's they have a send queue alone, and no
    /// backlog.
    pub format: NicFormat,
    /// log2 of the WQEBBs of the ring.
    pub log_sq: u8,
    /// log2 of the CQEs of a ring CQ; `None` for a collapsed one.
    pub log_cq: Option<u8>,
    /// WQEBBs that have been posted and completed before.
    pub start: u64,
    /// Of these and of those behind them, posted and rung, but not executed yet. They write
    /// nothing, and only the last has a CQE.
    pub backlog: u64,
    /// The WQEBB that the NIC refuses; everything behind it is flushed.
    pub fails_at: Option<u64>,
    /// The WQEBB before which the NIC stops for good.
    pub stops_at: Option<u64>,
    /// The NIC is a device that may act on the doorbell record before it receives the doorbell.
    pub reads_record: bool,
    /// log2 of the WQEs of the receive queue, and of the CQEs of its CQ, if there is one.
    pub log_rq: Option<u8>,
    /// Messages that the peer sends; each takes a receive.
    pub messages: u64,
    /// Deferred work at the end may be left to calls that do not come.
    pub unrung: bool,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            unrung: false,
            format: NicFormat::Mlx5,
            log_sq: 2,
            log_cq: None,
            start: 0,
            backlog: 0,
            fails_at: None,
            stops_at: None,
            reads_record: false,
            log_rq: None,
            messages: 0,
        }
    }
}

pub(crate) fn word(addr: u64, size: u8, value: u64) -> Initial {
    Initial { addr, size, value, atomic: true }
}

pub(crate) fn plain(addr: u64, value: u64) -> Initial {
    Initial { addr, size: 8, value, atomic: false }
}

/// Address of word `i` of what kernels send.
pub fn source(i: u64) -> u64 {
    SOURCE + 8 * i
}

/// Address of word `i` of what they send it to.
pub fn target(i: u64) -> u64 {
    TARGET + 8 * i
}

/// Address of word `i` of what receives are posted for.
pub fn inbox(i: u64) -> u64 {
    INBOX + 8 * i
}

/// Address of the word that puts signal.
pub fn signal() -> u64 {
    SIGNAL
}

/// Addresses of a queue pair.
#[derive(Clone, Copy, Debug)]
pub struct World {
    /// The shape it was made from.
    pub shape: Shape,
}

impl World {
    /// The exported queue pair.
    pub fn qp(&self) -> Qp {
        let Shape { log_sq, log_cq, .. } = self.shape;
        let mode = if log_cq.is_some() { CqMode::Ring } else { CqMode::Collapsed };
        let send_cq = Cq {
            buf: CQ,
            dbr: CQ_RECORD,
            cqn: 1,
            log_size: log_cq.unwrap_or(0),
            mode: mode as u8,
            reserved: [0; 2],
        };
        let log_rq = self.shape.log_rq.unwrap_or(0);
        let recv_cq = Cq {
            buf: RECV_CQ,
            dbr: RECV_CQ_RECORD,
            cqn: 2,
            log_size: log_rq,
            mode: CqMode::Ring as u8,
            reserved: [0; 2],
        };
        Qp {
            sq: SQ,
            rq: RQ,
            dbr: RECORD,
            doorbell: DOORBELL,
            send_cq,
            recv_cq,
            state: STATE,
            sq_ready: READY,
            rq_ready: RQ_READY,
            sq_span: SPAN,
            abort: ABORT,
            scratch: SCRATCH,
            timeout_ns: 1 << 40,
            scratch_lkey: 1,
            qpn: QPN,
            log_sq,
            log_rq,
            log_rq_stride: 4,
            inline_words: if self.is_mlx5() { 30 } else { 4 },
            send_tag: QPN | if self.shape.reads_record { FENCED_RECORD } else { 0 },
            packets: PACKETS,
            format: self.shape.format as u8,
            log_packets: log_sq,
            log_mtu: 8,
            rq_slots: 3,
            reserved: [0; 28],
        }
    }

    /// A queue pair of another GPU, for waits that do not post.
    pub fn far_qp(&self) -> Qp {
        Qp { state: FAR_STATE, abort: FAR_ABORT, ..self.qp() }
    }

    pub(crate) fn is_mlx5(&self) -> bool {
        self.shape.format == NicFormat::Mlx5
    }

    pub(crate) fn depth(&self) -> u64 {
        1 << self.shape.log_sq
    }

    /// Index behind the backlog.
    pub fn next(&self) -> u64 {
        self.shape.start + self.shape.backlog
    }

    /// The receive of 16 bytes at `index`.
    pub(crate) fn recv_wqe(&self, index: u64) -> u64 {
        RQ + 16 * (index & self.recv_mask())
    }
    pub(crate) fn recv_cqe(&self, ci: u64) -> u64 {
        RECV_CQ + 64 * (ci & self.recv_mask())
    }
    fn recv_mask(&self) -> u64 {
        (1 << self.shape.log_rq.unwrap_or(0)) - 1
    }
    /// Address of the word that ends all waits.
    pub fn abort(&self) -> u64 {
        ABORT
    }
    /// Address of a field of [`warpverbs_mlx5::export::Fault`].
    pub fn fault(&self, offset: usize) -> u64 {
        STATE + (offset_of!(PostState, fault) + offset) as u64
    }
    pub(crate) fn is_signal(addr: u64) -> bool {
        addr == SIGNAL
    }

    pub(crate) fn cqe(&self, ci: u64) -> u64 {
        CQ + 64 * (ci & ((1 << self.shape.log_cq.unwrap_or(0)) - 1))
    }
    pub(crate) fn wqebb(&self, index: u64) -> u64 {
        SQ + 64 * (index & (self.depth() - 1))
    }
    pub(crate) fn span(&self, index: u64) -> u64 {
        SPAN + (index & (self.depth() - 1))
    }

    fn state_words(&self) -> Vec<Initial> {
        let mut words = SENDS.words(self.shape.start, self.next(), self.depth());
        words.extend([
            word(UNSIGNALLED, 8, 0),
            word(ERROR, 8, 0),
            word(SCRATCH_FREE, 8, 1),
            word(DOORBELL, 8, nic::doorbell(self.next())),
            word(ABORT, 4, 0),
            word(SCRATCH, 8, 0),
        ]);
        words.extend((0..4).map(|i| word(self.fault(4 * i), 4, 0)));
        words.extend((0..3).map(|i| word(self.fault(16 + 8 * i), 8, 0)));
        words
    }

    fn receive_words(&self) -> Vec<Initial> {
        let Some(log_rq) = self.shape.log_rq else { return Vec::new() };
        let (start, size) = (self.shape.start, 1u64 << log_rq);
        let mut words = RECEIVES.words(start, start, size);
        for i in 0..size {
            words.extend([plain(RQ + 16 * i, 0), plain(RQ + 16 * i + 8, 0)]);
            words.extend([36, 44].map(|at| word(RECV_CQ + 64 * i + at, 4, 0)));
            // Owned by the NIC on every lap until it is written.
            let owner = (start + size - 1 - i) >> log_rq & 1;
            words.push(word(RECV_CQ + 64 * i + 56, 8, (0xf0 | owner) << 56));
            words.push(plain(INBOX + 8 * i, 0));
        }
        words
    }

    /// All locations and what they hold at first.
    pub fn memory(&self) -> Vec<Initial> {
        let mut memory = self.state_words();
        memory.extend(self.receive_words());
        memory.extend([
            word(SIGNAL, 8, 0),
            word(FAR_ABORT, 4, 0),
            plain(SINK, 0),
            plain(SHARED, 0),
        ]);
        memory.push(word(FAR_STATE + offset_of!(PostState, error) as u64, 8, 0));
        // Only slots that are used: there is room for a bounded number of atomic locations.
        let used = self.depth().min(16);
        let slot = |i: u64| (self.shape.start + i) & (self.depth() - 1);
        for i in 0..used {
            memory.push(word(SPAN + slot(i), 1, 1));
            memory.extend((0..8).map(|w| plain(SQ + 64 * slot(i) + 8 * w, 0)));
        }
        for index in self.shape.start..self.next() {
            self.old_wqe(index, &mut memory);
        }
        for ci in 0..1u64 << self.shape.log_cq.unwrap_or(0) {
            memory.push(word(CQ + 64 * ci + 52, 4, 0));
            memory.push(word(CQ + 64 * ci + 56, 8, 0xf1 << 56));
        }
        for i in 0..PAYLOAD {
            memory.extend([plain(source(i), 0), plain(target(i), 0)]);
        }
        if !self.is_mlx5() {
            self.adapt(&mut memory);
        }
        memory
    }

    /// A NOP of the backlog.
    fn old_wqe(&self, index: u64, memory: &mut [Initial]) {
        let last = index + 1 == self.next();
        let first = u64::from((index as u32 & 0xffff) << 8).swap_bytes() >> 32
            | u64::from((QPN << 8 | 1).swap_bytes()) << 32;
        let second = if last { 8u64 << 24 } else { 0 };
        for (at, value) in [(0, first), (8, second)] {
            let addr = self.wqebb(index) + at;
            if let Some(word) = memory.iter_mut().find(|word| word.addr == addr) {
                word.value = value;
            }
        }
    }

    /// Rules for every write.
    pub fn rules(&self) -> Vec<(u64, Rule)> {
        let mut rules = SENDS.rules(DONE);
        rules.extend(RECEIVES.rules(ARRIVED));
        rules.extend([
            (DOORBELL, Rule::OneWriter),
            (ERROR, Rule::Once),
            (self.fault(offset_of!(Fault, claim)), Rule::Monotonic { shift: 0 }),
        ]);
        rules
    }

    fn name(&self, addr: u64) -> String {
        let named = [
            (UNSIGNALLED, "unsignalled"),
            (ERROR, "error"),
            (SCRATCH_FREE, "scratch_free"),
            (DOORBELL, "doorbell"),
            (ABORT, "abort"),
            (SIGNAL, "signal"),
            (SHARED, "shared memory"),
            (RECEIVES.ready, "receive ready"),
        ];
        let of = |names: &[(u64, &'static str)]| {
            names.iter().find(|(at, _)| *at == addr).map(|(_, name)| *name)
        };
        if let Some(name) = of(&named).or_else(|| of(&SENDS.names())) {
            return name.to_owned();
        }
        if let Some(name) = of(&RECEIVES.names()) {
            return format!("receive {name}");
        }
        let within = |start: u64, end: u64| (start..end).contains(&addr).then(|| addr - start);
        if let Some(at) = within(SQ, SQ + 64 * self.depth()) {
            return format!("sq[{}]+{}", at / 64, at % 64);
        }
        if let Some(at) = within(CQ, SCRATCH) {
            return format!("cq[{}]+{}", at / 64, at % 64);
        }
        let areas = [
            (INBOX, RECV_CQ, "inbox", 8),
            (RQ, INBOX, "receive", 8),
            (RECV_CQ, FAR_STATE, "receive cq", 1),
            (TARGET, SIGNAL, "target", 8),
            (SOURCE, TARGET, "source", 8),
            (SCRATCH, SOURCE, "scratch", 8),
            (SPAN, RECORD, "span", 1),
            (PACKETS, PACKETS + 0x1000, "packets", 8),
            (READY, SPAN, "ready", 8),
            (STATE, READY, "state", 1),
        ];
        let area = areas.iter().find_map(|&(s, e, name, of)| Some((within(s, e)? / of, name)));
        area.map_or_else(|| format!("{addr:#x}"), |(at, name)| format!("{name}[{at}]"))
    }

    /// A scenario of `threads` and a NIC on this queue pair. At the end everything that was
    /// reserved must have been rung and executed, and nobody may hold anything.
    pub fn scenario(self, name: &str, mut threads: Vec<ThreadSpec>, payload: Payload) -> Scenario {
        let daemon = |name: &str, run: Rc<dyn Fn()>| ThreadSpec {
            name: name.into(),
            body: Body::Host(run),
            place: Place { device: NIC, block: 0 },
            daemon: true,
        };
        threads.push(match self.is_mlx5() {
            true => daemon("nic", Rc::new(move || Nic::new(self).run())),
            false => daemon("nic", Rc::new(move || PlainNic::new(self).run())),
        });
        if self.shape.log_rq.is_some() {
            threads.push(daemon("receiver", Rc::new(move || Receiver::new(self).run())));
        }
        Scenario {
            name: name.into(),
            threads,
            memory: self.memory(),
            rules: self.rules(),
            describe: Rc::new(move |addr| self.name(addr)),
            finish: Rc::new(move |end| self.finish(end).and_then(|()| payload(end))),
            time: Time::Never,
            aborts: false,
        }
    }
}

/// A last check of a scenario's own.
pub type Payload = fn(&End<'_>) -> Result<(), String>;
