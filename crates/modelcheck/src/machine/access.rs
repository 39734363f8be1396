//! Atomic accesses: what each does to memory, and the rules of the scenario.

use super::{Machine, Seen, Step};
use crate::op::{Access, Atomic};
use crate::report::Failure;
use crate::scenario::{Change, Rule};
use std::rc::Rc;

impl Machine<'_> {
    pub(super) fn access(&mut self, thread: usize, op: &Atomic, way: usize) -> Step<u64> {
        let memory = &self.state.memory;
        let at = memory.locate(op.addr, op.size).map_err(|race| self.race(thread, race))?;
        let newest = memory.newest(at);
        let old = memory.value(at, newest);
        let stored = if way == 0 || matches!(op.access, Access::Store(_)) {
            op.access.result(old, op.size)
        } else {
            None
        };
        let reads = !matches!(op.access, Access::Store(_));
        self.sharing.note(thread, op.addr, reads, !matches!(op.access, Access::Load));
        if let Some(new) = stored {
            self.check_rules(thread, at, op, old, new)?;
            if new != old {
                self.state.quiet = 0;
            }
        }
        let memory = &mut self.state.memory;
        let (answer, position) = match (op.access, stored) {
            (Access::Store(value), _) => {
                let position = newest + 1 - way;
                (memory.store(thread, at, position, value, op).map(|()| value), position)
            }
            (_, Some(new)) => (memory.update(thread, at, new, op), newest + 1),
            (Access::Load, None) => {
                (memory.load(thread, at, newest - way, op.order, op.scope), newest - way)
            }
            (_, None) => {
                (memory.load(thread, at, newest - way, op.failure, op.scope), newest - way)
            }
        };
        let mut answer = answer.map_err(|race| self.race(thread, race))?;
        self.say_access(thread, op, answer, stored, way);
        self.remember(thread, Seen { at, position, value: stored.unwrap_or(answer) }, way);
        match (op.access, self.change_of(op.site, op.access.name())) {
            (Access::Blind(expected, _), _) => answer = expected,
            (_, Some(Change::Reads(more))) => answer += more,
            _ => {}
        }
        Ok(if reads { answer } else { 0 })
    }

    fn say_access(
        &mut self,
        thread: usize,
        op: &Atomic,
        answer: u64,
        new: Option<u64>,
        way: usize,
    ) {
        let describe = self.scenario.describe.clone();
        let Atomic { addr, access, order, scope, site, .. } = *op;
        self.say(thread, || {
            let what = format!("{} {order:?} {scope:?} {}", access.name(), describe(addr));
            let age = if way == 0 { String::new() } else { format!(" ({way} behind)") };
            match (access, new) {
                (Access::Store(value), _) => format!("{what} <- {value:#x}{age}  {site}"),
                (_, Some(new)) => format!("{what} {answer:#x} -> {new:#x}  {site}"),
                (_, None) => format!("{what} = {answer:#x}{age}  {site}"),
            }
        });
    }

    /// Keeps what a thread has last seen of a location.
    fn remember(&mut self, thread: usize, now: Seen, way: usize) {
        let moved = way != 0 && now.position <= self.state.memory.newest(now.at);
        for (index, t) in self.state.threads.iter_mut().enumerate() {
            // A store into the middle of the modification order has moved later ones up.
            if moved && index != thread && t.seen.iter().any(|s| s.at == now.at) {
                let later = |s: &&mut Seen| s.at == now.at && s.position >= now.position;
                Rc::make_mut(&mut t.seen).iter_mut().filter(later).for_each(|s| s.position += 1);
            }
        }
        let seen = Rc::make_mut(&mut self.state.threads[thread].seen);
        match seen.iter_mut().find(|s| s.at == now.at) {
            Some(before) => *before = now,
            None => seen.push(now),
        }
    }

    fn check_rules(&self, thread: usize, at: usize, op: &Atomic, old: u64, new: u64) -> Step {
        for (_, rule) in self.scenario.rules.iter().filter(|(addr, _)| *addr == op.addr) {
            let name = (self.scenario.describe)(op.addr);
            let broken = match *rule {
                Rule::Monotonic { shift } if new >> shift < old >> shift => {
                    Some(format!("{name} goes back from {} to {}", old >> shift, new >> shift))
                }
                Rule::AtMost { shift, note } if new >> shift > self.state.notes[note] => {
                    let most = self.state.notes[note];
                    Some(format!("{name} becomes {}, beyond {most}", new >> shift))
                }
                Rule::Once if old != 0 => Some(format!("{name} is replaced, {old:#x} by {new:#x}")),
                Rule::OneWriter => self.state.memory.other_writer(thread, at).map(|(by, site)| {
                    let by = &self.scenario.threads[by].name;
                    format!("{name} has two writers: {by} wrote it at {site}, unordered")
                }),
                _ => None,
            };
            if let Some(what) = broken {
                let name = &self.scenario.threads[thread].name;
                return Err(Failure::new(format!("{what}, by {name} at {}", op.site)));
            }
        }
        Ok(())
    }
}
