//! One warp: which lanes may run, which wait for company, and the collectives.

use super::abi::RawSite;
use super::fault::{Collective, LaneName, SimtFault};
use super::lane::{Call, Lane, Status};
use super::lockstep::{Lanes, Lockstep};

/// Lanes of a warp: `wv::warp_size` of the kernels, which are compiled for as many.
pub(crate) const WARP: u32 = match option_env!("WARPVERBS_SIMT_LANES") {
    None => 32,
    Some(lanes) => match lanes.as_bytes() {
        b"32" => 32,
        b"64" => 64,
        _ => panic!("WARPVERBS_SIMT_LANES is 32 or 64"),
    },
};

/// Lanes that arrived at one `active_mask` and wait for more.
struct Gather {
    site: RawSite,
    mask: Lanes,
    /// Turns of this warp that are left to wait.
    patience: u32,
}

/// A warp of a resident block.
pub(crate) struct Warp {
    /// Slot of its block in the executor.
    pub(crate) block: usize,
    /// Index of its block in the grid.
    pub(crate) block_index: u32,
    /// Index in the block.
    pub(crate) index: u32,
    pub(crate) lanes: Vec<Lane>,
    /// Lanes that may run now.
    pub(crate) ready: Lanes,
    /// Lanes that have not ended.
    pub(crate) alive: Lanes,
    gathers: Vec<Gather>,
    /// If its lanes run in lockstep.
    pub(crate) lockstep: Option<Lockstep>,
}

impl Warp {
    pub(crate) fn new(block: usize, block_index: u32, index: u32, lanes: Vec<Lane>) -> Self {
        let all = Lanes::MAX >> (Lanes::BITS - lanes.len() as u32);
        let (gathers, lockstep) = (Vec::new(), None);
        Self { block, block_index, index, lanes, ready: all, alive: all, gathers, lockstep }
    }

    fn allowed(&self) -> Lanes {
        self.lockstep.as_ref().map_or(Lanes::MAX, Lockstep::allowed)
    }

    /// Lanes that may have a turn.
    pub(crate) fn runnable(&self) -> Lanes {
        self.ready & self.allowed()
    }

    pub(crate) fn name(&self, lane: u32) -> LaneName {
        LaneName { block: self.block_index, warp: self.index, lane }
    }

    /// Takes `lane` off the ready set.
    pub(crate) fn block_lane(&mut self, lane: u32, status: Status) {
        self.ready &= !(1 << lane);
        self.lanes[lane as usize].status = status;
    }

    /// Puts `lane` back on the ready set.
    pub(crate) fn wake_lane(&mut self, lane: u32) {
        self.ready |= 1 << lane;
        self.lanes[lane as usize].status = Status::Ready;
    }

    /// `lane` is at the end of a section that must not be left half done.
    pub(crate) fn end_section(&mut self, lane: u32) {
        let Some(lockstep) = &mut self.lockstep else { return };
        let over = lockstep.end(lane);
        self.block_lane(lane, Status::Ending);
        over.into_iter().flat_map(bits).for_each(|lane| self.wake_lane(lane));
    }

    /// `lane` arrived at an `active_mask`; `patience` counts if it is the first there.
    pub(crate) fn gather(&mut self, lane: u32, site: RawSite, patience: u32) {
        self.block_lane(lane, Status::Gathering { site });
        match self.gathers.iter_mut().find(|g| g.site == site) {
            Some(gather) => gather.mask |= 1 << lane,
            None => self.gathers.push(Gather { site, mask: 1 << lane, patience }),
        }
    }

    /// After a turn of this warp: lets go the lanes that have waited long enough, and, so that waiting
    /// for company never blocks a warp, one set chosen by `choose` if no other lane could run.
    pub(crate) fn settle(&mut self, choose: impl FnOnce(usize) -> usize) {
        let mut i = 0;
        while i < self.gathers.len() {
            let gather = &mut self.gathers[i];
            if gather.patience == 0 || gather.mask == self.alive {
                i += usize::from(!self.release(i));
            } else {
                gather.patience -= 1;
                i += 1;
            }
        }
        if self.runnable() == 0 {
            let allowed = self.allowed();
            let may_go: Vec<usize> =
                (0..self.gathers.len()).filter(|g| self.gathers[*g].mask & allowed != 0).collect();
            if !may_go.is_empty() {
                self.release(may_go[choose(may_go.len())]);
            }
        }
    }

    /// Lets go the lanes of a set that may run; true if it is empty then, and gone.
    fn release(&mut self, gather: usize) -> bool {
        let mask = self.gathers[gather].mask & self.allowed();
        self.gathers[gather].mask &= !mask;
        let gone = self.gathers[gather].mask == 0;
        if gone {
            self.gathers.swap_remove(gather);
        }
        for lane in bits(mask) {
            self.lanes[lane as usize].answer = mask;
            self.wake_lane(lane);
        }
        gone
    }

    /// `lane` joins a collective; if it is the last one, all of them go on with their answers.
    pub(crate) fn join(&mut self, lane: u32, call: Call) -> Result<(), SimtFault> {
        self.check_call(lane, &call)?;
        self.block_lane(lane, Status::Collective(call));
        if let Some(lockstep) = &mut self.lockstep {
            lockstep.join(lane, call.mask, |other| match self.lanes[other as usize].status {
                Status::Collective(theirs) => theirs.mask,
                _ => 0,
            });
        }
        let mut arrived: Lanes = 0;
        for other in bits(call.mask) {
            let Status::Collective(theirs) = &self.lanes[other as usize].status else { continue };
            if (theirs.mask, theirs.op) == (call.mask, call.op) {
                arrived |= 1 << other;
            } else if theirs.mask & (1 << lane) != 0 {
                return Err(SimtFault::Mismatch {
                    lane: self.name(lane),
                    what: call.op.into(),
                    mask: call.mask,
                    site: call.site.resolve(),
                    other,
                    other_what: theirs.op.into(),
                    other_mask: theirs.mask,
                    other_site: theirs.site.resolve(),
                });
            }
        }
        if arrived == call.mask {
            self.complete(call.mask);
        }
        Ok(())
    }

    fn check_call(&self, lane: u32, call: &Call) -> Result<(), SimtFault> {
        let (mask, what) = (call.mask, Collective::from(call.op));
        let (name, site) = (self.name(lane), || call.site.resolve());
        if let Collective::Unknown(_) = what {
            return Err(SimtFault::UnknownCollective { lane: name, what, site: site() });
        }
        if mask & (1 << lane) == 0 {
            return Err(SimtFault::OutsideMask { lane: name, what, mask, site: site() });
        }
        let absent = mask & !self.alive;
        if absent != 0 {
            return Err(SimtFault::AbsentLanes { lane: name, what, mask, absent, site: site() });
        }
        let source_lane = call.arg;
        if what == Collective::Shfl && (source_lane >= WARP || mask >> source_lane & 1 == 0) {
            return Err(SimtFault::ShuffleSource { lane: name, source_lane, mask, site: site() });
        }
        Ok(())
    }

    fn complete(&mut self, mask: Lanes) {
        let mut calls = [None; WARP as usize];
        for lane in bits(mask) {
            if let Status::Collective(call) = self.lanes[lane as usize].status {
                calls[lane as usize] = Some(call);
            }
        }
        for lane in bits(mask) {
            self.lanes[lane as usize].answer = answer(&calls, lane as usize);
            self.wake_lane(lane);
        }
    }

    /// `lane` has ended; nobody may wait for it in a collective.
    pub(crate) fn exit(&mut self, lane: u32) -> Result<(), SimtFault> {
        self.block_lane(lane, Status::Done);
        self.alive &= !(1 << lane);
        self.lockstep.iter_mut().for_each(|lockstep| lockstep.leave(lane));
        for (waiter, other) in self.lanes.iter().enumerate() {
            if let Status::Collective(call) = other.status {
                self.check_call(waiter as u32, &call)?;
            }
        }
        Ok(())
    }
}

/// Result for `lane` of a collective that all of `calls` joined.
fn answer(calls: &[Option<Call>; WARP as usize], lane: usize) -> u64 {
    let Some(own) = calls[lane] else { return 0 };
    let lanes_where = |test: &dyn Fn(&Call) -> bool| {
        let hits = calls.iter().enumerate().filter(|(_, c)| c.as_ref().is_some_and(test));
        hits.fold(0u64, |mask, (i, _)| mask | 1 << i)
    };
    match Collective::from(own.op) {
        Collective::Shfl => calls[own.arg as usize].map_or(0, |source| source.value),
        Collective::Ballot => lanes_where(&|call| call.value != 0),
        Collective::MatchAny => lanes_where(&|call| call.value == own.value),
        Collective::Sync | Collective::Unknown(_) => 0,
    }
}

/// Set bits of `mask`, lowest first.
pub(crate) fn bits(mask: Lanes) -> impl Iterator<Item = u32> {
    std::iter::successors(Some(mask), |m| Some(m & m.wrapping_sub(1)))
        .take_while(|m| *m != 0)
        .map(Lanes::trailing_zeros)
}
