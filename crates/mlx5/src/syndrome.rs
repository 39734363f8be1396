//! Syndromes: what an error CQE says went wrong.

use warpverbs_rdma::Status;

warpverbs_layout::layout! {
    /// Syndrome byte of an error CQE.
    pub open enum Syndrome: u8 as "syndrome" {
        /// The local work request has a bad length.
        LocalLength = 0x01 "local length error",
        /// The WQE is not well formed.
        LocalQpOp = 0x02 "local QP operation error",
        /// A local key, its bounds or its rights forbid the access.
        LocalProt = 0x04 "local protection error",
        /// The QP is in ERR: the WQE was not executed.
        WrFlush = 0x05 "work request flushed",
        /// A memory window could not be bound.
        MwBind = 0x06 "memory window bind error",
        /// The response does not fit the request.
        BadResp = 0x10 "bad response",
        /// A receive may not write local memory.
        LocalAccess = 0x11 "local access error",
        /// The responder refused the request as malformed.
        RemoteInvalReq = 0x12 "remote invalid request",
        /// The responder's key, bounds or rights forbid the access.
        RemoteAccess = 0x13 "remote access error",
        /// The responder could not carry out the request.
        RemoteOp = 0x14 "remote operation error",
        /// No answer after all retries.
        TransportRetryExc = 0x15 "transport retries exceeded",
        /// The receiver had no receive posted, after all retries.
        RnrRetryExc = 0x16 "receiver-not-ready retries exceeded",
        /// The operation was aborted at the other side.
        RemoteAborted = 0x22 "remote aborted",
    }
}

/// Bits of a syndrome byte that mlx5 does not use; with them a status without a syndrome of mlx5 is
/// kept in a CQE.
const FOREIGN: u8 = 0xc0;

impl Syndrome {
    /// The syndrome from which a library for mlx5 makes this status; `None` is success. A status
    /// for which mlx5 has no syndrome becomes `0xc0` and its value, so that none is lost.
    pub const fn of(status: Status) -> Option<Self> {
        Some(match status {
            Status::Success => return None,
            Status::LocalLength => Self::LocalLength,
            Status::LocalQpOperation => Self::LocalQpOp,
            Status::LocalProtection => Self::LocalProt,
            Status::Flushed => Self::WrFlush,
            Status::WindowBind => Self::MwBind,
            Status::BadResponse => Self::BadResp,
            Status::LocalAccess => Self::LocalAccess,
            Status::RemoteInvalidRequest => Self::RemoteInvalReq,
            Status::RemoteAccess => Self::RemoteAccess,
            Status::RemoteOperation => Self::RemoteOp,
            Status::RetryExceeded => Self::TransportRetryExc,
            Status::RnrRetryExceeded => Self::RnrRetryExc,
            Status::RemoteAborted => Self::RemoteAborted,
            Status::Fatal | Status::ResponseTimeout | Status::General | Status::Unknown(_) => {
                Self::Unknown(FOREIGN | (status.value() & 0x3f) as u8)
            }
        })
    }

    /// The syndrome of work that has failed with this status, which is not success.
    pub const fn of_failure(status: Status) -> Self {
        match Self::of(status) {
            Some(syndrome) => syndrome,
            None => Self::LocalQpOp,
        }
    }

    /// The status that a library for mlx5 makes of it, or the one that [`Self::of`] kept in it.
    pub fn status(self) -> Status {
        if let Self::Unknown(byte) = self {
            return match byte & FOREIGN {
                FOREIGN => Status::from_value((byte & !FOREIGN).into()),
                _ => Status::General,
            };
        }
        let same = |status: &&Status| Self::of(**status) == Some(self);
        Status::ALL.iter().find(same).copied().unwrap_or(Status::General)
    }

    /// A vendor syndrome seen beside this one in public reports, 0 if none. There is no public
    /// table of them: advisory.
    pub const fn usual_vendor(self) -> u8 {
        match self {
            Self::LocalQpOp => 0x68,
            Self::LocalProt => 0x51,
            Self::WrFlush => 0xf9,
            Self::RemoteInvalReq => 0x8a,
            Self::RemoteAccess => 0x88,
            Self::RemoteOp => 0x89,
            Self::TransportRetryExc => 0x81,
            Self::RemoteAborted => 0x93,
            _ => 0,
        }
    }
}

impl core::fmt::Display for Syndrome {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} ({:#04x})", self.name(), self.value())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_keeps_a_syndrome_of_its_own() {
        assert_eq!(Syndrome::of(Status::Success), None);
        let mut seen = [false; 256];
        for status in (1..64).map(Status::from_value) {
            let syndrome = Syndrome::of(status).unwrap();
            assert_eq!(syndrome.status(), status);
            let byte = usize::from(syndrome.value());
            assert!(!core::mem::replace(&mut seen[byte], true), "{status} and another: {byte:#x}");
        }
        assert_eq!(Syndrome::of(Status::General), Some(Syndrome::Unknown(0xd5)));
    }
}
