//! Device-memory TCP, for machines without RDMA: payload goes from the network into GPU memory over
//! plain Ethernet.
//!
//! ```text
//!  socket ──▶ DeviceReceiver ──▶ fragments ──▶ Moves ──▶ Unpacker ──▶ registered memory
//!                ▲        (where the bytes lie now)      (where they go)      │
//!                └────────────── give_back: tokens, landing memory ◀──────────┘ ticket complete
//! ```
//!
//! * A [`DeviceReceiver`] turns the bytes that a socket received into [`Fragment`]s: a scatter list
//!   in stream order. A fragment lies in a dmabuf of device memory, or in the receiver's pinned
//!   *landing memory* on the host, where the kernel put bytes that it could not leave in device
//!   memory. All three kinds ([`Source`]) occur in one stream, and all are normal.
//! * The implementation of the stream's protocol knows which part of the stream belongs where, and
//!   states that as [`Move`]s, from an [`AreaOffset`] in one area of memory to a place in another;
//!   [`Moves`] merges neighbours. `warpverbs-tcp` is such an implementation.
//! * [`BoundQueues`] are the receive queues of a NIC whose packets land in device memory, and steer
//!   sockets to them.
//! * An [`Unpacker`] executes batches of moves, by copy engine, by the host or by a kernel
//!   ([`UnpackWay`]), and completes them in order: [`Ticket`].
//! * When a ticket is complete, the fragments that it moved are given back to their receiver, in any
//!   order. Until then their bytes stay in place.
//!
//! On a device-memory socket every byte of the stream may land in device memory. Headers that the
//! host has to read therefore travel on a socket of their own; the payload sockets carry payload
//! only, and headers say what comes next on each of them.

#![deny(unsafe_code)]

mod bound;
pub mod kernel;
mod queues;
pub mod receive;
pub mod send;
mod sys;
pub mod unpack;

pub use bound::{BoundQueues, DeviceMemory, PayloadSockets};
pub use queues::{QUEUES_ENV, QueueChoice, Queues, UnknownQueues};
pub use receive::{DeviceReceiver, Fragment, ReceiveError, Received, Source};
pub use sys::stream;
pub use unpack::{
    AreaId, AreaOffset, Move, Moves, Ticket, UnknownWay, UnpackConfig, UnpackError, UnpackWay,
    Unpacker,
};

/// An error and its causes in one line.
pub fn causes(error: &dyn std::error::Error) -> String {
    let mut line = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        line += &format!(": {cause}");
        next = cause.source();
    }
    line
}
