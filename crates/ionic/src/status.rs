//! Statuses of CQEs with the error bit.

use warpverbs_rdma::Status;

warpverbs_layout::layout! {
    /// Why work failed.
    pub open enum Failure: u32 as "failure" {
        /// The local work request, or its receive, has a bad length.
        LocalLength = 0x1 "local length error",
        /// The WQE is not well formed.
        LocalQpOperation = 0x2 "local QP operation error",
        /// A local key, its bounds or its rights forbid the access.
        Protection = 0x3 "local protection error",
        /// The QP is in ERR: the WQE was not executed.
        Flushed = 0x4 "work request flushed",
        /// A memory window could not be bound, or a key not be invalidated.
        MemoryManagement = 0x5 "memory management error",
        /// The response does not fit the request.
        BadResponse = 0x6 "bad response",
        /// A receive may not write local memory.
        LocalAccess = 0x7 "local access error",
        /// The responder refused the request as malformed.
        RemoteInvalid = 0x8 "remote invalid request",
        /// The responder's key, bounds or rights forbid the access.
        RemoteAccess = 0x9 "remote access error",
        /// The responder could not carry out the request.
        RemoteOperation = 0xa "remote operation error",
        /// No answer after all retries.
        Retry = 0xb "transport retries exceeded",
        /// The receiver had no receive posted, after all retries.
        RnrRetry = 0xc "receiver-not-ready retries exceeded",
        /// An extended connection was violated.
        Xrc = 0xd "XRC violation",
    }
}

impl Failure {
    /// The status of a CQE for work that ended so; `None` is success. One without a code of its own is
    /// told as an operation error.
    pub const fn of(status: Status) -> Option<Self> {
        Some(match status {
            Status::Success => return None,
            Status::LocalLength => Self::LocalLength,
            Status::LocalProtection => Self::Protection,
            Status::Flushed => Self::Flushed,
            Status::WindowBind => Self::MemoryManagement,
            Status::BadResponse => Self::BadResponse,
            Status::LocalAccess => Self::LocalAccess,
            Status::RemoteInvalidRequest => Self::RemoteInvalid,
            Status::RemoteAccess => Self::RemoteAccess,
            Status::RemoteOperation | Status::RemoteAborted => Self::RemoteOperation,
            Status::RetryExceeded | Status::ResponseTimeout => Self::Retry,
            Status::RnrRetryExceeded => Self::RnrRetry,
            Status::LocalQpOperation | Status::Fatal | Status::General | Status::Unknown(_) => {
                Self::LocalQpOperation
            }
        })
    }

    /// The status that libraries make of it.
    pub const fn status(self) -> Status {
        match self {
            Self::LocalLength => Status::LocalLength,
            Self::LocalQpOperation => Status::LocalQpOperation,
            Self::Protection => Status::LocalProtection,
            Self::Flushed => Status::Flushed,
            Self::MemoryManagement => Status::WindowBind,
            Self::BadResponse => Status::BadResponse,
            Self::LocalAccess => Status::LocalAccess,
            Self::RemoteInvalid => Status::RemoteInvalidRequest,
            Self::RemoteAccess => Status::RemoteAccess,
            Self::RemoteOperation => Status::RemoteOperation,
            Self::Retry => Status::RetryExceeded,
            Self::RnrRetry => Status::RnrRetryExceeded,
            Self::Xrc | Self::Unknown(_) => Status::General,
        }
    }
}
