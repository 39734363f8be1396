//! Completions of a connection become reports.

use super::Connections;
use crate::engine::report::Report;
use crate::slots::QpSlot;
use warpverbs_rc::{Completion, Received, State, Status};

impl Connections {
    /// Reports everything that is complete, and the end of a connection that has failed.
    pub(super) fn settle(&mut self, slot: QpSlot) {
        let Self { ends, reports, .. } = self;
        let Some(end) = ends.get_mut(slot) else { return };
        let before = reports.len();
        while let Some(completion) = end.poll_completion() {
            match completion {
                Completion::Request { id, result } => {
                    debug_assert_eq!(id.0, end.requests.first, "requests complete in order");
                    // Those behind it that have succeeded as well go with it.
                    let plain = result.is_ok() && end.unplaced.is_none() && end.bounce.is_none();
                    let more = if plain { end.conn.take_done() } else { 0 };
                    let Some(index) = end.requests.pop(1 + more) else { break };
                    let lost = end.unplaced == Some(id);
                    let result = if lost { Err(Status::LocalProtection) } else { result };
                    match (result, reports[before..].last_mut()) {
                        // One report for requests that complete together.
                        (Ok(()), Some(Report::Sent { index: upto, .. })) => *upto = index,
                        (Ok(()), _) => reports.push(Report::Sent { slot, index }),
                        (Err(status), _) => {
                            reports.push(Report::SendFailed { slot, index, status, vendor: None });
                        }
                    }
                }
                Completion::Receive { id, result } => reports.push(received(slot, id, result)),
            }
        }
        if end.conn.state() == State::Error && end.has_reported() && !end.failed {
            end.failed = true;
            reports.push(Report::Refused { slot, refusal: end.refusal.take() });
        }
    }

    /// Reports what is complete of all connections that something has arrived for: the user sees it
    /// before the next slice.
    pub(crate) fn settle_arrived(&mut self) {
        for at in 0..self.ends.queue.len() {
            let Some(&slot) = self.ends.queue.get(at) else { break };
            self.settle(slot);
        }
    }
}

fn received(slot: QpSlot, index: u64, result: Result<Received, Status>) -> Report {
    let Received { kind, len: byte_cnt, solicited } = match result {
        Ok(received) => received,
        Err(status) => {
            return Report::ReceiveFailed { slot, index, status, vendor: None };
        }
    };
    Report::Received { slot, index, kind, byte_cnt, solicited, from: None }
}
