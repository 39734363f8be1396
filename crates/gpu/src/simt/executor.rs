//! The scheduler of one launch: all its resident lanes on one thread.

use super::abi::{LaneAbi, RawSite, tls};
use super::block::Block;
use super::config::{Clock, Mode, SimtConfig, Stepper};
use super::fault::SimtFault;
use super::lane::{Entry, Lane, LaneClock, Request, Status};
use super::lockstep::Lockstep;
use super::policy::Policy;
use super::queue::{Idle, ReadyQueue, Sleepers};
use super::report::report;
use super::stack::StackPool;
use super::warp::{WARP, Warp, bits};
use crate::Dim;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Virtual nanoseconds of one step of the stepper that found work.
const STEP_NS: u64 = 100;

/// Everything a launch needs besides its parameters.
pub(crate) struct Plan {
    pub(crate) config: SimtConfig,
    pub(crate) dim: Dim,
    /// Number of the launch on its device.
    pub(crate) launch: u64,
    pub(crate) stacks: Arc<StackPool>,
    pub(crate) stepper: Option<Arc<dyn Stepper>>,
    pub(crate) stop: Arc<AtomicBool>,
}

/// How a launch ended before its kernel did.
pub(crate) enum Stop {
    /// On request; the report says what each warp was doing.
    Killed(String),
    Fault(SimtFault),
}

impl From<SimtFault> for Stop {
    fn from(fault: SimtFault) -> Self {
        Self::Fault(fault)
    }
}

/// Counts of a finished launch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Turns that lanes had.
    pub turns: u64,
    /// Memory operations and clock readings of device code.
    pub operations: u64,
    /// Calls of `wv::pause`.
    pub pauses: u64,
    /// Steps of the stepper.
    pub steps: u64,
    /// Hash over which lane had each turn, how long it was and how it ended.
    pub trace: u64,
}

pub(crate) struct Executor {
    plan: Plan,
    entry: Entry,
    policy: Policy,
    clock: Rc<LaneClock>,
    virtual_now: u64,
    warps: Vec<Option<Warp>>,
    blocks: Vec<Option<Block>>,
    queue: ReadyQueue,
    sleepers: Sleepers,
    idle: Idle,
    next_block: u32,
    live_lanes: u32,
    counts: Counts,
}

impl Executor {
    /// # Safety
    /// `entry.args` must be the parameters of `entry.host` and outlive the executor.
    pub(crate) unsafe fn new(plan: Plan, entry: Entry) -> Self {
        let real = match plan.config.mode {
            Mode::Seeded { clock: Clock::Virtual, .. } => None,
            Mode::Seeded { clock: Clock::Real, .. } | Mode::Free => Some(Instant::now()),
        };
        Self {
            policy: Policy::new(plan.config.mode, plan.config.lockstep, plan.launch),
            clock: Rc::new(LaneClock { real, turn_end: Cell::new(0) }),
            queue: ReadyQueue::new(plan.config.mode == Mode::Free),
            plan,
            entry,
            virtual_now: 0,
            warps: Vec::new(),
            blocks: Vec::new(),
            sleepers: Sleepers::default(),
            idle: Idle::default(),
            next_block: 0,
            live_lanes: 0,
            counts: Counts::default(),
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    /// Runs the launch to its end.
    pub(crate) fn run(&mut self) -> Result<(), Stop> {
        self.admit()?;
        while self.live_lanes > 0 {
            // Pairs with nothing: the flag carries no data.
            if self.plan.stop.load(Ordering::Relaxed) {
                return Err(Stop::Killed(self.report()));
            }
            if self.policy.steps_before(self.counts.turns) {
                self.step();
            }
            self.wake_sleepers();
            match self.queue.pick(&self.warps, &mut self.policy) {
                Some((warp, lane)) => self.turn(warp, lane)?,
                None => self.nobody_ready()?,
            }
        }
        Ok(())
    }

    fn report(&self) -> String {
        report(self.warps.iter().flatten(), self.plan.dim.blocks() - self.next_block)
    }

    fn now(&self) -> u64 {
        self.clock.real.map_or(self.virtual_now, |zero| zero.elapsed().as_nanos() as u64)
    }

    fn step(&mut self) -> bool {
        let Some(stepper) = &self.plan.stepper else { return false };
        self.counts.steps += 1;
        let busy = stepper.step();
        if busy {
            self.virtual_now += STEP_NS;
        }
        busy
    }

    fn wake_sleepers(&mut self) {
        if self.sleepers.is_empty() {
            return;
        }
        let now = self.now();
        while let Some((warp, lane)) = self.sleepers.pop_due(now) {
            self.wake(warp, lane);
        }
    }

    fn nobody_ready(&mut self) -> Result<(), Stop> {
        if self.step() {
            self.idle.progress();
            return Ok(());
        }
        let Some(next) = self.sleepers.next_due() else {
            return Err(SimtFault::Deadlock { report: self.report() }.into());
        };
        match self.clock.real {
            None => self.virtual_now = self.virtual_now.max(next),
            Some(_) => self.idle.rest(next.saturating_sub(self.now())),
        }
        Ok(())
    }

    /// Brings in as many blocks as there is room for.
    fn admit(&mut self) -> Result<(), Stop> {
        let (blocks, threads) = (self.plan.dim.blocks(), self.plan.dim.threads());
        while self.next_block < blocks
            && self.live_lanes + threads <= self.plan.config.resident_lanes
        {
            let index = self.next_block;
            self.next_block += 1;
            self.admit_block(index, threads).map_err(SimtFault::Memory)?;
        }
        Ok(())
    }

    fn admit_block(&mut self, index: u32, threads: u32) -> Result<(), warpverbs_mem::MemError> {
        let mut stacks = self.plan.stacks.take(threads as usize)?.into_iter();
        let slot = free_slot(&mut self.blocks);
        let mut warps = Vec::new();
        for first in (0..threads).step_by(WARP as usize) {
            let warp = first / WARP;
            let lanes = (first..threads.min(first + WARP)).zip(stacks.by_ref());
            let lanes = lanes.map(|(thread, stack)| {
                let abi = LaneAbi {
                    lane: thread % WARP,
                    warp,
                    thread,
                    block: index,
                    block_dim: threads,
                    grid_dim: self.plan.dim.blocks(),
                    lockstep: self.plan.config.lockstep.into(),
                    line: Cell::new(0),
                    op: Cell::new(0),
                    file: Cell::new(RawSite::NONE.file),
                    addr: Cell::new(0),
                };
                // SAFETY: `Executor::new` demands of `entry` what this does, for longer.
                unsafe { Lane::new(stack, abi, self.clock.clone(), self.entry) }
            });
            let lanes = lanes.collect();
            let at = free_slot(&mut self.warps);
            let mut new = Warp::new(slot, index, warp, lanes);
            new.lockstep = self.plan.config.lockstep.then(Lockstep::default);
            self.warps[at] = Some(new);
            self.queue.push(at);
            warps.push(at);
        }
        self.blocks[slot] = Some(Block::new(warps, threads));
        self.live_lanes += threads;
        Ok(())
    }

    fn turn(&mut self, at: usize, lane: u32) -> Result<(), Stop> {
        let Some(warp) = self.warps[at].as_mut() else { return Ok(()) };
        let budget = self.policy.turn();
        self.clock.turn_end.set(self.virtual_now + budget);
        let running = &mut warp.lanes[lane as usize];
        let word = tls();
        word.countdown.set(budget);
        word.current.set(&raw const running.shared.abi);
        let request = running.resume();
        word.current.set(core::ptr::null());
        let spent = budget - word.countdown.get();

        // A turn takes at least a nanosecond, so that virtual time never stands still.
        self.virtual_now += spent.max(1);
        self.counts.turns += 1;
        self.counts.operations += spent;
        let thread = u64::from(warp.block_index) << 10 | u64::from(warp.index * WARP + lane);
        self.counts.trace = mix(self.counts.trace, thread << 20 | spent << 4 | kind(&request));
        match request {
            Some(request) => self.handle(at, lane, request)?,
            None => self.exit(at, lane)?,
        }
        if let Some(warp) = self.warps[at].as_mut() {
            warp.settle(|count| self.policy.choose(count));
            self.queue.requeue(at, warp.runnable());
        }
        Ok(())
    }

    fn handle(&mut self, at: usize, lane: u32, request: Request) -> Result<(), Stop> {
        let Some(warp) = self.warps[at].as_mut() else { return Ok(()) };
        match request {
            Request::Pause { ns, site } => {
                warp.lanes[lane as usize].pauses += 1;
                warp.lockstep.iter_mut().for_each(|lockstep| lockstep.spin(lane));
                self.counts.pauses += 1;
                let ns = self.policy.pause(ns);
                self.sleep(at, lane, ns, site);
                if self.clock.real.is_some() {
                    self.idle.paused(self.live_lanes);
                }
                return Ok(());
            }
            Request::Switch => {
                if let Some(lockstep) = warp.lockstep.as_mut().filter(|l| !l.spins())
                    && self.policy.hogs()
                {
                    lockstep.spin(lane);
                }
                if let Some(ns) = self.policy.stall() {
                    let abi = &warp.lanes[lane as usize].shared.abi;
                    let site = RawSite { file: abi.file.get(), line: abi.line.get() };
                    self.sleep(at, lane, ns, site);
                }
            }
            Request::Active { site } => {
                let patience = self.policy.patience(warp.alive.count_ones() - 1);
                if let Some(lockstep) = &mut warp.lockstep
                    && self.policy.meets()
                {
                    lockstep.meet();
                }
                warp.gather(lane, site, patience);
                return Ok(());
            }
            Request::Collective(call) => warp.join(lane, call)?,
            Request::BlockSync { site } => {
                warp.block_lane(lane, Status::Barrier { site });
                warp.lockstep.iter_mut().for_each(|lockstep| lockstep.leave(lane));
                let block = warp.block;
                if let Some(b) = self.blocks[block].as_mut() {
                    b.waiting += 1;
                }
                self.open_barrier(block);
            }
            Request::Hold { mask } => {
                warp.lockstep.iter_mut().for_each(|lockstep| lockstep.begin(lane, mask));
            }
            Request::Release => warp.end_section(lane),
            Request::Shared { size, align, key } => {
                let name = warp.name(lane);
                let limit = self.plan.config.shared_bytes + u64::from(self.plan.dim.shared);
                if let Some(block) = self.blocks[warp.block].as_mut() {
                    let addr = block.variable(name, (size, align, key), limit)?;
                    warp.lanes[lane as usize].answer = addr;
                }
            }
            Request::Trap { site } => {
                let lane = warp.name(lane);
                return Err(SimtFault::Trap { lane, site: site.resolve() }.into());
            }
        }
        self.idle.progress();
        Ok(())
    }

    fn sleep(&mut self, at: usize, lane: u32, ns: u64, site: RawSite) {
        if let Some(warp) = self.warps[at].as_mut() {
            warp.block_lane(lane, Status::Asleep { site });
        }
        self.sleepers.push(self.now().saturating_add(ns), at, lane);
    }

    fn wake(&mut self, at: usize, lane: u32) {
        if let Some(warp) = self.warps[at].as_mut() {
            warp.wake_lane(lane);
            self.queue.requeue(at, warp.runnable());
        }
    }

    fn open_barrier(&mut self, slot: usize) {
        let Some(block) = self.blocks[slot].as_mut().filter(|b| b.barrier_opens()) else { return };
        block.waiting = 0;
        for &at in &block.warps {
            let Some(warp) = self.warps[at].as_mut() else { continue };
            for lane in bits(warp.alive) {
                warp.wake_lane(lane);
            }
            self.queue.requeue(at, warp.runnable());
        }
    }

    fn exit(&mut self, at: usize, lane: u32) -> Result<(), Stop> {
        self.idle.progress();
        let Some(warp) = self.warps[at].as_mut() else { return Ok(()) };
        warp.exit(lane)?;
        let slot = warp.block;
        self.live_lanes -= 1;
        let Some(block) = self.blocks[slot].as_mut() else { return Ok(()) };
        block.alive -= 1;
        if block.alive > 0 {
            self.open_barrier(slot);
            return Ok(());
        }
        for at in self.blocks[slot].take().map(|b| b.warps).unwrap_or_default() {
            self.retire_warp(at);
        }
        self.admit()
    }

    fn retire_warp(&mut self, at: usize) {
        let Some(mut warp) = self.warps[at].take() else { return };
        self.plan.stacks.give(warp.lanes.iter_mut().filter_map(Lane::drop_where_it_stands));
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        for at in 0..self.warps.len() {
            self.retire_warp(at);
        }
    }
}

fn free_slot<T>(slots: &mut Vec<Option<T>>) -> usize {
    slots.iter().position(Option::is_none).unwrap_or_else(|| {
        slots.push(None);
        slots.len() - 1
    })
}

fn mix(hash: u64, word: u64) -> u64 {
    (hash.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95)
}

fn kind(request: &Option<Request>) -> u64 {
    match request {
        None => 0,
        Some(Request::Switch) => 1,
        Some(Request::Pause { .. }) => 2,
        Some(Request::Active { .. }) => 3,
        Some(Request::Collective(_)) => 4,
        Some(Request::BlockSync { .. }) => 5,
        Some(Request::Shared { .. }) => 6,
        Some(Request::Trap { .. }) => 7,
        Some(Request::Hold { .. }) => 8,
        Some(Request::Release) => 9,
    }
}
