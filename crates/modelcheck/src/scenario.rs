//! Programs to be checked: threads, the memory they share, and rules that hold at every step.

use crate::fiber::Body;
use crate::memory::{Initial, Memory, Place};
use crate::op::{Order, Scope, Site};
use std::rc::Rc;

/// Values that threads leave for rules and for the last check.
pub const NOTES: usize = 24;

/// One thread.
#[derive(Clone)]
pub struct ThreadSpec {
    /// For reports.
    pub name: String,
    /// Its program.
    pub body: Body,
    /// Where it runs.
    pub place: Place,
    /// A run may end while it pauses.
    pub daemon: bool,
}

/// An invariant of a location, checked whenever it is written.
#[derive(Clone, Copy, Debug)]
pub enum Rule {
    /// Its bits from `shift` on never become smaller.
    Monotonic {
        /// Lowest bit.
        shift: u32,
    },
    /// Its bits from `shift` on are at most a note.
    AtMost {
        /// Lowest bit.
        shift: u32,
        /// Index of the note.
        note: usize,
    },
    /// Its writers are ordered one after another: at most one thread at a time may write it.
    OneWriter,
    /// It is written while it is 0, and then no more.
    Once,
}

/// The end of a run.
pub struct End<'a> {
    pub(crate) memory: &'a Memory,
    /// Notes of the threads.
    pub notes: &'a [u64; NOTES],
}

impl End<'_> {
    /// The newest value at `addr`.
    pub fn value(&self, addr: u64) -> u64 {
        self.memory.last(addr).unwrap_or_else(|| panic!("no location at {addr:#x}"))
    }
}

/// Judges the end of a run.
pub type Finish = Rc<dyn Fn(&End<'_>) -> Result<(), String>>;

/// Threads and the memory they share.
#[derive(Clone)]
pub struct Scenario {
    /// For reports and replays.
    pub name: String,
    /// At most [`crate::THREADS`].
    pub threads: Vec<ThreadSpec>,
    /// All locations.
    pub memory: Vec<Initial>,
    /// Rules for each write, by address.
    pub rules: Vec<(u64, Rule)>,
    /// Names of addresses.
    pub describe: Rc<dyn Fn(u64) -> String>,
    /// The check at the end.
    pub finish: Finish,
    /// When timers run out.
    pub time: Time,
    /// The host may order all waits to end; some look for that rarely.
    pub aborts: bool,
}

/// When timers run out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// Never: a wait that nothing can end is a failure.
    Never,
    /// Once nothing else can happen.
    AtRest,
    /// At any look at the clock, once; and once nothing else can happen.
    AnyTime,
}

/// A weakening of the program under test, applied while it runs.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mutant {
    /// Where.
    pub site: Site,
    /// Which operation there.
    pub access: &'static str,
    /// The change of the operation.
    pub change: Change,
}

/// The change that a [`Mutant`] makes to an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Change {
    /// It has another order.
    Order(Order),
    /// It has another scope.
    Scope(Scope),
    /// It orders nothing: a fence that is left out, a collective that only meets.
    Nothing,
    /// A store that is done after the thread's next operation.
    Later,
    /// An update that is done after the next one of the same place, if that comes next.
    Swapped,
    /// A compare-and-swap that stores without comparing.
    Blind,
    /// An update that is made of a load and a store.
    Torn,
    /// It stores another value.
    Stores(u64),
    /// It reads a value that is larger by so much.
    Reads(u64),
}

/// An operation, as found in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SiteUse {
    /// Where.
    pub site: Site,
    /// Which operation there.
    pub access: &'static str,
    /// Its order.
    pub order: Order,
    /// Its scope.
    pub scope: Scope,
}

impl SiteUse {
    /// Every way to make the operation weaker by one step.
    pub fn mutants(&self) -> Vec<Mutant> {
        let orders: &[Order] = match self.order {
            Order::Relaxed => &[],
            Order::Acquire | Order::Release => &[Order::Relaxed],
            Order::AcqRel => &[Order::Acquire, Order::Release],
            Order::SeqCst => &[Order::AcqRel],
        };
        let whole = matches!(self.access, "fence" | "sync_warp" | "sync_block");
        let mut changes: Vec<Change> = match whole {
            true => vec![Change::Nothing],
            false => orders.iter().map(|&order| Change::Order(order)).collect(),
        };
        if self.scope == Scope::System && !self.access.starts_with("sync") {
            changes.push(Change::Scope(Scope::Gpu));
        }
        let mutant = |change| Mutant { site: self.site, access: self.access, change };
        changes.into_iter().map(mutant).collect()
    }
}
