//! Types and flags of WQEs.

use bitflags::bitflags;
use warpverbs_rdma::SendFlags;

warpverbs_layout::layout! {
    /// Type of a WQE: its first byte.
    pub open enum WqeType: u8 as "wqe_type" {
        /// SEND.
        Send = 0x00 "SEND",
        /// SEND with an immediate.
        SendImm = 0x01 "SEND_IMM",
        /// SEND that invalidates a key of the receiver.
        SendInvalidate = 0x02 "SEND_INVAL",
        /// RDMA WRITE.
        Write = 0x04 "WRITE",
        /// RDMA WRITE that also consumes a receive and delivers an immediate.
        WriteImm = 0x05 "WRITE_IMM",
        /// RDMA READ.
        Read = 0x06 "READ",
        /// 8-byte compare-and-swap.
        CompareSwap = 0x08 "ATOMIC_CS",
        /// 8-byte fetch-and-add.
        FetchAdd = 0x0b "ATOMIC_FA",
        /// Invalidates a local key.
        LocalInvalidate = 0x0c "LOCAL_INVAL",
        /// Binds a memory window.
        Bind = 0x0e "BIND",
        /// A receive.
        Recv = 0x80 "RECV",
    }
}

impl WqeType {
    /// Whether [`wqe::parse`](crate::wqe::parse) gives a request for it.
    pub const fn is_parsed(self) -> bool {
        !matches!(self, Self::LocalInvalidate | Self::Bind | Self::Recv | Self::Unknown(_))
    }
}

impl core::fmt::Display for WqeType {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} ({:#04x})", self.name(), self.value())
    }
}

bitflags! {
    /// Flags of a send WQE: its second byte.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct WqeFlags: u8 {
        /// A success produces a CQE.
        const SIGNALED = 0x01;
        /// Waits for earlier READs and atomics.
        const READ_FENCE = 0x02;
        /// Waits for earlier requests: what libraries write for a fenced work request.
        const FENCE = 0x04;
        /// Raises a solicited event at the receiver.
        const SOLICITED = 0x08;
        /// The slots behind the second hold the bytes themselves.
        const INLINE = 0x10;
    }
}

impl WqeFlags {
    /// The flags of a WQE for those of a work request.
    pub fn of(flags: SendFlags) -> Self {
        let mut of = Self::empty();
        of.set(Self::SIGNALED, flags.contains(SendFlags::SIGNALED));
        of.set(Self::FENCE, flags.contains(SendFlags::FENCE));
        of.set(Self::SOLICITED, flags.contains(SendFlags::SOLICITED));
        of
    }

    /// The flags of a work request that asks for the same.
    pub fn send_flags(self) -> SendFlags {
        let mut flags = SendFlags::empty();
        flags.set(SendFlags::SIGNALED, self.contains(Self::SIGNALED));
        flags.set(SendFlags::FENCE, self.intersects(Self::FENCE | Self::READ_FENCE));
        flags.set(SendFlags::SOLICITED, self.contains(Self::SOLICITED));
        flags
    }
}
