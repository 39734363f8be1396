//! The engine: one bounded slice of work at a time.
//!
//! A slice looks at doorbells (`doorbell`), runs QPs that have announced work (`run`, `execute`),
//! lets copies, timers and held completions go on, and ends QPs that failed (`fail`).

mod atomic;
mod burst;
mod complete;
mod control;
mod doorbell;
mod execute;
mod fail;
mod net;
mod proxy;
mod run;
mod stage;
mod timer;
pub(crate) mod transfer;

pub(crate) use net::Network;
pub(crate) use proxy::{Proxy, SharedEnd};
pub(crate) use run::{Flight, classify};

use crate::clock::Time;
use crate::config::{Config, DoorbellPolicy};
use crate::cq::CompletionQueue;
use crate::event::Events;
use crate::link::Link;
use crate::qp::receive::ReceiveQueue;
use crate::qp::send::SendQueue;
use crate::slots::Slots;
use crate::srq::SharedReceiveQueue;
use crate::stats::QpStats;
use crate::violation::{Log, QueueKind, Rule, Violation};
use rand::rngs::StdRng;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use timer::Timers;
use warpverbs_mem::{Block, DoorbellPage, KeyTable};

/// What a slice achieved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// So many WQEs were completed or flushed; 0 if copies are under way. There may be more.
    Busy(u32),
    /// Nothing can go on until a doorbell is rung or time passes.
    Idle,
}

/// WQEs of one QP before the next one has its turn.
const BURST: u32 = 32;
/// WQEs of one slice.
const SLICE: u32 = 256;

/// All state of a NIC that its lock protects.
pub(crate) struct Core {
    pub(crate) bells: doorbell::Bells,
    pub(crate) keys: KeyTable,
    pub(crate) sends: Slots<SendQueue>,
    pub(crate) receives: Slots<ReceiveQueue>,
    pub(crate) cqs: Slots<CompletionQueue>,
    pub(crate) srqs: Slots<SharedReceiveQueue>,
    /// Slot of each QP, by number.
    pub(crate) by_qpn: FxHashMap<u32, u32>,
    pub(crate) events: Events,
    pub(crate) log: Log,
    /// Counters of QPs that are gone.
    pub(crate) past: QpStats,
    pub(crate) rng: StdRng,
    pub(crate) time: Time,
    pub(crate) steps: u64,
    pub(crate) net: Network,
    pub(crate) proxy: Proxy,
    policy: DoorbellPolicy,
    record_patience: u32,
    pub(crate) watch_rewrites: bool,
    slice_bytes: u64,
    /// Slots of QPs that may have something to do.
    run: VecDeque<u32>,
    /// Slots of QPs with a ring to act on later, or in ERR with receives still to come.
    watched: Vec<u32>,
    timers: Timers,
    /// Slots of CQs that hold CQEs back.
    holding: Vec<u32>,
    /// Slots of CQs that overran in this slice.
    overrun: Vec<u32>,
    atomic_owner: Option<u32>,
    /// The receive that is looked at.
    scratch: Box<[u64; 128]>,
    /// The WQEBBs of a long WQE.
    long: Box<[Block; 16]>,
}

impl Core {
    pub(crate) fn new(
        config: &Config,
        page: DoorbellPage,
        keys: KeyTable,
        rng: StdRng,
        link: Option<Box<dyn Link>>,
    ) -> Self {
        let max = config.max_qps;
        Self {
            bells: doorbell::Bells::new(page),
            keys,
            sends: Slots::new(max),
            receives: Slots::new(max),
            cqs: Slots::new(1 << 23),
            srqs: Slots::new(1 << 23),
            by_qpn: FxHashMap::default(),
            events: Events::new(config.events_kept),
            log: Log::new(config.violations_kept),
            past: QpStats::default(),
            rng,
            time: Time::start(config.clock.clone()),
            steps: 0,
            net: Network::new(link),
            proxy: Proxy::default(),
            policy: config.policy,
            record_patience: config.record_patience,
            watch_rewrites: config.watch_rewrites,
            slice_bytes: config.slice_bytes,
            run: VecDeque::new(),
            watched: Vec::new(),
            timers: Timers::default(),
            holding: Vec::new(),
            overrun: Vec::new(),
            atomic_owner: None,
            scratch: Box::new([0; 128]),
            long: Box::new([[0; 8]; 16]),
        }
    }

    /// One slice.
    pub(crate) fn step(&mut self) -> Step {
        self.steps += 1;
        let heard = self.listen();
        if heard && self.proxy.has_ends() {
            self.forward_first();
        }
        if !self.timers.is_empty() {
            self.wake_sleepers();
        }
        if !self.holding.is_empty() {
            self.release_held();
        }
        let (mut done, mut bytes, mut moving) = (0, 0, false);
        for _ in 0..self.run.len() {
            let Some(slot) = self.run.pop_front() else { break };
            let ran = self.run_queue(slot, BURST);
            done += ran.done;
            bytes += ran.bytes;
            moving |= ran.moving;
            if done >= SLICE || bytes >= u64::from(SLICE / BURST) * self.slice_bytes {
                break;
            }
        }
        if !self.overrun.is_empty() {
            self.fail_overrun();
        }
        let served = self.serve_network() | (self.proxy.has_ends() && self.serve_proxied());
        let waits = served || self.is_network_pending() || !self.run.is_empty();
        let idle = done == 0 && !moving && !heard && !waits;
        // What is polled for rarely is polled for at least whenever nothing else is to be done.
        let recovered = !self.watched.is_empty()
            && (idle || self.steps.is_multiple_of(64))
            && self.poll_watched();
        if idle && !recovered && !self.is_counting_down() { Step::Idle } else { Step::Busy(done) }
    }

    /// Something will happen after more steps, without news from outside.
    fn is_counting_down(&self) -> bool {
        self.is_recovering() || self.holds_by_steps()
    }

    /// Puts a QP on the run list, once.
    #[inline]
    pub(crate) fn enqueue(&mut self, slot: u32) {
        if let Some(q) = self.sends.get_mut(slot)
            && !q.queued
        {
            q.queued = true;
            self.run.push_back(slot);
        }
    }

    /// Records a violation of QP `qpn`.
    pub(crate) fn report(&mut self, qpn: u32, queue: QueueKind, index: u64, rule: Rule) {
        self.log.push(Violation { qpn, queue, index, rule });
    }

    /// Time to the next timer, if one runs.
    pub(crate) fn next_timer(&self) -> Option<u64> {
        let held = self.held_until();
        let due = [self.timers.next(), held, self.net.next_timer(), self.proxy.next_timer()];
        let due = due.into_iter().flatten().min()?;
        Some(due.saturating_sub(self.time.now()))
    }
}
