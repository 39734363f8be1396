//! Threads of a scenario as coroutines, and the functions that device code calls. All `unsafe` of
//! the crate is here.

use crate::op::{Access, Atomic, Collective, Op, Order, Scope, Site};
use core::ffi::{CStr, c_char};
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use std::cell::Cell;
use std::rc::Rc;
use warpverbs_mlx5::export::Qp;

/// Bytes of a thread's stack.
const STACK: usize = 128 << 10;

/// A lane's place in its launch; layout as `wv::host::lane_place`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lane {
    /// Number in the warp.
    pub lane: u32,
    /// Warp in the block.
    pub warp: u32,
    /// Thread in the block.
    pub thread: u32,
    /// Block in the grid.
    pub block: u32,
    /// Threads of a block.
    pub block_dim: u32,
    /// Blocks of the grid.
    pub grid_dim: u32,
    /// Not 0: the lanes of its warp run in lockstep.
    pub lockstep: u32,
}

/// A kernel of `scenarios/`: the queue pair and one number that it makes of what it likes.
pub type Kernel = unsafe extern "C" fn(*const Qp, u64);

/// The program of a thread.
#[derive(Clone)]
pub enum Body {
    /// A device kernel, as one lane.
    Kernel {
        /// Its entry.
        entry: Kernel,
        /// Its queue pair.
        qp: Rc<Qp>,
        /// Its parameter.
        argument: u64,
        /// Its place.
        lane: Lane,
    },
    /// Host or NIC. It may be dropped without running destructors wherever it asks for
    /// something, so it must own nothing there whose leak matters.
    Host(Rc<dyn Fn()>),
}

thread_local! {
    /// The running coroutine's way back to the checker.
    static YIELDER: Cell<*const Yielder<u64, Op>> = const { Cell::new(core::ptr::null()) };
    static LANE: Cell<*const Lane> = const { Cell::new(core::ptr::null()) };
}

/// A running thread.
pub(crate) struct Fiber {
    coroutine: Option<Coroutine<u64, Op, (), DefaultStack>>,
    yielder: Rc<Cell<*const Yielder<u64, Op>>>,
    lane: Box<Lane>,
    /// Keeps what the coroutine points to.
    _body: Body,
}

impl Fiber {
    pub(crate) fn new(body: &Body, stack: Option<DefaultStack>) -> Self {
        let stack = stack.unwrap_or_else(|| DefaultStack::new(STACK).expect("a stack"));
        let yielder = Rc::new(Cell::new(core::ptr::null()));
        let slot = Rc::as_ptr(&yielder);
        let (kept, mut lane) = (body.clone(), Box::new(Lane::default()));
        if let Body::Kernel { lane: place, .. } = body {
            *lane = *place;
        }
        let start = Start::of(&kept);
        let coroutine = Coroutine::with_stack(stack, move |yielder, _first: u64| {
            // SAFETY: the fiber keeps the cell as long as the coroutine.
            unsafe { &*slot }.set(yielder);
            YIELDER.set(yielder);
            start.run();
        });
        Self { coroutine: Some(coroutine), yielder, lane, _body: kept }
    }

    /// Gives the thread its answer and runs it to its next request; `None` when it has ended.
    pub(crate) fn resume(&mut self, answer: u64) -> Option<Op> {
        YIELDER.set(self.yielder.get());
        LANE.set(&raw const *self.lane);
        match self.coroutine.as_mut()?.resume(answer) {
            CoroutineResult::Yield(op) => Some(op),
            CoroutineResult::Return(()) => None,
        }
    }

    /// Ends the thread wherever it stands.
    pub(crate) fn stop(mut self) -> Option<DefaultStack> {
        let mut coroutine = self.coroutine.take()?;
        if !coroutine.done() {
            // SAFETY: like a longjmp to the coroutine's start. No frame in between has a destructor
            // that soundness depends on: device code has none, `Start` and `Op` are Copy, and what
            // a `Body::Host` owns (at most a poll lock in the checker's memory) is leaked.
            unsafe { coroutine.force_reset() };
        }
        Some(coroutine.into_stack())
    }
}

/// A body by address; Copy, so that the coroutine's stack owns nothing.
#[derive(Clone, Copy)]
enum Start {
    Kernel(Kernel, *const Qp, u64),
    Host(*const dyn Fn()),
}

impl Start {
    fn of(body: &Body) -> Self {
        match body {
            Body::Kernel { entry, qp, argument, .. } => {
                Self::Kernel(*entry, Rc::as_ptr(qp), *argument)
            }
            Body::Host(run) => Self::Host(Rc::as_ptr(run)),
        }
    }

    fn run(self) {
        match self {
            // SAFETY: `Kernel`s are the functions of `scenarios/`, which follow no address but
            // that of the queue pair, which the fiber keeps.
            Self::Kernel(entry, qp, argument) => unsafe { entry(qp, argument) },
            // SAFETY: the fiber keeps the closure.
            Self::Host(run) => (unsafe { &*run })(),
        }
    }
}

/// Leaves the thread; returns with the checker's answer.
pub(crate) fn ask(op: Op) -> u64 {
    let yielder = YIELDER.get();
    assert!(!yielder.is_null(), "called outside a scenario's thread");
    // SAFETY: set by `resume` to the running coroutine's own, which lives on this stack.
    unsafe { &*yielder }.suspend(op)
}

fn site(file: *const c_char, line: u32) -> Site {
    Site::new(file.addr(), line, || {
        // SAFETY: a `__FILE__` or `__builtin_FILE()` literal: NUL-terminated, in static storage.
        let name: &'static CStr = unsafe { CStr::from_ptr(file) };
        let name = name.to_str().unwrap_or("?");
        let start = ["include/warpverbs/", "scenarios/"].iter().find_map(|folder| {
            let at = name.rfind(folder)?;
            Some(if *folder == "scenarios/" { at } else { at + "include/".len() })
        });
        &name[start.unwrap_or(0)..]
    })
}

/// `wv_check_operation`.
#[repr(C)]
struct Operation {
    addr: u64,
    value: u64,
    expected: u64,
    kind: u32,
    size: u32,
    order: u32,
    scope: u32,
    file: *const c_char,
    line: u32,
}

impl Operation {
    fn order(&self) -> Order {
        match self.order {
            0 => Order::Relaxed,
            1 => Order::Acquire,
            2 => Order::Release,
            3 => Order::AcqRel,
            _ => Order::SeqCst,
        }
    }

    fn scope(&self) -> Scope {
        match self.scope {
            0 => Scope::Block,
            1 => Scope::Gpu,
            _ => Scope::System,
        }
    }

    /// The operation for `kind`, a number of `wv::host::kind` or, behind it, of `wv::host::rmw`.
    fn op(&self) -> Op {
        let (addr, value, site) = (self.addr, self.value, site(self.file, self.line));
        let (order, scope) = (self.order(), self.scope());
        let access = match self.kind {
            0 => Access::Load,
            1 => Access::Store(value),
            2 => Access::CompareExchange(self.expected, value),
            3 => return Op::Fence { order, scope, site },
            4 => return Op::Plain { addr, write: None, site },
            5 => return Op::Plain { addr, write: Some(value), site },
            6 => Access::Exchange(value),
            7 => Access::Add(value),
            8 => Access::And(value),
            9 => Access::Or(value),
            10 => Access::Xor(value),
            _ => Access::Max(value),
        };
        let (size, failure) = (self.size as u8, order.on_failure());
        Op::Atomic(Atomic { addr, size, access, order, failure, scope, site })
    }
}

#[unsafe(no_mangle)]
extern "C" fn wv_check_operate(operation: *const Operation) -> u64 {
    // SAFETY: check.h passes the address of a local.
    ask(unsafe { &*operation }.op())
}

#[unsafe(no_mangle)]
extern "C" fn wv_check_place() -> *const Lane {
    LANE.get()
}

#[unsafe(no_mangle)]
extern "C" fn wv_check_clock() -> u64 {
    ask(Op::Clock)
}

#[unsafe(no_mangle)]
extern "C" fn wv_check_pause() {
    ask(Op::Pause);
}

#[unsafe(no_mangle)]
extern "C" fn wv_check_active(file: *const c_char, line: u32) -> u32 {
    ask(Op::Active { site: site(file, line) }) as u32
}

#[unsafe(no_mangle)]
extern "C" fn wv_check_collective(
    mask: u32,
    op: u32,
    value: u64,
    arg: u32,
    file: *const c_char,
    line: u32,
) -> u64 {
    let what = match op {
        0 => Collective::Sync,
        1 => Collective::Shfl,
        2 => Collective::Ballot,
        _ => Collective::MatchAny,
    };
    ask(Op::Collective { what, mask, value, arg, site: site(file, line) })
}

#[unsafe(no_mangle)]
extern "C" fn wv_check_hold(mask: u32) {
    ask(Op::Hold { mask });
}

#[unsafe(no_mangle)]
extern "C" fn wv_check_release() {
    ask(Op::Release);
}

#[unsafe(no_mangle)]
extern "C" fn wv_check_block_sync(file: *const c_char, line: u32) {
    ask(Op::BlockSync { site: site(file, line) });
}

#[unsafe(no_mangle)]
extern "C" fn wv_check_note(index: u32, value: u64) {
    ask(Op::Note { index: index as usize, value });
}

#[unsafe(no_mangle)]
extern "C" fn wv_check_fail(what: *const c_char, file: *const c_char, line: u32) -> ! {
    // SAFETY: a string literal, as everywhere in check.h.
    let text: &'static CStr = unsafe { CStr::from_ptr(what) };
    ask(Op::Fail { what: text.to_str().unwrap_or("?"), site: site(file, line) });
    unreachable!("a failed thread is never resumed")
}

/// Kernels of `scenarios/`; what each does is said there.
#[allow(missing_docs)]
pub mod kernels {
    use super::Kernel;
    use warpverbs_mlx5::export::Qp;

    macro_rules! kernels {
        ($($name:ident = $symbol:ident),* $(,)?) => {
            unsafe extern "C" {
                $(fn $symbol(qp: *const Qp, argument: u64);)*
            }
            $(pub const $name: Kernel = $symbol;)*
        };
    }

    kernels! {
        PUT_WAIT = wv_put_wait,
        PUT = wv_put,
        PUT_TWICE = wv_put_twice,
        PUT_QUIET = wv_put_quiet,
        DEFER = wv_defer,
        DEFER_PUT_WAIT = wv_defer_put_wait,
        DEFER_WAIT = wv_defer_wait,
        DEFER_QUIET = wv_defer_quiet,
        PUT_MANY = wv_put_many,
        PUT_INLINE = wv_put_inline,
        GET_WAIT = wv_get_wait,
        FETCH_ADD = wv_fetch_add,
        LOCK_OUTSIDE = wv_lock_outside,
        PUT_NOW = wv_put_now,
        PUT_FAILS = wv_put_fails,
        PUT_MAY_FAIL = wv_put_may_fail,
        PUT_ENDS = wv_put_ends,
        RECEIVE = wv_receive,
        POST_RECV = wv_post_recv,
        RECEIVE_WAIT = wv_receive_wait,
        RECEIVE_MANY = wv_receive_many,
        WAIT_RECV = wv_wait_recv,
        WAIT_RECV_ENDS = wv_wait_recv_ends,
        PUT_WARP = wv_put_warp,
        PUT_BLOCK = wv_put_block,
        PUT_EACH_WARP = wv_put_each_warp,
        PUT_EACH_QUIET = wv_put_each_quiet,
        PUT_SIGNAL_SET = wv_put_signal_set,
        PUT_SIGNAL_ADD = wv_put_signal_add,
        WAIT_SIGNAL = wv_wait_signal,
        WAIT_SIGNAL_ENDS = wv_wait_signal_ends,
        EP_SENDS = wv_ep_sends,
        EP_RECEIVES = wv_ep_receives,
        EP_LEAVES = wv_ep_leaves,
        EP_READS = wv_ep_reads,
        EP_PLANS = wv_ep_plans,
    }
}
