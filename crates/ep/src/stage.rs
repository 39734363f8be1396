//! The steps of a call, each of which takes what the last one gave.

use crate::EpError;

/// The next step of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    DispatchSend,
    DispatchRecv,
    CombineSend,
    CombineRecv,
}

impl Turn {
    fn name(self) -> &'static str {
        match self {
            Self::DispatchSend => "dispatch_send",
            Self::DispatchRecv => "dispatch_recv",
            Self::CombineSend => "combine_send",
            Self::CombineRecv => "combine_recv",
        }
    }

    /// Whether it is `turn`'s time.
    pub(crate) fn check(self, channel: usize, turn: Self) -> Result<(), EpError> {
        match self == turn {
            true => Ok(()),
            false => Err(EpError::Turn { channel, expected: self.name() }),
        }
    }
}

/// A dispatch that has sent its rows. `dispatch_recv` takes it.
#[derive(Debug)]
#[must_use = "the channel takes no other dispatch before its combine"]
pub struct Sent {
    pub(crate) channel: usize,
    pub(crate) tokens: u32,
}

/// A dispatch whose rows are here. A combine takes it.
#[derive(Debug)]
#[must_use = "the channel takes no other dispatch before its combine"]
pub struct Routed {
    pub(crate) channel: usize,
    pub(crate) tokens: u32,
    pub(crate) missing: Vec<u32>,
}

impl Routed {
    /// Ranks whose rows are not here. Their places, if there are any, hold anything.
    pub fn missing(&self) -> &[u32] {
        &self.missing
    }
}

/// A combine that has sent its results. `combine_recv` takes it.
#[derive(Debug)]
#[must_use = "the channel takes no other dispatch before this combine's end"]
pub struct Returned {
    pub(crate) channel: usize,
    pub(crate) tokens: u32,
}
