//! QP states and the transitions between them, as a table.
//!
//! ```text
//!            modify        modify        modify             modify
//!   RESET ──────────► INIT ──────► RTR ────────► RTS ◄──────────────► SQD
//!     ▲                                           │ ▲
//!     │ modify, from anywhere                error│ │modify
//!     │                                           ▼ │
//!     └──────────────── ERR ◄─────────────────── SQE
//!                        ▲ error or modify, from anywhere
//! ```

use super::attrs::AttrMask;
use crate::ModifyError;
use std::fmt;

/// State of a QP; the values are those of the QP context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum QpState {
    /// Nothing works.
    Reset = 0,
    /// Receives may be posted; nothing is processed.
    Init = 1,
    /// Ready to receive.
    Rtr = 2,
    /// Ready to send as well.
    Rts = 3,
    /// The send queue failed and is flushed; receives go on.
    Sqe = 4,
    /// The send queue is held; what was started ends.
    Sqd = 5,
    /// Everything posted is flushed.
    Err = 6,
}

impl QpState {
    /// All states.
    pub const ALL: [Self; 7] =
        [Self::Reset, Self::Init, Self::Rtr, Self::Rts, Self::Sqe, Self::Sqd, Self::Err];

    /// Requests of the peer are answered.
    pub fn responds(self) -> bool {
        matches!(self, Self::Rtr | Self::Rts | Self::Sqe | Self::Sqd)
    }

    /// Posted sends are flushed instead of executed.
    pub fn flushes_sends(self) -> bool {
        matches!(self, Self::Sqe | Self::Err)
    }
}

impl fmt::Display for QpState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reset => "RESET",
            Self::Init => "INIT",
            Self::Rtr => "RTR",
            Self::Rts => "RTS",
            Self::Sqe => "SQE",
            Self::Sqd => "SQD",
            Self::Err => "ERR",
        })
    }
}

/// What makes a QP change its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The owner asks for a state.
    Modify(QpState),
    /// A send failed and only the send queue stops ([`crate::OnSendError::StopSends`]).
    SendError,
    /// Anything else failed.
    Fatal,
}

/// One row: in state `from`, `event` leads to `to`.
#[derive(Clone, Copy, Debug)]
pub struct Transition {
    /// State before.
    pub from: QpState,
    /// What happens.
    pub event: Event,
    /// State after.
    pub to: QpState,
    /// Attributes that must be given.
    pub required: AttrMask,
    /// Attributes that may be given.
    pub optional: AttrMask,
}

const NONE: AttrMask = AttrMask::empty();
const RUNTIME: AttrMask = AttrMask::ACCESS.union(AttrMask::MIN_RNR_TIMER);
const TO_RTR: AttrMask = AttrMask::DEST_QPN
    .union(AttrMask::PATH)
    .union(AttrMask::MTU)
    .union(AttrMask::RQ_PSN)
    .union(AttrMask::MIN_RNR_TIMER)
    .union(AttrMask::MAX_DEST_RD_ATOMIC);
const TO_RTS: AttrMask = AttrMask::TIMEOUT
    .union(AttrMask::RETRY)
    .union(AttrMask::RNR_RETRY)
    .union(AttrMask::SQ_PSN)
    .union(AttrMask::MAX_RD_ATOMIC);

const fn row(from: QpState, to: QpState, required: AttrMask, optional: AttrMask) -> Transition {
    Transition { from, event: Event::Modify(to), to, required, optional }
}

/// Every transition but those that lead from anywhere to RESET (by request) or to ERR (by request
/// or [`Event::Fatal`]). IBTA 10.3.1, with the attributes of its table 91 that apply to RC.
pub const TRANSITIONS: &[Transition] = &[
    row(QpState::Reset, QpState::Init, AttrMask::ACCESS, NONE),
    row(QpState::Init, QpState::Init, NONE, AttrMask::ACCESS),
    row(QpState::Init, QpState::Rtr, TO_RTR, AttrMask::ACCESS),
    row(QpState::Rtr, QpState::Rts, TO_RTS, RUNTIME),
    row(QpState::Rts, QpState::Rts, NONE, RUNTIME),
    row(QpState::Rts, QpState::Sqd, NONE, NONE),
    row(QpState::Sqd, QpState::Sqd, NONE, RUNTIME.union(TO_RTS.difference(AttrMask::SQ_PSN))),
    row(QpState::Sqd, QpState::Rts, NONE, RUNTIME),
    row(QpState::Sqe, QpState::Rts, NONE, RUNTIME),
    Transition {
        from: QpState::Rts,
        event: Event::SendError,
        to: QpState::Sqe,
        required: NONE,
        optional: NONE,
    },
    Transition {
        from: QpState::Sqd,
        event: Event::SendError,
        to: QpState::Sqe,
        required: NONE,
        optional: NONE,
    },
];

/// The row for an owner's request, if all it needs is in `given`.
pub(crate) fn transition(from: QpState, to: QpState, given: AttrMask) -> Result<(), ModifyError> {
    let (required, optional) = match to {
        QpState::Reset | QpState::Err => (NONE, NONE),
        _ => {
            let found = TRANSITIONS
                .iter()
                .find(|row| row.from == from && row.event == Event::Modify(to))
                .ok_or(ModifyError::NoTransition { from, to })?;
            (found.required, found.optional)
        }
    };
    let missing = required - given;
    if !missing.is_empty() {
        return Err(ModifyError::Missing { from, to, missing });
    }
    let unexpected = given - required - optional;
    if !unexpected.is_empty() {
        return Err(ModifyError::Unexpected { from, to, unexpected });
    }
    Ok(())
}

/// Where an error leads; a QP that neither sends nor receives stays as it is.
pub(crate) fn after_error(from: QpState, event: Event) -> QpState {
    TRANSITIONS
        .iter()
        .find(|row| row.from == from && row.event == event)
        .map_or(QpState::Err, |row| row.to)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reachable pairs, written down a second time as a picture: one row per `from`.
    const PICTURE: &str = "
              RESET INIT RTR RTS SQE SQD ERR
        RESET   x    x    .   .   .   .   x
        INIT    x    x    x   .   .   .   x
        RTR     x    .    .   x   .   .   x
        RTS     x    .    .   x   .   x   x
        SQE     x    .    .   x   .   .   x
        SQD     x    .    .   x   .   x   x
        ERR     x    .    .   .   .   .   x";

    #[test]
    fn every_pair_is_as_in_the_picture() {
        for line in PICTURE.lines().skip(2) {
            let mut words = line.split_whitespace();
            let name = words.next().unwrap();
            let from = *QpState::ALL.iter().find(|s| s.to_string() == name).unwrap();
            for (to, mark) in QpState::ALL.into_iter().zip(words) {
                let answer = transition(from, to, AttrMask::empty());
                let absent = answer == Err(ModifyError::NoTransition { from, to });
                assert_eq!(absent, mark == ".", "{from} to {to}");
            }
        }
    }

    #[test]
    fn each_required_attribute_is_missed_by_name() {
        for row in TRANSITIONS {
            let Event::Modify(to) = row.event else { continue };
            assert_eq!(transition(row.from, to, row.required), Ok(()));
            assert_eq!(transition(row.from, to, row.required | row.optional), Ok(()));
            for attr in row.required {
                let missing = ModifyError::Missing { from: row.from, to, missing: attr };
                assert_eq!(transition(row.from, to, row.required - attr), Err(missing));
            }
            for attr in AttrMask::all() - row.required - row.optional {
                let unexpected = ModifyError::Unexpected { from: row.from, to, unexpected: attr };
                assert_eq!(transition(row.from, to, row.required | attr), Err(unexpected));
            }
        }
    }

    #[test]
    fn errors_lead_to_err_except_where_only_sends_stop() {
        for from in QpState::ALL {
            assert_eq!(after_error(from, Event::Fatal), QpState::Err);
        }
        assert_eq!(after_error(QpState::Rts, Event::SendError), QpState::Sqe);
        assert_eq!(after_error(QpState::Rtr, Event::SendError), QpState::Err);
    }
}
