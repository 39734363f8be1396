//! Transitions of a QP that are specific to this NIC.

use crate::qp::AttrMask;
use warpverbs_rdma::{QpState, Service, Transition, TransitionError};

/// Attributes that a QP of this NIC has; it has neither ports, partition keys nor alternate paths.
const SUPPORTED: AttrMask = AttrMask::ACCESS
    .union(AttrMask::DEST_QPN)
    .union(AttrMask::PATH)
    .union(AttrMask::MTU)
    .union(AttrMask::RQ_PSN)
    .union(AttrMask::MIN_RNR_TIMER)
    .union(AttrMask::MAX_DEST_RD_ATOMIC)
    .union(AttrMask::TIMEOUT)
    .union(AttrMask::RETRY)
    .union(AttrMask::RNR_RETRY)
    .union(AttrMask::SQ_PSN)
    .union(AttrMask::MAX_RD_ATOMIC);

/// The same of a QP of datagrams.
const DATAGRAM: AttrMask = AttrMask::QKEY.union(AttrMask::SQ_PSN);

/// Attributes that stay as they are once the QP answers requests.
const FIXED_IN_SQD: AttrMask = AttrMask::PATH.union(AttrMask::MAX_DEST_RD_ATOMIC);

/// Why a QP leaves its state on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// A send failed and only the send queue stops ([`crate::OnSendError::StopSends`]).
    Send,
    /// Anything else failed.
    Fatal,
}

/// Whether the user may ask for this transition with these attributes.
pub(crate) fn transition(
    service: Service,
    from: QpState,
    to: QpState,
    given: AttrMask,
) -> Result<(), TransitionError> {
    let allowed = match (service, from) {
        (Service::Datagram, _) => DATAGRAM,
        (_, QpState::Sqd) => SUPPORTED.difference(FIXED_IN_SQD),
        _ => SUPPORTED,
    };
    Transition::find_of(service, from, to)?.within(allowed).check(given)
}

/// Where a failure leads. A QP that does not send cannot stop sends alone.
pub(crate) fn after_failure(from: QpState, failure: Failure) -> QpState {
    match (from, failure) {
        (QpState::Rts | QpState::Sqd, Failure::Send) => QpState::Sqe,
        _ => QpState::Err,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_transition_needs_only_what_the_nic_has() {
        let usual = [
            (QpState::Reset, QpState::Init, AttrMask::ACCESS),
            (QpState::Init, QpState::Rtr, crate::QpAttrs::rtr(1).given()),
            (QpState::Rtr, QpState::Rts, crate::QpAttrs::rts().given()),
            (QpState::Sqd, QpState::Sqd, AttrMask::RETRY | AttrMask::TIMEOUT),
        ];
        for (from, to, given) in usual {
            assert_eq!(transition(Service::Connected, from, to, given), Ok(()), "{from} to {to}");
            let unexpected = AttrMask::PKEY_INDEX;
            let refused = Err(TransitionError::Unexpected { from, to, unexpected });
            assert_eq!(transition(Service::Connected, from, to, given | unexpected), refused);
        }
        assert!(
            transition(Service::Connected, QpState::Sqd, QpState::Sqd, AttrMask::PATH).is_err()
        );
        for (from, to, given) in [
            (QpState::Reset, QpState::Init, AttrMask::QKEY),
            (QpState::Init, QpState::Rtr, AttrMask::empty()),
            (QpState::Rtr, QpState::Rts, AttrMask::SQ_PSN),
            (QpState::Rts, QpState::Rts, AttrMask::QKEY),
        ] {
            assert_eq!(transition(Service::Datagram, from, to, given), Ok(()), "{from} to {to}");
            assert!(transition(Service::Datagram, from, to, given | AttrMask::ACCESS).is_err());
        }
    }

    #[test]
    fn failures_lead_to_err_except_where_only_sends_stop() {
        for from in QpState::ALL {
            assert_eq!(after_failure(from, Failure::Fatal), QpState::Err);
        }
        assert_eq!(after_failure(QpState::Rts, Failure::Send), QpState::Sqe);
        assert_eq!(after_failure(QpState::Rtr, Failure::Send), QpState::Err);
    }
}
