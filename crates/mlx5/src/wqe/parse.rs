//! Bytes of a send WQE to a [`Wqe`]: the one door through which ring contents enter.
//!
//! Checks go in this order: length, place (index, QP), reserved bits and modes, opcode and opmod,
//! then segments left to right. Bytes that a device does not look at may hold anything: fields that an
//! opcode does not use (`imm` of a WRITE, `compare` of a fetch-and-add), signature and stream channel,
//! reserved bytes of segments, padding, what follows the last segment. Posters leave there what an
//! earlier lap of the ring has left. Reserved bits of a byte that posters always write are checked.

use super::{EXTENDED, Mixed, Op, Payload, Position, Remote, SendWith, Sge, Sges, Wqe};
use super::{Field, WqeViolation};
use crate::amo::{MaskedCompareSwap, MaskedCs, MaskedFa, MaskedFetchAdd};
use crate::flags::Flags;
use crate::num::{MAX_DS, Qpn, Rkey, SEGMENT, WQEBB, WqeIndex, wqebbs};
use crate::opcode::{SendOpcode, Support};
use crate::segment::{
    AtomicSeg, CtrlSeg, DataSeg, DatagramSeg, INLINE_BIT, InlineHeader, MaskedCs4Seg, MaskedCs8Seg,
    MaskedFa4Seg, MaskedFa8Seg, RaddrSeg, WaitSeg, inline_segments,
};
use zerocopy::byteorder::{BE, U32};
use zerocopy::{FromBytes, Immutable, KnownLayout, transmute_ref};

/// opmod of masked atomics on 4-byte words.
pub(crate) const OPMOD_4B: u8 = 0x08;
/// opmod of masked atomics on 8-byte words.
pub(crate) const OPMOD_8B: u8 = 0x09;

/// WQEBBs of the WQE whose first WQEBB this is, 1 to 16, so that the rest can be fetched.
/// An impossible DS counts as 1: [`parse`] then names it.
#[inline]
pub fn peek(first: &[u8; WQEBB]) -> usize {
    wqebbs(first[core::mem::offset_of!(CtrlSeg, ds)] & MAX_DS).max(1)
}

/// Checks and decodes the WQE in `raw`: all its WQEBBs, in order, ring wrap already undone.
/// Only the WQE's own segments are looked at, and they must all be there.
///
/// `at` is where the WQE was found.
// Always: handing the result over through memory costs as much as finding it.
#[inline(always)]
pub fn parse(raw: &[u8], at: Position) -> Result<Wqe<'_>, WqeViolation> {
    let (ctrl, opcode, body) = control(raw, at)?;
    let wqe = |op| Wqe { at, ds: ctrl.ds, flags: Flags::from_valid_byte(ctrl.fm_ce_se), op };
    match opcode {
        WRITE | WRITE_IMM => {
            let (remote, body) = raddr(ctrl, body)?;
            let imm = (opcode == WRITE_IMM).then(|| ctrl.imm.get());
            Ok(wqe(Op::Write { remote, payload: payload(ctrl, body)?, imm }))
        }
        SEND => Ok(wqe(Op::Send { with: SendWith::Nothing, payload: payload(ctrl, body)? })),
        READ => {
            let (remote, body) = raddr(ctrl, body)?;
            Ok(wqe(Op::Read { remote, local: sges(body)? }))
        }
        _ => Ok(wqe(rarer(ctrl, body)?)),
    }
}

/// As [`parse`], for the send queue of a datagram QP: SEND, with an address vector behind the
/// control segment, and NOP.
pub fn parse_datagram(raw: &[u8], at: Position) -> Result<Wqe<'_>, WqeViolation> {
    let (ctrl, opcode, body) = control(raw, at)?;
    let wqe = |op| Wqe { at, ds: ctrl.ds, flags: Flags::from_valid_byte(ctrl.fm_ce_se), op };
    let with = match opcode {
        SEND => SendWith::Nothing,
        SEND_IMM => SendWith::Imm(ctrl.imm.get()),
        _ => {
            return match rarer(ctrl, body)? {
                op @ Op::Nop => Ok(wqe(op)),
                op => Err(WqeViolation::UnsupportedOpcode { opcode: op.opcode() }),
            };
        }
    };
    let Ok((seg, body)) = DatagramSeg::ref_from_prefix(body) else {
        return Err(ds_outside(ctrl, 4, MAX_DS));
    };
    // RoCE has a GID in any case: libmlx5 leaves the bit that says so clear there. The bits beside the
    // one for the long form come from a QP number of 32 bits, of which 24 count.
    if seg.ext & EXTENDED == 0 {
        return Err(WqeViolation::AddressForm { ext: seg.ext });
    }
    Ok(wqe(Op::SendTo { to: seg.into(), with, payload: payload(ctrl, body)? }))
}

/// The control segment, checked, its first word without the index, and the other segments.
// Always: as `parse`.
#[inline(always)]
fn control(raw: &[u8], at: Position) -> Result<(&CtrlSeg, u32, &[u8]), WqeViolation> {
    let Ok((ctrl, _)) = CtrlSeg::ref_from_prefix(raw) else {
        return Err(truncated(raw, SEGMENT));
    };
    // Whole words, because this runs for every WQE: each is the field in its last byte alone if
    // the fields before it are as expected.
    let words: &[U32<BE>; 4] = transmute_ref!(ctrl);
    let opcode = words[0].get() ^ u32::from(at.index.0) << 8;
    let ds = words[1].get() ^ at.qpn.get() << 8;
    let index_differs = opcode & 0x00ff_ff00 != 0;
    // UCX leaves garbage in signature and stream channel, which devices look at only where the QP was
    // made with signatures or streams; here none is.
    if index_differs || ds > u32::from(MAX_DS) || !Flags::is_valid(ctrl.fm_ce_se) {
        return Err(ctrl_violation(ctrl, at));
    }
    match raw.get(SEGMENT..ds as usize * SEGMENT) {
        Some(body) => Ok((ctrl, opcode, body)),
        None => Err(short(raw, ctrl)),
    }
}

// First words of a control segment without index: opcode, and opmod 0.
const WRITE: u32 = SendOpcode::RdmaWrite.value() as u32;
const WRITE_IMM: u32 = SendOpcode::RdmaWriteImm.value() as u32;
const SEND: u32 = SendOpcode::Send.value() as u32;
const SEND_IMM: u32 = SendOpcode::SendImm.value() as u32;
const READ: u32 = SendOpcode::RdmaRead.value() as u32;

/// Why the segments that DS announces are not there.
#[cold]
fn short(raw: &[u8], ctrl: &CtrlSeg) -> WqeViolation {
    match ctrl.ds {
        0 => ds_outside(ctrl, 1, MAX_DS),
        ds => truncated(raw, ds as usize * SEGMENT),
    }
}

/// Names what is wrong with the control segment; something is.
#[cold]
fn ctrl_violation(ctrl: &CtrlSeg, at: Position) -> WqeViolation {
    let index = WqeIndex(ctrl.wqe_index.get());
    let qpn = Qpn::from(ctrl.qpn);
    let reserved = [
        (Field::DsReserved, u64::from(ctrl.ds & !MAX_DS)),
        (Field::FlagsReserved, u64::from(ctrl.fm_ce_se & Flags::RESERVED)),
    ];
    if index != at.index {
        WqeViolation::Index { value: index, expected: at.index }
    } else if qpn != at.qpn {
        WqeViolation::Qpn { value: qpn, expected: at.qpn }
    } else if let Some(&(field, value)) = reserved.iter().find(|(_, value)| *value != 0) {
        WqeViolation::Reserved { field, value }
    } else {
        WqeViolation::FenceMode { value: ctrl.fm_ce_se >> 5 }
    }
}

/// Everything but plain data movement; kept out of line.
#[inline(never)]
fn rarer<'a>(ctrl: &CtrlSeg, body: &'a [u8]) -> Result<Op<'a>, WqeViolation> {
    let opcode = SendOpcode::from_value(ctrl.opcode);
    match opcode.support() {
        None => return Err(WqeViolation::UnknownOpcode { value: ctrl.opcode }),
        Some(Support::NamedOnly) => return Err(WqeViolation::UnsupportedOpcode { opcode }),
        Some(Support::Parsed) => {}
    }
    let imm = ctrl.imm.get();
    match opcode {
        SendOpcode::SendImm => send(ctrl, body, SendWith::Imm(imm)),
        SendOpcode::SendInval => send(ctrl, body, SendWith::Invalidate(Rkey(imm))),
        SendOpcode::AtomicCs | SendOpcode::AtomicFa => atomic(ctrl, body),
        SendOpcode::MaskedCs => masked_cs(ctrl, body),
        SendOpcode::MaskedFa => masked_fa(ctrl, body),
        SendOpcode::LocalInval => {
            opmod_zero(ctrl)?;
            ds_within(ctrl, 1, 1)?;
            Ok(Op::LocalInval { rkey: Rkey(imm) })
        }
        // Some posters give a NOP a second segment; what it holds means nothing.
        SendOpcode::Nop => {
            opmod_zero(ctrl)?;
            ds_within(ctrl, 1, 2)?;
            Ok(Op::Nop)
        }
        SendOpcode::Wait => wait(ctrl, body),
        SendOpcode::Dump => dump(ctrl, body),
        // WRITE, SEND and READ come here only with an opmod.
        _ => Err(opmod(ctrl, &[0])),
    }
}

fn send<'a>(ctrl: &CtrlSeg, body: &'a [u8], with: SendWith) -> Result<Op<'a>, WqeViolation> {
    opmod_zero(ctrl)?;
    Ok(Op::Send { with, payload: payload(ctrl, body)? })
}

fn wait<'a>(ctrl: &CtrlSeg, body: &'a [u8]) -> Result<Op<'a>, WqeViolation> {
    opmod_zero(ctrl)?;
    // DOCA GPUNetIO leaves garbage in the reserved bytes, which devices do not look at.
    let seg = WaitSeg::ref_from_bytes(body).map_err(|_| ds_outside(ctrl, 2, 2))?;
    Ok(Op::Wait { cqn: seg.cqn.get(), index: seg.max_index.get() })
}

fn dump<'a>(ctrl: &CtrlSeg, body: &'a [u8]) -> Result<Op<'a>, WqeViolation> {
    opmod_zero(ctrl)?;
    ds_within(ctrl, 2, 2)?;
    let local = sges(body)?.single().ok_or_else(|| ds_outside(ctrl, 2, 2))?;
    Ok(Op::Dump { local })
}

fn atomic<'a>(ctrl: &CtrlSeg, body: &'a [u8]) -> Result<Op<'a>, WqeViolation> {
    opmod_zero(ctrl)?;
    let (remote, seg, result) = operands::<AtomicSeg>(ctrl, body, 8)?;
    if ctrl.opcode == SendOpcode::AtomicCs.value() {
        let (compare, swap) = (seg.compare.get(), seg.swap_add.get());
        Ok(Op::CompareSwap { remote, compare, swap, result })
    } else {
        Ok(Op::FetchAdd { remote, add: seg.swap_add.get(), result })
    }
}

fn masked_cs<'a>(ctrl: &CtrlSeg, body: &'a [u8]) -> Result<Op<'a>, WqeViolation> {
    let (remote, operands, result) = match ctrl.opmod {
        OPMOD_4B => {
            let (remote, seg, result) = operands::<MaskedCs4Seg>(ctrl, body, 4)?;
            let operands = MaskedCs {
                compare: seg.compare.get(),
                compare_mask: seg.compare_mask.get(),
                swap: seg.swap.get(),
                swap_mask: seg.swap_mask.get(),
            };
            (remote, MaskedCompareSwap::B4(operands), result)
        }
        OPMOD_8B => {
            let (remote, seg, result) = operands::<MaskedCs8Seg>(ctrl, body, 8)?;
            let operands = MaskedCs {
                compare: seg.compare.get(),
                compare_mask: seg.compare_mask.get(),
                swap: seg.swap.get(),
                swap_mask: seg.swap_mask.get(),
            };
            (remote, MaskedCompareSwap::B8(operands), result)
        }
        _ => return Err(opmod(ctrl, &[OPMOD_4B, OPMOD_8B])),
    };
    Ok(Op::MaskedCompareSwap { remote, operands, result })
}

fn masked_fa<'a>(ctrl: &CtrlSeg, body: &'a [u8]) -> Result<Op<'a>, WqeViolation> {
    let (remote, operands, result) = match ctrl.opmod {
        OPMOD_4B => {
            // NVSHMEM leaves garbage in the reserved half, which devices do not look at.
            let (remote, seg, result) = operands::<MaskedFa4Seg>(ctrl, body, 4)?;
            let operands = MaskedFa { add: seg.add.get(), boundary: seg.field_boundary.get() };
            (remote, MaskedFetchAdd::B4(operands), result)
        }
        OPMOD_8B => {
            let (remote, seg, result) = operands::<MaskedFa8Seg>(ctrl, body, 8)?;
            let operands = MaskedFa { add: seg.add.get(), boundary: seg.field_boundary.get() };
            (remote, MaskedFetchAdd::B8(operands), result)
        }
        _ => return Err(opmod(ctrl, &[OPMOD_4B, OPMOD_8B])),
    };
    Ok(Op::MaskedFetchAdd { remote, operands, result })
}

/// Remote address, operand segment `T` and the one result segment of `size` bytes.
fn operands<'a, T>(
    ctrl: &CtrlSeg,
    body: &'a [u8],
    size: u32,
) -> Result<(Remote, &'a T, Sge), WqeViolation>
where
    T: FromBytes + KnownLayout + Immutable + zerocopy::Unaligned,
{
    let ds = (3 + size_of::<T>() / SEGMENT) as u8;
    let (remote, rest) = raddr(ctrl, body)?;
    let (seg, rest) = T::ref_from_prefix(rest).map_err(|_| ds_outside(ctrl, ds, ds))?;
    let result = DataSeg::ref_from_bytes(rest).map_err(|_| ds_outside(ctrl, ds, ds))?;
    match result.byte_count.get() {
        byte_count if byte_count & INLINE_BIT != 0 => {
            Err(WqeViolation::InlineBit { sge: 0, byte_count })
        }
        0 => Err(WqeViolation::ZeroLength { sge: 0 }),
        value if value != size => {
            let opcode = SendOpcode::from_value(ctrl.opcode);
            Err(WqeViolation::AtomicSize { opcode, value, expected: size })
        }
        _ => Ok((remote, seg, Sge::from(result))),
    }
}

#[inline]
fn raddr<'a>(ctrl: &CtrlSeg, body: &'a [u8]) -> Result<(Remote, &'a [u8]), WqeViolation> {
    let Ok((seg, rest)) = RaddrSeg::ref_from_prefix(body) else {
        return Err(ds_outside(ctrl, 2, MAX_DS));
    };
    // DOCA GPUNetIO leaves garbage in the reserved word, which devices do not look at.
    Ok((Remote::from(seg), rest))
}

/// Pointer segments, or one inline segment that fills the rest exactly or has pointer segments
/// behind it.
// Always: as `parse`.
#[inline(always)]
fn payload<'a>(ctrl: &CtrlSeg, body: &'a [u8]) -> Result<Payload<'a>, WqeViolation> {
    match InlineHeader::ref_from_prefix(body) {
        Ok((header, bytes)) if header.byte_count.get() & INLINE_BIT != 0 => {
            inline(ctrl, header.byte_count.get() & !INLINE_BIT, bytes)
        }
        _ => Ok(Payload::Sges(sges(body)?)),
    }
}

/// `bytes` runs from the inline header to the end of the last segment.
#[inline]
fn inline<'a>(ctrl: &CtrlSeg, length: u32, bytes: &'a [u8]) -> Result<Payload<'a>, WqeViolation> {
    let segments = inline_segments(length as usize);
    match bytes.get(..length as usize) {
        Some(payload) if segments * SEGMENT == bytes.len() + size_of::<InlineHeader>() => {
            Ok(Payload::Inline(payload))
        }
        Some(_) if segments * SEGMENT < bytes.len() + size_of::<InlineHeader>() => {
            mixed(length, bytes).ok_or_else(|| inline_length(ctrl, length, bytes))
        }
        _ => Err(inline_length(ctrl, length, bytes)),
    }
}

/// An inline segment of `length` bytes that has pointer segments behind it. `None`: it has not.
#[cold]
fn mixed(length: u32, bytes: &[u8]) -> Option<Payload<'_>> {
    let behind = inline_segments(length as usize) * SEGMENT - size_of::<InlineHeader>();
    let (segs, _) = bytes.get(behind..)?.as_chunks::<SEGMENT>();
    let local = sge_list(transmute_ref!(segs)).ok()?;
    // The length of a message has 31 bits, which the executor checks; here its sum must not wrap.
    let fits = u32::try_from(local.byte_len()).is_ok();
    fits.then(|| Payload::Mixed(Mixed::checked(bytes, length, &local)))
}

#[cold]
fn inline_length(ctrl: &CtrlSeg, length: u32, bytes: &[u8]) -> WqeViolation {
    let before = ctrl.ds as usize - (bytes.len() + size_of::<InlineHeader>()) / SEGMENT;
    let expected = (before + inline_segments(length as usize)) as u32;
    WqeViolation::InlineLength { length, ds: ctrl.ds, expected }
}

/// Pointer segments to the end of `body`, which is a whole number of segments.
// Always: as `parse`.
#[inline(always)]
fn sges(body: &[u8]) -> Result<Sges<'_>, WqeViolation> {
    let (segs, _) = body.as_chunks::<SEGMENT>();
    let segs: &[DataSeg] = transmute_ref!(segs);
    // One entry is the common case; it needs no loop.
    let [seg] = segs else { return sge_list(segs) };
    let byte_count = seg.byte_count.get();
    if is_bad_length(byte_count) {
        return Err(sge_violation(0, byte_count));
    }
    Ok(Sges::checked(segs, u64::from(byte_count)))
}

/// Any number of pointer segments.
#[inline(never)]
fn sge_list(segs: &[DataSeg]) -> Result<Sges<'_>, WqeViolation> {
    let mut bytes = 0;
    for (sge, seg) in segs.iter().enumerate() {
        let byte_count = seg.byte_count.get();
        if is_bad_length(byte_count) {
            return Err(sge_violation(sge as u8, byte_count));
        }
        bytes += u64::from(byte_count);
    }
    Ok(Sges::checked(segs, bytes))
}

/// 0, or bit 31 set.
#[inline]
const fn is_bad_length(byte_count: u32) -> bool {
    byte_count as i32 <= 0
}

#[inline]
fn opmod_zero(ctrl: &CtrlSeg) -> Result<(), WqeViolation> {
    if ctrl.opmod == 0 { Ok(()) } else { Err(opmod(ctrl, &[0])) }
}

fn ds_within(ctrl: &CtrlSeg, min: u8, max: u8) -> Result<(), WqeViolation> {
    if (min..=max).contains(&ctrl.ds) { Ok(()) } else { Err(ds_outside(ctrl, min, max)) }
}

#[cold]
fn truncated(raw: &[u8], expected: usize) -> WqeViolation {
    WqeViolation::Truncated { available: raw.len(), expected }
}

#[cold]
fn ds_outside(ctrl: &CtrlSeg, min: u8, max: u8) -> WqeViolation {
    let opcode = SendOpcode::from_value(ctrl.opcode);
    WqeViolation::Ds { opcode, value: ctrl.ds & MAX_DS, min, max }
}

#[cold]
fn opmod(ctrl: &CtrlSeg, expected: &'static [u8]) -> WqeViolation {
    let opcode = SendOpcode::from_value(ctrl.opcode);
    WqeViolation::Opmod { opcode, value: ctrl.opmod, expected }
}

#[cold]
fn sge_violation(sge: u8, byte_count: u32) -> WqeViolation {
    if byte_count == 0 {
        WqeViolation::ZeroLength { sge }
    } else {
        WqeViolation::InlineBit { sge, byte_count }
    }
}
