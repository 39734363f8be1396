//! Requests of threads between their steps, and the meeting of lanes.

use super::{Machine, State, Status, Step, mix};
use crate::op::{Access, Atomic, Collective, Op, Order, Scope, Site};
use crate::report::Failure;
use crate::scenario::{Change, SiteUse};
use std::rc::Rc;

impl Machine<'_> {
    /// Hands `thread` the answer to its request, unless something delayed comes first.
    pub(super) fn answer(&mut self, thread: usize, answer: u64) -> Step {
        let t = &mut self.state.threads[thread];
        if let Some(op) = t.torn.take() {
            let new = op.access.result(answer, op.size);
            let order = if op.order.releases() { Order::Release } else { Order::Relaxed };
            t.delayed = new.map(|new| Atomic { access: Access::Store(new), order, ..op });
        }
        if let Some(op) = t.delayed.take() {
            t.status = Status::Waiting(Op::Atomic(op));
            t.deferred = Some(answer);
            return Ok(());
        }
        let answer = t.deferred.take().unwrap_or(answer);
        match t.held_up.take() {
            None => self.advance(thread, answer),
            Some(op) => match self.request(thread, op)? {
                Some(now) => self.advance(thread, now),
                None => self.meet(thread),
            },
        }
    }

    /// Runs `thread` on until its next request that others could notice.
    pub(super) fn advance(&mut self, thread: usize, mut answer: u64) -> Step {
        loop {
            self.log.push((thread, answer));
            let t = &mut self.state.threads[thread];
            t.history = mix(t.history, answer);
            let Some(op) = self.fibers[thread].resume(answer) else {
                self.state.threads[thread].status = Status::Done;
                self.state.warps.leave(thread);
                self.state.quiet = 0;
                return Ok(());
            };
            match self.request(thread, op)? {
                Some(now) => answer = now,
                None => return self.meet(thread),
            }
        }
    }

    /// Takes a request; the answer, if there is one without anybody's noticing.
    fn request(&mut self, thread: usize, op: Op) -> Step<Option<u64>> {
        if let Some(first) = self.state.threads[thread].swapped.take() {
            let t = &mut self.state.threads[thread];
            match op {
                Op::Atomic(second) if second.site == first.site => {
                    t.delayed = Some(first);
                    t.status = Status::Waiting(op);
                }
                _ => {
                    t.held_up = Some(op);
                    t.status = Status::Waiting(Op::Atomic(first));
                }
            }
            return Ok(None);
        }
        let mut status = Status::Waiting(op);
        let State { warps, threads, .. } = &mut self.state;
        warps.note(thread, op, |other| match threads[other].status {
            Status::Waiting(Op::Collective { mask, .. }) => mask,
            _ => 0,
        });
        match op {
            Op::Plain { addr, write, site } => {
                let answer = self.plain(thread, addr, write, site)?;
                return Ok(Some(answer));
            }
            Op::Clock if self.time_may_pass() => {}
            Op::Clock => return Ok(Some(self.clock())),
            Op::Note { index, value } => {
                self.state.notes[index] = value;
                return Ok(Some(0));
            }
            Op::Fail { what, site } => {
                let name = &self.scenario.threads[thread].name;
                return Err(Failure::new(format!("{what}, says {name} at {site}")));
            }
            Op::Knows { hash } => {
                let t = &mut self.state.threads[thread];
                (t.history, t.seen) = (hash, Rc::default());
                return Ok(Some(0));
            }
            Op::Pause => status = Status::Paused,
            Op::Atomic(atomic) => {
                let Some(atomic) = self.changed(thread, atomic) else { return Ok(Some(0)) };
                status = Status::Waiting(Op::Atomic(atomic));
            }
            Op::Fence { order, scope, site } => {
                self.sites.insert(SiteUse { site, access: "fence", order, scope });
                let (mut order, mut scope) = (order, scope);
                match self.change_of(site, "fence") {
                    Some(Change::Nothing) => return Ok(Some(0)),
                    Some(Change::Order(o)) => order = o,
                    Some(Change::Scope(s)) => scope = s,
                    _ => {}
                }
                status = Status::Waiting(Op::Fence { order, scope, site });
            }
            Op::Hold { .. } => return Ok(Some(0)),
            Op::Collective { .. } | Op::BlockSync { .. } | Op::Active { .. } | Op::Release => {}
        }
        self.state.threads[thread].status = status;
        Ok(None)
    }

    /// The access as the mutant changes it; `None` if it is put off.
    fn changed(&mut self, thread: usize, mut op: Atomic) -> Option<Atomic> {
        let (access, site) = (op.access.name(), op.site);
        self.sites.insert(SiteUse { site, access, order: op.order, scope: op.scope });
        let Some(change) = self.change_of(site, access) else { return Some(op) };
        let t = &mut self.state.threads[thread];
        match (change, op.access) {
            (Change::Order(order), _) => (op.order, op.failure) = (order, order.on_failure()),
            (Change::Scope(scope), _) => op.scope = scope,
            (Change::Later, Access::Store(_)) => t.delayed = Some(op),
            (Change::Swapped, _) => t.swapped = Some(op),
            (Change::Blind, Access::CompareExchange(old, new)) => {
                op.access = Access::Blind(old, new)
            }
            (Change::Stores(value), Access::Store(_)) => op.access = Access::Store(value),
            (Change::Stores(value), Access::Exchange(_)) => op.access = Access::Exchange(value),
            (Change::Torn, _) => {
                t.torn = Some(op);
                let order = if op.order.acquires() { Order::Acquire } else { Order::Relaxed };
                (op.access, op.order) = (Access::Load, order);
            }
            _ => {}
        }
        let put_off = t.swapped.is_some() || t.delayed.is_some();
        (!put_off).then_some(op)
    }

    fn plain(&mut self, thread: usize, addr: u64, write: Option<u64>, site: Site) -> Step<u64> {
        let memory = &mut self.state.memory;
        let result = memory.locate(addr, 8).and_then(|at| match write {
            Some(value) => memory.write_plain(thread, at, value, site).map(|()| 0),
            None => memory.read_plain(thread, at),
        });
        let value = result.map_err(|race| {
            let mut failure = self.race(thread, race);
            failure.what.push_str(&format!(", plain access at {site}"));
            failure
        })?;
        let describe = self.scenario.describe.clone();
        self.say(thread, || match write {
            Some(value) => format!("write {} <- {value:#x}  {site}", describe(addr)),
            None => format!("read {} = {value:#x}  {site}", describe(addr)),
        });
        Ok(value)
    }

    pub(super) fn change_of(&self, site: Site, access: &str) -> Option<Change> {
        let mutant = self.mutant.filter(|m| m.site == site && m.access == access)?;
        Some(mutant.change)
    }

    /// Completes a collective or a barrier if `thread` was the last to come.
    fn meet(&mut self, thread: usize) -> Step {
        let (members, name, site) = match self.state.threads[thread].status {
            Status::Waiting(Op::Collective { what, mask, site, .. }) => {
                let here = self.lanes_at(thread, |op| {
                    matches!(op, Op::Collective { what: w, mask: m, .. } if (w, m) == (what, mask))
                });
                if here & mask != mask {
                    return Ok(());
                }
                let member = |t: &usize| mask >> self.lane(*t) & 1 == 1;
                let members: Vec<usize> = self.comrades(thread, false).filter(member).collect();
                let orders = what == Collective::Sync;
                (members, orders.then_some("sync_warp"), site)
            }
            Status::Waiting(Op::BlockSync { site }) => {
                let members: Vec<usize> = self.comrades(thread, true).collect();
                let waits = |t: &usize| {
                    matches!(self.state.threads[*t].status, Status::Waiting(Op::BlockSync { .. }))
                };
                if !members.iter().all(waits) {
                    return Ok(());
                }
                (members, Some("sync_block"), site)
            }
            Status::Waiting(Op::Release) => return self.end_section(thread),
            _ => return Ok(()),
        };
        if let Some(access) = name {
            self.sites.insert(SiteUse { site, access, order: Order::AcqRel, scope: Scope::Block });
            if self.change_of(site, access) != Some(Change::Nothing) {
                self.state.memory.barrier(&members);
            }
        }
        let answers: Vec<u64> = members.iter().map(|&t| self.collective(t, &members)).collect();
        // The first to go on may come to the next collective before the others have left this one.
        members.iter().for_each(|&t| self.state.threads[t].status = Status::Answered);
        members.into_iter().zip(answers).try_for_each(|(t, answer)| self.advance(t, answer))
    }

    /// `thread` is at the end of a section; all of its lanes go on when the last one has come.
    fn end_section(&mut self, thread: usize) -> Step {
        let Some(lanes) = self.state.warps.end(thread) else { return Ok(()) };
        let member = |t: &usize| lanes >> self.lane(*t) & 1 == 1;
        let members: Vec<usize> = self.comrades(thread, false).filter(member).collect();
        members.iter().for_each(|&t| self.state.threads[t].status = Status::Answered);
        members.into_iter().try_for_each(|t| self.advance(t, 0))
    }

    fn collective(&self, thread: usize, members: &[usize]) -> u64 {
        let call = |t: usize| match self.state.threads[t].status {
            Status::Waiting(Op::Collective { what, value, arg, .. }) => Some((what, value, arg)),
            _ => None,
        };
        let Some((what, own, arg)) = call(thread) else { return 0 };
        let lanes = |test: &dyn Fn(u64) -> bool| {
            let hit = |t: &&usize| call(**t).is_some_and(|(_, value, _)| test(value));
            members.iter().filter(hit).fold(0, |mask, &t| mask | 1 << self.lane(t))
        };
        match what {
            Collective::Sync => 0,
            Collective::Shfl => {
                let source = members.iter().find(|&&t| self.lane(t) == arg);
                source.and_then(|&t| call(t)).map_or(0, |(_, value, _)| value)
            }
            Collective::Ballot => lanes(&|value| value != 0),
            Collective::MatchAny => lanes(&|value| value == own),
        }
    }
}
