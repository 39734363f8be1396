//! Registered memory of this side as the entries of a work request's list.

use crate::limits::{MAX_RECV_SGES, MAX_SEND_SGES};
use crate::{LocalRegion, RemoteRegion, UsageError};
use arrayvec::ArrayVec;
use warpverbs_mlx5::num::MAX_MESSAGE;
use warpverbs_rdma::Sge;

/// The local memory of one send.
pub(crate) type Pieces = ArrayVec<Sge, MAX_SEND_SGES>;

/// Checks that this many bytes fit.
pub(crate) fn fits(local: u64, remote: RemoteRegion) -> Result<(), UsageError> {
    match local <= remote.len() {
        true => Ok(()),
        false => Err(UsageError::LengthMismatch { local, remote: remote.len() }),
    }
}

/// The parts of `local` that have bytes, no more in all than `remote` has.
#[inline]
pub(crate) fn pieces(
    local: &[LocalRegion],
    remote: Option<RemoteRegion>,
) -> Result<Pieces, UsageError> {
    if local.len() > MAX_SEND_SGES {
        return Err(UsageError::TooManySges { count: local.len(), max: MAX_SEND_SGES });
    }
    let (mut bytes, mut out) = (0u64, Pieces::new());
    for part in local.iter().filter(|part| !part.is_empty()) {
        bytes = bytes.saturating_add(part.len());
        out.push(sge(part)?);
    }
    if bytes > MAX_MESSAGE {
        return Err(UsageError::TooLong { bytes, max: MAX_MESSAGE });
    }
    remote.map_or(Ok(()), |remote| fits(bytes, remote))?;
    Ok(out)
}

/// One piece of local memory of at most `MAX_MESSAGE` bytes.
#[inline]
fn sge(part: &LocalRegion) -> Result<Sge, UsageError> {
    match part.len() {
        bytes if bytes > MAX_MESSAGE => Err(UsageError::TooLong { bytes, max: MAX_MESSAGE }),
        len => Ok(Sge::new(part.addr(), len as u32, part.lkey())),
    }
}

/// The non-empty parts of `local` as the NIC takes them, and how many they are.
pub(crate) fn recv_sges(
    local: &[LocalRegion],
    max: usize,
) -> Result<([Sge; MAX_RECV_SGES], usize), UsageError> {
    let (mut sges, mut count) = ([Sge::default(); MAX_RECV_SGES], 0);
    for part in local.iter().filter(|part| !part.is_empty()) {
        if count == max {
            return Err(UsageError::TooManySges { count: local.len(), max });
        }
        sges[count] = sge(part)?;
        count += 1;
    }
    Ok((sges, count))
}
