//! From requests of other formats to those of the engine, whose lists of entries are mlx5's.

use super::{Destination, Flags, FormatViolation, Op, Payload, SendWith, Sge, Sges, Wqe};
use crate::objects::address::Addresses;
use warpverbs_mlx5::segment::DataSeg;
use warpverbs_rdma::{Addressed, Op as Asked, Posted, SendFlags};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned, transmute};

/// Where entries and inline bytes begin, and bytes of an entry: the same in either format.
const PAYLOAD: usize = 32;
const ENTRY: usize = 16;

/// An entry in the bytes of a queue.
pub(super) trait Entry: FromBytes + Immutable + KnownLayout + Unaligned {}

impl<E: FromBytes + Immutable + KnownLayout + Unaligned> Entry for E {}

/// Makes the engine's list of the first `count` entries of a WQE, which are `E`s, in their place. Those of
/// no bytes are left out: the engine has none.
pub(super) fn in_place<E: Entry>(wqe: &mut [u8], count: usize) -> Sges<'_>
where
    for<'e> Sge: From<&'e E>,
{
    let (places, _) = wqe[PAYLOAD..].as_chunks_mut::<ENTRY>();
    let (mut kept, mut bytes) = (0, 0);
    for at in 0..count.min(places.len()) {
        let Ok(sge) = E::ref_from_bytes(&places[at]).map(Sge::from) else { break };
        if sge.len > 0 {
            places[kept] = transmute!(DataSeg::from(sge));
            bytes += u64::from(sge.len);
            kept += 1;
        }
    }
    let list = &wqe[PAYLOAD..PAYLOAD + kept * ENTRY];
    <[DataSeg]>::ref_from_bytes(list).map_or(Sges::default(), |list| Sges::checked(list, bytes))
}

/// The request of a WQE, apart from its bytes.
#[derive(Clone, Copy)]
pub(super) struct Request {
    op: Asked,
    inline: usize,
    entries: usize,
    pub(super) len: u32,
    result: Option<Sge>,
    flags: SendFlags,
    to: Option<Addressed>,
}

impl Request {
    #[inline(always)]
    pub(super) fn of<E>(posted: &Posted<'_, E>) -> Self
    where
        for<'e> Sge: From<&'e E>,
    {
        let Posted { op, to, inline, local, result, flags } = *posted;
        let (inline, entries, len) = (inline.len(), local.len(), posted.byte_len() as u32);
        Self { op, inline, entries, len, result, flags, to }
    }

    /// The address of a datagram, of those that its QP may name; `None`: the QP is connected.
    pub(super) fn destination(
        &self,
        addresses: Option<Addresses<'_>>,
    ) -> Result<Option<Destination>, FormatViolation> {
        addresses.zip(self.to).map(|(addresses, to)| addresses.find(to)).transpose()
    }

    /// The request as the engine has it, to a destination if it is a datagram; it takes `units` of its queue,
    /// and `wqe` are its bytes.
    pub(super) fn wqe<E: Entry>(
        self,
        units: u64,
        to: Option<Destination>,
        wqe: &mut [u8],
    ) -> Wqe<'_>
    where
        for<'e> Sge: From<&'e E>,
    {
        let Self { op, inline, entries, result, flags, .. } = self;
        let payload = match inline {
            0 => Payload::Sges(in_place::<E>(wqe, entries)),
            _ => Payload::Inline(&wqe[PAYLOAD..PAYLOAD + inline]),
        };
        let result = result.unwrap_or_default();
        let send = |with| match to {
            Some(to) => Op::SendTo { to, with, payload },
            None => Op::Send { with, payload },
        };
        let op = match op {
            Asked::Send => send(SendWith::Nothing),
            Asked::SendImm(imm) => send(SendWith::Imm(imm)),
            Asked::SendInvalidate(rkey) => send(SendWith::Invalidate(rkey)),
            Asked::Write(remote) => Op::Write { remote, payload, imm: None },
            Asked::WriteImm(remote, imm) => Op::Write { remote, payload, imm: Some(imm) },
            Asked::Read(remote) => {
                let local =
                    if let Payload::Sges(local) = payload { local } else { Sges::default() };
                Op::Read { remote, local }
            }
            Asked::CompareSwap { remote, compare, swap } => {
                Op::CompareSwap { remote, compare, swap, result }
            }
            Asked::FetchAdd { remote, add } => Op::FetchAdd { remote, add, result },
        };
        Wqe { units, flags: Flags::of(flags), op }
    }
}
