//! Counters of QPs and of the NIC.

use crate::format::SendOpcode;
use std::ops::AddAssign;

/// WQEs executed, by opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpCounts([u64; 64]);

impl Default for OpCounts {
    fn default() -> Self {
        Self([0; 64])
    }
}

impl OpCounts {
    /// WQEs with this opcode.
    pub fn get(&self, opcode: SendOpcode) -> u64 {
        self.0.get(usize::from(opcode.value())).copied().unwrap_or(0)
    }

    /// All WQEs.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    #[inline]
    pub(crate) fn add(&mut self, opcode: SendOpcode, count: u64) {
        self.0[usize::from(opcode.value() & 63)] += count;
    }
}

/// Counters of one QP since it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QpStats {
    /// New doorbell values seen.
    pub doorbells: u64,
    /// WQEs completed with success, by opcode.
    pub wqes: OpCounts,
    /// Payload bytes of these, either direction.
    pub bytes: u64,
    /// CQEs written for the send queue.
    pub send_cqes: u64,
    /// WQEs that failed, flushes not counted.
    pub errors: u64,
    /// WQEs flushed, sends and receives.
    pub flushed: u64,
    /// Times the peer had no receive.
    pub rnr_naks: u64,
    /// Times no answer came.
    pub timeouts: u64,
    /// Packets sent again.
    pub resent: u64,
    /// Receives consumed.
    pub receives: u64,
    /// Payload bytes that peers sent into receives.
    pub received_bytes: u64,
}

impl AddAssign for QpStats {
    fn add_assign(&mut self, other: Self) {
        let Self {
            doorbells,
            wqes,
            bytes,
            send_cqes,
            errors,
            flushed,
            rnr_naks,
            timeouts,
            resent,
            receives,
            received_bytes,
        } = other;
        self.doorbells += doorbells;
        for (sum, n) in self.wqes.0.iter_mut().zip(wqes.0) {
            *sum += n;
        }
        self.bytes += bytes;
        self.send_cqes += send_cqes;
        self.errors += errors;
        self.flushed += flushed;
        self.rnr_naks += rnr_naks;
        self.timeouts += timeouts;
        self.resent += resent;
        self.receives += receives;
        self.received_bytes += received_bytes;
    }
}

/// Datagrams of a NIC's link. Those that arrived and are counted under a fault were dropped without
/// an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NetStats {
    /// Datagrams handed to the link.
    pub sent: u64,
    /// Their bytes, BTH to ICRC.
    pub sent_bytes: u64,
    /// Datagrams that the link could not send.
    pub send_errors: u64,
    /// Datagrams that arrived, valid or not.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// ICRC wrong.
    pub bad_icrc: u64,
    /// Another partition.
    pub wrong_pkey: u64,
    /// Not a packet of the service of the QP that it is for.
    pub malformed: u64,
    /// For a QP that does not exist or is not on the network.
    pub unknown_qp: u64,
    /// From another address than the QP's peer.
    pub wrong_source: u64,
    /// Datagrams with another queue key than their QP's.
    pub wrong_qkey: u64,
    /// Datagrams for which no receive was posted.
    pub no_receive: u64,
    /// Dropped, since the bounce buffers of its connection were full.
    pub bounce_full: u64,
    /// Copies between bounce buffers and memory of GPUs, and of the host where the order requires
    /// it.
    pub bounced_copies: u64,
    /// Their bytes.
    pub bounced_bytes: u64,
}

/// Counters of a NIC since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NicStats {
    /// Sums over all QPs, destroyed ones included.
    pub qps: QpStats,
    /// QPs that exist.
    pub live_qps: u64,
    /// Memory keys that exist.
    pub live_keys: u64,
    /// Slices of work done or attempted.
    pub steps: u64,
    /// Violations found.
    pub violations: u64,
    /// Events dropped because nobody polled them.
    pub events_lost: u64,
    /// Look-ups of objects that no longer existed: each is a bug of the NIC.
    pub stale_slots: u64,
    /// The link's counters; all 0 without a link.
    pub net: NetStats,
}
