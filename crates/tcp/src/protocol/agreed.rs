//! The parameters that two ends agree on, and their limits.

/// Bytes charged to the window for a message or notification beside its payload, so that empty ones
/// are bounded as well.
pub const OVERHEAD: u64 = 256;

/// The longest notification, bytes.
pub const MOST_NOTIFICATION: u64 = 64 << 10;

/// The longest message that may be sent before its receive is posted, bytes.
pub const MOST_EAGER: u64 = 64 << 10;

/// The smallest window: four times what one message may charge, so that credit returned in quarters
/// never leaves both ends waiting.
pub const LEAST_WINDOW: u64 = 4 * (MOST_EAGER + OVERHEAD);

/// The shortest agreed chunk: a notification is one chunk.
pub const LEAST_CHUNK: u32 = 64 << 10;

/// The longest agreed chunk.
pub const MOST_CHUNK: u32 = 64 << 20;

/// Sockets of a link at most.
pub const MOST_SOCKETS: u16 = 64;

/// Chunks that may be announced for a socket before their bytes are read. Further headers wait in
/// their socket.
pub(super) const MOST_ANNOUNCED: usize = 1024;

/// Transfers up to this length stay in one piece and take the socket of the headers.
pub(super) const SMALL: u64 = 16 << 10;

/// Where the headers of a direction travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Each header on the socket of its payload, right before it.
    Inline,
    /// All headers on socket 0, all payload on the others: for a receiver whose payload sockets
    /// deliver into device memory, where the host does not see headers.
    Separate,
}

/// The outcome of a handshake, from one end's point of view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// Sockets, at least 1; at least 2 if either direction is [`Framing::Separate`].
    pub sockets: u16,
    /// Bytes of payload in a frame at most.
    pub chunk: u32,
    /// Writes, and reads, that may be under way at a time.
    pub open: u32,
    /// This end's window: what the peer may have unconsumed here, bytes.
    pub window: u64,
    /// The peer's window.
    pub peer_window: u64,
    /// Framing of the peer's direction.
    pub receive: Framing,
    /// Framing of this end's direction.
    pub send: Framing,
}
