//! Bounds on what a peer may make us keep.

use std::time::Duration;

/// Bounds on what a peer may send and a store may hold. Sizes are in bytes.
///
/// The default takes every message that PyTorch's libuv server takes, but for those above 64 MiB in
/// all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest key, with PyTorch's leading `/`.
    pub key: usize,
    /// Longest value, also after appends.
    pub value: usize,
    /// Most keys in one message.
    pub keys_per_message: usize,
    /// Longest message in either direction.
    pub message: usize,
    /// Most keys in a store.
    pub keys: usize,
    /// Most that a store and its server's buffers hold together.
    pub memory: usize,
    /// Most connections a server keeps at once. For one more, one that has not validated itself gives way.
    pub connections: usize,
    /// How long one message may take from its first byte to its last, and a reply to leave. A new
    /// connection must have validated itself within this time.
    pub message_time: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            key: 8 << 10,
            value: 8 << 20,
            keys_per_message: 128 << 10,
            message: 64 << 20,
            keys: 1 << 20,
            memory: 1 << 30,
            connections: 4096,
            message_time: Duration::from_secs(10),
        }
    }
}
