//! Completion queue entries.
//!
//! [`Cqe64`] and [`ErrCqe`] are the bytes; [`Cqe`] is what they mean; [`CqeTail`] is the last
//! 8 bytes, which alone say who owns the entry and what it completes. Writers store bytes 0..56
//! first and the tail last; readers look at the tail first.

mod layout;
mod owner;
mod value;

pub use layout::{CQE, Cqe64, CqeTail, ErrCqe, TAIL_OFFSET};
pub use owner::{collapsed_index, gives_back, owned_by_software, owner_bit};
pub use value::{Cqe, CqeFormat, CqeViolation, DatagramSource, ErrorSide, ReceivedKind};
