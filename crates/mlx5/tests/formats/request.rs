//! Send WQEs as values that own their payload: from what was parsed, and back to bytes. Also used by the
//! fuzz target.

use warpverbs_mlx5::amo::{MaskedCompareSwap, MaskedFetchAdd};
use warpverbs_mlx5::flags::Flags;
use warpverbs_mlx5::num::{MAX_WQE, Rkey};
use warpverbs_mlx5::wqe::{Local, Op, Payload, Position, Remote, SendWith, Sge, WqeBuilder};

/// A send WQE as a value that owns its payload.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Request {
    Nop,
    LocalInval(Rkey),
    Wait(u32, u32),
    Dump(Sge),
    Send(SendWith, Bytes),
    Write(Remote, Option<u32>, Bytes),
    Read(Remote, Vec<Sge>),
    CompareSwap(Remote, u64, u64, Local),
    FetchAdd(Remote, u64, Local),
    MaskedCompareSwap(Remote, MaskedCompareSwap, Local),
    MaskedFetchAdd(Remote, MaskedFetchAdd, Local),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Bytes {
    Inline(Vec<u8>),
    Sges(Vec<Sge>),
    Mixed(Vec<u8>, Vec<Sge>),
}

impl Request {
    /// The request of a parsed WQE.
    pub(crate) fn of(op: &Op<'_>) -> Self {
        let local = |sge: Sge| Local { addr: sge.addr, lkey: sge.lkey };
        let bytes = |payload: &Payload<'_>| match payload {
            Payload::Inline(bytes) => Bytes::Inline(bytes.to_vec()),
            Payload::Sges(sges) => Bytes::Sges(sges.iter().collect()),
            Payload::Mixed(mixed) => {
                Bytes::Mixed(mixed.inline().to_vec(), mixed.local().iter().collect())
            }
        };
        match *op {
            Op::Nop => Self::Nop,
            Op::LocalInval { rkey } => Self::LocalInval(rkey),
            Op::Wait { cqn, index } => Self::Wait(cqn, index),
            Op::Dump { local } => Self::Dump(local),
            Op::SendTo { .. } => unreachable!("only parse_datagram gives it"),
            Op::Send { with, payload } => Self::Send(with, bytes(&payload)),
            Op::Write { remote, payload, imm } => Self::Write(remote, imm, bytes(&payload)),
            Op::Read { remote, local } => Self::Read(remote, local.iter().collect()),
            Op::CompareSwap { remote, compare, swap, result } => {
                Self::CompareSwap(remote, compare, swap, local(result))
            }
            Op::FetchAdd { remote, add, result } => Self::FetchAdd(remote, add, local(result)),
            Op::MaskedCompareSwap { remote, operands, result } => {
                assert_eq!(result.len, operands.size());
                Self::MaskedCompareSwap(remote, operands, local(result))
            }
            Op::MaskedFetchAdd { remote, operands, result } => {
                assert_eq!(result.len, operands.size());
                Self::MaskedFetchAdd(remote, operands, local(result))
            }
        }
    }

    /// Bytes carried either way: the payload, what is read, or the size of the atomic's word.
    pub(crate) fn byte_len(&self) -> u64 {
        let all = |sges: &[Sge]| sges.iter().map(|sge| u64::from(sge.len)).sum::<u64>();
        match self {
            Self::Nop | Self::LocalInval(_) | Self::Wait(..) | Self::Dump(_) => 0,
            Self::Send(_, bytes) | Self::Write(_, _, bytes) => match bytes {
                Bytes::Inline(bytes) => bytes.len() as u64,
                Bytes::Sges(sges) => all(sges),
                Bytes::Mixed(bytes, sges) => bytes.len() as u64 + all(sges),
            },
            Self::Read(_, sges) => all(sges),
            Self::CompareSwap(..) | Self::FetchAdd(..) => 8,
            Self::MaskedCompareSwap(_, operands, _) => operands.size().into(),
            Self::MaskedFetchAdd(_, operands, _) => operands.size().into(),
        }
    }

    pub(crate) fn build(&self, at: Position, flags: Flags) -> Vec<u8> {
        let mut buf = [0xa5; MAX_WQE];
        let b = &mut buf[..];
        let builder = match self {
            Self::Nop => WqeBuilder::nop(b, at),
            Self::LocalInval(rkey) => WqeBuilder::local_inval(b, at, *rkey),
            Self::Wait(cqn, index) => WqeBuilder::wait(b, at, *cqn, *index),
            Self::Dump(local) => WqeBuilder::dump(b, at, *local),
            Self::Send(SendWith::Nothing, bytes) => bytes.add(WqeBuilder::send(b, at)),
            Self::Send(SendWith::Imm(imm), bytes) => bytes.add(WqeBuilder::send_imm(b, at, *imm)),
            Self::Send(SendWith::Invalidate(rkey), bytes) => {
                bytes.add(WqeBuilder::send_inval(b, at, *rkey))
            }
            Self::Write(remote, None, bytes) => bytes.add(WqeBuilder::write(b, at, *remote)),
            Self::Write(remote, Some(imm), bytes) => {
                bytes.add(WqeBuilder::write_imm(b, at, *remote, *imm))
            }
            Self::Read(remote, sges) => {
                sges.iter().fold(WqeBuilder::read(b, at, *remote), |b, sge| b.sge(*sge))
            }
            Self::CompareSwap(remote, compare, swap, result) => {
                WqeBuilder::compare_swap(b, at, *remote, *compare, *swap, *result)
            }
            Self::FetchAdd(remote, add, result) => {
                WqeBuilder::fetch_add(b, at, *remote, *add, *result)
            }
            Self::MaskedCompareSwap(remote, operands, result) => {
                WqeBuilder::masked_compare_swap(b, at, *remote, *operands, *result)
            }
            Self::MaskedFetchAdd(remote, operands, result) => {
                WqeBuilder::masked_fetch_add(b, at, *remote, *operands, *result)
            }
        };
        let builder = builder.fence(flags.fence).completion(flags.completion);
        let builder = if flags.solicited { builder.solicited() } else { builder };
        builder.finish().expect("the strategy makes only what fits").to_vec()
    }
}

impl Bytes {
    fn add<'b>(&self, builder: WqeBuilder<'b>) -> WqeBuilder<'b> {
        match self {
            Self::Inline(bytes) => builder.inline(bytes),
            Self::Sges(sges) => sges.iter().fold(builder, |builder, sge| builder.sge(*sge)),
            Self::Mixed(bytes, sges) => {
                sges.iter().fold(builder.inline(bytes), |b, sge| b.sge(*sge))
            }
        }
    }
}
