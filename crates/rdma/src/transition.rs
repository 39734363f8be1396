//! Transitions of an RC QP that its user may ask for, as a table, with the attributes that each
//! needs and allows.

use crate::QpState;
use bitflags::bitflags;
use core::fmt;
use thiserror::Error;

bitflags! {
    /// Names of QP attributes: the bits of `enum ibv_qp_attr_mask`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[doc(alias = "ibv_qp_attr_mask")]
    pub struct AttrMask: u32 {
        /// The state that the QP is assumed to be in.
        const CUR_STATE = 1 << 1;
        /// An event reports when SQD is reached.
        const SQD_NOTIFY = 1 << 2;
        /// Rights that the QP grants its peer.
        const ACCESS = 1 << 3;
        /// Index of the partition key.
        const PKEY_INDEX = 1 << 4;
        /// Number of the own port.
        const PORT = 1 << 5;
        /// Queue key, of datagrams.
        const QKEY = 1 << 6;
        /// How the peer is reached: the address vector.
        const PATH = 1 << 7;
        /// Path MTU.
        const MTU = 1 << 8;
        /// Local ACK timeout.
        const TIMEOUT = 1 << 9;
        /// Retries after a timeout or a sequence error.
        const RETRY = 1 << 10;
        /// Retries after "receiver not ready".
        const RNR_RETRY = 1 << 11;
        /// First packet sequence number expected.
        const RQ_PSN = 1 << 12;
        /// READs and atomics of this QP that may be outstanding.
        const MAX_RD_ATOMIC = 1 << 13;
        /// Alternate path.
        const ALTERNATE = 1 << 14;
        /// Delay that a sender without receive is asked to keep.
        const MIN_RNR_TIMER = 1 << 15;
        /// First packet sequence number sent.
        const SQ_PSN = 1 << 16;
        /// READs and atomics of the peer that may be outstanding.
        const MAX_DEST_RD_ATOMIC = 1 << 17;
        /// Path migration state.
        const MIGRATION = 1 << 18;
        /// The peer's QP number.
        const DEST_QPN = 1 << 20;
    }
}

impl fmt::Display for AttrMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        bitflags::parser::to_writer(self, f)
    }
}

/// One row: what a transition needs and allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    /// State before.
    pub from: QpState,
    /// State after.
    pub to: QpState,
    /// Attributes that must be given.
    pub required: AttrMask,
    /// Attributes that may be given.
    pub optional: AttrMask,
}

const NONE: AttrMask = AttrMask::empty();
const TO_INIT: AttrMask = AttrMask::PKEY_INDEX.union(AttrMask::PORT).union(AttrMask::ACCESS);
const TO_RTR: AttrMask = AttrMask::PATH
    .union(AttrMask::MTU)
    .union(AttrMask::DEST_QPN)
    .union(AttrMask::RQ_PSN)
    .union(AttrMask::MAX_DEST_RD_ATOMIC)
    .union(AttrMask::MIN_RNR_TIMER);
const RTR_OPTIONAL: AttrMask =
    AttrMask::ALTERNATE.union(AttrMask::ACCESS).union(AttrMask::PKEY_INDEX);
const TO_RTS: AttrMask = AttrMask::TIMEOUT
    .union(AttrMask::RETRY)
    .union(AttrMask::RNR_RETRY)
    .union(AttrMask::SQ_PSN)
    .union(AttrMask::MAX_RD_ATOMIC);
const RUNTIME: AttrMask = AttrMask::CUR_STATE
    .union(AttrMask::ACCESS)
    .union(AttrMask::MIN_RNR_TIMER)
    .union(AttrMask::ALTERNATE)
    .union(AttrMask::MIGRATION);
const IN_SQD: AttrMask = RUNTIME
    .union(AttrMask::PORT)
    .union(AttrMask::PATH)
    .union(AttrMask::TIMEOUT)
    .union(AttrMask::RETRY)
    .union(AttrMask::RNR_RETRY)
    .union(AttrMask::MAX_RD_ATOMIC)
    .union(AttrMask::MAX_DEST_RD_ATOMIC)
    .union(AttrMask::PKEY_INDEX);

const fn row(from: QpState, to: QpState, required: AttrMask, optional: AttrMask) -> Transition {
    Transition { from, to, required, optional }
}

/// Every transition but those to RESET and ERR, which lead there from anywhere and take no
/// attribute. IBTA volume 1, 10.3.1 and the RC column of table 91. RC itself has no SQE; the row
/// from there is that of other services, for a device whose sends alone fail.
pub const TRANSITIONS: &[Transition] = &[
    row(QpState::Reset, QpState::Init, TO_INIT, NONE),
    row(QpState::Init, QpState::Init, NONE, TO_INIT),
    row(QpState::Init, QpState::Rtr, TO_RTR, RTR_OPTIONAL),
    row(QpState::Rtr, QpState::Rts, TO_RTS, RUNTIME),
    row(QpState::Rts, QpState::Rts, NONE, RUNTIME),
    row(QpState::Rts, QpState::Sqd, NONE, AttrMask::SQD_NOTIFY),
    row(QpState::Sqd, QpState::Sqd, NONE, IN_SQD),
    row(QpState::Sqd, QpState::Rts, NONE, RUNTIME),
    row(QpState::Sqe, QpState::Rts, NONE, RUNTIME),
];

const DATAGRAM_INIT: AttrMask = AttrMask::PKEY_INDEX.union(AttrMask::PORT).union(AttrMask::QKEY);
const PKEY_QKEY: AttrMask = AttrMask::PKEY_INDEX.union(AttrMask::QKEY);
const STATE_QKEY: AttrMask = AttrMask::CUR_STATE.union(AttrMask::QKEY);

/// As [`TRANSITIONS`], for QPs of unreliable datagrams: the UD column of table 91.
const DATAGRAM_TRANSITIONS: &[Transition] = &[
    row(QpState::Reset, QpState::Init, DATAGRAM_INIT, NONE),
    row(QpState::Init, QpState::Init, NONE, DATAGRAM_INIT),
    row(QpState::Init, QpState::Rtr, NONE, PKEY_QKEY),
    row(QpState::Rtr, QpState::Rts, AttrMask::SQ_PSN, STATE_QKEY),
    row(QpState::Rts, QpState::Rts, NONE, STATE_QKEY),
    row(QpState::Rts, QpState::Sqd, NONE, AttrMask::SQD_NOTIFY),
    row(QpState::Sqd, QpState::Sqd, NONE, PKEY_QKEY),
    row(QpState::Sqd, QpState::Rts, NONE, STATE_QKEY),
    row(QpState::Sqe, QpState::Rts, NONE, STATE_QKEY),
];

/// As [`TRANSITIONS`], for initiators of dynamic connections. IBTA does not have them; these are
/// the attributes that Linux's mlx5 driver asks for (`modify_dci_qp_is_ok`).
const DC_INITIATOR_TRANSITIONS: &[Transition] = &[
    row(QpState::Reset, QpState::Init, AttrMask::PKEY_INDEX.union(AttrMask::PORT), NONE),
    row(QpState::Init, QpState::Init, NONE, AttrMask::PKEY_INDEX.union(AttrMask::PORT)),
    row(QpState::Init, QpState::Rtr, AttrMask::MTU, AttrMask::PKEY_INDEX.union(AttrMask::PATH)),
    row(QpState::Rtr, QpState::Rts, TO_RTS, AttrMask::MIN_RNR_TIMER),
    row(QpState::Rts, QpState::Rts, NONE, AttrMask::MIN_RNR_TIMER),
];

/// The same for their targets, which never send (`mlx5_ib_modify_dct`).
const DC_TARGET_TRANSITIONS: &[Transition] = &[
    row(QpState::Reset, QpState::Init, TO_INIT, NONE),
    row(
        QpState::Init,
        QpState::Rtr,
        AttrMask::MIN_RNR_TIMER.union(AttrMask::PATH).union(AttrMask::MTU),
        NONE,
    ),
];

/// Transport service of a QP, and its peers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Service {
    /// Messages, READs, WRITEs and atomics with one other QP.
    #[default]
    Connected,
    /// Datagrams with any QP of this service.
    Datagram,
    /// Requests to any [target](Self::DcTarget) of dynamic connections: a "DCI" of mlx5 devices.
    DcInitiator,
    /// Answers requests of any initiator of dynamic connections: a "DCT".
    DcTarget,
}

impl Service {
    /// The transitions that QPs of this service can be asked for.
    pub fn transitions(self) -> &'static [Transition] {
        match self {
            Self::Connected => TRANSITIONS,
            Self::Datagram => DATAGRAM_TRANSITIONS,
            Self::DcInitiator => DC_INITIATOR_TRANSITIONS,
            Self::DcTarget => DC_TARGET_TRANSITIONS,
        }
    }

    /// Whether a QP of this service is the end of dynamic connections.
    pub fn is_dynamic(self) -> bool {
        matches!(self, Self::DcInitiator | Self::DcTarget)
    }
}

/// Why a transition is not possible as asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TransitionError {
    /// There is no such transition.
    #[error("a QP does not go from {from} to {to}")]
    NoTransition {
        /// The state the QP is in.
        from: QpState,
        /// The state asked for.
        to: QpState,
    },
    /// The transition needs attributes that were not given.
    #[error("{from} to {to} needs {missing}")]
    Missing {
        /// The state the QP is in.
        from: QpState,
        /// The state asked for.
        to: QpState,
        /// The missing attributes.
        missing: AttrMask,
    },
    /// The transition does not take some of the attributes given.
    #[error("{from} to {to} does not take {unexpected}")]
    Unexpected {
        /// The state the QP is in.
        from: QpState,
        /// The state asked for.
        to: QpState,
        /// The attributes that it does not take.
        unexpected: AttrMask,
    },
}

impl Transition {
    /// The row of a transition.
    ///
    /// # Errors
    /// [`TransitionError::NoTransition`].
    pub fn find(from: QpState, to: QpState) -> Result<Self, TransitionError> {
        Self::find_of(Service::Connected, from, to)
    }

    /// The row of a transition of a QP of `service`.
    ///
    /// # Errors
    /// [`TransitionError::NoTransition`].
    pub fn find_of(service: Service, from: QpState, to: QpState) -> Result<Self, TransitionError> {
        if matches!(to, QpState::Reset | QpState::Err) {
            return Ok(row(from, to, NONE, NONE));
        }
        let found = service.transitions().iter().find(|row| row.from == from && row.to == to);
        found.copied().ok_or(TransitionError::NoTransition { from, to })
    }

    /// The row for a device that has only the attributes of `mask`.
    #[must_use]
    pub fn within(self, mask: AttrMask) -> Self {
        Self { required: self.required & mask, optional: self.optional & mask, ..self }
    }

    /// Errors in these attributes: none, missing ones, ones too many, or both.
    pub fn errors(self, given: AttrMask) -> impl Iterator<Item = TransitionError> {
        let Self { from, to, required, optional } = self;
        let (missing, unexpected) = (required - given, given - required - optional);
        let missing =
            (!missing.is_empty()).then_some(TransitionError::Missing { from, to, missing });
        let unexpected = (!unexpected.is_empty()).then_some(TransitionError::Unexpected {
            from,
            to,
            unexpected,
        });
        missing.into_iter().chain(unexpected)
    }

    /// Whether these attributes will do.
    ///
    /// # Errors
    /// The first of [`Self::errors`].
    pub fn check(self, given: AttrMask) -> Result<(), TransitionError> {
        self.errors(given).next().map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    /// The possible pairs, written down a second time as a picture: one row per `from`.
    const PICTURE: &str = "
              RESET INIT RTR RTS SQD SQE ERR
        RESET   x    x    .   .   .   .   x
        INIT    x    x    x   .   .   .   x
        RTR     x    .    .   x   .   .   x
        RTS     x    .    .   x   x   .   x
        SQD     x    .    .   x   x   .   x
        SQE     x    .    .   x   .   .   x
        ERR     x    .    .   .   .   .   x";

    #[test]
    fn every_pair_is_as_in_the_picture() {
        for line in PICTURE.lines().skip(2) {
            let mut words = line.split_whitespace();
            let name = words.next().unwrap();
            let from = *QpState::ALL.iter().find(|s| s.to_string() == name).unwrap();
            for (to, mark) in QpState::ALL.into_iter().zip(words) {
                for service in [Service::Connected, Service::Datagram] {
                    let found = Transition::find_of(service, from, to);
                    assert_eq!(found.is_ok(), mark == "x", "{from} to {to}");
                }
            }
        }
    }

    #[test]
    fn ends_of_dynamic_connections_have_neither_a_peer_nor_first_packet_numbers_of_one() {
        let path = [QpState::Reset, QpState::Init, QpState::Rtr, QpState::Rts];
        let reaches = |service, up_to: usize| {
            (1..path.len()).all(|i| {
                let found = Transition::find_of(service, path[i - 1], path[i]);
                let peer = AttrMask::DEST_QPN | AttrMask::RQ_PSN;
                let takes = found.is_ok_and(|row| (row.required | row.optional).intersects(peer));
                found.is_ok() == (i <= up_to) && !takes
            })
        };
        assert!(reaches(Service::DcInitiator, 3));
        // A target never sends.
        assert!(reaches(Service::DcTarget, 2));
        for service in [Service::DcInitiator, Service::DcTarget] {
            for to in QpState::ALL {
                let ends = matches!(to, QpState::Reset | QpState::Err);
                assert_eq!(Transition::find_of(service, QpState::Err, to).is_ok(), ends);
            }
            assert!(Transition::find_of(service, QpState::Rts, QpState::Sqd).is_err());
        }
    }

    #[test]
    fn each_attribute_that_is_missing_or_too_much_is_named() {
        for row in TRANSITIONS {
            let Transition { from, to, required, optional } = *row;
            assert_eq!(Transition::find(from, to), Ok(*row));
            assert_eq!(row.check(required), Ok(()));
            assert_eq!(row.check(required | optional), Ok(()));
            for missing in required {
                let error = TransitionError::Missing { from, to, missing };
                assert_eq!(row.check(required - missing), Err(error));
                assert_eq!(row.within(!missing).check(required - missing), Ok(()));
            }
            for unexpected in AttrMask::all() - required - optional {
                let error = TransitionError::Unexpected { from, to, unexpected };
                assert_eq!(row.check(required | unexpected), Err(error));
            }
        }
    }

    #[test]
    fn states_keep_their_values() {
        for (value, state) in QpState::ALL.into_iter().enumerate() {
            assert_eq!((QpState::from_value(value as u32), state as usize), (Some(state), value));
        }
        assert_eq!(QpState::from_value(7), None);
    }
}
