//! States of a QP.
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

use core::fmt;

/// State of a QP: the values of `enum ibv_qp_state`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_qp_state")]
#[repr(u8)]
pub enum QpState {
    /// Nothing works.
    #[default]
    Reset = 0,
    /// Receives may be posted; nothing is processed.
    Init = 1,
    /// Ready to receive.
    Rtr = 2,
    /// Ready to send as well.
    Rts = 3,
    /// Send queue drained: no request is started, those in flight end.
    Sqd = 4,
    /// Send queue error: sends are flushed, receives go on.
    Sqe = 5,
    /// Everything posted is flushed.
    Err = 6,
}

impl QpState {
    /// All states, in order of their values.
    pub const ALL: [Self; 7] =
        [Self::Reset, Self::Init, Self::Rtr, Self::Rts, Self::Sqd, Self::Sqe, Self::Err];

    /// The state of a value of `enum ibv_qp_state`.
    pub fn from_value(value: u32) -> Option<Self> {
        Self::ALL.get(value as usize).copied()
    }

    /// Requests of the peer are answered.
    pub const fn responds(self) -> bool {
        matches!(self, Self::Rtr | Self::Rts | Self::Sqe | Self::Sqd)
    }

    /// Posted sends are flushed instead of executed.
    pub const fn flushes_sends(self) -> bool {
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
            Self::Sqd => "SQD",
            Self::Sqe => "SQE",
            Self::Err => "ERR",
        })
    }
}
