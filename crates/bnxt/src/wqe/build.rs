//! Values to the bytes of a send WQE.

use crate::opcode::{WqeFlags, WqeType};
use crate::slot::{
    AtomicHeader, AtomicSlot, DatagramSlot, HEADERS, RdmaSlot, SLOT, SendHeader, SgeSlot,
};
use warpverbs_rdma::{Addressed, Data, Op, WorkRequest};
use zerocopy::IntoBytes;

/// Why a WQE could not be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// The caller's buffer has fewer slots than the WQE.
    #[error("the WQE needs {needed} bytes, the buffer has {available}")]
    BufferTooSmall {
        /// Bytes of whole slots.
        needed: usize,
        /// Bytes given.
        available: usize,
    },
    /// More slots than a WQE can count.
    #[error("the WQE needs {needed} slots, at most 255 are possible")]
    TooManySlots {
        /// Slots, headers included.
        needed: usize,
    },
    /// READs and atomics have no inline bytes.
    #[error("{wqe_type} cannot take inline bytes")]
    Inline {
        /// The type.
        wqe_type: WqeType,
    },
    /// The entries hold more bytes than a length can tell.
    #[error("{bytes} bytes, at most 2^32 - 1 are possible")]
    TooLong {
        /// Bytes together.
        bytes: u64,
    },
    /// An atomic has one entry of 8 bytes.
    #[error("{entries} entries of {bytes} bytes with {wqe_type}, expected one of 8")]
    AtomicResult {
        /// The type.
        wqe_type: WqeType,
        /// Entries given.
        entries: usize,
        /// Bytes together.
        bytes: u64,
    },
    /// A datagram is a SEND, with or without immediate.
    #[error("{wqe_type} cannot be a datagram, expected SEND or SEND_IMM")]
    NoDatagram {
        /// The type.
        wqe_type: WqeType,
    },
}

/// Writes the WQE of `request` to the beginning of `buf`, and returns its slots: the whole WQE of a ring
/// in variable mode, and what is used of one in static mode. The bytes are those of current libraries.
pub fn build<'b>(buf: &'b mut [u8], request: &WorkRequest<'_>) -> Result<&'b [u8], BuildError> {
    fill(buf, request, None)
}

/// As [`build`], for a datagram.
pub fn build_datagram<'b>(
    buf: &'b mut [u8],
    to: Addressed,
    request: &WorkRequest<'_>,
) -> Result<&'b [u8], BuildError> {
    if !matches!(request.op, Op::Send | Op::SendImm(_)) {
        return Err(BuildError::NoDatagram { wqe_type: wqe_type(request.op) });
    }
    fill(buf, request, Some(to))
}

fn wqe_type(op: Op) -> WqeType {
    match op {
        Op::Send => WqeType::Send,
        Op::SendImm(_) => WqeType::SendImm,
        Op::SendInvalidate(_) => WqeType::SendInvalidate,
        Op::Write(_) => WqeType::Write,
        Op::WriteImm(..) => WqeType::WriteImm,
        Op::Read(_) => WqeType::Read,
        Op::CompareSwap { .. } => WqeType::CompareSwap,
        Op::FetchAdd { .. } => WqeType::FetchAdd,
    }
}

fn fill<'b>(
    buf: &'b mut [u8],
    request: &WorkRequest<'_>,
    to: Option<Addressed>,
) -> Result<&'b [u8], BuildError> {
    let (op, wqe_type) = (request.op, wqe_type(request.op));
    let (behind, length) = measure(op, wqe_type, &request.data)?;
    let slots = slots(behind)?;
    let (available, needed) = (buf.len(), usize::from(slots) * SLOT);
    let wqe = buf.get_mut(..needed).ok_or(BuildError::BufferTooSmall { needed, available })?;
    wqe.fill(0);

    let flags = WqeFlags::of(request.flags);
    let inline = matches!(request.data, Data::Inline(_)) as u8 * WqeFlags::INLINE.bits();
    let (mut header, second) = headers(op, to, length);
    header[..3].copy_from_slice(&[wqe_type.value(), flags.bits() | inline, slots]);
    let (first, rest) = wqe.split_at_mut(SLOT);
    first.copy_from_slice(&header);
    let (slot, rest) = rest.split_at_mut(SLOT);
    slot.copy_from_slice(&second);
    match request.data {
        Data::Inline(bytes) => rest[..bytes.len()].copy_from_slice(bytes),
        Data::Sges(sges) => {
            for (slot, sge) in rest.chunks_exact_mut(SLOT).zip(sges) {
                slot.copy_from_slice(SgeSlot::from(*sge).as_bytes());
            }
        }
    }
    Ok(wqe)
}

/// Slots of entries or inline bytes, and bytes of the message.
fn measure(op: Op, wqe_type: WqeType, data: &Data<'_>) -> Result<(usize, u32), BuildError> {
    match *data {
        Data::Inline(_) if op.is_rd_atomic() => Err(BuildError::Inline { wqe_type }),
        Data::Inline(bytes) => Ok((bytes.len().div_ceil(SLOT), bytes.len() as u32)),
        Data::Sges(sges) => {
            let (entries, bytes) = (sges.len(), sges.iter().map(|sge| u64::from(sge.len)).sum());
            if op.is_atomic() && (entries, bytes) != (1, 8) {
                return Err(BuildError::AtomicResult { wqe_type, entries, bytes });
            }
            let length = u32::try_from(bytes).map_err(|_| BuildError::TooLong { bytes })?;
            Ok((entries, length))
        }
    }
}

/// Slots of a WQE with so many behind the headers.
pub(crate) fn slots(behind: usize) -> Result<u8, BuildError> {
    let needed = behind + usize::from(HEADERS);
    u8::try_from(needed).map_err(|_| BuildError::TooManySlots { needed })
}

/// The first slot, without type, flags and slots, and the second.
fn headers(op: Op, to: Option<Addressed>, length: u32) -> ([u8; SLOT], [u8; SLOT]) {
    let qkey = to.map_or(0, |to| to.qkey).into();
    let header = |imm_or_key: u32| {
        let (imm_or_key, length) = (imm_or_key.into(), length.into());
        zerocopy::transmute!(SendHeader { imm_or_key, length, qkey, ..SendHeader::default() })
    };
    let send = to.map_or(DatagramSlot::default(), |to| {
        let (qpn, handle) = (to.qpn.get().into(), to.handle.into());
        DatagramSlot { qpn, handle, ..DatagramSlot::default() }
    });
    let (remote, imm, operands) = match op {
        Op::Send => return (header(0), zerocopy::transmute!(send)),
        Op::SendImm(imm) => return (header(imm), zerocopy::transmute!(send)),
        Op::SendInvalidate(rkey) => return (header(rkey.0), zerocopy::transmute!(send)),
        Op::Write(remote) | Op::Read(remote) => (remote, 0, None),
        Op::WriteImm(remote, imm) => (remote, imm, None),
        Op::CompareSwap { remote, compare, swap } => (remote, 0, Some((swap, compare))),
        Op::FetchAdd { remote, add } => (remote, 0, Some((add, 0))),
    };
    let (raddr, rkey) = (remote.addr.into(), remote.rkey.0.into());
    match operands {
        None => {
            let slot = RdmaSlot { raddr, rkey, ..RdmaSlot::default() };
            (header(imm), zerocopy::transmute!(slot))
        }
        Some((swap_add, compare)) => {
            let header = AtomicHeader { rkey, raddr, ..AtomicHeader::default() };
            let slot = AtomicSlot { swap_add: swap_add.into(), compare: compare.into() };
            (zerocopy::transmute!(header), zerocopy::transmute!(slot))
        }
    }
}
