//! Addresses for datagrams, by the numbers that WQEs name.

use crate::format::{Destination, FormatViolation};
use crate::slots::{AhSlot, Slots};
use warpverbs_rdma::Addressed;

/// Address handles at most: WQEs have 20 bits for their numbers.
pub(crate) const MAX: u32 = 1 << 20;
/// The usual limit of hops. Peers look at it no more than at the class.
const HOPS: u8 = 64;

/// An address of a protection domain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Address {
    pub(crate) pd: u32,
    pub(crate) gid: [u8; 16],
}

/// The addresses that a QP of datagrams may name.
#[derive(Clone, Copy)]
pub(crate) struct Addresses<'t> {
    pub(crate) all: &'t Slots<AhSlot, Address>,
    pub(crate) pd: u32,
}

impl Addresses<'_> {
    /// The address behind the number in a WQE.
    pub(crate) fn find(self, to: Addressed) -> Result<Destination, FormatViolation> {
        let Addressed { handle, qpn, qkey } = to;
        let found = self.all.get(AhSlot(handle)).filter(|address| address.pd == self.pd);
        let &Address { gid, .. } = found.ok_or(FormatViolation::AddressHandle { handle })?;
        Ok(Destination { qpn, qkey, gid, traffic_class: 0, hop_limit: HOPS })
    }
}
