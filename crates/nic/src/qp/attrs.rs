//! Attributes of a QP, which its user sets on the way from RESET to RTS.

use super::path::Path;
use crate::ModifyError;
use std::net::SocketAddr;
use std::time::Duration;
use warpverbs_mem::Access;
pub use warpverbs_rdma::AttrMask;
use warpverbs_rdma::{Mtu, QpState};

/// Attributes given with a transition; `None` is "not given".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QpAttrs {
    /// Rights of peers through this QP: the remote rights of [`Access`].
    pub access: Option<Access>,
    /// The peer's QP number, 24 bits.
    pub dest_qpn: Option<u32>,
    /// How the peer is reached.
    pub path: Option<Path>,
    /// Queue key of a QP of datagrams: it takes those that carry the same.
    pub qkey: Option<u32>,
    /// Path MTU.
    pub mtu: Option<Mtu>,
    /// First packet sequence number expected, 24 bits.
    pub rq_psn: Option<u32>,
    /// How long a sender is asked to wait when no receive is posted: a code, 0 to 31, see
    /// [`rnr_delay`].
    pub min_rnr_timer: Option<u8>,
    /// READs and atomics of the peer that may be outstanding, 0 to 16.
    pub max_dest_rd_atomic: Option<u8>,
    /// Timeout of acknowledgements: a code, 0 (never) to 31, see [`ack_timeout`].
    pub timeout: Option<u8>,
    /// Times a request is sent again when no answer comes, 0 to 7.
    pub retry: Option<u8>,
    /// Times a request is sent again when the peer has no receive, 0 to 7; 7 is for ever.
    pub rnr_retry: Option<u8>,
    /// First packet sequence number sent, 24 bits.
    pub sq_psn: Option<u32>,
    /// READs and atomics of this QP that may be outstanding, 0 to 16.
    pub max_rd_atomic: Option<u8>,
}

/// The answer of [`Qp::query`](crate::Qp::query).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QpInfo {
    /// The state.
    pub state: QpState,
    /// The attributes as far as they were given since RESET. PSNs are those of the next packet
    /// sent and of the next one expected, where packets are sent.
    pub attrs: QpAttrs,
    /// In SQD, work that was begun is still in flight.
    pub draining: bool,
}

impl QpAttrs {
    /// INIT with these rights for peers.
    pub fn init(access: Access) -> Self {
        Self { access: Some(access), ..Self::default() }
    }

    /// RTR towards a QP of the same NIC, other attributes at usual values.
    pub fn rtr(dest_qpn: u32) -> Self {
        Self {
            dest_qpn: Some(dest_qpn),
            path: Some(Path::Loopback),
            mtu: Some(Mtu::B4096),
            rq_psn: Some(0),
            min_rnr_timer: Some(12),
            max_dest_rd_atomic: Some(16),
            ..Self::default()
        }
    }

    /// RTR towards QP `dest_qpn` of the NIC at `peer`; MTU 1024, which every Ethernet carries,
    /// other attributes at usual values.
    pub fn rtr_to(peer: SocketAddr, dest_qpn: u32) -> Self {
        let path = Some(Path::Network(peer));
        Self { path, mtu: Some(Mtu::B1024), ..Self::rtr(dest_qpn) }
    }

    /// RTS with usual values: a timeout of 67 ms, seven retries, receiver-not-ready
    /// for ever.
    pub fn rts() -> Self {
        Self {
            timeout: Some(14),
            retry: Some(7),
            rnr_retry: Some(7),
            sq_psn: Some(0),
            max_rd_atomic: Some(16),
            ..Self::default()
        }
    }

    /// Which attributes are given.
    pub fn given(&self) -> AttrMask {
        let mut mask = AttrMask::empty();
        mask.set(AttrMask::ACCESS, self.access.is_some());
        mask.set(AttrMask::DEST_QPN, self.dest_qpn.is_some());
        mask.set(AttrMask::PATH, self.path.is_some());
        mask.set(AttrMask::QKEY, self.qkey.is_some());
        mask.set(AttrMask::MTU, self.mtu.is_some());
        mask.set(AttrMask::RQ_PSN, self.rq_psn.is_some());
        mask.set(AttrMask::MIN_RNR_TIMER, self.min_rnr_timer.is_some());
        mask.set(AttrMask::MAX_DEST_RD_ATOMIC, self.max_dest_rd_atomic.is_some());
        mask.set(AttrMask::TIMEOUT, self.timeout.is_some());
        mask.set(AttrMask::RETRY, self.retry.is_some());
        mask.set(AttrMask::RNR_RETRY, self.rnr_retry.is_some());
        mask.set(AttrMask::SQ_PSN, self.sq_psn.is_some());
        mask.set(AttrMask::MAX_RD_ATOMIC, self.max_rd_atomic.is_some());
        mask
    }

    /// Every given attribute fits its field.
    pub fn check_ranges(&self) -> Result<(), ModifyError> {
        let narrow = |value: Option<u8>| value.map(u32::from);
        let rows = [
            (AttrMask::DEST_QPN, self.dest_qpn, 0xff_ffff),
            (AttrMask::RQ_PSN, self.rq_psn, 0xff_ffff),
            (AttrMask::MIN_RNR_TIMER, narrow(self.min_rnr_timer), 31),
            (AttrMask::MAX_DEST_RD_ATOMIC, narrow(self.max_dest_rd_atomic), 16),
            (AttrMask::TIMEOUT, narrow(self.timeout), 31),
            (AttrMask::RETRY, narrow(self.retry), 7),
            (AttrMask::RNR_RETRY, narrow(self.rnr_retry), 7),
            (AttrMask::SQ_PSN, self.sq_psn, 0xff_ffff),
            (AttrMask::MAX_RD_ATOMIC, narrow(self.max_rd_atomic), 16),
        ];
        for (attr, value, max) in rows {
            if let Some(value) = value.filter(|&value| value > max) {
                return Err(ModifyError::TooLarge { attr, value, max });
            }
        }
        Ok(())
    }

    /// Takes over what `newer` gives.
    pub(crate) fn merge(&mut self, newer: &Self) {
        let QpAttrs {
            access,
            dest_qpn,
            path,
            qkey,
            mtu,
            rq_psn,
            min_rnr_timer,
            max_dest_rd_atomic,
            timeout,
            retry,
            rnr_retry,
            sq_psn,
            max_rd_atomic,
        } = *newer;
        self.access = access.or(self.access);
        self.dest_qpn = dest_qpn.or(self.dest_qpn);
        self.path = path.or(self.path);
        self.qkey = qkey.or(self.qkey);
        self.mtu = mtu.or(self.mtu);
        self.rq_psn = rq_psn.or(self.rq_psn);
        self.min_rnr_timer = min_rnr_timer.or(self.min_rnr_timer);
        self.max_dest_rd_atomic = max_dest_rd_atomic.or(self.max_dest_rd_atomic);
        self.timeout = timeout.or(self.timeout);
        self.retry = retry.or(self.retry);
        self.rnr_retry = rnr_retry.or(self.rnr_retry);
        self.sq_psn = sq_psn.or(self.sq_psn);
        self.max_rd_atomic = max_rd_atomic.or(self.max_rd_atomic);
    }
}

/// IBTA table 45, in units of 10 µs.
const RNR_TENS_OF_MICROS: [u16; 32] = [
    65535, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

/// Waiting time of a receiver-not-ready timer code (0 to 31; higher bits are ignored).
pub fn rnr_delay(code: u8) -> Duration {
    // Code 0 is 655.36 ms, one unit more than 16 bits hold.
    let tens = u64::from(RNR_TENS_OF_MICROS[usize::from(code & 31)]) + u64::from(code & 31 == 0);
    Duration::from_micros(tens * 10)
}

/// Timeout of acknowledgements, 4.096 µs × 2^code (1 to 31); `None` for 0: never.
pub fn ack_timeout(code: u8) -> Option<Duration> {
    (code != 0).then(|| Duration::from_nanos(4096 << (code & 31)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_are_those_of_the_specification() {
        assert_eq!(rnr_delay(0), Duration::from_micros(655_360));
        assert_eq!(rnr_delay(1), Duration::from_micros(10));
        assert_eq!(rnr_delay(12), Duration::from_micros(640));
        assert_eq!(rnr_delay(31), Duration::from_micros(491_520));
        assert_eq!(ack_timeout(0), None);
        assert_eq!(ack_timeout(14), Some(Duration::from_nanos(67_108_864)));
    }

    #[test]
    fn too_large_attributes_are_named() {
        let attrs = QpAttrs { retry: Some(8), ..QpAttrs::rts() };
        let attr = AttrMask::RETRY;
        assert_eq!(attrs.check_ranges(), Err(ModifyError::TooLarge { attr, value: 8, max: 7 }));
        assert_eq!(attr.to_string(), "RETRY");
        assert_eq!(QpAttrs::rtr(0xff_ffff).check_ranges(), Ok(()));
    }

    #[test]
    fn merging_keeps_what_is_not_given() {
        let mut attrs = QpAttrs::rtr(5);
        attrs.merge(&QpAttrs::rts());
        let both = QpAttrs::rtr(5).given() | QpAttrs::rts().given();
        assert_eq!((attrs.given(), attrs.dest_qpn), (both, Some(5)));
    }
}
