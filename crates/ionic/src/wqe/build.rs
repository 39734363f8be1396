//! Values to the bytes of a send WQE.

use crate::body::{AtomicBody, ENTRY, Entry, Header, PAYLOAD, RdmaBody, SendBody, WQE};
use crate::opcode::{Opcode, Protocol, WqeFlags};
use crate::ring::Position;
use warpverbs_rdma::{Addressed, Data, Op, Remote, Sge, WorkRequest};
use zerocopy::{Immutable, IntoBytes};

/// Why a WQE could not be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// The buffer is not one WQE.
    #[error("buffer of {available} bytes, expected a power of two, at least 64")]
    Size {
        /// Bytes given.
        available: usize,
    },
    /// More entries than the WQE has room for.
    #[error("{entries} entries, the WQE has room for {room}")]
    TooManyEntries {
        /// Entries given.
        entries: usize,
        /// Entries that it could hold.
        room: usize,
    },
    /// More inline bytes than the WQE has room for.
    #[error("{bytes} inline bytes, the WQE has room for {room}")]
    InlineTooLong {
        /// Bytes given.
        bytes: usize,
        /// Bytes that it could hold.
        room: usize,
    },
    /// READs and atomics have no inline bytes.
    #[error("{opcode} cannot take inline bytes")]
    Inline {
        /// The opcode.
        opcode: Opcode,
    },
    /// The entries hold more bytes than a length can tell.
    #[error("{bytes} bytes, at most 2^32 - 1 are possible")]
    TooLong {
        /// Bytes together.
        bytes: u64,
    },
    /// An atomic has one entry of 8 bytes.
    #[error("{entries} entries of {bytes} bytes with {opcode}, expected one of 8")]
    AtomicResult {
        /// The opcode.
        opcode: Opcode,
        /// Entries given.
        entries: usize,
        /// Bytes together.
        bytes: u64,
    },
    /// A datagram is a SEND, with or without immediate.
    #[error("{opcode} cannot be a datagram, expected SEND or SEND_IMM")]
    NoDatagram {
        /// The opcode.
        opcode: Opcode,
    },
}

/// Writes the WQE of `request` into `wqe`, its place at `at` of the ring.
pub fn build(
    wqe: &mut [u8],
    at: Position,
    protocol: Protocol,
    request: &WorkRequest<'_>,
) -> Result<(), BuildError> {
    fill(wqe, at, protocol, request, None)
}

/// As [`build`], for a datagram.
pub fn build_datagram(
    wqe: &mut [u8],
    at: Position,
    protocol: Protocol,
    to: Addressed,
    request: &WorkRequest<'_>,
) -> Result<(), BuildError> {
    if !matches!(request.op, Op::Send | Op::SendImm(_)) {
        return Err(BuildError::NoDatagram { opcode: opcode(request.op) });
    }
    fill(wqe, at, protocol, request, Some(to))
}

/// Checks that `wqe` is one WQE, and gives the bytes that it has for entries.
pub(crate) fn whole(wqe: &[u8]) -> Result<usize, BuildError> {
    match wqe.len() {
        len if len.is_power_of_two() && len >= WQE => Ok(len - PAYLOAD),
        available => Err(BuildError::Size { available }),
    }
}

/// Number and length of entries that fit into `room` bytes.
pub(crate) fn entries(sges: &[Sge], room: usize) -> Result<(u8, u32), BuildError> {
    let (entries, room) = (sges.len(), (room / ENTRY).min(u8::MAX.into()));
    if entries > room {
        return Err(BuildError::TooManyEntries { entries, room });
    }
    let bytes = sges.iter().map(|sge| u64::from(sge.len)).sum();
    let length = u32::try_from(bytes).map_err(|_| BuildError::TooLong { bytes })?;
    Ok((entries as u8, length))
}

fn opcode(op: Op) -> Opcode {
    match op {
        Op::Send => Opcode::Send,
        Op::SendImm(_) => Opcode::SendImm,
        Op::SendInvalidate(_) => Opcode::SendInvalidate,
        Op::Write(_) => Opcode::Write,
        Op::WriteImm(..) => Opcode::WriteImm,
        Op::Read(_) => Opcode::Read,
        Op::CompareSwap { .. } => Opcode::CompareSwap,
        Op::FetchAdd { .. } => Opcode::FetchAdd,
    }
}

fn fill(
    wqe: &mut [u8],
    at: Position,
    protocol: Protocol,
    request: &WorkRequest<'_>,
    to: Option<Addressed>,
) -> Result<(), BuildError> {
    let (op, opcode, room) = (request.op, opcode(request.op), whole(wqe)?);
    let (count, length) = measure(op, opcode, &request.data, room)?;
    let mut flags = WqeFlags::of(request.flags);
    flags.set(WqeFlags::INLINE, matches!(request.data, Data::Inline(_)));
    flags.set(WqeFlags::COLOR, at.color());
    wqe.fill(0);
    let imm_or_key = match op {
        Op::SendImm(imm) | Op::WriteImm(_, imm) => imm,
        Op::SendInvalidate(rkey) => rkey.0,
        _ => 0,
    };
    let header = Header {
        index: u64::from(at.index()).into(),
        opcode: opcode.value(protocol),
        entries: count,
        flags: flags.bits().into(),
        imm_or_key: imm_or_key.into(),
    };
    put(wqe, 0, &header);
    match op {
        Op::Send | Op::SendImm(_) | Op::SendInvalidate(_) => {
            let mut body = SendBody { length: length.into(), ..SendBody::default() };
            if let Some(to) = to {
                (body.handle, body.qpn) = (to.handle.into(), to.qpn.get().into());
                body.qkey = to.qkey.into();
            }
            put(wqe, size_of::<Header>(), &body);
        }
        Op::Write(remote) | Op::WriteImm(remote, _) | Op::Read(remote) => {
            let (raddr, rkey) = (remote.addr.into(), remote.rkey.0.into());
            put(wqe, size_of::<Header>(), &RdmaBody { raddr, rkey, length: length.into() });
        }
        Op::CompareSwap { remote, compare, swap } => {
            atomic(wqe, protocol, remote, (swap, compare), &request.data);
            return Ok(());
        }
        Op::FetchAdd { remote, add } => {
            atomic(wqe, protocol, remote, (add, 0), &request.data);
            return Ok(());
        }
    }
    match request.data {
        Data::Inline(bytes) => wqe[PAYLOAD..PAYLOAD + bytes.len()].copy_from_slice(bytes),
        Data::Sges(sges) => put_entries(wqe, sges),
    }
    Ok(())
}

/// Number of entries, and bytes of the message.
fn measure(op: Op, opcode: Opcode, data: &Data<'_>, room: usize) -> Result<(u8, u32), BuildError> {
    match *data {
        Data::Inline(_) if op.is_rd_atomic() => Err(BuildError::Inline { opcode }),
        Data::Inline(bytes) if bytes.len() > room => {
            Err(BuildError::InlineTooLong { bytes: bytes.len(), room })
        }
        Data::Inline(bytes) => Ok((0, bytes.len() as u32)),
        Data::Sges(sges) => {
            let bytes = sges.iter().map(|sge| u64::from(sge.len)).sum();
            if op.is_atomic() && (sges.len(), bytes) != (1, 8) {
                return Err(BuildError::AtomicResult { opcode, entries: sges.len(), bytes });
            }
            entries(sges, room)
        }
    }
}

/// Writes the body of an atomic whose one entry was checked.
fn atomic(
    wqe: &mut [u8],
    protocol: Protocol,
    remote: Remote,
    (swap_add, compare): (u64, u64),
    data: &Data<'_>,
) {
    let result = match *data {
        Data::Sges([result]) => *result,
        _ => Sge::default(),
    };
    let (lkey, result) = match protocol {
        Protocol::V1 => (0, Entry::from(result)),
        Protocol::V2 => (result.lkey.0, Entry::from(Sge::new(result.addr, 0, 0))),
    };
    let body = AtomicBody {
        raddr: remote.addr.into(),
        rkey: remote.rkey.0.into(),
        swap_add: swap_add.into(),
        compare: compare.into(),
        lkey: lkey.into(),
        result,
    };
    put(wqe, size_of::<Header>(), &body);
}

pub(crate) fn put_entries(wqe: &mut [u8], sges: &[Sge]) {
    for (place, sge) in wqe[PAYLOAD..].chunks_exact_mut(ENTRY).zip(sges) {
        place.copy_from_slice(Entry::from(*sge).as_bytes());
    }
}

fn put(wqe: &mut [u8], at: usize, part: &(impl IntoBytes + Immutable)) {
    let bytes = part.as_bytes();
    wqe[at..at + bytes.len()].copy_from_slice(bytes);
}
