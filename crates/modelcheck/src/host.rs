//! Memory operations of threads that are written in Rust: host and NIC.

use crate::fiber::ask;
use crate::op::{Access, Atomic, Op, Order, Scope, Site};
use rustc_hash::FxHasher;
use std::hash::{Hash, Hasher};
use std::panic::Location;

fn site(place: &'static Location<'static>) -> Site {
    let file = place.file();
    Site::new(file.as_ptr().addr(), place.line(), || {
        // `post.rs` reaches the transport crate's files by way of `../`.
        let folder = ["../", "crates/"].into_iter().find_map(|f| Some(file.rfind(f)? + f.len()));
        &file[folder.unwrap_or(0)..]
    })
}

#[track_caller]
fn atomic(addr: u64, size: u8, access: Access, order: Order, failure: Order, scope: Scope) -> u64 {
    let site = site(Location::caller());
    ask(Op::Atomic(Atomic { addr, size, access, order, failure, scope, site }))
}

/// An atomic access of scope `System`; what the location held.
#[track_caller]
pub fn access(addr: u64, size: u8, access: Access, order: Order) -> u64 {
    atomic(addr, size, access, order, order.on_failure(), Scope::System)
}

/// A compare-and-swap with an order of its own for failure.
#[track_caller]
pub fn compare_exchange(addr: u64, size: u8, swap: (u64, u64), ok: Order, err: Order) -> u64 {
    atomic(addr, size, Access::CompareExchange(swap.0, swap.1), ok, err, Scope::System)
}

/// An atomic load.
#[track_caller]
pub fn load(addr: u64, size: u8, order: Order) -> u64 {
    access(addr, size, Access::Load, order)
}

/// An atomic store.
#[track_caller]
pub fn store(addr: u64, size: u8, value: u64, order: Order) {
    access(addr, size, Access::Store(value), order);
}

/// A plain read of 8 bytes.
#[track_caller]
pub fn read(addr: u64) -> u64 {
    ask(Op::Plain { addr, write: None, site: site(Location::caller()) })
}

/// A plain write of 8 bytes.
#[track_caller]
pub fn write(addr: u64, value: u64) {
    ask(Op::Plain { addr, write: Some(value), site: site(Location::caller()) });
}

/// A fence of scope `System`.
#[track_caller]
pub fn fence(order: Order) {
    ask(Op::Fence { order, scope: Scope::System, site: site(Location::caller()) });
}

/// Waits until something that the thread has read has changed.
pub fn pause() {
    ask(Op::Pause);
}

/// At the head of a loop: all that the thread still knows is `state`, so that runs which differ
/// only in how it came to know it are the same from here on. A pause waits for what is read after.
pub fn knows(state: impl Hash) {
    let mut hasher = FxHasher::default();
    state.hash(&mut hasher);
    ask(Op::Knows { hash: hasher.finish() });
}

/// Leaves a value for rules and for the last check.
pub fn note(index: usize, value: u64) {
    ask(Op::Note { index, value });
}

/// Fails the run unless `holds`.
#[track_caller]
pub fn require(holds: bool, what: &'static str) {
    if !holds {
        ask(Op::Fail { what, site: site(Location::caller()) });
    }
}
