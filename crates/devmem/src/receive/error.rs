//! Errors of receiving.

use thiserror::Error;

/// Control data that is not a list of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ControlError {
    /// The length in a header.
    #[error("control message at byte {at} is {len} bytes long, expected 16 to {left}")]
    Length {
        /// Where it begins.
        at: usize,
        /// Its length by its header.
        len: u64,
        /// Bytes from there to the end.
        left: usize,
    },
    /// A device-memory message of another size.
    #[error("device-memory control message at byte {at} has {len} bytes of payload, expected 24")]
    Payload {
        /// Where it begins.
        at: usize,
        /// Bytes behind its header.
        len: usize,
    },
}

/// Violations of the rules of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The kernel gave a token twice without its return in between.
    #[error("token {token} was given twice")]
    GivenTwice {
        /// Which.
        token: u32,
    },
    /// More tokens than this ledger keeps account of.
    #[error("token {token}: at most {limit} fragments may be outstanding")]
    TooMany {
        /// Which.
        token: u32,
        /// How many there may be.
        limit: u32,
    },
    /// A token was given back that is not held.
    #[error("token {token} was given back, but it is not held")]
    NotHeld {
        /// Which.
        token: u32,
    },
    /// Parts of a fragment were given back that are more than all of it.
    #[error("{bytes} bytes of token {token} were given back, of which {held} are held")]
    TooMuch {
        /// Which.
        token: u32,
        /// Given back.
        bytes: u64,
        /// Not yet given back.
        held: u32,
    },
    /// The kernel took none of the tokens, or more than it was given.
    #[error("the kernel freed {freed} of {asked} returned tokens")]
    Refused {
        /// Returned to it.
        asked: u32,
        /// Freed, by the kernel.
        freed: u32,
    },
}

/// Bytes could not be received, or not be described.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReceiveError {
    /// The socket failed.
    #[error("{call} failed")]
    Socket {
        /// The system call.
        call: &'static str,
        /// The system's error.
        #[source]
        cause: std::io::Error,
    },
    /// The device gave no landing memory.
    #[error("no landing memory")]
    NoLanding(#[source] warpverbs_gpu::GpuError),
    /// Control data is malformed.
    #[error("malformed control data")]
    Control(#[from] ControlError),
    /// A token broke the rules.
    #[error("wrong token")]
    Token(#[from] TokenError),
    /// A fragment of no bytes.
    #[error("the kernel announced a fragment of no bytes at stream position {at}")]
    Empty {
        /// Position in the stream.
        at: u64,
    },
    /// A fragment in a dmabuf that is not bound here.
    #[error("a fragment is in dmabuf {id}, which is not bound to this receiver")]
    UnknownDmabuf {
        /// The id.
        id: u32,
    },
    /// A fragment that is not inside its dmabuf.
    #[error("{len} bytes at offset {offset:#x} are not inside dmabuf {id} of {size:#x} bytes")]
    OutsideDmabuf {
        /// The id.
        id: u32,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u32,
        /// Bytes of the dmabuf.
        size: u64,
    },
    /// More bytes on the host than there was memory for.
    #[error("{bytes} bytes were copied to the host, into {room} bytes of landing memory")]
    LandingOverrun {
        /// Bytes on the host, by control messages or `recvmsg`.
        bytes: u64,
        /// The room that `recvmsg` was given.
        room: u64,
    },
    /// Fragments do not add up to the bytes received.
    #[error(
        "recvmsg returned {returned} bytes, of which control messages describe {described}{}",
        if *truncated { " (control data was truncated)" } else { "" }
    )]
    ByteCount {
        /// Result of `recvmsg`.
        returned: u64,
        /// Sum of the fragments.
        described: u64,
        /// `MSG_CTRUNC` was set.
        truncated: bool,
    },
    /// Landing memory was given back that is not in use.
    #[error("{len} bytes of landing memory at offset {offset:#x} were given back, not in use")]
    NotLanded {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// After an error it is unknown where in the stream the next byte would be.
    #[error("nothing can be received after an error on this stream")]
    Failed,
}
