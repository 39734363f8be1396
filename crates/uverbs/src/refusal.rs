//! Why a call was refused.

use crate::Errno;
use std::borrow::Cow;
use thiserror::Error;

/// Why a call was refused: the error number that the program gets, and the reason that it does not
/// get.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}{errno}: {why}", if call.is_empty() { String::new() } else { format!("{call}: ") })]
pub struct Refusal {
    /// The call, as `QP.CREATE` or `DEVICE.INVOKE_WRITE(REG_MR)`; empty before it is known.
    pub call: String,
    /// Error number that the program gets.
    pub errno: Errno,
    /// Reason: what was wrong and what was expected.
    pub why: Cow<'static, str>,
}

impl Refusal {
    /// A refusal of a call that is named later.
    pub fn new(errno: Errno, why: impl Into<Cow<'static, str>>) -> Self {
        Self { call: String::new(), errno, why: why.into() }
    }

    /// [`Errno::EINVAL`].
    pub fn invalid(why: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Errno::EINVAL, why)
    }

    /// [`Errno::EOPNOTSUPP`].
    pub fn unsupported(why: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Errno::EOPNOTSUPP, why)
    }

    /// Names the call, unless it has a name.
    pub(crate) fn of(mut self, call: impl Into<String>) -> Self {
        if self.call.is_empty() {
            self.call = call.into();
        }
        self
    }
}
