//! A whole packet, from the IP header to the ICRC.

use crate::{Checks, EmitError, Envelope, ParseError, Transport, icrc};

/// A RoCEv2 packet.
///
/// ```
/// use warpverbs_wire::{Bth, Checks, Envelope, Extension, Ip, Ipv4, Opcode, Packet, Psn, Qpn};
/// use warpverbs_wire::{Transport, Udp};
///
/// let ip = Ip::V4(Ipv4::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into()));
/// let packet = Packet {
///     envelope: Envelope { ip, udp: Udp { src_port: 0xc000 } },
///     transport: Transport {
///         bth: Bth::new(Opcode::SendOnly, Qpn::from_low_bits(17), Psn::from_low_bits(1)),
///         ext: Extension::Empty,
///         payload: b"hello",
///     },
/// };
/// let mut bytes = vec![0; packet.len()];
/// packet.emit(&mut bytes)?;
/// assert_eq!(Packet::parse(&bytes, &Checks::STRICT)?, packet);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// IP and UDP headers.
    pub envelope: Envelope,
    /// BTH to pad.
    pub transport: Transport<'a>,
}

impl<'a> Packet<'a> {
    /// Reads a packet that begins with its IP header. The ICRC is checked before anything it
    /// covers is believed.
    ///
    /// # Errors
    /// The first thing that is wrong: see [`ParseError`].
    pub fn parse(bytes: &'a [u8], checks: &Checks) -> Result<Packet<'a>, ParseError> {
        let (envelope, datagram) = Envelope::parse(bytes)?;
        let ib = match checks.icrc {
            true => envelope.open(datagram)?,
            false => icrc::split(datagram)?.0,
        };
        Ok(Packet { envelope, transport: Transport::parse(ib, checks)? })
    }

    /// Bytes from the IP header to the ICRC.
    pub const fn len(&self) -> usize {
        self.envelope.len() + self.transport.len() + icrc::LEN
    }

    /// Never: there are always headers.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Writes the packet into `out`, which has exactly [`len`](Self::len) bytes.
    ///
    /// # Errors
    /// As [`Transport::emit`]; lengths then are those of the whole packet.
    pub fn emit(&self, out: &mut [u8]) -> Result<(), EmitError> {
        let (need, have) = (self.len(), out.len());
        let wrong_length = |_| EmitError::Buffer { need, have };
        if need != have {
            return Err(EmitError::Buffer { need, have });
        }
        let (head, datagram) = out.split_at_mut(self.envelope.len());
        // First, because it checks the payload's length, so that what follows cannot fail.
        self.transport.emit(&mut datagram[..self.transport.len()])?;
        self.envelope.emit(datagram.len(), head).map_err(wrong_length)?;
        self.envelope.seal(datagram).map_err(wrong_length)
    }
}
