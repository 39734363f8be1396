//! Attributes of a QP: what its owner sets on the way from RESET to RTS.

use crate::safe::port::mtu_from_raw;
use crate::safe::{Gid, access};
use crate::sys;
use warpverbs_mem::Access;
use warpverbs_rdma::{AttrMask, Mtu, QpState};

/// A route by GIDs; always there on Ethernet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GlobalRoute {
    /// The peer's GID.
    pub dgid: Gid,
    /// Index of the own GID, of the same kind.
    pub sgid_index: u8,
    /// Hops at most.
    pub hop_limit: u8,
    /// Traffic class; on RoCEv2 the IP header's.
    pub traffic_class: u8,
    /// Flow label, 20 bits; on RoCEv2 it spreads connections over UDP source ports.
    pub flow_label: u32,
}

/// How the peer is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// Own port, from 1.
    pub port: u8,
    /// The peer's local identifier; 0 on Ethernet.
    pub dlid: u16,
    /// Service level; on Ethernet the priority.
    pub sl: u8,
    /// Low bits of the own local identifier.
    pub src_path_bits: u8,
    /// Rate limit (`enum ibv_rate`); 0 for none.
    pub static_rate: u8,
    /// Route by GIDs.
    pub global: Option<GlobalRoute>,
}

impl Path {
    /// By GID over Ethernet, 64 hops at most.
    pub fn roce(port: u8, sgid_index: u8, dgid: Gid) -> Self {
        let global =
            GlobalRoute { dgid, sgid_index, hop_limit: 64, traffic_class: 0, flow_label: 0 };
        Self { port, dlid: 0, sl: 0, src_path_bits: 0, static_rate: 0, global: Some(global) }
    }

    /// By local identifier inside an InfiniBand subnet.
    pub fn infiniband(port: u8, dlid: u16) -> Self {
        Self { port, dlid, sl: 0, src_path_bits: 0, static_rate: 0, global: None }
    }

    /// As the library takes it.
    pub fn to_raw(self) -> sys::ibv_ah_attr {
        let route = self.global.unwrap_or(GlobalRoute {
            dgid: Gid::default(),
            sgid_index: 0,
            hop_limit: 0,
            traffic_class: 0,
            flow_label: 0,
        });
        sys::ibv_ah_attr {
            grh: sys::ibv_global_route {
                dgid: sys::ibv_gid { raw: route.dgid.0 },
                flow_label: route.flow_label,
                sgid_index: route.sgid_index,
                hop_limit: route.hop_limit,
                traffic_class: route.traffic_class,
            },
            dlid: self.dlid,
            sl: self.sl,
            src_path_bits: self.src_path_bits,
            static_rate: self.static_rate,
            is_global: self.global.is_some().into(),
            port_num: self.port,
        }
    }

    /// As the library reports it.
    pub fn from_raw(raw: &sys::ibv_ah_attr) -> Self {
        // SAFETY: every variant of the union is sixteen bytes, and every pattern of them is valid.
        let dgid = Gid(unsafe { raw.grh.dgid.raw });
        let global = (raw.is_global != 0).then_some(GlobalRoute {
            dgid,
            sgid_index: raw.grh.sgid_index,
            hop_limit: raw.grh.hop_limit,
            traffic_class: raw.grh.traffic_class,
            flow_label: raw.grh.flow_label,
        });
        Self {
            port: raw.port_num,
            dlid: raw.dlid,
            sl: raw.sl,
            src_path_bits: raw.src_path_bits,
            static_rate: raw.static_rate,
            global,
        }
    }
}

/// Attributes given with a transition; `None` is "not given".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QpAttrs {
    /// The rights of peers through this QP: the remote ones of [`Access`].
    pub access: Option<Access>,
    /// Own port, from 1.
    pub port: Option<u8>,
    /// Partition key, by index.
    pub pkey_index: Option<u16>,
    /// How the peer is reached.
    pub path: Option<Path>,
    /// Path MTU.
    pub mtu: Option<Mtu>,
    /// The peer's QP number, 24 bits.
    pub dest_qpn: Option<u32>,
    /// First packet sequence number expected, 24 bits.
    pub rq_psn: Option<u32>,
    /// READs and atomics of the peer that may be outstanding.
    pub max_dest_rd_atomic: Option<u8>,
    /// How long a sender is asked to wait when no receive is posted: a code, 0 to 31.
    pub min_rnr_timer: Option<u8>,
    /// Time until an answer is missed, 4.096 µs × 2^code: a code, 0 (never) to 31.
    pub timeout: Option<u8>,
    /// Times a request is sent again when no answer comes, 0 to 7. Soft-RoCE takes 7 for ever.
    pub retry: Option<u8>,
    /// Times a request is sent again when the peer has no receive, 0 to 7; 7 is for ever.
    pub rnr_retry: Option<u8>,
    /// First packet sequence number sent, 24 bits.
    pub sq_psn: Option<u32>,
    /// READs and atomics of this QP that may be outstanding.
    pub max_rd_atomic: Option<u8>,
    /// An event tells when the send queue is drained ([`QpState::Sqd`]).
    pub sqd_notify: Option<bool>,
    /// The state that the owner takes it to be in.
    pub cur_state: Option<QpState>,
}

impl QpAttrs {
    /// INIT on `port`, with these rights for peers and the first partition key.
    pub fn init(port: u8, access: Access) -> Self {
        let (port, access, pkey_index) = (Some(port), Some(access), Some(0));
        Self { port, access, pkey_index, ..Self::default() }
    }

    /// RTR towards QP `dest_qpn`, other attributes at usual values.
    pub fn rtr(path: Path, mtu: Mtu, dest_qpn: u32, rq_psn: u32) -> Self {
        Self {
            path: Some(path),
            mtu: Some(mtu),
            dest_qpn: Some(dest_qpn),
            rq_psn: Some(rq_psn),
            max_dest_rd_atomic: Some(1),
            min_rnr_timer: Some(12),
            ..Self::default()
        }
    }

    /// RTS with usual values: an answer is missed after 67 ms, six retries, receiver-not-ready
    /// for ever, one READ or atomic at a time.
    pub fn rts(sq_psn: u32) -> Self {
        Self {
            timeout: Some(14),
            // Linux's soft-RoCE takes seven for "for ever": a dead peer would never be missed.
            retry: Some(6),
            rnr_retry: Some(7),
            sq_psn: Some(sq_psn),
            max_rd_atomic: Some(1),
            ..Self::default()
        }
    }

    /// Which attributes are given.
    pub fn given(&self) -> AttrMask {
        self.to_raw().1
    }

    pub(super) fn to_raw(self) -> (sys::ibv_qp_attr, AttrMask) {
        let mut raw: sys::ibv_qp_attr = sys::zeroed();
        let mut mask = AttrMask::empty();
        macro_rules! set {
            ($($field:ident => $bit:ident, $($place:ident).+ $(, $convert:expr)?;)*) => {$(
                if let Some(value) = self.$field {
                    $(let value = $convert(value);)?
                    raw.$($place).+ = value;
                    mask |= AttrMask::$bit;
                }
            )*};
        }
        set! {
            access => ACCESS, qp_access_flags, access::qp_flags;
            port => PORT, port_num;
            pkey_index => PKEY_INDEX, pkey_index;
            path => PATH, ah_attr, Path::to_raw;
            mtu => MTU, path_mtu, |mtu| mtu as u32;
            dest_qpn => DEST_QPN, dest_qp_num;
            rq_psn => RQ_PSN, rq_psn;
            max_dest_rd_atomic => MAX_DEST_RD_ATOMIC, max_dest_rd_atomic;
            min_rnr_timer => MIN_RNR_TIMER, min_rnr_timer;
            timeout => TIMEOUT, timeout;
            retry => RETRY, retry_cnt;
            rnr_retry => RNR_RETRY, rnr_retry;
            sq_psn => SQ_PSN, sq_psn;
            max_rd_atomic => MAX_RD_ATOMIC, max_rd_atomic;
            sqd_notify => SQD_NOTIFY, en_sqd_async_notify, u8::from;
            cur_state => CUR_STATE, cur_qp_state, |state| state as u32;
        }
        (raw, mask)
    }

    /// Of `raw`, what `mask` names.
    pub(super) fn from_raw(raw: &sys::ibv_qp_attr, mask: AttrMask) -> Self {
        let has = |bit| mask.contains(bit);
        let mut out = Self::default();
        macro_rules! get {
            ($($field:ident => $bit:ident, $value:expr;)*) => {
                $(if has(AttrMask::$bit) { out.$field = $value; })*
            };
        }
        get! {
            access => ACCESS, Some(access::from_flags(raw.qp_access_flags));
            port => PORT, Some(raw.port_num);
            pkey_index => PKEY_INDEX, Some(raw.pkey_index);
            path => PATH, Some(Path::from_raw(&raw.ah_attr));
            mtu => MTU, mtu_from_raw(raw.path_mtu);
            dest_qpn => DEST_QPN, Some(raw.dest_qp_num);
            rq_psn => RQ_PSN, Some(raw.rq_psn);
            max_dest_rd_atomic => MAX_DEST_RD_ATOMIC, Some(raw.max_dest_rd_atomic);
            min_rnr_timer => MIN_RNR_TIMER, Some(raw.min_rnr_timer);
            timeout => TIMEOUT, Some(raw.timeout);
            retry => RETRY, Some(raw.retry_cnt);
            rnr_retry => RNR_RETRY, Some(raw.rnr_retry);
            sq_psn => SQ_PSN, Some(raw.sq_psn);
            max_rd_atomic => MAX_RD_ATOMIC, Some(raw.max_rd_atomic);
            sqd_notify => SQD_NOTIFY, Some(raw.en_sqd_async_notify != 0);
            cur_state => CUR_STATE, QpState::from_value(raw.cur_qp_state);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_survive_the_way_to_the_library_and_back() {
        let dgid = Gid([7; 16]);
        let path = Path::roce(1, 3, dgid);
        let all = QpAttrs {
            access: Some(Access::REMOTE_READ | Access::REMOTE_WRITE),
            port: Some(1),
            pkey_index: Some(2),
            sqd_notify: Some(true),
            cur_state: Some(QpState::Rtr),
            timeout: Some(10),
            retry: Some(1),
            rnr_retry: Some(2),
            sq_psn: Some(0x1234),
            max_rd_atomic: Some(3),
            ..QpAttrs::rtr(path, Mtu::B2048, 0x77, 0x4321)
        };
        let (raw, mask) = all.to_raw();
        // A connection has no queue key, and this structure has no alternate path.
        let absent = AttrMask::QKEY | AttrMask::ALTERNATE | AttrMask::MIGRATION;
        let all_given = AttrMask::all() - absent;
        assert_eq!(mask, all_given, "every attribute has its bit");
        assert_eq!(QpAttrs::from_raw(&raw, all_given), all);
        assert_eq!(QpAttrs::from_raw(&raw, AttrMask::empty()), QpAttrs::default());
        assert_eq!(all.given(), all_given);
    }

    #[test]
    fn usual_values_are_what_the_transitions_need() {
        use warpverbs_rdma::Transition;
        let given = [
            (QpState::Reset, QpState::Init, QpAttrs::init(1, Access::empty())),
            (QpState::Init, QpState::Rtr, QpAttrs::rtr(Path::infiniband(1, 1), Mtu::B1024, 1, 0)),
            (QpState::Rtr, QpState::Rts, QpAttrs::rts(0)),
        ];
        for (from, to, attrs) in given {
            assert_eq!(
                Transition::find(from, to).unwrap().required,
                attrs.given(),
                "{from} → {to}"
            );
        }
    }
}
