//! Statuses of CQEs: one list for send WQEs, another for receives.

use warpverbs_rdma::Status;

warpverbs_layout::layout! {
    /// Status of a send CQE.
    pub open enum SendStatus: u8 as "send_status" {
        /// It succeeded.
        Ok = 0x0 "success",
        /// The response does not fit the request.
        BadResponse = 0x1 "bad response",
        /// The local work request has a bad length.
        LocalLength = 0x2 "local length error",
        /// The WQE is not well formed.
        LocalQpOperation = 0x3 "local QP operation error",
        /// A local key, its bounds or its rights forbid the access.
        Protection = 0x4 "local protection error",
        /// A memory window could not be bound.
        MemoryOperation = 0x5 "memory operation error",
        /// The responder refused the request as malformed.
        RemoteInvalid = 0x6 "remote invalid request",
        /// The responder's key, bounds or rights forbid the access.
        RemoteAccess = 0x7 "remote access error",
        /// The responder could not carry out the request.
        RemoteOperation = 0x8 "remote operation error",
        /// The receiver had no receive posted, after all retries.
        RnrRetry = 0x9 "receiver-not-ready retries exceeded",
        /// No answer after all retries.
        Retry = 0xa "transport retries exceeded",
        /// The QP is in ERR: the WQE was not executed.
        Flush = 0xb "work request flushed",
    }

    /// Status of a receive CQE.
    pub open enum RecvStatus: u8 as "recv_status" {
        /// It succeeded.
        Ok = 0x0 "success",
        /// The receive may not write local memory.
        LocalAccess = 0x1 "local access error",
        /// The message is longer than its receive.
        LocalLength = 0x2 "local length error",
        /// A local key, its bounds or its rights forbid the access.
        Protection = 0x3 "local protection error",
        /// The WQE is not well formed.
        LocalQpOperation = 0x4 "local QP operation error",
        /// A memory window could not be invalidated.
        MemoryOperation = 0x5 "memory operation error",
        /// The request was refused as malformed.
        RemoteInvalid = 0x6 "remote invalid request",
        /// The QP is in ERR: the receive was not filled.
        Flush = 0x7 "work request flushed",
        /// The same, of a receive that the device had fetched: libraries report nothing for it.
        HardwareFlush = 0x8 "flushed by hardware",
    }
}

impl SendStatus {
    /// The status of a CQE for a work request that ended so; local ones without a code of their own are
    /// told as an operation error.
    pub const fn of(status: Status) -> Self {
        match status {
            Status::Success => Self::Ok,
            Status::BadResponse => Self::BadResponse,
            Status::LocalLength => Self::LocalLength,
            Status::LocalProtection | Status::LocalAccess => Self::Protection,
            Status::WindowBind => Self::MemoryOperation,
            Status::RemoteInvalidRequest => Self::RemoteInvalid,
            Status::RemoteAccess => Self::RemoteAccess,
            Status::RemoteOperation | Status::RemoteAborted => Self::RemoteOperation,
            Status::RnrRetryExceeded => Self::RnrRetry,
            Status::RetryExceeded | Status::ResponseTimeout => Self::Retry,
            Status::Flushed => Self::Flush,
            Status::LocalQpOperation | Status::Fatal | Status::General | Status::Unknown(_) => {
                Self::LocalQpOperation
            }
        }
    }

    /// The status that libraries make of it.
    pub const fn status(self) -> Status {
        match self {
            Self::Ok => Status::Success,
            Self::BadResponse => Status::BadResponse,
            Self::LocalLength => Status::LocalLength,
            Self::LocalQpOperation => Status::LocalQpOperation,
            Self::Protection => Status::LocalProtection,
            Self::MemoryOperation => Status::WindowBind,
            Self::RemoteInvalid => Status::RemoteInvalidRequest,
            Self::RemoteAccess => Status::RemoteAccess,
            Self::RemoteOperation => Status::RemoteOperation,
            Self::RnrRetry => Status::RnrRetryExceeded,
            Self::Retry => Status::RetryExceeded,
            Self::Flush => Status::Flushed,
            Self::Unknown(_) => Status::General,
        }
    }
}

impl RecvStatus {
    /// The status of a CQE for a receive that ended so.
    pub const fn of(status: Status) -> Self {
        match status {
            Status::Success => Self::Ok,
            Status::LocalAccess => Self::LocalAccess,
            Status::LocalLength => Self::LocalLength,
            Status::LocalProtection => Self::Protection,
            Status::WindowBind => Self::MemoryOperation,
            Status::RemoteInvalidRequest => Self::RemoteInvalid,
            Status::Flushed => Self::Flush,
            _ => Self::LocalQpOperation,
        }
    }

    /// The status that libraries make of it.
    pub const fn status(self) -> Status {
        match self {
            Self::Ok => Status::Success,
            Self::LocalAccess => Status::LocalAccess,
            Self::LocalLength => Status::LocalLength,
            Self::Protection => Status::LocalProtection,
            Self::LocalQpOperation => Status::LocalQpOperation,
            Self::MemoryOperation => Status::WindowBind,
            Self::RemoteInvalid => Status::RemoteInvalidRequest,
            Self::Flush | Self::HardwareFlush => Status::Flushed,
            Self::Unknown(_) => Status::General,
        }
    }
}
