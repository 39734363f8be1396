//! For receivers whose network card writes to device memory: its queues, and the moves that unpack.
//!
//! Queues are named for a [`tcp`](crate::tcp) domain; [`unpack`] moves bytes from where they landed to
//! their places, by copy engine, host or kernel.
//!
//! ```
//! use warpverbs::devmem::QueueChoice;
//!
//! let named: QueueChoice = "eth0:7".parse().expect("an interface and a queue");
//! assert_eq!(named.to_string(), "eth0:7");
//! ```

#[doc(inline)]
pub use warpverbs_devmem::{BoundQueues, DeviceMemory, QUEUES_ENV, QueueChoice};

/// Batches of moves from where bytes landed to where they belong.
pub mod unpack {
    #[doc(inline)]
    pub use warpverbs_devmem::unpack::{
        AreaId, AreaOffset, Move, Moves, Ticket, UNPACK_ENV, UnknownWay, UnpackConfig, UnpackError,
        UnpackWay, Unpacker,
    };
}
