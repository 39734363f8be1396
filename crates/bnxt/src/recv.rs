//! Receive WQEs, of a receive queue or an SRQ: a header and entries.

use crate::opcode::WqeType;
use crate::slot::{HEADERS, RecvHeader, SLOT, SgeSlot, Sges, list};
use crate::wqe::{BuildError, WqeViolation, slots, truncated};
use warpverbs_rdma::Sge;
use zerocopy::{IntoBytes, transmute_ref};

/// Bits of a receive's number.
pub const ID_BITS: u32 = 20;

/// Checks and decodes the receive WQE in `raw`: its number, 20 bits, and its entries. A receive of no
/// bytes has one entry of zero length, and an empty list here.
pub fn parse(raw: &[u8]) -> Result<(u32, Sges<'_>), WqeViolation> {
    let (all, _) = raw.as_chunks::<SLOT>();
    let [first, _, rest @ ..] = all else {
        return Err(truncated(raw, HEADERS));
    };
    let header: &RecvHeader = transmute_ref!(first);
    match WqeType::from_value(header.wqe_type) {
        WqeType::Recv => {}
        WqeType::Unknown(value) => return Err(WqeViolation::UnknownType { value }),
        wqe_type => return Err(WqeViolation::UnsupportedType { wqe_type }),
    }
    if header.reserved != 0 {
        return Err(WqeViolation::Reserved { value: header.reserved });
    }
    let value = header.slots;
    let Some(entries) = value.checked_sub(HEADERS).filter(|&entries| entries > 0) else {
        let (wqe_type, min, max) = (WqeType::Recv, HEADERS + 1, u8::MAX);
        return Err(WqeViolation::Slots { wqe_type, value, min, max });
    };
    let rest = rest.get(..entries.into()).ok_or_else(|| truncated(raw, value))?;
    Ok((header.id.get() & ((1 << ID_BITS) - 1), list(rest)))
}

/// Writes the receive WQE of number `id`, 20 bits, to the beginning of `buf`, and returns its slots.
pub fn build<'b>(buf: &'b mut [u8], id: u32, sges: &[Sge]) -> Result<&'b [u8], BuildError> {
    // Devices need one at least.
    let slots = slots(sges.len().max(1))?;
    let (available, needed) = (buf.len(), usize::from(slots) * SLOT);
    let wqe = buf.get_mut(..needed).ok_or(BuildError::BufferTooSmall { needed, available })?;
    wqe.fill(0);
    let header = RecvHeader {
        wqe_type: WqeType::Recv.value(),
        slots,
        id: id.into(),
        ..RecvHeader::default()
    };
    wqe[..SLOT].copy_from_slice(header.as_bytes());
    let behind = wqe[usize::from(HEADERS) * SLOT..].chunks_exact_mut(SLOT);
    for (slot, sge) in behind.zip(sges) {
        slot.copy_from_slice(SgeSlot::from(*sge).as_bytes());
    }
    Ok(wqe)
}
