//! Bytes of a send WQE to a [`Posted`] request.
//!
//! Checks go in this order: size, index, colour, opcode, flags, number of entries, length, entries. Bytes
//! that an opcode does not use may hold anything: the immediate of a WRITE, the address handle of a
//! connection's SEND, inline padding, places without an entry.

use super::{Posted, WqeViolation};
use crate::body::{AtomicBody, Header, PAYLOAD, RdmaBody, SendBody, Sges, WQE, list};
use crate::opcode::{Opcode, Protocol, WqeFlags};
use crate::ring::Position;
use warpverbs_rdma::{Addressed, Op, Qpn, Remote, Rkey, Sge};
use zerocopy::{FromBytes, transmute_ref};

/// Checks and decodes the WQE of a connection that fills `raw`, at `at`.
#[inline(always)]
pub fn parse(raw: &[u8], at: Position, protocol: Protocol) -> Result<Posted<'_>, WqeViolation> {
    let wqe = Parts::of(raw, at, protocol)?;
    let imm_or_key = wqe.header.imm_or_key.get();
    let op = match wqe.opcode {
        Opcode::Send => Op::Send,
        Opcode::SendImm => Op::SendImm(imm_or_key),
        Opcode::SendInvalidate => Op::SendInvalidate(Rkey(imm_or_key)),
        Opcode::Write => Op::Write(wqe.remote()),
        Opcode::WriteImm => Op::WriteImm(wqe.remote(), imm_or_key),
        Opcode::Read => Op::Read(wqe.remote()),
        Opcode::CompareSwap | Opcode::FetchAdd => return wqe.atomic(protocol),
        opcode => return Err(WqeViolation::UnsupportedOpcode { opcode }),
    };
    let (inline, local) = wqe.payload()?;
    Ok(Posted { op, to: None, inline, local, result: None, flags: wqe.flags.send_flags() })
}

/// As [`parse`], for the send queue of a datagram QP: SEND, with or without immediate.
pub fn parse_datagram(
    raw: &[u8],
    at: Position,
    protocol: Protocol,
) -> Result<Posted<'_>, WqeViolation> {
    let wqe = Parts::of(raw, at, protocol)?;
    let op = match wqe.opcode {
        Opcode::Send => Op::Send,
        Opcode::SendImm => Op::SendImm(wqe.header.imm_or_key.get()),
        opcode => return Err(WqeViolation::UnsupportedOpcode { opcode }),
    };
    let body: &SendBody = transmute_ref!(wqe.body);
    let value = body.qpn.get();
    let qpn = Qpn::new(value).ok_or(WqeViolation::DatagramQpn { value })?;
    let to = Some(Addressed { handle: body.handle.get(), qpn, qkey: body.qkey.get() });
    let (inline, local) = wqe.payload()?;
    Ok(Posted { op, to, inline, local, result: None, flags: wqe.flags.send_flags() })
}

/// The header of the WQE that fills `raw`, with size and index checked.
#[inline(always)]
pub(crate) fn place(raw: &[u8], at: Position) -> Result<&Header, WqeViolation> {
    let size = WqeViolation::Size { available: raw.len() };
    if !raw.len().is_power_of_two() || raw.len() < WQE {
        return Err(size);
    }
    let (header, _) = Header::ref_from_prefix(raw).map_err(|_| size)?;
    let (value, depth) = (header.index.get(), 1_u32 << at.log_depth);
    if (value ^ at.counter) & u64::from(depth - 1) != 0 {
        return Err(WqeViolation::Index { value, expected: at.index(), depth });
    }
    Ok(header)
}

/// A WQE in parts, with its header checked.
struct Parts<'a> {
    header: &'a Header,
    opcode: Opcode,
    flags: WqeFlags,
    body: &'a [u8; 16],
    /// The whole WQE.
    raw: &'a [u8],
}

impl<'a> Parts<'a> {
    #[inline(always)]
    fn of(raw: &'a [u8], at: Position, protocol: Protocol) -> Result<Self, WqeViolation> {
        let header = place(raw, at)?;
        let (value, flags) = (header.opcode, WqeFlags::from_bits_retain(header.flags.get()));
        if flags.contains(WqeFlags::COLOR) != at.color() {
            return Err(WqeViolation::Color { expected: at.color() });
        }
        let opcode = Opcode::from_value(protocol, value)
            .ok_or(WqeViolation::UnknownOpcode { value, protocol })?;
        if !opcode.is_parsed() {
            return Err(WqeViolation::UnsupportedOpcode { opcode });
        }
        let carries = !matches!(opcode, Opcode::Read | Opcode::CompareSwap | Opcode::FetchAdd);
        let allowed = if carries { WqeFlags::all() } else { WqeFlags::all() - WqeFlags::INLINE };
        if !allowed.contains(flags) {
            let (value, allowed) = (flags.bits(), allowed.bits());
            return Err(WqeViolation::Flags { opcode, value, allowed });
        }
        let size = WqeViolation::Size { available: raw.len() };
        let body = raw[size_of::<Header>()..].first_chunk().ok_or(size)?;
        Ok(Self { header, opcode, flags, body, raw })
    }

    #[inline(always)]
    fn remote(&self) -> Remote {
        let body: &RdmaBody = transmute_ref!(self.body);
        Remote::new(body.raddr.get(), body.rkey.get())
    }

    /// Inline bytes, or entries.
    #[inline(always)]
    fn payload(&self) -> Result<(&'a [u8], Sges<'a>), WqeViolation> {
        let body: &SendBody = transmute_ref!(self.body);
        let (value, entries) = (body.length.get(), self.header.entries);
        let payload = &self.raw[PAYLOAD..];
        if self.flags.contains(WqeFlags::INLINE) {
            if entries != 0 {
                return Err(WqeViolation::Entries { value: entries, min: 0, max: 0 });
            }
            let max = payload.len();
            let bytes = payload.get(..value as usize);
            let bytes = bytes.ok_or(WqeViolation::InlineLength { value, max })?;
            return Ok((bytes, Sges::default()));
        }
        let local = list(payload, entries).map_err(|max| WqeViolation::Entries {
            value: entries,
            min: 0,
            max,
        })?;
        match local.byte_len() {
            expected if expected == u64::from(value) => Ok((&[], local)),
            expected => Err(WqeViolation::Length { value, expected }),
        }
    }

    #[inline(never)]
    fn atomic(&self, protocol: Protocol) -> Result<Posted<'a>, WqeViolation> {
        let (opcode, value) = (self.opcode, self.header.entries);
        if value != 1 {
            return Err(WqeViolation::Entries { value, min: 1, max: 1 });
        }
        let size = WqeViolation::Size { available: self.raw.len() };
        let (body, _) =
            AtomicBody::ref_from_prefix(&self.raw[size_of::<Header>()..]).map_err(|_| size)?;
        let result = match protocol {
            Protocol::V1 => Sge::from(&body.result),
            Protocol::V2 => Sge::new(body.result.addr.get(), 8, body.lkey.get()),
        };
        if result.len != 8 {
            return Err(WqeViolation::AtomicSize { opcode, value: result.len });
        }
        let remote = Remote::new(body.raddr.get(), body.rkey.get());
        let swap_add = body.swap_add.get();
        let op = match opcode {
            Opcode::FetchAdd => Op::FetchAdd { remote, add: swap_add },
            _ => Op::CompareSwap { remote, compare: body.compare.get(), swap: swap_add },
        };
        let (local, result) = (Sges::default(), Some(result));
        Ok(Posted { op, to: None, inline: &[], local, result, flags: self.flags.send_flags() })
    }
}
