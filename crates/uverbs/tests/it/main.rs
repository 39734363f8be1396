//! Tests of the interface as a whole.

mod bnxt;
mod calls;
mod common;
mod devx;
mod document;
mod dynamic;
mod events;
mod headers;
mod ionic;
mod queues;
mod random;
mod traces;
