//! Completions of work requests.

use crate::sys;
use std::fmt;
use warpverbs_rdma::{self as rdma, ReceivedKind, Rkey, Status};

/// The operation that completed (`enum ibv_wc_opcode`). Only valid with [`Status::Success`].
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
    /// The identifier of the work request.
    #[inline]
    pub fn id(&self) -> u64 {
        self.0.wr_id
    }

    /// How it ended. If badly, only this, the identifier, the QP and the vendor's code are valid.
    #[inline]
    pub fn status(&self) -> Status {
        Status::from_value(self.0.status)
    }

    /// Whether it ended well.
    #[inline]
    pub fn is_success(&self) -> bool {
        self.0.status == sys::IBV_WC_SUCCESS
    }

    /// The operation that completed.
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

impl From<&Completion> for rdma::Completion {
    #[inline]
    fn from(wc: &Completion) -> Self {
        let (id, status) = (wc.id(), wc.status());
        if status != Status::Success {
            return Self { id, status, vendor: wc.vendor_error(), ..Self::default() };
        }
        let kind = match (wc.opcode(), wc.imm(), wc.invalidated_rkey()) {
            (WcOpcode::RecvWriteImm, imm, _) => ReceivedKind::WriteImm(imm.unwrap_or(0)),
            (WcOpcode::Recv, Some(imm), _) => ReceivedKind::SendImm(imm),
            (WcOpcode::Recv, None, Some(rkey)) => ReceivedKind::SendInvalidate(Rkey(rkey)),
            _ => ReceivedKind::Send,
        };
        Self { id, status, vendor: 0, byte_len: wc.byte_len(), kind }
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
    fn statuses_have_the_values_of_the_header() {
        let rows = [
            (sys::IBV_WC_SUCCESS, Status::Success),
            (sys::IBV_WC_LOC_LEN_ERR, Status::LocalLength),
            (sys::IBV_WC_LOC_QP_OP_ERR, Status::LocalQpOperation),
            (sys::IBV_WC_LOC_PROT_ERR, Status::LocalProtection),
            (sys::IBV_WC_WR_FLUSH_ERR, Status::Flushed),
            (sys::IBV_WC_MW_BIND_ERR, Status::WindowBind),
            (sys::IBV_WC_BAD_RESP_ERR, Status::BadResponse),
            (sys::IBV_WC_LOC_ACCESS_ERR, Status::LocalAccess),
            (sys::IBV_WC_REM_INV_REQ_ERR, Status::RemoteInvalidRequest),
            (sys::IBV_WC_REM_ACCESS_ERR, Status::RemoteAccess),
            (sys::IBV_WC_REM_OP_ERR, Status::RemoteOperation),
            (sys::IBV_WC_RETRY_EXC_ERR, Status::RetryExceeded),
            (sys::IBV_WC_RNR_RETRY_EXC_ERR, Status::RnrRetryExceeded),
            (sys::IBV_WC_REM_ABORT_ERR, Status::RemoteAborted),
            (sys::IBV_WC_FATAL_ERR, Status::Fatal),
            (sys::IBV_WC_RESP_TIMEOUT_ERR, Status::ResponseTimeout),
            (sys::IBV_WC_GENERAL_ERR, Status::General),
        ];
        assert!(rows.iter().map(|row| row.1).eq(Status::ALL.iter().copied()));
        for (raw, status) in rows {
            assert_eq!(status.value(), raw, "{status}");
        }
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
