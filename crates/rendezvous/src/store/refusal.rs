//! Why the store refuses a request that is well formed.

/// Why a request was refused. The client sees its connection closed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// No memory left.
    #[error("the store is full: its {limit} bytes are in use")]
    Full {
        /// The bound.
        limit: usize,
    },
    /// No room for another key.
    #[error("the store is full: it has {limit} keys")]
    TooManyKeys {
        /// The bound.
        limit: usize,
    },
    /// The value would be too long.
    #[error("value of key {key:?} would have {size} bytes, at most {limit} allowed")]
    ValueTooLong {
        /// The key's beginning.
        key: String,
        /// Length it would have.
        size: usize,
        /// The bound.
        limit: usize,
    },
    /// The reply would be too long.
    #[error("reply would have {size} bytes, at most {limit} allowed")]
    ReplyTooLong {
        /// Length it would have.
        size: usize,
        /// The bound.
        limit: usize,
    },
    /// Addition to something else.
    #[error("value of key {key:?} is not a decimal number")]
    NotANumber {
        /// The key's beginning.
        key: String,
    },
    /// Addition beyond 64 bits.
    #[error("value of key {key:?} would leave the range of 64 bits")]
    Overflow {
        /// The key's beginning.
        key: String,
    },
    /// A second wait without a cancel_wait between.
    #[error("a second wait while the first is under way")]
    WaitsAlready,
}

/// A key as an error shows it: readable, and not longer than a line.
pub(super) fn shown(key: &[u8]) -> String {
    String::from_utf8_lossy(&key[..key.len().min(80)]).into_owned()
}
