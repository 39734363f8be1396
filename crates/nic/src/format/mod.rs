//! The format of queues: how a doorbell announces work, how WQEs are parsed and what is checked of
//! them, how CQEs are written. The NIC's other rooms know the values below and no bytes; nothing else
//! of this crate names the crate of a format, which `cargo xtask lint` checks.
//!
//! There is one format, that of mlx5. Another one gives the same functions over the same values,
//! and a value that says which of them a queue has chooses between them here. `docs/nic.md` says what
//! two others would need beyond that.

mod done;
mod mlx5;

pub(crate) use done::{Done, Ended};
pub use mlx5::CqeSize;
pub(crate) use mlx5::{
    CqeRing, Head, LONGEST, announced, block_of, consumed, explain, head, is_reached,
    parse_receive, parse_shared_receive, parse_write, requested, send_wqe, wqebbs,
};
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
pub(crate) use warpverbs_mlx5::syndrome::Syndrome;
pub(crate) use warpverbs_mlx5::wqe::{
    Destination, Mixed, Op, Payload, Remote, SendWith, Sge, Sges, Wqe, WqeViolation,
};
