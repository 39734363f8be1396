//! Requests of a thread to the checker: memory operations with order, scope and place, and others.

use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::fmt;

/// Memory order, as `wv::order`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Order {
    /// Coherence only.
    Relaxed,
    /// Of loads, and of the load of an update.
    Acquire,
    /// Of stores, and of the store of an update.
    Release,
    /// Both.
    AcqRel,
    /// Of fences: both, and a place in the one order of all such fences.
    SeqCst,
}

impl Order {
    pub(crate) fn acquires(self) -> bool {
        matches!(self, Self::Acquire | Self::AcqRel | Self::SeqCst)
    }

    pub(crate) fn releases(self) -> bool {
        matches!(self, Self::Release | Self::AcqRel | Self::SeqCst)
    }

    /// Of the load of a compare-and-swap that fails.
    pub(crate) fn on_failure(self) -> Self {
        match self {
            Self::Release => Self::Relaxed,
            Self::AcqRel => Self::Acquire,
            other => other,
        }
    }
}

/// Threads that must see an operation, as `wv::scope`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// Threads of the same block.
    Block,
    /// Threads of the same GPU.
    Gpu,
    /// Everybody: host and NIC too.
    System,
}

/// A place in the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Site {
    /// File, from the folder of the device library or of the crate on.
    pub file: &'static str,
    /// Line, from 1.
    pub line: u32,
}

thread_local! {
    /// Names of files by the address of their text. Operations are asked for again whenever a run
    /// is gone back in, so that finding the same few names would take most of the time.
    static FILES: RefCell<FxHashMap<usize, &'static str>> = RefCell::default();
}

impl Site {
    /// A line of the file whose name, in static storage, is at `text`; `name` is asked for once.
    pub(crate) fn new(text: usize, line: u32, name: impl FnOnce() -> &'static str) -> Self {
        let file = FILES.with_borrow_mut(|files| *files.entry(text).or_insert_with(name));
        Self { file, line }
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// The operation of an atomic access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Access {
    /// Reads.
    Load,
    /// Writes.
    Store(u64),
    /// Replaces.
    Exchange(u64),
    /// Adds, wrapping at the location's size.
    Add(u64),
    /// Bitwise and.
    And(u64),
    /// Bitwise or.
    Or(u64),
    /// Bitwise exclusive or.
    Xor(u64),
    /// Maximum.
    Max(u64),
    /// Replaces `.0` by `.1`.
    CompareExchange(u64, u64),
    /// Of mutants: stores `.1` whatever is there, and says that it was `.0`.
    Blind(u64, u64),
}

impl Access {
    /// The value that an update stores over `old`; `None` for a failed compare-and-swap and a load.
    pub(crate) fn result(self, old: u64, size: u8) -> Option<u64> {
        let new = match self {
            Self::Load => return None,
            Self::Store(value) | Self::Exchange(value) | Self::Blind(_, value) => value,
            Self::Add(value) => old.wrapping_add(value),
            Self::And(value) => old & value,
            Self::Or(value) => old | value,
            Self::Xor(value) => old ^ value,
            Self::Max(value) => old.max(value),
            Self::CompareExchange(expected, desired) if old == expected => desired,
            Self::CompareExchange(..) => return None,
        };
        Some(truncate(new, size))
    }

    /// Name of the operation, without its operand.
    pub fn name(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Store(_) => "store",
            Self::Exchange(_) => "exchange",
            Self::Add(_) => "fetch_add",
            Self::And(_) => "fetch_and",
            Self::Or(_) => "fetch_or",
            Self::Xor(_) => "fetch_xor",
            Self::Max(_) => "fetch_max",
            Self::CompareExchange(..) | Self::Blind(..) => "compare_exchange",
        }
    }
}

/// The low `size` bytes.
fn truncate(value: u64, size: u8) -> u64 {
    if size >= 8 { value } else { value & ((1 << (8 * size)) - 1) }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Atomic {
    pub(crate) addr: u64,
    /// Bytes: 1, 4 or 8.
    pub(crate) size: u8,
    pub(crate) access: Access,
    /// Its order; of an update that stores.
    pub(crate) order: Order,
    /// Order of a compare-and-swap that fails.
    pub(crate) failure: Order,
    pub(crate) scope: Scope,
    pub(crate) site: Site,
}

/// A warp collective, as `wv::host::collective`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Collective {
    /// Orders memory.
    Sync,
    /// Hands on one lane's value; orders nothing.
    Shfl,
    /// Votes; orders nothing.
    Ballot,
    /// Compares; orders nothing.
    MatchAny,
}

/// One request of a thread. Copy: a thread may be dropped while it waits for the answer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    /// An atomic access; answered with what the location held.
    Atomic(Atomic),
    /// A plain read or (`Some`) write of 8 bytes.
    Plain { addr: u64, write: Option<u64>, site: Site },
    /// A fence.
    Fence { order: Order, scope: Scope, site: Site },
    /// The thread has nothing to do before something it has read changes.
    Pause,
    /// All that the thread knows is a number: whatever it has been answered so far no longer matters.
    Knows { hash: u64 },
    /// Which lanes of the warp are here together.
    Active { site: Site },
    /// A warp collective.
    Collective { what: Collective, mask: u32, value: u64, arg: u32, site: Site },
    /// A barrier of the block.
    BlockSync { site: Site },
    /// Lanes of a warp in lockstep begin a section.
    Hold { mask: u32 },
    /// They end it.
    Release,
    /// The clock; see [`Time`](crate::Time).
    Clock,
    /// Leaves a value for checks. No other thread runs before the thread's next operation.
    Note { index: usize, value: u64 },
    /// A check of the thread's own has failed.
    Fail { what: &'static str, site: Site },
}
