//! From a request to the headers of its packets.

use super::queue::Entry;
use crate::{Op, Payload, Remote, Request};
use warpverbs_wire::{AtomicEth, Extension, Ieth, ImmDt, Opcode, Reth};

/// Headers and payload of the packet of `entry` at position `at`; `next` is the position after it.
//= [req.segment]
#[inline]
pub(super) fn segment(entry: &Entry, at: u64, next: u64, mtu: u32) -> (Opcode, Extension, Payload) {
    let Request { id, op, len, .. } = entry.request;
    let offset = u64::from(entry.packets_before(at)) * u64::from(mtu);
    let end = (u64::from(entry.packets_before(next)) * u64::from(mtu)).min(u64::from(len));
    let piece = (end - offset) as u32;
    let (begins, ends) = (at == entry.first, next == entry.end());
    let reth = |va: u64, rkey, dma_len| Reth { va, rkey, dma_len };
    let extended = |va, rkey, size: u8, opcode| {
        let payload = Payload::Request { id, offset: 0, len };
        (opcode, Extension::Reth(Reth { va, rkey, dma_len: size.into() }), payload)
    };
    let (opcode, ext) = match op {
        //= [req.read-split]
        Op::Read(Remote { addr: va, rkey }) => {
            let reth = reth(va.wrapping_add(offset), rkey, piece);
            return (Opcode::ReadRequest, Extension::Reth(reth), Payload::Empty);
        }
        //= [req.extended-atomic]
        Op::CompareSwap { remote: Remote { addr, rkey }, .. }
            if let Some(size) = entry.request.extended =>
        {
            return extended(addr, rkey, size, Opcode::ExtendedCompareSwap);
        }
        Op::FetchAdd { remote: Remote { addr, rkey }, .. }
            if let Some(size) = entry.request.extended =>
        {
            return extended(addr, rkey, size, Opcode::ExtendedFetchAdd);
        }
        Op::CompareSwap { remote: Remote { addr: va, rkey }, swap, compare } => {
            let atomic = AtomicEth { va, rkey, swap_add: swap, compare };
            return (Opcode::CompareSwap, Extension::Atomic(atomic), Payload::Empty);
        }
        Op::FetchAdd { remote: Remote { addr: va, rkey }, add } => {
            let atomic = AtomicEth { va, rkey, swap_add: add, compare: 0 };
            return (Opcode::FetchAdd, Extension::Atomic(atomic), Payload::Empty);
        }
        Op::Send => (send_opcode(begins, ends), Extension::Empty),
        Op::SendImm(imm) if ends => {
            let opcode = if begins { Opcode::SendOnlyImm } else { Opcode::SendLastImm };
            (opcode, Extension::Imm(ImmDt { data: imm }))
        }
        Op::SendInvalidate(rkey) if ends => {
            let opcode =
                if begins { Opcode::SendOnlyInvalidate } else { Opcode::SendLastInvalidate };
            (opcode, Extension::Ieth(Ieth { rkey }))
        }
        Op::SendImm(_) | Op::SendInvalidate(_) => (send_opcode(begins, ends), Extension::Empty),
        Op::WriteImm(Remote { addr: va, rkey }, imm) if ends => {
            let imm = ImmDt { data: imm };
            match begins {
                true => (Opcode::WriteOnlyImm, Extension::RethImm(reth(va, rkey, len), imm)),
                false => (Opcode::WriteLastImm, Extension::Imm(imm)),
            }
        }
        //= [req.write-split]
        Op::Write(Remote { addr: va, rkey }) if entry.split => {
            (Opcode::WriteOnly, Extension::Reth(reth(va.wrapping_add(offset), rkey, piece)))
        }
        Op::Write(Remote { addr: va, rkey }) | Op::WriteImm(Remote { addr: va, rkey }, _) => {
            match (begins, ends) {
                (true, true) => (Opcode::WriteOnly, Extension::Reth(reth(va, rkey, len))),
                (true, false) => (Opcode::WriteFirst, Extension::Reth(reth(va, rkey, len))),
                (false, false) => (Opcode::WriteMiddle, Extension::Empty),
                (false, true) => (Opcode::WriteLast, Extension::Empty),
            }
        }
    };
    let payload = match piece {
        0 => Payload::Empty,
        len => Payload::Request { id, offset: offset as u32, len },
    };
    (opcode, ext, payload)
}

fn send_opcode(begins: bool, ends: bool) -> Opcode {
    match (begins, ends) {
        (true, true) => Opcode::SendOnly,
        (true, false) => Opcode::SendFirst,
        (false, false) => Opcode::SendMiddle,
        (false, true) => Opcode::SendLast,
    }
}
