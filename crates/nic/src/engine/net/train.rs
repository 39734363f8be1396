//! Datagrams of one length that leave in one call of the link.

use crate::slots::QpSlot;
use std::net::SocketAddr;
use warpverbs_link::{QpnPart, TrainLimits};

/// Where a datagram goes: an address, and a part of the QP numbers there.
pub(super) type Target = (SocketAddr, QpnPart);

/// Datagrams of one length, but for the last, to one peer. The first datagram selects the NIC among those
/// that share an address.
#[derive(Debug, Default)]
pub(super) struct Train {
    pub(super) to: Option<Target>,
    /// The connection that the last datagram is from. Its peer does not change during a slice, and
    /// a train does not last longer.
    pub(super) last: Option<QpSlot>,
    /// Longer than the train: what was written once is not cleared for the next.
    pub(super) bytes: Vec<u8>,
    /// Bytes of all datagrams.
    pub(super) len: usize,
    /// Length of every datagram but the last.
    pub(super) segment: usize,
    pub(super) count: usize,
    /// Of the link, when the first datagram was added.
    pub(super) limits: TrainLimits,
}

impl Train {
    #[inline]
    pub(super) fn has_room(&self, len: usize) -> bool {
        len <= self.segment
            && self.len == self.segment * self.count
            && self.count < self.limits.segments
            && self.len + len <= self.limits.bytes
    }

    pub(super) fn datagrams(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Room for another datagram of `len` bytes.
    pub(super) fn next(&mut self, len: usize) -> &mut [u8] {
        let end = self.len + len;
        if self.bytes.len() < end {
            self.bytes.resize(end.next_multiple_of(1 << 12), 0);
        }
        &mut self.bytes[self.len..end]
    }

    /// The datagram just written is one of it.
    pub(super) fn add(&mut self, len: usize) {
        if self.count == 0 {
            self.segment = len;
        }
        (self.len, self.count) = (self.len + len, self.count + 1);
    }
}
