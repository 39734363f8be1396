//! Receive WQEs: a header and entries. Posters set neither opcode, flags nor colour.

use crate::body::{Header, PAYLOAD, Sges, list};
use crate::ring::Position;
use crate::wqe::{BuildError, WqeViolation, entries, place, put_entries, whole};
use warpverbs_rdma::Sge;
use zerocopy::IntoBytes;

/// Checks and decodes the receive WQE that fills `raw`, at `at`. Where posters put the length of all
/// entries together differs, so it is not looked at.
pub fn parse(raw: &[u8], at: Position) -> Result<Sges<'_>, WqeViolation> {
    let value = place(raw, at)?.entries;
    list(&raw[PAYLOAD..], value).map_err(|max| WqeViolation::Entries { value, min: 0, max })
}

/// Writes the receive WQE of these entries into `wqe`, its place at `at` of the ring.
pub fn build(wqe: &mut [u8], at: Position, sges: &[Sge]) -> Result<(), BuildError> {
    let (entries, length) = entries(sges, whole(wqe)?)?;
    wqe.fill(0);
    let header = Header {
        index: u64::from(at.index()).into(),
        entries,
        imm_or_key: length.into(),
        ..Header::default()
    };
    wqe[..size_of::<Header>()].copy_from_slice(header.as_bytes());
    put_entries(wqe, sges);
    Ok(())
}
