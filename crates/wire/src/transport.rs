//! The InfiniBand part of a packet: BTH, extension headers, payload and pad.

use core::ops::Range;

use crate::payload::pad_count;
use crate::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Deth, EmitError, HeaderSet, Ieth, ImmDt, Layout, Mtu,
    Opcode, ParseError, PayloadError, Pkey, Psn, Qpn, ReservedField, Reth, aeth, atomic, bth, deth,
    ieth, immdt, reth,
};

/// How strictly to parse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checks {
    /// Check the ICRC; only [`crate::Packet::parse`] looks at this.
    pub icrc: bool,
    /// Refuse reserved bits and pad bytes that are not zero. The specification has a receiver
    /// ignore them.
    pub reserved: bool,
    /// The partition key of this end.
    pub pkey: Pkey,
}

impl Checks {
    /// The checks that the specification has a receiver make.
    pub const CONFORMING: Checks = Checks { icrc: true, reserved: false, pkey: Pkey::DEFAULT };
    /// Also checks of fields that it has a receiver ignore: for looking at one's own packets.
    pub const STRICT: Checks = Checks { reserved: true, ..Checks::CONFORMING };
}

impl Default for Checks {
    fn default() -> Checks {
        Checks::CONFORMING
    }
}

/// The extension headers of a packet; one variant for each [`HeaderSet`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extension {
    /// None.
    Empty,
    /// Immediate data.
    Imm(ImmDt),
    /// A key to invalidate.
    Ieth(Ieth),
    /// A remote region.
    Reth(Reth),
    /// A remote region and immediate data.
    RethImm(Reth, ImmDt),
    /// An acknowledgement.
    Aeth(Aeth),
    /// An acknowledgement with the result of an atomic.
    AethAtomicAck(Aeth, AtomicAckEth),
    /// An atomic.
    Atomic(AtomicEth),
    /// A datagram.
    Deth(Deth),
    /// A datagram with immediate data.
    DethImm(Deth, ImmDt),
}

impl Extension {
    /// Which headers these are.
    #[inline]
    pub const fn headers(&self) -> HeaderSet {
        match self {
            Extension::Empty => HeaderSet::Empty,
            Extension::Imm(_) => HeaderSet::Imm,
            Extension::Ieth(_) => HeaderSet::Ieth,
            Extension::Reth(_) => HeaderSet::Reth,
            Extension::RethImm(..) => HeaderSet::RethImm,
            Extension::Aeth(_) => HeaderSet::Aeth,
            Extension::AethAtomicAck(..) => HeaderSet::AethAtomicAck,
            Extension::Atomic(_) => HeaderSet::Atomic,
            Extension::Deth(_) => HeaderSet::Deth,
            Extension::DethImm(..) => HeaderSet::DethImm,
        }
    }

    /// Reads the headers of a set; also returns what follows them.
    ///
    /// # Errors
    /// [`ParseError::Truncated`] if a header does not fit.
    #[inline]
    pub fn parse(set: HeaderSet, bytes: &[u8]) -> Result<(Extension, &[u8]), ParseError> {
        Ok(match set {
            HeaderSet::Empty => (Extension::Empty, bytes),
            HeaderSet::Imm => {
                let (imm, rest) = immdt::Header::view(bytes)?;
                (Extension::Imm(ImmDt::parse(imm)), rest)
            }
            HeaderSet::Ieth => {
                let (ieth, rest) = ieth::Header::view(bytes)?;
                (Extension::Ieth(Ieth::parse(ieth)), rest)
            }
            HeaderSet::Reth => {
                let (reth, rest) = reth::Header::view(bytes)?;
                (Extension::Reth(Reth::parse(reth)), rest)
            }
            HeaderSet::RethImm => {
                let (reth, rest) = reth::Header::view(bytes)?;
                let (imm, rest) = immdt::Header::view(rest)?;
                (Extension::RethImm(Reth::parse(reth), ImmDt::parse(imm)), rest)
            }
            HeaderSet::Aeth => {
                let (aeth, rest) = aeth::Header::view(bytes)?;
                (Extension::Aeth(Aeth::parse(aeth)), rest)
            }
            HeaderSet::AethAtomicAck => {
                let (aeth, rest) = aeth::Header::view(bytes)?;
                let (ack, rest) = atomic::AckHeader::view(rest)?;
                (Extension::AethAtomicAck(Aeth::parse(aeth), AtomicAckEth::parse(ack)), rest)
            }
            HeaderSet::Atomic => {
                let (atomic, rest) = atomic::Header::view(bytes)?;
                (Extension::Atomic(AtomicEth::parse(atomic)), rest)
            }
            HeaderSet::Deth => {
                let (deth, rest) = deth::Header::view(bytes)?;
                (Extension::Deth(Deth::parse(deth)), rest)
            }
            HeaderSet::DethImm => {
                let (deth, rest) = deth::Header::view(bytes)?;
                let (imm, rest) = immdt::Header::view(rest)?;
                (Extension::DethImm(Deth::parse(deth), ImmDt::parse(imm)), rest)
            }
        })
    }

    /// Writes the headers at the start of `out`; returns what follows them.
    ///
    /// # Errors
    /// [`ParseError::Truncated`] if a header does not fit.
    #[inline]
    pub fn emit<'a>(&self, out: &'a mut [u8]) -> Result<&'a mut [u8], ParseError> {
        match self {
            Extension::Empty => Ok(out),
            Extension::Imm(imm) => put_imm(imm, out),
            Extension::Ieth(ieth) => {
                let (header, rest) = ieth::Header::view_mut(out)?;
                ieth.emit(header);
                Ok(rest)
            }
            Extension::Reth(reth) => put_reth(reth, out),
            Extension::RethImm(reth, imm) => put_imm(imm, put_reth(reth, out)?),
            Extension::Aeth(aeth) => put_aeth(aeth, out),
            Extension::AethAtomicAck(aeth, ack) => {
                let (header, rest) = atomic::AckHeader::view_mut(put_aeth(aeth, out)?)?;
                ack.emit(header);
                Ok(rest)
            }
            Extension::Atomic(atomic) => {
                let (header, rest) = atomic::Header::view_mut(out)?;
                atomic.emit(header);
                Ok(rest)
            }
            Extension::Deth(deth) => put_deth(deth, out),
            Extension::DethImm(deth, imm) => put_imm(imm, put_deth(deth, out)?),
        }
    }
}

fn put_imm<'a>(imm: &ImmDt, out: &'a mut [u8]) -> Result<&'a mut [u8], ParseError> {
    let (header, rest) = immdt::Header::view_mut(out)?;
    imm.emit(header);
    Ok(rest)
}

#[inline]
fn put_reth<'a>(reth: &Reth, out: &'a mut [u8]) -> Result<&'a mut [u8], ParseError> {
    let (header, rest) = reth::Header::view_mut(out)?;
    reth.emit(header);
    Ok(rest)
}

fn put_aeth<'a>(aeth: &Aeth, out: &'a mut [u8]) -> Result<&'a mut [u8], ParseError> {
    let (header, rest) = aeth::Header::view_mut(out)?;
    aeth.emit(header);
    Ok(rest)
}

fn put_deth<'a>(deth: &Deth, out: &'a mut [u8]) -> Result<&'a mut [u8], ParseError> {
    let (header, rest) = deth::Header::view_mut(out)?;
    deth.emit(header);
    Ok(rest)
}

/// BTH to pad: what is inside a UDP datagram before the ICRC. The pad is derived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transport<'a> {
    /// Base transport header.
    pub bth: Bth,
    /// Extension headers, those of the opcode.
    pub ext: Extension,
    /// Payload without pad.
    pub payload: &'a [u8],
}

impl<'a> Transport<'a> {
    /// Reads `ib`, BTH to pad. Payload lengths are not judged: see
    /// [`check_payload`](Self::check_payload).
    ///
    /// # Errors
    /// Truncation, transport version, opcode, partition key, pad and alignment; reserved bits if
    /// asked for.
    #[inline]
    pub fn parse(ib: &'a [u8], checks: &Checks) -> Result<Transport<'a>, ParseError> {
        let (header, rest) = bth::Header::view(ib)?;
        let bth = Bth::parse(header)?;
        if !checks.pkey.admits(bth.pkey) {
            return Err(ParseError::Pkey { found: bth.pkey, expected: checks.pkey });
        }
        let (ext, padded) = Extension::parse(bth.opcode.headers(), rest)?;
        if !padded.len().is_multiple_of(4) {
            return Err(ParseError::Alignment { found: padded.len() });
        }
        let (pad, have) = (header.pad_count(), padded.len());
        let len = have.checked_sub(usize::from(pad)).ok_or(ParseError::Pad { pad, have })?;
        let (payload, pad_bytes) = padded.split_at(len);
        if checks.reserved {
            check_reserved(header, pad_bytes)?;
        }
        Ok(Transport { bth, ext, payload })
    }

    /// Where a packet goes that [`parse`](Self::parse) refuses because its opcode is one of
    /// reliable connection's that are reserved: a responder owes it an answer.
    pub fn reserved(ib: &[u8], pkey: Pkey) -> Option<(Qpn, Psn)> {
        let (header, _) = bth::Header::view(ib).ok()?;
        let ours = header.version() == 0 && pkey.admits(Pkey(header.pkey.get()));
        let reserved = header.opcode >> 5 == 0 && Opcode::from_byte(header.opcode).is_none();
        let place =
            (Qpn::from_low_bits(header.dest_qpn.get()), Psn::from_low_bits(header.psn.get()));
        (ours && reserved).then_some(place)
    }

    /// Checks the payload's length against the opcode and the path MTU. A responder answers a
    /// request that fails with NAK Invalid Request; a requester fails on such a response.
    ///
    /// # Errors
    /// The rule that is broken.
    pub const fn check_payload(&self, mtu: Mtu) -> Result<(), PayloadError> {
        self.bth.opcode.payload().check(self.payload.len(), mtu)
    }

    /// Bytes from BTH to pad.
    pub const fn len(&self) -> usize {
        Self::len_with(&self.ext, self.payload.len())
    }

    /// Never: there is always a BTH.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Bytes from BTH to pad for these extension headers and so much payload.
    #[inline]
    pub const fn len_with(ext: &Extension, payload_len: usize) -> usize {
        bth::Header::LEN + ext.headers().len() + payload_len + pad_count(payload_len) as usize
    }

    /// Writes BTH to pad into `out`, which has exactly [`len`](Self::len) bytes.
    ///
    /// # Errors
    /// A buffer of another length, extension headers that are not the opcode's, or a payload that
    /// no path MTU permits. Nothing is written then.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) -> Result<(), EmitError> {
        let payload = Self::emit_around(&self.bth, &self.ext, self.payload.len(), out)?;
        out[payload].copy_from_slice(self.payload);
        Ok(())
    }

    /// Writes all but the payload, and says where the payload goes: for payloads that are gathered
    /// in place.
    ///
    /// # Errors
    /// As [`emit`](Self::emit).
    #[inline]
    pub fn emit_around(
        bth: &Bth,
        ext: &Extension,
        payload_len: usize,
        out: &mut [u8],
    ) -> Result<Range<usize>, EmitError> {
        let opcode = bth.opcode;
        let (found, expected) = (ext.headers(), opcode.headers());
        if found != expected {
            return Err(EmitError::Headers { opcode, found, expected });
        }
        let payload = opcode.payload().check_any_mtu(payload_len);
        payload.map_err(|cause| EmitError::Payload { opcode, cause })?;
        let (need, have) = (Self::len_with(ext, payload_len), out.len());
        if need != have {
            return Err(EmitError::Buffer { need, have });
        }
        let too_short = |_| EmitError::Buffer { need, have };
        let (header, rest) = bth::Header::view_mut(out).map_err(too_short)?;
        bth.emit(payload_len, header);
        let padded = ext.emit(rest).map_err(too_short)?;
        if padded.len() > payload_len {
            padded[payload_len..].fill(0);
        }
        let start = have - padded.len();
        Ok(start..start + payload_len)
    }
}

fn check_reserved(header: &bth::Header, pad: &[u8]) -> Result<(), ParseError> {
    let pad = pad.iter().fold(0, |word, byte| word << 8 | u32::from(*byte));
    let fields = [
        (ReservedField::Bth6, u32::from(header.resv6a())),
        (ReservedField::Bth7, u32::from(header.resv7())),
        (ReservedField::Pad, pad),
    ];
    match fields.into_iter().find(|(_, found)| *found != 0) {
        Some((field, found)) => Err(ParseError::Reserved { field, found }),
        None => Ok(()),
    }
}
