//! One run of received bytes.

/// Where the kernel left received bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// In the dmabuf that was bound under this id; the fragment has a token.
    Dmabuf(u32),
    /// Copied to the host and announced: headers split badly, small segments, retransmissions.
    Linear,
    /// Copied to the host without a control message, as from every queue without a binding.
    Plain,
}

impl Source {
    /// Whether the bytes are in landing memory on the host.
    pub fn is_host(self) -> bool {
        !matches!(self, Self::Dmabuf(_))
    }
}

/// A run of received bytes that lie together in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Position in the stream: bytes that the socket received before this one.
    pub at: u64,
    /// Bytes, at least one.
    pub len: u64,
    /// Which memory.
    pub source: Source,
    /// Byte offset of the first byte in that memory.
    pub offset: u64,
    /// Token that the kernel wants back for its memory. Every fragment in a dmabuf has one; numbers
    /// count for one socket only.
    pub token: Option<u32>,
}
