//! Checks of a request before the responder executes it, in the order of the specification
//! (vol. 1, 9.7.4.1): PSN, operation sequence, operation, resource, length, key. No check has an
//! effect.

use warpverbs_wire::{AtomicEth, Bth, Extension, Opcode, Operation, Psn, Reth, Rkey};

use super::Responder;
use crate::host::{Atomic, AtomicOp, Denied, Host, Need, Receive};
use crate::request::operands;
use crate::{MAX_MESSAGE, Status};

/// A request packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inbound<'a> {
    pub(crate) bth: &'a Bth,
    pub(crate) ext: &'a Extension,
    pub(crate) len: u32,
}

/// Where a PSN lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PsnCheck {
    Expected,
    Duplicate,
    OutOfSequence,
}

/// The message that a packet continues.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Message {
    None,
    Send {
        receive: Receive,
        /// Bytes that arrived.
        offset: u32,
    },
    Write {
        rkey: Rkey,
        /// Address of the next byte.
        va: u64,
        /// Bytes to come.
        left: u32,
        /// Bytes of the whole message.
        len: u32,
    },
}

/// Bytes of a region, for a write the piece that this packet brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) rkey: Rkey,
    pub(crate) va: u64,
    pub(crate) len: u32,
}

/// A packet that passed all checks, with what its execution needs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Accepted {
    Send { receive: Receive, offset: u32 },
    Write { range: Range, left: u32, len: u32, receive: Option<Receive> },
    Read { range: Range },
    Atomic(Atomic),
}

/// Why a packet is not executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// No room here: as if it were lost.
    Overrun,
    /// The host has no result yet: as if the packet had not arrived.
    NotYet,
    /// No receive: RNR NAK.
    NotReady,
    /// NAK invalid request, the connection fails.
    Invalid,
    /// The same, since the receive is too small: it completes with an error.
    TooLong { receive: Receive },
    /// NAK remote access error, the connection fails; so does the receive that a write with
    /// immediate data would consume.
    Access { receive: Option<Receive> },
    /// NAK remote operational error, the connection fails; so does the receive if one is at fault.
    Operational { receive: Option<Receive> },
    /// A key that may not be invalidated: the connection fails without an answer.
    Invalidation { receive: Receive },
}

impl Refusal {
    /// The receive that fails with it, and how.
    pub(crate) fn receive(self) -> Option<(Receive, Status)> {
        match self {
            Refusal::TooLong { receive } => Some((receive, Status::LocalLength)),
            Refusal::Operational { receive } => Some((receive?, Status::LocalProtection)),
            Refusal::Access { receive } => Some((receive?, Status::LocalAccess)),
            Refusal::Invalidation { receive } => Some((receive, Status::RemoteInvalidRequest)),
            _ => None,
        }
    }
}

impl Responder {
    //= [resp.psn]
    #[inline]
    pub(crate) fn check_psn(&self, psn: Psn) -> PsnCheck {
        match psn.offset_from(self.expected) {
            0 => PsnCheck::Expected,
            ..0 => PsnCheck::Duplicate,
            1.. => PsnCheck::OutOfSequence,
        }
    }

    /// All checks of an expected packet.
    #[inline]
    pub(crate) fn judge(
        &self,
        inbound: &Inbound<'_>,
        host: &mut impl Host,
    ) -> Result<Accepted, Refusal> {
        self.check_op_seq(inbound.bth.opcode)?;
        check_op_valid(inbound.bth.opcode, host)?;
        let receive = self.check_resource(inbound, host)?;
        let accepted = self.check_length(inbound, receive)?;
        check_rkey(inbound, &accepted, host)?;
        Ok(accepted)
    }

    /// First and only packets begin a message, middle and last ones continue one of their kind
    /// (9.7.4.1.3).
    //= [resp.op-sequence]
    #[inline]
    fn check_op_seq(&self, opcode: Opcode) -> Result<(), Refusal> {
        let begins = opcode.position().begins();
        let fits = match self.message {
            Message::None => begins,
            Message::Send { .. } => !begins && opcode.operation() == Operation::Send,
            Message::Write { .. } => !begins && opcode.operation() == Operation::Write,
        };
        if fits { Ok(()) } else { Err(Refusal::Invalid) }
    }

    /// A receive for a message that consumes one, a place to remember a READ or an atomic
    /// (9.7.4.1.4), and room for what the packet causes here.
    //= [resp.resource] [resp.overrun]
    #[inline]
    fn check_resource(
        &self,
        inbound: &Inbound<'_>,
        host: &mut impl Host,
    ) -> Result<Option<Receive>, Refusal> {
        let opcode = inbound.bth.opcode;
        if !self.responses.has_room() || !self.completed.has_room() {
            return Err(Refusal::Overrun);
        }
        if let Message::Send { receive, .. } = self.message {
            return Ok(Some(receive));
        }
        match opcode.operation() {
            Operation::ReadRequest | Operation::CompareSwap | Operation::FetchAdd => {
                let all_pending = self.responses.rd_atomic() >= self.replays.depth();
                if all_pending { Err(Refusal::Invalid) } else { Ok(None) }
            }
            Operation::Send => posted_receive(host).map(Some),
            Operation::Write if opcode.has_immediate() => posted_receive(host).map(Some),
            _ => Ok(None),
        }
    }

    /// The payload fits the opcode, the path MTU and what the message announced (9.7.4.1.6).
    //= [resp.length]
    #[inline]
    fn check_length(
        &self,
        inbound: &Inbound<'_>,
        receive: Option<Receive>,
    ) -> Result<Accepted, Refusal> {
        let opcode = inbound.bth.opcode;
        opcode.payload().check(inbound.len as usize, self.mtu).map_err(|_| Refusal::Invalid)?;
        match (opcode.operation(), inbound.ext) {
            (Operation::Send, _) => self.check_send_length(inbound, receive),
            (Operation::Write, ext) => self.check_write_length(inbound, ext, receive),
            (Operation::ReadRequest, Extension::Reth(reth)) => {
                let range = checked_range(reth)?;
                Ok(Accepted::Read { range })
            }
            (operation, Extension::Atomic(eth)) => check_alignment(operation, eth),
            (operation @ (Operation::CompareSwap | Operation::FetchAdd), Extension::Reth(reth)) => {
                check_extended(operation == Operation::CompareSwap, reth, inbound.len)
            }
            // Headers that are not the opcode's do not come out of a parser.
            _ => Err(Refusal::Invalid),
        }
    }

    fn check_send_length(
        &self,
        inbound: &Inbound<'_>,
        receive: Option<Receive>,
    ) -> Result<Accepted, Refusal> {
        let receive = receive.ok_or(Refusal::NotReady)?;
        let offset = match self.message {
            Message::Send { offset, .. } => offset,
            _ => 0,
        };
        let end = u64::from(offset) + u64::from(inbound.len);
        if end > receive.room || end > u64::from(MAX_MESSAGE) {
            return Err(Refusal::TooLong { receive });
        }
        Ok(Accepted::Send { receive, offset })
    }

    #[inline]
    fn check_write_length(
        &self,
        inbound: &Inbound<'_>,
        ext: &Extension,
        receive: Option<Receive>,
    ) -> Result<Accepted, Refusal> {
        let (rkey, va, left, len) = match (self.message, ext) {
            (Message::Write { rkey, va, left, len }, _) => (rkey, va, left, len),
            (_, Extension::Reth(reth) | Extension::RethImm(reth, _)) => {
                let Range { rkey, va, len } = checked_range(reth)?;
                (rkey, va, len, len)
            }
            _ => return Err(Refusal::Invalid),
        };
        let more = left.checked_sub(inbound.len).ok_or(Refusal::Invalid)?;
        if (more == 0) != inbound.bth.opcode.position().ends() {
            return Err(Refusal::Invalid);
        }
        let range = Range { rkey, va, len: inbound.len };
        Ok(Accepted::Write { range, left: more, len, receive })
    }
}

fn posted_receive(host: &mut impl Host) -> Result<Receive, Refusal> {
    match host.receive() {
        Ok(receive) => receive.ok_or(Refusal::NotReady),
        Err(Denied) => Err(Refusal::Operational { receive: None }),
    }
}

/// The connection grants this kind of request (9.7.4.1.3).
//= [resp.op-valid]
#[inline]
fn check_op_valid(opcode: Opcode, host: &impl Host) -> Result<(), Refusal> {
    let need = match opcode.operation() {
        Operation::Write => Need::Write,
        Operation::ReadRequest => Need::Read,
        Operation::CompareSwap | Operation::FetchAdd => Need::Atomic,
        _ => return Ok(()),
    };
    if host.allows(need) { Ok(()) } else { Err(Refusal::Invalid) }
}

#[inline]
fn checked_range(reth: &Reth) -> Result<Range, Refusal> {
    match reth.dma_len {
        0..=MAX_MESSAGE => Ok(Range { rkey: reth.rkey, va: reth.va, len: reth.dma_len }),
        _ => Err(Refusal::Invalid),
    }
}

//= [resp.atomic-alignment]
fn check_alignment(operation: Operation, eth: &AtomicEth) -> Result<Accepted, Refusal> {
    let AtomicEth { va, rkey, swap_add, compare } = *eth;
    if !va.is_multiple_of(8) {
        return Err(Refusal::Invalid);
    }
    let op = match operation {
        Operation::CompareSwap => AtomicOp::CompareSwap { compare, swap: swap_add },
        _ => AtomicOp::FetchAdd { add: swap_add },
    };
    Ok(Accepted::Atomic(Atomic { va, rkey, op }))
}

/// An extended atomic has a word of 4 or 8 bytes, aligned, and all operands.
//= [resp.extended-atomic]
fn check_extended(compare_swap: bool, reth: &Reth, len: u32) -> Result<Accepted, Refusal> {
    let Reth { va, rkey, dma_len: size } = *reth;
    let fits = matches!(size, 4 | 8) && va.is_multiple_of(size.into());
    if !fits || len != operands(compare_swap, size) {
        return Err(Refusal::Invalid);
    }
    let op = AtomicOp::Extended { compare_swap, size: size as u8 };
    Ok(Accepted::Atomic(Atomic { va, rkey, op }))
}

/// Keys of what is named by the peer, of the receive, and the key to invalidate (9.7.4.1.5). A
/// request of no bytes needs no key.
//= [resp.rkey] [resp.zero-length]
#[inline]
fn check_rkey(
    inbound: &Inbound<'_>,
    accepted: &Accepted,
    host: &mut impl Host,
) -> Result<(), Refusal> {
    match *accepted {
        Accepted::Send { receive, offset } => {
            if inbound.len > 0 {
                host.check_receive(receive.id, offset, inbound.len)
                    .map_err(|Denied| Refusal::Operational { receive: Some(receive) })?;
            }
            match inbound.ext {
                //= [resp.invalidate]
                Extension::Ieth(ieth) => host
                    .check_invalidate(ieth.rkey)
                    .map_err(|Denied| Refusal::Invalidation { receive }),
                _ => Ok(()),
            }
        }
        Accepted::Write { range, len, receive, .. } => {
            // The first packet vouches for the whole message, later ones for themselves: the key
            // may have been taken back in between.
            let begins = inbound.bth.opcode.position().begins();
            let vouched = if begins { len } else { range.len };
            check_range(Range { len: vouched, ..range }, Need::Write, host)
                .map_err(|Denied| Refusal::Access { receive })
        }
        Accepted::Read { range } => {
            check_range(range, Need::Read, host).map_err(|Denied| Refusal::Access { receive: None })
        }
        Accepted::Atomic(atomic @ Atomic { va, rkey, .. }) => {
            check_range(Range { rkey, va, len: atomic.size() }, Need::Atomic, host)
                .map_err(|Denied| Refusal::Access { receive: None })
        }
    }
}

#[inline]
pub(crate) fn check_range(range: Range, need: Need, host: &mut impl Host) -> Result<(), Denied> {
    let Range { rkey, va, len } = range;
    match len {
        0 => Ok(()),
        _ => host.check_rkey(rkey, va, len, need),
    }
}
