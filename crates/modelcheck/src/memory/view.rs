//! Threads' knowledge of each other's accesses, and the part of it that a release publishes.

use crate::op::Scope;
use rustc_hash::FxHasher;
use std::hash::{Hash, Hasher};
use std::rc::Rc;

/// Most threads of a scenario.
pub const THREADS: usize = 8;
/// Most locations that are accessed atomically.
pub(crate) const WORDS: usize = 96;

/// Accesses that happen before a thread's next one.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct View {
    /// Epochs of each thread. A thread begins a new one whenever it has published its view, so that
    /// what it does between two releases looks the same to others.
    pub(super) clock: [u16; THREADS],
    /// Position of the oldest readable store, by location.
    pub(super) floor: [u16; WORDS],
}

impl View {
    pub(super) const EMPTY: Self = Self { clock: [0; THREADS], floor: [0; WORDS] };

    pub(super) fn join(&mut self, other: &Self) {
        self.clock.iter_mut().zip(&other.clock).for_each(|(a, b)| *a = (*a).max(*b));
        self.join_floor(&other.floor);
    }

    pub(super) fn join_floor(&mut self, other: &[u16; WORDS]) {
        self.floor.iter_mut().zip(other).for_each(|(a, b)| *a = (*a).max(*b));
    }
}

/// Where a thread runs, for scopes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Threads of one device share scope `Gpu`.
    pub device: u8,
    /// Threads of one block of it share scope `Block`.
    pub block: u8,
}

impl Place {
    /// The narrowest scope of an operation here that includes `other`.
    pub(super) fn reach(self, other: Self) -> Scope {
        match (self.device == other.device, self.block == other.block) {
            (true, true) => Scope::Block,
            (true, false) => Scope::Gpu,
            _ => Scope::System,
        }
    }
}

/// The view that acquires of a store join: only by threads that `scope`, seen from the writer,
/// includes.
#[derive(Clone, Copy, Hash, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) view: View,
    pub(super) scope: Scope,
}

/// A message with its hash, which every state that holds it would otherwise compute.
pub(super) type Published = (Message, u64);

pub(super) fn published(message: Message) -> Rc<Published> {
    let mut hasher = FxHasher::default();
    message.hash(&mut hasher);
    Rc::new((message, hasher.finish()))
}
