//! Warps whose lanes run in lockstep, by the rule of the host SIMT device.

#[allow(dead_code, reason = "whether a spinning lane meets others is the device's choice")]
#[path = "../../../gpu/src/simt/lockstep.rs"]
mod rule;

use super::{Machine, Status, Step};
use crate::fiber::Body;
use crate::op::Op;
pub(super) use rule::Lockstep;

impl Machine<'_> {
    /// Index of the lowest thread of `thread`'s warp, if that runs in lockstep.
    fn warp_of(&self, thread: usize) -> Option<usize> {
        match &self.scenario.threads[thread].body {
            Body::Kernel { lane, .. } if lane.lockstep != 0 => self.comrades(thread, false).next(),
            _ => None,
        }
    }

    /// Lanes of `thread`'s warp that may run.
    pub(super) fn allowed_lanes(&self, thread: usize) -> u64 {
        self.warp_of(thread).map_or(u64::MAX, |warp| self.state.warps[warp].allowed())
    }

    /// Whether `thread` may run now.
    pub(super) fn allowed(&self, thread: usize) -> bool {
        self.allowed_lanes(thread) >> self.lane(thread) & 1 == 1
    }

    /// Tells the rule what `thread` asks for.
    pub(super) fn note_turn(&mut self, thread: usize, op: Op) {
        let Some(warp) = self.warp_of(thread) else { return };
        let lane = self.lane(thread);
        let waits: Vec<(u32, u64)> = self
            .comrades(thread, false)
            .filter_map(|t| match self.state.threads[t].status {
                Status::Waiting(Op::Collective { mask, .. }) => Some((self.lane(t), mask.into())),
                _ => None,
            })
            .collect();
        let rule = &mut self.state.warps[warp];
        match op {
            Op::Pause => rule.spin(lane),
            Op::Collective { mask, .. } => rule.join(lane, mask.into(), |other| {
                waits.iter().find(|(lane, _)| *lane == other).map_or(0, |(_, mask)| *mask)
            }),
            Op::BlockSync { .. } => rule.leave(lane),
            Op::Hold { mask } => rule.begin(lane, mask.into()),
            _ => {}
        }
    }

    /// `thread` has ended.
    pub(super) fn leave_warp(&mut self, thread: usize) {
        let lane = self.lane(thread);
        if let Some(warp) = self.warp_of(thread) {
            self.state.warps[warp].leave(lane);
        }
    }

    /// `thread` is at the end of a section; all of its lanes go on when the last one has come.
    pub(super) fn end_section(&mut self, thread: usize) -> Step {
        let lane = self.lane(thread);
        let over = match self.warp_of(thread) {
            Some(warp) => self.state.warps[warp].end(lane),
            None => Some(1 << lane),
        };
        let Some(lanes) = over else { return Ok(()) };
        let member = |t: &usize| lanes >> self.lane(*t) & 1 == 1;
        let members: Vec<usize> = self.comrades(thread, false).filter(member).collect();
        members.iter().for_each(|&t| self.state.threads[t].status = Status::Answered);
        members.into_iter().try_for_each(|t| self.advance(t, 0))
    }
}
