//! What a CQ says of a work request.

use crate::sys;
use std::fmt;

/// How a work request ended (`enum ibv_wc_status`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WcStatus {
    /// It was done.
    Success,
    /// A message was longer than allowed, or than its receive.
    LocalLength,
    /// A request that the QP cannot do, or an inconsistency in it.
    LocalQpOperation,
    /// A key did not allow the access to local memory.
    LocalProtection,
    /// Another request failed, or the QP was moved to ERR.
    Flushed,
    /// A memory window could not be bound.
    WindowBind,
    /// The peer answered what makes no sense.
    BadResponse,
    /// A peer's access to local memory was refused, seen with a receive.
    LocalAccess,
    /// The peer found the request malformed.
    RemoteInvalidRequest,
    /// A key did not allow the access to the peer's memory.
    RemoteAccess,
    /// The peer could not do it.
    RemoteOperation,
    /// The peer did not answer, however often it was asked.
    RetryExceeded,
    /// The peer had no receive, however often it was asked.
    RnrRetryExceeded,
    /// The peer gave up.
    RemoteAborted,
    /// The device is broken.
    Fatal,
    /// An answer came too late.
    ResponseTimeout,
    /// None of the others.
    General,
    /// A value that this crate does not know, or one of transports that it does not use.
    Unknown(u32),
}

/// All that have a name, with the header's values.
const STATUSES: [(u32, WcStatus, &str); 17] = [
    (sys::IBV_WC_SUCCESS, WcStatus::Success, "success"),
    (sys::IBV_WC_LOC_LEN_ERR, WcStatus::LocalLength, "local length error"),
    (sys::IBV_WC_LOC_QP_OP_ERR, WcStatus::LocalQpOperation, "local QP operation error"),
    (sys::IBV_WC_LOC_PROT_ERR, WcStatus::LocalProtection, "local protection error"),
    (sys::IBV_WC_WR_FLUSH_ERR, WcStatus::Flushed, "flushed"),
    (sys::IBV_WC_MW_BIND_ERR, WcStatus::WindowBind, "memory window bind error"),
    (sys::IBV_WC_BAD_RESP_ERR, WcStatus::BadResponse, "bad response"),
    (sys::IBV_WC_LOC_ACCESS_ERR, WcStatus::LocalAccess, "local access error"),
    (sys::IBV_WC_REM_INV_REQ_ERR, WcStatus::RemoteInvalidRequest, "invalid request, says the peer"),
    (sys::IBV_WC_REM_ACCESS_ERR, WcStatus::RemoteAccess, "access refused by the peer"),
    (sys::IBV_WC_REM_OP_ERR, WcStatus::RemoteOperation, "operation failed at the peer"),
    (sys::IBV_WC_RETRY_EXC_ERR, WcStatus::RetryExceeded, "no answer from the peer"),
    (sys::IBV_WC_RNR_RETRY_EXC_ERR, WcStatus::RnrRetryExceeded, "the peer has no receive"),
    (sys::IBV_WC_REM_ABORT_ERR, WcStatus::RemoteAborted, "aborted by the peer"),
    (sys::IBV_WC_FATAL_ERR, WcStatus::Fatal, "fatal device error"),
    (sys::IBV_WC_RESP_TIMEOUT_ERR, WcStatus::ResponseTimeout, "response timeout"),
    (sys::IBV_WC_GENERAL_ERR, WcStatus::General, "general error"),
];

impl WcStatus {
    /// The status of a value of `enum ibv_wc_status`.
    #[inline]
    pub fn from_raw(raw: u32) -> Self {
        if raw == sys::IBV_WC_SUCCESS {
            return Self::Success;
        }
        STATUSES.iter().find(|row| row.0 == raw).map_or(Self::Unknown(raw), |row| row.1)
    }
}

impl fmt::Display for WcStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self, STATUSES.iter().find(|row| row.1 == *self)) {
            (_, Some(row)) => f.write_str(row.2),
            (Self::Unknown(raw), None) => write!(f, "unknown status {raw}"),
            (status, None) => write!(f, "{status:?}"),
        }
    }
}

/// What a completion is of (`enum ibv_wc_opcode`). Only valid with [`WcStatus::Success`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WcOpcode {
    /// SEND, of any kind.
    Send,
    /// WRITE, with or without immediate data.
    Write,
    /// READ.
    Read,
    /// Compare and swap.
    CompareSwap,
    /// Fetch and add.
    FetchAdd,
    /// A memory window was bound.
    BindWindow,
    /// LOCAL_INV.
    LocalInvalidate,
    /// A receive, filled by a SEND.
    Recv,
    /// A receive, consumed by a WRITE with immediate data.
    RecvWriteImm,
    /// A value that this crate does not know.
    Unknown(u32),
}

impl WcOpcode {
    /// The operation of a value of `enum ibv_wc_opcode`.
    #[inline]
    pub fn from_raw(raw: u32) -> Self {
        match raw {
            sys::IBV_WC_SEND => Self::Send,
            sys::IBV_WC_RDMA_WRITE => Self::Write,
            sys::IBV_WC_RDMA_READ => Self::Read,
            sys::IBV_WC_COMP_SWAP => Self::CompareSwap,
            sys::IBV_WC_FETCH_ADD => Self::FetchAdd,
            sys::IBV_WC_BIND_MW => Self::BindWindow,
            sys::IBV_WC_LOCAL_INV => Self::LocalInvalidate,
            sys::IBV_WC_RECV => Self::Recv,
            sys::IBV_WC_RECV_RDMA_WITH_IMM => Self::RecvWriteImm,
            other => Self::Unknown(other),
        }
    }
}

/// One work completion.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Completion(sys::ibv_wc);

/// The same memory as the library writes it.
#[inline]
pub(super) fn as_raw(list: &mut [Completion]) -> &mut [sys::ibv_wc] {
    let raw = std::ptr::from_mut(list) as *mut [sys::ibv_wc];
    // SAFETY: `Completion` is a transparent `ibv_wc`, of which every bit pattern is a value.
    unsafe { &mut *raw }
}

impl Default for Completion {
    fn default() -> Self {
        Self(sys::zeroed())
    }
}

impl Completion {
    /// What was given with the work request.
    #[inline]
    pub fn id(&self) -> u64 {
        self.0.wr_id
    }

    /// How it ended. If badly, only this, the identifier, the QP and the vendor's code are valid.
    #[inline]
    pub fn status(&self) -> WcStatus {
        WcStatus::from_raw(self.0.status)
    }

    /// Whether it ended well.
    #[inline]
    pub fn is_success(&self) -> bool {
        self.0.status == sys::IBV_WC_SUCCESS
    }

    /// What it is of.
    #[inline]
    pub fn opcode(&self) -> WcOpcode {
        WcOpcode::from_raw(self.0.opcode)
    }

    /// Bytes that arrived, for receives and READs.
    #[inline]
    pub fn byte_len(&self) -> u32 {
        self.0.byte_len
    }

    /// Immediate data that arrived.
    #[inline]
    pub fn imm(&self) -> Option<u32> {
        // SAFETY: both fields of the union are 32-bit integers.
        let raw = unsafe { self.0.__bindgen_anon_1.imm_data };
        (self.0.wc_flags & sys::IBV_WC_WITH_IMM != 0).then_some(u32::from_be(raw))
    }

    /// The key that the peer took back with its SEND.
    #[inline]
    pub fn invalidated_rkey(&self) -> Option<u32> {
        // SAFETY: as above.
        let raw = unsafe { self.0.__bindgen_anon_1.invalidated_rkey };
        (self.0.wc_flags & sys::IBV_WC_WITH_INV != 0).then_some(raw)
    }

    /// The own QP.
    #[inline]
    pub fn qpn(&self) -> u32 {
        self.0.qp_num
    }

    /// The vendor's code of a failure.
    #[inline]
    pub fn vendor_error(&self) -> u32 {
        self.0.vendor_err
    }
}

impl fmt::Debug for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Completion");
        out.field("id", &self.id()).field("qpn", &self.qpn()).field("status", &self.status());
        if self.is_success() {
            out.field("opcode", &self.opcode()).field("bytes", &self.byte_len());
            out.field("imm", &self.imm()).field("invalidated", &self.invalidated_rkey());
        } else {
            out.field("vendor_error", &format_args!("{:#x}", self.vendor_error()));
        }
        out.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_its_own_value_and_words() {
        for (raw, status, words) in STATUSES {
            assert_eq!(WcStatus::from_raw(raw), status);
            assert_eq!(status.to_string(), words);
        }
        assert_eq!(WcStatus::from_raw(9999), WcStatus::Unknown(9999));
        assert_eq!(WcStatus::Unknown(9999).to_string(), "unknown status 9999");
    }

    #[test]
    fn fields_count_only_if_a_flag_says_so() {
        let mut raw: sys::ibv_wc = sys::zeroed();
        raw.__bindgen_anon_1.imm_data = 0x0102_0304_u32.to_be();
        assert_eq!((Completion(raw).imm(), Completion(raw).invalidated_rkey()), (None, None));
        raw.wc_flags = sys::IBV_WC_WITH_IMM;
        assert_eq!(Completion(raw).imm(), Some(0x0102_0304));
        raw.wc_flags = sys::IBV_WC_WITH_INV;
        assert_eq!(Completion(raw).invalidated_rkey(), Some(0x0102_0304_u32.to_be()));
    }
}
