//! The format of queues: how a doorbell announces work, how WQEs are parsed and what is checked of
//! them, how CQEs are written. The NIC's other rooms know the values below and no bytes; nothing else
//! of this crate names the crate of a format, which `cargo xtask lint` checks.
//!
//! There are three, those of mlx5, bnxt_re and ionic. [`choice`] says which of them a queue has, and has
//! the calls that depend on it. The engine's values are mlx5's, whose operations are the most; requests
//! of the others become such ([`list`]).

mod bnxt;
mod choice;
mod cqes;
mod done;
mod ionic;
mod list;
mod mlx5;
mod violation;

pub use bnxt::BnxtQueues;
pub use choice::{Dialect, QpFormat};
pub(crate) use choice::{OfBnxt, OfIonic, OfMlx5, Plain, RecvFormat, SendFormat};
pub use cqes::CqeSize;
pub(crate) use cqes::{CqeRing, is_reached};
pub(crate) use done::{Done, Ended, Names};
pub(crate) use mlx5::{
    LONGEST, announced, block_of, explain, parse_receive, requested, send_wqe, wqebbs,
};
pub use violation::FormatViolation;
pub use warpverbs_bnxt::packets::Table as PacketTable;
pub use warpverbs_bnxt::ring::{Library as BnxtLibrary, Mode as BnxtMode};
pub use warpverbs_ionic::opcode::Protocol as IonicProtocol;
pub(crate) use warpverbs_mlx5::amo::{
    MaskedCompareSwap, MaskedCs, MaskedFa, MaskedFetchAdd, Result8, result4_bytes,
};
pub(crate) use warpverbs_mlx5::cqe::{DatagramSource, ErrorSide, ReceivedKind};
#[cfg(test)]
pub(crate) use warpverbs_mlx5::doorbell::CqArm;
pub use warpverbs_mlx5::export::CqMode;
pub(crate) use warpverbs_mlx5::flags::{Completion, Flags};
pub(crate) use warpverbs_mlx5::num::{Lkey, MAX_MESSAGE, Qpn, Rkey, WqeIndex};
pub(crate) use warpverbs_mlx5::opcode::SendOpcode;
pub(crate) use warpverbs_mlx5::recv::RecvViolation;
pub(crate) use warpverbs_mlx5::wqe::{
    Destination, Mixed, Op, Payload, Remote, SendWith, Sge, Sges, WqeViolation,
};

/// The place of a WQE.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At {
    /// Index of its first unit, not masked.
    pub(crate) index: u64,
    /// WQEs before it since RESET.
    pub(crate) nth: u64,
    /// Units from its first to the last that is announced.
    pub(crate) announced: u64,
}

/// A well-formed send WQE.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wqe<'a> {
    /// Units of its queue that it takes.
    pub(crate) units: u64,
    pub(crate) flags: Flags,
    pub(crate) op: Op<'a>,
}

/// The header of a WQE that is not executed; the bytes may hold no WQE.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub(crate) units: u64,
    pub(crate) opcode: SendOpcode,
    pub(crate) completion: Completion,
}

/// A WRITE without immediate whose bytes are in one piece, which is `S`.
pub(crate) struct Short<S> {
    pub(crate) units: u64,
    pub(crate) remote: Remote,
    pub(crate) source: S,
    /// First packet number of the next WQE, where posters count them.
    pub(crate) psn: u32,
    pub(crate) flags: Flags,
}

/// Looks at the payload of a WRITE, and makes an `S` of it if it will do.
pub(crate) trait TakesPayload<'a, S> {
    /// Bytes in the WQE.
    fn inline(self, bytes: &'a [u8]) -> Option<S>;

    /// One piece of memory.
    fn piece(self, sge: Sge) -> Option<S>;
}
