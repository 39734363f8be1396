//! Doorbells without a record beside them: the doorbell itself stays in its place, so the last one says
//! all that those before it said.

use super::doorbell::DoorbellScanner;
use super::queues::Queues;
use crate::config::DoorbellPolicy;
use crate::objects::send::PendingDoorbell;
use crate::slots::QpSlot;
use crate::violation::{QueueKind, Rule};

impl DoorbellScanner {
    /// The doorbell of `slot` has a new value, unless faults or the policy lose it: then it is looked at
    /// again later, or never.
    #[inline]
    pub(super) fn ring_alone(&self, queues: &mut Queues, slot: QpSlot, bytes: [u8; 8]) {
        let Some(q) = queues.tables.sends.live_mut(slot) else { return };
        let lost = match self.policy {
            _ if q.doorbell.lose > 0 => {
                q.doorbell.lose -= 1;
                Some(q.doorbell.lose_recovery)
            }
            DoorbellPolicy::DropThenRecover { polls } => Some(Some(polls)),
            _ => None,
        };
        if let Some(polls) = lost {
            q.doorbell.pending = PendingDoorbell::Dropped { polls };
            return queues.schedule.watch(slot);
        }
        q.doorbell.pending = PendingDoorbell::None;
        self.announce_alone(queues, slot, bytes);
    }

    /// Announces what a doorbell says.
    #[inline]
    pub(super) fn announce_alone(&self, queues: &mut Queues, slot: QpSlot, bytes: [u8; 8]) {
        let Some(q) = queues.tables.sends.live(slot) else { return };
        let (qpn, before) = (q.qpn.get(), q.progress.posted);
        let expected = q.format.number(qpn);
        let rule = match q.format.rung(bytes, before) {
            Ok((found, next)) if found == expected => return self.announce(queues, slot, next),
            Ok((found, _)) => Rule::DoorbellQpn { found, expected },
            Err(violation) => violation.into(),
        };
        queues.diagnostics.report(qpn, QueueKind::Send, before, rule);
    }
}
