//! Warps whose lanes run in lockstep, by the rule of the host SIMT device.

#[allow(dead_code, reason = "whether a spinning lane meets others is the device's choice")]
#[path = "../../../gpu/src/simt/lockstep.rs"]
mod rule;

use crate::fiber::Body;
use crate::op::Op;
use crate::scenario::ThreadSpec;
use rule::Lockstep;
use std::rc::Rc;

/// The rules of all warps, and which lane of which warp each thread is, if that runs in lockstep.
#[derive(Clone, Hash)]
pub(super) struct Warps {
    rules: Vec<Lockstep>,
    places: Rc<[Option<(usize, u32)>]>,
}

impl Warps {
    pub(super) fn new(threads: &[ThreadSpec]) -> Self {
        let warp = |spec: &ThreadSpec| match &spec.body {
            Body::Kernel { lane, .. } if lane.lockstep != 0 => {
                Some((spec.place.device, lane.block, lane.warp, lane.lane))
            }
            _ => None,
        };
        let place = |spec: &ThreadSpec| {
            let (device, block, number, lane) = warp(spec)?;
            let same = |other| {
                warp(other).is_some_and(|(d, b, n, _)| (d, b, n) == (device, block, number))
            };
            Some((threads.iter().position(same)?, lane))
        };
        let rules = vec![Lockstep::default(); threads.len()];
        Self { rules, places: threads.iter().map(place).collect() }
    }

    /// Lanes of `thread`'s warp that may run.
    pub(super) fn lanes(&self, thread: usize) -> u64 {
        self.places[thread].map_or(u64::MAX, |(warp, _)| self.rules[warp].allowed())
    }

    /// Whether `thread` may run now.
    pub(super) fn allow(&self, thread: usize) -> bool {
        self.places[thread].is_none_or(|(_, lane)| self.lanes(thread) >> lane & 1 == 1)
    }

    /// `thread` asks for `op`; `waits_for` is the mask of the collective that a thread waits in, or 0.
    pub(super) fn note(&mut self, thread: usize, op: Op, waits_for: impl Fn(usize) -> u32) {
        let Some((warp, lane)) = self.places[thread] else { return };
        let places = self.places.clone();
        let rule = &mut self.rules[warp];
        match op {
            Op::Pause => rule.spin(lane),
            Op::Collective { mask, .. } => rule.join(lane, mask.into(), |other| {
                let waits = places.iter().position(|place| *place == Some((warp, other)));
                waits.map_or(0, |t| waits_for(t).into())
            }),
            Op::BlockSync { .. } => rule.leave(lane),
            Op::Hold { mask } => rule.begin(lane, mask.into()),
            _ => {}
        }
    }

    /// `thread` has ended.
    pub(super) fn leave(&mut self, thread: usize) {
        if let Some((warp, lane)) = self.places[thread] {
            self.rules[warp].leave(lane);
        }
    }

    /// `thread` is at the end of a section: its lanes, if all of them are.
    pub(super) fn end(&mut self, thread: usize) -> Option<u64> {
        let (warp, lane) = self.places[thread]?;
        self.rules[warp].end(lane)
    }
}
