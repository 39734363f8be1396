//! One lane: a coroutine on a stack of its own, and what it asked the scheduler for.

use super::abi::{LaneAbi, RawSite};
use super::stack::LaneStack;
use core::ffi::c_void;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Instant;

/// Request of a lane that comes back to the scheduler.
#[derive(Clone, Copy)]
pub(crate) enum Request {
    /// Its countdown ran out.
    Switch,
    /// It spins and expects no news for `ns`.
    Pause { ns: u64, site: RawSite },
    /// It asks which lanes are with it at `site`.
    Active { site: RawSite },
    /// It joins a warp collective.
    Collective(Call),
    /// It waits for its block.
    BlockSync { site: RawSite },
    /// It begins a section which the lanes of the mask, and no others of its warp, run now.
    Hold { mask: u64 },
    /// It ends that section.
    Release,
    /// It wants block-shared memory.
    Shared { size: u64, align: u64, key: u64 },
    /// It gives up.
    Trap { site: RawSite },
}

/// A warp collective as called by one lane.
#[derive(Clone, Copy)]
pub(crate) struct Call {
    pub(crate) mask: u64,
    pub(crate) op: u32,
    pub(crate) value: u64,
    pub(crate) arg: u32,
    pub(crate) site: RawSite,
}

/// State of a lane between its turns.
#[derive(Clone, Copy)]
pub(crate) enum Status {
    Ready,
    Asleep {
        site: RawSite,
    },
    Gathering {
        site: RawSite,
    },
    Collective(Call),
    Barrier {
        site: RawSite,
    },
    /// At the end of a section, where others are to come yet.
    Ending,
    Done,
}

/// The clock as hooks on a lane read it.
#[derive(Debug)]
pub(crate) struct LaneClock {
    /// Zero of the real clock; `None` under the virtual clock.
    pub(crate) real: Option<Instant>,
    /// Virtual time at the start of this turn, plus the turn's whole budget. The rest of the
    /// countdown is subtracted, so that every operation takes a nanosecond.
    pub(crate) turn_end: Cell<u64>,
}

/// State that hooks find through the thread's current lane. `abi` first: C++ sees only that.
#[repr(C)]
pub(crate) struct LaneShared {
    pub(crate) abi: LaneAbi,
    pub(crate) yielder: Cell<*const Yielder<u64, Request>>,
    pub(crate) clock: Rc<LaneClock>,
}

/// A kernel entry with its parameters; Copy, so that a lane's stack owns nothing.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) host: unsafe extern "C" fn(*const *const c_void),
    pub(crate) args: *const *const c_void,
}

/// A lane of a resident block.
pub(crate) struct Lane {
    coroutine: Option<Coroutine<u64, Request, (), LaneStack>>,
    pub(crate) shared: Box<LaneShared>,
    pub(crate) status: Status,
    /// Answer to the last request, delivered with the next turn.
    pub(crate) answer: u64,
    pub(crate) pauses: u64,
}

impl Lane {
    /// # Safety
    /// `entry.args` must stay valid while the lane lives, and must be the parameters of
    /// `entry.host`.
    pub(crate) unsafe fn new(
        stack: LaneStack,
        abi: LaneAbi,
        clock: Rc<LaneClock>,
        entry: Entry,
    ) -> Self {
        let shared = Box::new(LaneShared { abi, yielder: Cell::new(core::ptr::null()), clock });
        let here: *const LaneShared = &raw const *shared;
        let coroutine = Coroutine::with_stack(stack, move |yielder, _first: u64| {
            // SAFETY: the box outlives the coroutine (see `Drop`), and is only ever shared.
            unsafe { &*here }.yielder.set(yielder);
            // SAFETY: on a SIMT lane, with this entry's parameters, as `Lane::new` demands.
            unsafe { (entry.host)(entry.args) };
        });
        Self { coroutine: Some(coroutine), shared, status: Status::Ready, answer: 0, pauses: 0 }
    }

    /// Runs the lane until it wants something; `None` when it has ended.
    pub(crate) fn resume(&mut self) -> Option<Request> {
        match self.coroutine.as_mut()?.resume(self.answer) {
            CoroutineResult::Yield(request) => Some(request),
            CoroutineResult::Return(()) => None,
        }
    }

    /// Ends the lane wherever it stands and gives back its stack.
    pub(crate) fn drop_where_it_stands(&mut self) -> Option<LaneStack> {
        let mut coroutine = self.coroutine.take()?;
        if !coroutine.done() {
            // SAFETY: like a longjmp to the coroutine's start, which is sound if no frame between
            // owns anything: the closure above captures Copy values; hooks keep nothing with a
            // destructor across `suspend`; device code is compiled without exceptions and holds
            // nothing of the host's (docs/simt.md, "Stopping a kernel").
            unsafe { coroutine.force_reset() };
        }
        Some(coroutine.into_stack())
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        // Never unwinds: Coroutine's own drop would, through C++ frames.
        drop(self.drop_where_it_stands());
    }
}
