//! Why the store refuses a request that is well formed.

/// Why a request was refused. The client sees its connection closed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "fields are named by what they are")]
pub enum Refusal {
    /// No memory left.
    #[error("the store is full: its {limit} bytes are in use")]
    Full { limit: usize },
    /// No room for another key.
    #[error("the store is full: it has {limit} keys")]
    TooManyKeys { limit: usize },
    /// The value would be too long.
    #[error("value of key {key:?} would have {size} bytes, at most {limit} allowed")]
    ValueTooLong { key: String, size: usize, limit: usize },
    /// The reply would be too long.
    #[error("reply would have {size} bytes, at most {limit} allowed")]
    ReplyTooLong { size: usize, limit: usize },
    /// Addition to something else.
    #[error("value of key {key:?} is not a decimal number")]
    NotANumber { key: String },
    /// Addition beyond 64 bits.
    #[error("value of key {key:?} would leave the range of 64 bits")]
    Overflow { key: String },
    /// A second wait without a cancel_wait between.
    #[error("a second wait while the first is under way")]
    WaitsAlready,
}

/// A key as an error shows it: readable, and not longer than a line.
pub(super) fn shown(key: &[u8]) -> String {
    String::from_utf8_lossy(&key[..key.len().min(80)]).into_owned()
}
