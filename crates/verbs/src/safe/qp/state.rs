//! States of a QP as the library numbers them.

use crate::CallError;
use nix::errno::Errno;
use warpverbs_rdma::QpState;

/// The state of a value of `enum ibv_qp_state`.
pub(super) fn from_raw(raw: u32) -> Result<QpState, CallError> {
    QpState::from_value(raw).ok_or(CallError { call: "ibv_query_qp", errno: Errno::EPROTO })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys;
    use warpverbs_rdma::AttrMask;

    #[test]
    fn states_have_the_values_of_the_header() {
        let rows = [
            (sys::IBV_QPS_RESET, QpState::Reset),
            (sys::IBV_QPS_INIT, QpState::Init),
            (sys::IBV_QPS_RTR, QpState::Rtr),
            (sys::IBV_QPS_RTS, QpState::Rts),
            (sys::IBV_QPS_SQD, QpState::Sqd),
            (sys::IBV_QPS_SQE, QpState::Sqe),
            (sys::IBV_QPS_ERR, QpState::Err),
        ];
        for (raw, state) in rows {
            assert_eq!((from_raw(raw), state as u32), (Ok(state), raw));
        }
        assert!(from_raw(77).is_err());
    }

    #[test]
    fn attributes_have_the_bits_of_the_header() {
        let rows = [
            (sys::IBV_QP_CUR_STATE, AttrMask::CUR_STATE),
            (sys::IBV_QP_EN_SQD_ASYNC_NOTIFY, AttrMask::SQD_NOTIFY),
            (sys::IBV_QP_ACCESS_FLAGS, AttrMask::ACCESS),
            (sys::IBV_QP_PKEY_INDEX, AttrMask::PKEY_INDEX),
            (sys::IBV_QP_PORT, AttrMask::PORT),
            (sys::IBV_QP_QKEY, AttrMask::QKEY),
            (sys::IBV_QP_AV, AttrMask::PATH),
            (sys::IBV_QP_PATH_MTU, AttrMask::MTU),
            (sys::IBV_QP_TIMEOUT, AttrMask::TIMEOUT),
            (sys::IBV_QP_RETRY_CNT, AttrMask::RETRY),
            (sys::IBV_QP_RNR_RETRY, AttrMask::RNR_RETRY),
            (sys::IBV_QP_RQ_PSN, AttrMask::RQ_PSN),
            (sys::IBV_QP_MAX_QP_RD_ATOMIC, AttrMask::MAX_RD_ATOMIC),
            (sys::IBV_QP_ALT_PATH, AttrMask::ALTERNATE),
            (sys::IBV_QP_MIN_RNR_TIMER, AttrMask::MIN_RNR_TIMER),
            (sys::IBV_QP_SQ_PSN, AttrMask::SQ_PSN),
            (sys::IBV_QP_MAX_DEST_RD_ATOMIC, AttrMask::MAX_DEST_RD_ATOMIC),
            (sys::IBV_QP_PATH_MIG_STATE, AttrMask::MIGRATION),
            (sys::IBV_QP_DEST_QPN, AttrMask::DEST_QPN),
        ];
        for (raw, attr) in rows {
            assert_eq!(attr.bits(), raw, "{attr}");
        }
        assert_eq!(rows.len(), AttrMask::all().iter().count());
    }
}
