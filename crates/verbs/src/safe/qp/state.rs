//! States of an RC queue pair and the transitions that its owner may ask for, as a table.

use super::AttrMask;
use crate::sys;
use std::fmt;

/// State of a QP (`enum ibv_qp_state`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum QpState {
    /// Nothing works.
    Reset,
    /// Receives may be posted; nothing is processed.
    Init,
    /// Ready to receive.
    Rtr,
    /// Ready to send as well.
    Rts,
    /// The send queue is held; what was started ends.
    Sqd,
    /// The send queue failed; receives go on. Not of RC.
    Sqe,
    /// Everything posted is flushed.
    Err,
    /// A value that this crate does not know.
    Unknown(u32),
}

const STATES: [(u32, QpState, &str); 7] = [
    (sys::IBV_QPS_RESET, QpState::Reset, "RESET"),
    (sys::IBV_QPS_INIT, QpState::Init, "INIT"),
    (sys::IBV_QPS_RTR, QpState::Rtr, "RTR"),
    (sys::IBV_QPS_RTS, QpState::Rts, "RTS"),
    (sys::IBV_QPS_SQD, QpState::Sqd, "SQD"),
    (sys::IBV_QPS_SQE, QpState::Sqe, "SQE"),
    (sys::IBV_QPS_ERR, QpState::Err, "ERR"),
];

impl QpState {
    pub(super) fn from_raw(raw: u32) -> Self {
        STATES.iter().find(|row| row.0 == raw).map_or(Self::Unknown(raw), |row| row.1)
    }

    pub(super) fn to_raw(self) -> u32 {
        match self {
            Self::Unknown(raw) => raw,
            known => STATES.iter().find(|row| row.1 == known).map_or(0, |row| row.0),
        }
    }
}

impl fmt::Display for QpState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match STATES.iter().find(|row| row.1 == *self) {
            Some(row) => f.write_str(row.2),
            None => write!(f, "{self:?}"),
        }
    }
}

/// One row: what a transition needs and allows.
#[derive(Clone, Copy, Debug)]
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

/// Every transition but those to RESET and ERR, which lead there from anywhere and take nothing.
/// IBTA volume 1, 10.3.1 and the RC column of table 91.
pub const TRANSITIONS: &[Transition] = &[
    row(QpState::Reset, QpState::Init, TO_INIT, NONE),
    row(QpState::Init, QpState::Init, NONE, TO_INIT),
    row(
        QpState::Init,
        QpState::Rtr,
        TO_RTR,
        AttrMask::ALTERNATE.union(AttrMask::ACCESS).union(AttrMask::PKEY_INDEX),
    ),
    row(QpState::Rtr, QpState::Rts, TO_RTS, RUNTIME),
    row(QpState::Rts, QpState::Rts, NONE, RUNTIME),
    row(QpState::Rts, QpState::Sqd, NONE, AttrMask::SQD_NOTIFY),
    row(QpState::Sqd, QpState::Sqd, NONE, IN_SQD),
    row(QpState::Sqd, QpState::Rts, NONE, RUNTIME),
];

/// The row of a transition, if there is one.
pub(super) fn transition(from: QpState, to: QpState) -> Option<Transition> {
    if matches!(to, QpState::Reset | QpState::Err) {
        return Some(row(from, to, NONE, NONE));
    }
    TRANSITIONS.iter().find(|row| row.from == from && row.to == to).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_keep_their_values() {
        for (raw, state, name) in STATES {
            assert_eq!((QpState::from_raw(raw), state.to_raw()), (state, raw));
            assert_eq!(state.to_string(), name);
        }
        assert_eq!(QpState::from_raw(77), QpState::Unknown(77));
        assert_eq!(QpState::Unknown(77).to_raw(), 77);
    }

    #[test]
    fn every_state_can_be_left_for_reset_and_err() {
        for (_, from, _) in STATES {
            for to in [QpState::Reset, QpState::Err] {
                assert!(transition(from, to).is_some_and(|t| t.required.is_empty()));
            }
        }
        assert!(transition(QpState::Reset, QpState::Rts).is_none());
        assert!(transition(QpState::Init, QpState::Rtr).is_some());
    }
}
