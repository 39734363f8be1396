//! Unpacking: moving fragments to their places in registered memory.

mod error;
mod moves;
mod shape;
mod unpacker;
mod way;

pub use error::UnpackError;
pub use moves::{Move, Moves};
pub use shape::Shape;
pub use unpacker::{UnpackConfig, Unpacker};
pub use way::{UNPACK_ENV, UnknownWay, UnpackWay};

/// Memory that an unpacker moves bytes from and to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AreaId(pub u32);

/// Names a batch of moves. Batches complete in order: when a ticket is complete, so are all before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// A byte in an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AreaOffset {
    /// Which area.
    pub area: AreaId,
    /// Bytes from its start.
    pub offset: u64,
}
