//! NIXL's status codes, and errors that have one and a cause.

use std::sync::Arc;
use warpverbs_agent::AgentError;

/// NIXL's status codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// Posted, not over.
    InProgress,
    /// Over, and well.
    Success,
    /// The transfer was not posted.
    NotPosted,
    /// A parameter is wrong.
    InvalidParam,
    /// The path failed.
    Backend,
    /// A name, a registration or a peer that is not known.
    NotFound,
    /// Two values that must agree do not.
    Mismatch,
    /// The operation is not allowed now.
    NotAllowed,
    /// The transfer is in progress and cannot be posted again.
    RepostActive,
    /// Something failed that has no code of its own.
    Unknown,
    /// It is not there: this path, this device, this build.
    NotSupported,
    /// The peer is lost.
    RemoteDisconnect,
    /// The transfer was cancelled.
    Cancelled,
    /// Telemetry is switched off.
    NoTelemetry,
}

impl Status {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::InProgress,
        Self::Success,
        Self::NotPosted,
        Self::InvalidParam,
        Self::Backend,
        Self::NotFound,
        Self::Mismatch,
        Self::NotAllowed,
        Self::RepostActive,
        Self::Unknown,
        Self::NotSupported,
        Self::RemoteDisconnect,
        Self::Cancelled,
        Self::NoTelemetry,
    ];

    /// Its number in NIXL's interfaces.
    pub fn number(self) -> i32 {
        match self {
            Self::InProgress => 1,
            Self::Success => 0,
            Self::NotPosted => -1,
            Self::InvalidParam => -2,
            Self::Backend => -3,
            Self::NotFound => -4,
            Self::Mismatch => -5,
            Self::NotAllowed => -6,
            Self::RepostActive => -7,
            Self::Unknown => -8,
            Self::NotSupported => -9,
            Self::RemoteDisconnect => -10,
            Self::Cancelled => -11,
            Self::NoTelemetry => -12,
        }
    }

    /// Its name in NIXL's interfaces.
    pub fn name(self) -> &'static str {
        match self {
            Self::InProgress => "NIXL_IN_PROG",
            Self::Success => "NIXL_SUCCESS",
            Self::NotPosted => "NIXL_ERR_NOT_POSTED",
            Self::InvalidParam => "NIXL_ERR_INVALID_PARAM",
            Self::Backend => "NIXL_ERR_BACKEND",
            Self::NotFound => "NIXL_ERR_NOT_FOUND",
            Self::Mismatch => "NIXL_ERR_MISMATCH",
            Self::NotAllowed => "NIXL_ERR_NOT_ALLOWED",
            Self::RepostActive => "NIXL_ERR_REPOST_ACTIVE",
            Self::Unknown => "NIXL_ERR_UNKNOWN",
            Self::NotSupported => "NIXL_ERR_NOT_SUPPORTED",
            Self::RemoteDisconnect => "NIXL_ERR_REMOTE_DISCONNECT",
            Self::Cancelled => "NIXL_ERR_CANCELED",
            Self::NoTelemetry => "NIXL_ERR_NO_TELEMETRY",
        }
    }
}

/// A refusal or failure: NIXL's status, and the cause. Its text begins with the status' name, by which
/// programs tell errors apart.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}: {why}", .status.name())]
pub struct Error {
    /// The status that NIXL's interfaces report.
    pub status: Status,
    /// The cause: the wrong value, and the expected one.
    pub why: String,
    /// The agent's error, if it caused this one.
    #[source]
    pub cause: Option<Arc<AgentError>>,
}

impl Error {
    /// An error of this crate's own.
    pub fn new(status: Status, why: impl Into<String>) -> Self {
        Self { status, why: why.into(), cause: None }
    }
}

impl From<AgentError> for Error {
    fn from(error: AgentError) -> Self {
        Self { status: status_of(&error), why: error.to_string(), cause: Some(Arc::new(error)) }
    }
}

/// The status under which a program of NIXL's expects this error.
fn status_of(error: &AgentError) -> Status {
    match error {
        AgentError::Config { .. }
        | AgentError::Range { .. }
        | AgentError::Count { .. }
        | AgentError::Index { .. }
        | AgentError::Lengths { .. }
        | AgentError::Notification { .. }
        | AgentError::Message { .. } => Status::InvalidParam,
        AgentError::Foreign { .. } | AgentError::Encoding(_) => Status::Mismatch,
        AgentError::UnknownPeer { .. }
        | AgentError::UnknownMemory { .. }
        | AgentError::Deregistered { .. } => Status::NotFound,
        AgentError::Stale { .. } | AgentError::PeerLost { .. } => Status::RemoteDisconnect,
        AgentError::Refused { .. } => Status::NotAllowed,
        AgentError::InProgress => Status::RepostActive,
        AgentError::NotPosted => Status::NotPosted,
        AgentError::Cancelled => Status::Cancelled,
        _ => Status::Backend,
    }
}
