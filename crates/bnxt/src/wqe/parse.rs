//! Bytes of a send WQE to a [`Posted`] request.
//!
//! Checks go from the first byte on: type, flags, slots, length, then the entries. Bytes that an opcode
//! does not use may hold anything, because libraries leave there what an earlier lap of the ring has
//! left: the immediate of a WRITE, the second slot of a connection's SEND, the end of an RDMA slot,
//! inline padding, unused slots.

use super::{Posted, WqeViolation};
use crate::opcode::{WqeFlags, WqeType};
use crate::ring::Library;
use crate::slot::{
    AtomicHeader, AtomicSlot, DatagramSlot, HEADERS, RdmaSlot, SLOT, SendHeader, SgeSlot, Sges,
    list,
};
use warpverbs_rdma::{Addressed, Op, Qpn, Remote, Rkey, Sge};
use zerocopy::transmute_ref;

/// Slots of the WQE whose first slot this is, by what it says, so that the rest can be fetched. An
/// impossible number counts as 2: [`parse`] then names it.
#[inline]
pub fn peek(first: &[u8; SLOT]) -> u8 {
    first[core::mem::offset_of!(SendHeader, slots)].max(HEADERS)
}

/// Checks and decodes the WQE of a connection in `raw`: all its slots, in order, ring wrap already
/// undone. Bytes behind them are not looked at. `library` posted it.
#[inline(always)]
pub fn parse(raw: &[u8], library: Library) -> Result<Posted<'_>, WqeViolation> {
    let wqe = Slots::of(raw)?;
    let op = match wqe.wqe_type {
        WqeType::Send => Op::Send,
        WqeType::SendImm => Op::SendImm(wqe.header.imm_or_key.get()),
        WqeType::SendInvalidate => Op::SendInvalidate(Rkey(wqe.header.imm_or_key.get())),
        WqeType::Write => Op::Write(wqe.remote()),
        WqeType::WriteImm => Op::WriteImm(wqe.remote(), wqe.header.imm_or_key.get()),
        WqeType::Read => Op::Read(wqe.remote()),
        WqeType::CompareSwap | WqeType::FetchAdd => return wqe.atomic(library),
        wqe_type => return Err(WqeViolation::UnsupportedType { wqe_type }),
    };
    let (inline, local) = wqe.payload()?;
    Ok(Posted { op, to: None, inline, local, result: None, flags: wqe.flags.send_flags() })
}

/// As [`parse`], for the send queue of a datagram QP: SEND, with or without immediate.
pub fn parse_datagram(raw: &[u8]) -> Result<Posted<'_>, WqeViolation> {
    let wqe = Slots::of(raw)?;
    let op = match wqe.wqe_type {
        WqeType::Send => Op::Send,
        WqeType::SendImm => Op::SendImm(wqe.header.imm_or_key.get()),
        wqe_type => return Err(WqeViolation::UnsupportedType { wqe_type }),
    };
    let slot: &DatagramSlot = transmute_ref!(wqe.second);
    let (value, handle) = (slot.qpn.get(), slot.handle.get());
    let qpn = Qpn::new(value).ok_or(WqeViolation::DatagramQpn { value })?;
    if handle >> 20 != 0 {
        return Err(WqeViolation::DatagramHandle { value: handle });
    }
    let to = Some(Addressed { handle, qpn, qkey: wqe.header.qkey.get() });
    let (inline, local) = wqe.payload()?;
    Ok(Posted { op, to, inline, local, result: None, flags: wqe.flags.send_flags() })
}

/// A WQE in parts, with its header checked.
struct Slots<'a> {
    header: &'a SendHeader,
    wqe_type: WqeType,
    flags: WqeFlags,
    first: &'a [u8; SLOT],
    second: &'a [u8; SLOT],
    /// Entries or inline bytes.
    rest: &'a [[u8; SLOT]],
}

impl<'a> Slots<'a> {
    #[inline(always)]
    fn of(raw: &'a [u8]) -> Result<Self, WqeViolation> {
        let (slots, _) = raw.as_chunks::<SLOT>();
        let [first, second, rest @ ..] = slots else {
            return Err(truncated(raw, HEADERS));
        };
        let header: &SendHeader = transmute_ref!(first);
        let wqe_type = WqeType::from_value(header.wqe_type);
        if let WqeType::Unknown(value) = wqe_type {
            return Err(WqeViolation::UnknownType { value });
        }
        if !wqe_type.is_parsed() {
            return Err(WqeViolation::UnsupportedType { wqe_type });
        }
        let carries = !matches!(wqe_type, WqeType::Read | WqeType::CompareSwap | WqeType::FetchAdd);
        let allowed = if carries { WqeFlags::all() } else { WqeFlags::all() - WqeFlags::INLINE };
        let flags = WqeFlags::from_bits_retain(header.flags);
        if !allowed.contains(flags) {
            let (value, allowed) = (header.flags, allowed.bits());
            return Err(WqeViolation::Flags { wqe_type, value, allowed });
        }
        if header.reserved != 0 {
            return Err(WqeViolation::Reserved { value: header.reserved });
        }
        let Some(behind) = header.slots.checked_sub(HEADERS) else {
            let (value, min, max) = (header.slots, HEADERS, u8::MAX);
            return Err(WqeViolation::Slots { wqe_type, value, min, max });
        };
        let rest = rest.get(..behind.into()).ok_or_else(|| truncated(raw, header.slots))?;
        Ok(Self { header, wqe_type, flags, first, second, rest })
    }

    #[inline(always)]
    fn remote(&self) -> Remote {
        let slot: &RdmaSlot = transmute_ref!(self.second);
        Remote::new(slot.raddr.get(), slot.rkey.get())
    }

    /// Inline bytes, or entries.
    #[inline(always)]
    fn payload(&self) -> Result<(&'a [u8], Sges<'a>), WqeViolation> {
        let (length, slots) = (self.header.length.get(), self.header.slots);
        if !self.flags.contains(WqeFlags::INLINE) {
            let local = list(self.rest);
            return match local.byte_len() {
                expected if expected == u64::from(length) => Ok((&[], local)),
                expected => Err(WqeViolation::Length { value: length, expected }),
            };
        }
        let expected = u32::from(HEADERS) + length.div_ceil(SLOT as u32);
        let bytes = self.rest.as_flattened().get(..length as usize);
        let bytes = bytes.ok_or(WqeViolation::InlineLength { length, slots, expected })?;
        Ok((bytes, Sges::default()))
    }

    #[inline(never)]
    fn atomic(&self, library: Library) -> Result<Posted<'a>, WqeViolation> {
        let wqe_type = self.wqe_type;
        let [entry] = self.rest else {
            let (value, min, max) = (self.header.slots, HEADERS + 1, HEADERS + 1);
            return Err(WqeViolation::Slots { wqe_type, value, min, max });
        };
        let entry: &SgeSlot = transmute_ref!(entry);
        let result = Sge::from(entry);
        if result.len != 8 {
            return Err(WqeViolation::AtomicSize { wqe_type, value: result.len });
        }
        let header: &AtomicHeader = transmute_ref!(self.first);
        let operands: &AtomicSlot = transmute_ref!(self.second);
        let remote = Remote::new(header.raddr.get(), header.rkey.get());
        let (swap_add, compare) = (operands.swap_add.get(), operands.compare.get());
        let op = match (wqe_type, library) {
            (WqeType::FetchAdd, Library::Early) => Op::FetchAdd { remote, add: compare },
            (WqeType::FetchAdd, Library::Current) => Op::FetchAdd { remote, add: swap_add },
            _ => Op::CompareSwap { remote, compare, swap: swap_add },
        };
        let (local, result) = (Sges::default(), Some(result));
        Ok(Posted { op, to: None, inline: &[], local, result, flags: self.flags.send_flags() })
    }
}

#[cold]
pub(crate) fn truncated(raw: &[u8], slots: u8) -> WqeViolation {
    WqeViolation::Truncated { available: raw.len(), expected: usize::from(slots) * SLOT }
}
