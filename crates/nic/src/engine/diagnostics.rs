//! Events and violations.

use super::tables::Tables;
use crate::AsyncEvent;
use crate::event::Events;
use crate::format::Completion;
use crate::slots::QpSlot;
use crate::stats::QpStats;
use crate::violation::{Log, QueueKind, Rule, Violation};

/// Events, violations, and the counters of QPs that are gone.
pub(crate) struct Diagnostics {
    pub(crate) events: Events,
    pub(crate) log: Log,
    pub(crate) past: QpStats,
}

impl Diagnostics {
    /// Records a violation of QP `qpn`.
    pub(crate) fn report(&mut self, qpn: u32, queue: QueueKind, index: u64, rule: Rule) {
        self.log.push(Violation { qpn, queue, index, rule });
    }

    /// Raises the event that CE = 3 asks for.
    #[inline]
    pub(crate) fn raise_completion(
        &mut self,
        tables: &Tables,
        slot: QpSlot,
        completion: Completion,
    ) {
        if completion == Completion::AlwaysWithEvent
            && let Some(q) = tables.sends.live(slot)
            && let Some(cq) = tables.cqs.get(q.cqes.cq)
        {
            self.events.push(AsyncEvent::Completion { cqn: cq.cqn });
        }
    }
}
