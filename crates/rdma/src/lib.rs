//! The vocabulary of RDMA, for all other crates, as libibverbs and the InfiniBand specification use
//! it: each word has one definition, here.
//!
//! | module | what it defines |
//! |---|---|
//! | `memory` | [`Lkey`], [`Rkey`], [`Sge`], [`Remote`] |
//! | `work` | [`Op`], [`SendFlags`], [`Data`], [`WorkRequest`] |
//! | `posted` | [`Posted`], [`Sges`], [`Addressed`]: work as a device finds it in a queue |
//! | `number` | [`Qpn`]; [`widen`] and [`is_odd_lap`]: counters with fewer bits, laps of a ring |
//! | `completion` | [`Status`], [`ReceivedKind`], [`Completion`] |
//! | `state`, `transition` | [`QpState`], [`Service`], [`AttrMask`], [`TRANSITIONS`], [`TransitionError`] |
//! | `event` | [`AsyncEvent`] |
//! | `mtu` | [`Mtu`] |
//! | `route`, a feature | `Route`, `Reason`, `Decision`: how memory is reached, and why not better |
//!
//! These are values, without I/O, memory or a wire format. Their bytes belong to others: those of
//! packets to `warpverbs-wire`, those of queues to `warpverbs-mlx5`, `warpverbs-bnxt` and
//! `warpverbs-ionic`, the structs of libibverbs to `warpverbs-verbs`. Values of enums of libibverbs are kept, because every library agrees on
//! them.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(feature = "routes")]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod completion;
mod event;
mod memory;
mod mtu;
mod number;
mod posted;
#[cfg(feature = "routes")]
mod route;
mod state;
mod transition;
mod work;

pub use completion::{Completion, QueueKind, ReceivedKind, Status};
pub use event::{AsyncEvent, PortChange};
pub use memory::{Lkey, Remote, Rkey, Sge};
pub use mtu::Mtu;
pub use number::{Qpn, is_odd_lap, widen};
pub use posted::{Addressed, Posted, Sges};
#[cfg(feature = "routes")]
pub use route::{Decision, Reason, Route};
pub use state::QpState;
pub use transition::{AttrMask, Service, TRANSITIONS, Transition, TransitionError};
pub use work::{Data, Op, SendFlags, WorkRequest};

/// UDP destination port of RoCEv2 (annex A17); devices use no other.
pub const ROCE_PORT: u16 = 4791;
