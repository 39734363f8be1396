//! The engine: one bounded slice of work at a time.
//!
//! A slice polls doorbells ([`doorbell`]), runs QPs that have announced work, and lets copies,
//! timers and held completions go on. Three backends execute WQEs: [`loopback`], [`net`] and
//! [`proxy`]. They share the tables, report what has happened ([`report`]), and know nothing of
//! each other; [`queues`] acts on it.

mod access;
mod alone;
mod atomic;
mod complete;
pub(crate) mod control;
mod copies;
mod diagnostics;
mod doorbell;
mod fail;
mod fetch;
mod loopback;
pub(crate) mod monitor;
mod net;
mod outcome;
mod plain;
mod proxy;
mod queues;
mod registers;
pub(crate) mod registry;
mod report;
mod schedule;
mod tables;
mod transition;
mod uars;
mod wait;

pub use schedule::Step;

use crate::AsyncEvent;
use crate::clock::Time;
use crate::config::Config;
use crate::event::Events;
use crate::format::LONGEST;
use crate::objects::address::Addresses;
use crate::objects::in_flight::WqeInfo;
use crate::objects::receive::ReceiveQueue;
use crate::objects::send::{Executor, SendQueue};
use crate::slots::QpSlot;
use crate::stats::QpStats;
use crate::violation::Log;
use complete::Completer;
use diagnostics::Diagnostics;
use doorbell::DoorbellScanner;
use fetch::{read_wqe, rewritten};
use loopback::Loopback;
use net::Network;
use proxy::{Proxy, Submitted};
use queues::{Advance, Queues, idle};
use rand::Rng;
use rand::rngs::StdRng;
use schedule::Scheduler;
use std::collections::VecDeque;
use tables::Tables;
use warpverbs_link::{Link, QpnPart};
use warpverbs_mem::{Block, DoorbellPage, KeyTable};
use warpverbs_rdma::QpState;

/// WQEs of one QP before the next QP runs.
const BURST: u32 = 32;
/// WQEs of one slice.
const SLICE: u32 = 256;

/// Lists of completions of one proxy device in one slice.
const POLLS: usize = 4;

/// All state of a NIC that its lock protects.
pub(crate) struct Core {
    queues: Queues,
    doorbells: DoorbellScanner,
    loopback: Loopback,
    network: Network,
    proxy: Proxy,
    slice_bytes: u64,
    /// Only doorbell registers are still to be looked at before the engine is idle.
    looking: bool,
    /// The WQEBBs of a long WQE.
    long: Box<[Block; LONGEST]>,
}

/// The progress of a QP in its share of a slice.
struct Ran {
    done: u32,
    bytes: u64,
    /// Copies are under way.
    moving: bool,
}

/// Parts that a control call took out of the engine. They may own memory and copies under way, so
/// they are dropped after the lock.
#[derive(Debug, Default)]
pub(crate) struct Released {
    _end: Option<Box<proxy::End>>,
    _waiting: proxy::Waiting,
    _connection: Option<Box<net::End>>,
    _loopback: Option<Box<loopback::End>>,
    _queues: Option<(Box<SendQueue>, Box<ReceiveQueue>)>,
}

impl Core {
    pub(crate) fn new(
        config: &Config,
        page: DoorbellPage,
        keys: KeyTable,
        mut rng: StdRng,
        link: Option<Box<dyn Link>>,
    ) -> Self {
        let part = link.as_ref().and_then(|link| link.qpn_part());
        let part = part.unwrap_or_else(|| QpnPart::of(rng.next_u32() >> 8));
        let diagnostics = Diagnostics {
            events: Events::new(config.events_kept),
            log: Log::new(config.violations_kept),
            past: QpStats::default(),
        };
        Self {
            queues: Queues {
                tables: Tables::new(keys, config.max_qps, part),
                schedule: Scheduler::default(),
                completer: Completer::default(),
                diagnostics,
                time: Time::start(config.clock.clone()),
                ended: VecDeque::new(),
                consume_only: false,
            },
            doorbells: DoorbellScanner::new(config, page, rng),
            loopback: Loopback::new(config.slice_bytes),
            network: Network::new(link),
            proxy: Proxy::default(),
            slice_bytes: config.slice_bytes,
            looking: false,
            long: Box::new([[0; 8]; LONGEST]),
        }
    }

    /// One slice.
    pub(crate) fn step(&mut self) -> Step {
        self.queues.completer.steps += 1;
        let rung = self.doorbells.scan(&mut self.queues);
        if rung && self.proxy.has_ends() {
            self.proxy.forward_first(&mut self.queues.tables);
            self.apply_proxy();
        }
        self.queues.go_on();
        let (mut done, mut bytes, mut moving) = (0, 0, false);
        for _ in 0..self.queues.schedule.len() {
            let Some(slot) = self.queues.schedule.next() else { break };
            let ran = self.run_queue(slot, BURST);
            done += ran.done;
            bytes += ran.bytes;
            moving |= ran.moving;
            if done >= SLICE || bytes >= u64::from(SLICE / BURST) * self.slice_bytes {
                break;
            }
        }
        self.queues.completer.look_at_arms(&mut self.queues.tables);
        if self.queues.completer.has_overrun() {
            self.queues.fail_overrun();
            self.finish_ended();
        }
        let served = self.serve_network() | (self.proxy.has_ends() && self.serve_proxy());
        let Queues { schedule, tables, completer, .. } = &mut self.queues;
        schedule.wake_waiting(&mut tables.sends, &mut completer.woken);
        let waits = served || self.network.is_network_pending() || !self.queues.schedule.is_empty();
        let idle = done == 0 && !moving && !rung && !waits;
        // Doorbell records are polled rarely while there is other work, and always when idle.
        let recovered = !self.queues.schedule.watched.is_empty()
            && (idle || self.queues.completer.steps.is_multiple_of(64))
            && self.doorbells.poll_watched(&mut self.queues);
        let idle = idle && !recovered && !self.counts_down();
        self.looking = idle && self.doorbells.uars.is_midway();
        if idle && !self.looking { Step::Idle } else { Step::Busy(done) }
    }

    /// Something is due after more slices.
    fn counts_down(&self) -> bool {
        self.doorbells.is_recovering(&self.queues)
            || self.doorbells.uars.has_due()
            || self.queues.completer.holds_by_steps(&self.queues.tables)
    }

    /// Time to the next timer, if one runs.
    pub(crate) fn next_timer(&self) -> Option<u64> {
        let held = self.queues.completer.held_until(&self.queues.tables);
        let backends = [self.network.next_timer(), self.proxy.next_timer()];
        let due = [self.queues.schedule.next_timer(), held].into_iter().chain(backends);
        let due = due.flatten().min()?;
        Some(due.saturating_sub(self.queues.time.now()))
    }

    /// Runs the QP in `slot`, which is taken off the run list and comes back to its end if it has
    /// more to do.
    fn run_queue(&mut self, slot: QpSlot, budget: u32) -> Ran {
        let from = self.queues.tables.bytes_moved(slot);
        let mut ran = Ran { done: 0, bytes: 0, moving: false };
        let mut started = 0;
        // Until a WQE needs the general way.
        let mut plain =
            matches!(self.queues.tables.executor(slot), Executor::Loopback | Executor::Network);
        let again = loop {
            ran.bytes = self.queues.tables.bytes_moved(slot) - from;
            if ran.done + started >= budget || ran.bytes >= self.slice_bytes {
                ran.moving |= started > 0;
                break true;
            }
            let left = budget - ran.done - started;
            if plain {
                let (executed, posted) = self.burst(slot, left);
                ran.done += executed;
                started += posted;
                plain = executed + posted > 0;
                continue;
            }
            match self.advance(slot, left) {
                Advance::Done => ran.done += 1,
                Advance::Started => started += 1,
                Advance::Posted(count) => started += count,
                // The backend reports when it can go on.
                Advance::Moving if self.queues.tables.executor(slot).is_away() => break false,
                Advance::Moving => {
                    ran.moving = true;
                    break true;
                }
                Advance::Nothing => break false,
            }
        };
        if let Some(q) = self.queues.tables.sends.live_mut(slot) {
            q.turn.queued = again;
            if again {
                self.queues.schedule.requeue(slot);
            }
        }
        ran
    }

    /// The short way of plain WRITEs: how many were executed, and how many were posted.
    #[inline]
    fn burst(&mut self, slot: QpSlot, budget: u32) -> (u32, u32) {
        let tables = &mut self.queues.tables;
        if tables.sends.live(slot).is_some_and(|q| q.executor == Executor::Network) {
            return (0, self.network.conns.burst(tables, slot, budget));
        }
        let report = self.loopback.burst(tables, slot, budget);
        (report.map_or(0, |report| self.queues.apply(report)), 0)
    }

    #[inline]
    fn advance(&mut self, slot: QpSlot, budget: u32) -> Advance {
        let Some(q) = self.queues.tables.sends.live_mut(slot) else { return Advance::Nothing };
        if !q.progress.in_flight.is_empty()
            && let Some(advance) = self.advance_oldest(slot)
        {
            return advance;
        }
        let Some(q) = self.queues.tables.sends.live_mut(slot) else { return Advance::Nothing };
        match q.state {
            QpState::Rts if q.turn.stuck || q.turn.wake.is_some() => idle(q),
            QpState::Rts if q.turn.deferred_error.is_some() => {
                self.ending(|queues| queues.fail_deferred(slot))
            }
            QpState::Rts if q.progress.is_due() => match q.executor {
                _ if q.ring.consume_only => self.queues.consume(slot),
                Executor::Proxy => self.submit_proxied(slot, budget),
                _ => self.start_next(slot),
            },
            QpState::Err | QpState::Sqe
                if q.progress.is_due() && q.progress.in_flight.is_empty() =>
            {
                self.queues.flush_next(slot);
                Advance::Done
            }
            QpState::Sqd
                if !q.turn.drained
                    && (q.progress.in_flight.is_empty()
                        || self.network.conns.ends.is_drained(slot)) =>
            {
                q.turn.drained = true;
                let qpn = q.qpn.get();
                self.queues.diagnostics.events.push(AsyncEvent::SqDrained { qpn });
                Advance::Nothing
            }
            _ => idle(q),
        }
    }

    /// Lets the oldest WQE in flight go on. `None`: it waits, and a later one may start.
    fn advance_oldest(&mut self, slot: QpSlot) -> Option<Advance> {
        let q = self.queues.tables.sends.live_mut(slot)?;
        let first = *q.progress.in_flight.front()?;
        if !first.away {
            q.progress.in_flight.pop_front();
            self.ending(|queues| queues.finish(slot, first.info, None));
            return Some(Advance::Done);
        }
        if q.executor != Executor::Loopback {
            return None;
        }
        let now = self.queues.time.now();
        match self.loopback.poll(&mut self.queues.tables, slot, now) {
            Some(report) => {
                self.ending(|queues| queues.apply(report));
                Some(Advance::Done)
            }
            // Slices of a long message take turns with other QPs.
            None => (!self.loopback.is_started(slot)).then_some(Advance::Moving),
        }
    }

    /// Runs what may end QPs, then ends them in their backends.
    #[inline]
    fn ending<T>(&mut self, act: impl FnOnce(&mut Queues) -> T) -> T {
        let done = act(&mut self.queues);
        if !self.queues.ended.is_empty() {
            self.finish_ended();
        }
        done
    }

    /// Fetches, parses and starts the next WQE.
    #[inline]
    fn start_next(&mut self, slot: QpSlot) -> Advance {
        let Self { queues, network, loopback, long, .. } = self;
        let Some(q) = queues.tables.sends.live_mut(slot) else { return Advance::Nothing };
        let Some(ring) = &q.ring.wqes else { return Advance::Nothing };
        let (index, executor) = (q.progress.next, q.executor);
        let block = ring.load(index);
        let addresses = Addresses { all: &queues.tables.addresses, pd: q.pd };
        let addresses = (executor == Executor::Datagram).then_some(addresses);
        let (raw, wqe) = match read_wqe(q, ring, (index, &block), addresses, long) {
            Ok(read) => read,
            Err((units, rule)) => {
                return self.ending(|queues| queues.refuse(slot, units, rule));
            }
        };
        if !q.ring.snapshot.is_empty()
            && let Some(rule) = rewritten(q, index, raw)
        {
            // Hardware executes what it fetches.
            queues.report_send(slot, index, rule);
        }
        let info = WqeInfo::of(&wqe, index);
        let tables = &mut queues.tables;
        let away = match executor {
            Executor::Network => network.conns.submit(tables, slot, &wqe),
            Executor::Datagram => {
                let now = queues.time.now();
                network.submit_datagram(tables, slot, &wqe, now)
            }
            _ => None,
        };
        let outcome = match away {
            Some(outcome) => outcome,
            None => loopback.submit(tables, slot, &wqe),
        };
        if !loopback.reports.is_empty() {
            loopback.reports.drain(..).for_each(|report| {
                queues.apply(report);
            });
        }
        self.ending(|queues| queues.submitted(slot, info, outcome))
    }

    fn submit_proxied(&mut self, slot: QpSlot, budget: u32) -> Advance {
        let Self { queues, proxy, long, .. } = self;
        let submitted = proxy.submit(&mut queues.tables, long, slot, budget);
        if !self.proxy.reports.is_empty() {
            self.apply_proxy();
        }
        match submitted {
            Submitted::Posted(count) => Advance::Posted(count),
            Submitted::Waits => Advance::Moving,
            Submitted::Rejected => Advance::Done,
            Submitted::Refused(units, rule) => {
                self.ending(|queues| queues.refuse(slot, units, rule))
            }
            Submitted::Stopped(info, stop) => {
                self.ending(|queues| queues.stopped(slot, info, stop))
            }
        }
    }

    /// Ends QPs that went to ERR in their backends, and flushes receives. Work of the backend is
    /// flushed before work that the QP still holds.
    #[cold]
    fn finish_ended(&mut self) {
        while let Some(slot) = self.queues.ended.pop_front() {
            match self.queues.tables.executor(slot) {
                Executor::Proxy => {
                    self.proxy.fail(slot, self.queues.time.now());
                    continue;
                }
                Executor::Network => {
                    self.network.conns.fail(slot);
                    for report in std::mem::take(&mut self.network.conns.reports) {
                        self.queues.apply(report);
                    }
                }
                Executor::Loopback | Executor::Datagram | Executor::Dynamic => {}
            }
            self.queues.flush_ended(slot);
        }
    }

    fn apply_network(&mut self) {
        if self.network.conns.reports.is_empty() {
            return;
        }
        let mut reports = std::mem::take(&mut self.network.conns.reports);
        for report in reports.drain(..) {
            self.ending(|queues| queues.apply(report));
        }
        if self.network.conns.reports.is_empty() {
            self.network.conns.reports = reports;
        }
    }

    fn apply_proxy(&mut self) {
        if self.proxy.reports.is_empty() {
            return;
        }
        let mut reports = std::mem::take(&mut self.proxy.reports);
        for report in reports.drain(..) {
            let slot = report.sender();
            let retired = self.ending(|queues| queues.apply(report));
            if let Some(slot) = slot {
                self.proxy.retired(slot, retired);
            }
        }
        self.proxy.reports = reports;
    }

    /// Serves the link, then every connection that has something to do. Whether there was any progress.
    fn serve_network(&mut self) -> bool {
        if self.network.rests() {
            return false;
        }
        let now = self.queues.time.now();
        let mut busy = self.network.begin(&mut self.queues.tables, now);
        while self.network.poll(&mut self.queues.tables, now).is_some() {
            busy = true;
            self.apply_network();
        }
        if self.network.end_slice(&mut self.queues.tables, now) {
            busy = true;
            self.network.conns.settle_arrived();
        }
        busy |= self.network.conns.serve_copies(&mut self.queues.tables, now);
        self.apply_network();
        busy
    }

    /// Polls every proxy device with work outstanding and some of the others. Whether there was any
    /// progress.
    fn serve_proxy(&mut self) -> bool {
        let mut busy = self.proxy.begin(&mut self.queues.tables);
        while let Some(slot) = self.proxy.next() {
            busy |= self.poll_proxied(slot, POLLS);
            busy |= self.proxy.serve(&mut self.queues.tables, &self.queues.time, slot);
            self.apply_proxy();
            busy |= self.proxy.end_flush(slot, self.queues.time.now());
            self.apply_proxy();
            self.proxy.served(slot);
        }
        self.apply_proxy();
        busy
    }

    /// Acts on completions of the device that executes the work of the QP in `slot`, at most
    /// `times` its list. Whether there were any.
    fn poll_proxied(&mut self, slot: QpSlot, times: usize) -> bool {
        let mut any = false;
        for _ in 0..times {
            let (done, count) = self.proxy.take_completions(&self.queues.tables, slot);
            any |= count > 0;
            self.apply_proxy();
            for completion in &done[..count] {
                self.proxy.settle(&mut self.queues.tables, slot, completion);
                self.apply_proxy();
            }
            self.proxy.give_back(done);
            if count < proxy::BATCH {
                break;
            }
        }
        any
    }
}
