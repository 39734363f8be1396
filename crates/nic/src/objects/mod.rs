//! The objects that the engine owns: both halves of each QP, CQs, SRQs. They know how far they are
//! and what may come next; the engine's rooms act on them. Users hold handles, which name objects by
//! their slots.

pub(crate) mod address;
pub(crate) mod cq;
mod cut;
pub(crate) mod in_flight;
pub(crate) mod payload;
pub(crate) mod receive;
#[cfg(test)]
mod resized;
pub(crate) mod send;
pub(crate) mod srq;
mod waiters;
