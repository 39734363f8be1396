//! The error of a refused transition.

use crate::CallError;
use std::fmt;
use warpverbs_rdma::{AttrMask, QpState, TransitionError};

/// One thing that is wrong with what was given.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finding {
    /// The table has no such transition, or not with these attributes.
    Transition(TransitionError),
    /// A number is beyond its field, or beyond what the device or the port has.
    TooLarge {
        /// The attribute.
        attr: AttrMask,
        /// The value given.
        value: u64,
        /// The largest value possible.
        max: u64,
    },
    /// An attribute does not go with the port; the text says how.
    Unfit(AttrMask, String),
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Transition(error) => error.fmt(f),
            Self::TooLarge { attr, value, max } => {
                write!(f, "{attr} is {value}, at most {max} is possible")
            }
            Self::Unfit(attr, why) => write!(f, "{attr}: {why}"),
        }
    }
}

/// A QP did not change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModifyError {
    /// The device.
    pub device: String,
    /// The QP.
    pub qpn: u32,
    /// Its state, if that could be found out.
    pub from: Option<QpState>,
    /// The state that was asked for.
    pub to: QpState,
    /// Which attributes were given.
    pub given: AttrMask,
    /// Their faults, as far as these can be told from here.
    pub findings: Vec<Finding>,
    /// The device's answer.
    pub source: CallError,
}

impl fmt::Display for ModifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, qpn, to, source, .. } = self;
        let from = self.from.map_or("?".to_owned(), |state| state.to_string());
        write!(f, "QP {qpn:#x} of {device}, {from} → {to}: {source}; {}", findings_text(self))
    }
}

// Its source is part of its text, so it has none as an error.
impl std::error::Error for ModifyError {}

fn findings_text(error: &ModifyError) -> String {
    if error.findings.is_empty() {
        return format!("nothing is wrong with {} as far as can be told", error.given);
    }
    let lines: Vec<_> = error.findings.iter().map(ToString::to_string).collect();
    lines.join("; ")
}
