//! Opcodes of send WQEs and of CQEs.

/// The parser's support for a send opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// [`crate::wqe::parse`] gives an [`crate::wqe::Op`].
    Parsed,
    /// Known by name; refused with
    /// [`WqeViolation::UnsupportedOpcode`](crate::wqe::WqeViolation::UnsupportedOpcode).
    NamedOnly,
}

warpverbs_layout::layout! {
    /// Opcode of a send WQE: byte 3 of the control segment.
    pub open enum SendOpcode: u8 as "opcode" {
        /// Does nothing; completes in order.
        Nop = 0x00 "NOP",
        /// SEND that invalidates a key of the receiver.
        SendInval = 0x01 "SEND_INVAL",
        /// RDMA WRITE.
        RdmaWrite = 0x08 "RDMA_WRITE",
        /// RDMA WRITE that also consumes a receive and delivers an immediate.
        RdmaWriteImm = 0x09 "RDMA_WRITE_IMM",
        /// SEND.
        Send = 0x0a "SEND",
        /// SEND with an immediate.
        SendImm = 0x0b "SEND_IMM",
        /// TCP segmentation offload, Ethernet queues.
        Tso = 0x0e "TSO",
        /// Holds the queue until a CQ has a CQE.
        Wait = 0x0f "WAIT",
        /// RDMA READ.
        RdmaRead = 0x10 "RDMA_READ",
        /// 8-byte compare-and-swap.
        AtomicCs = 0x11 "ATOMIC_CS",
        /// 8-byte fetch-and-add.
        AtomicFa = 0x12 "ATOMIC_FA",
        /// Masked compare-and-swap, 4 or 8 bytes by opmod.
        MaskedCs = 0x14 "ATOMIC_MASKED_CS",
        /// Masked fetch-and-add, 4 or 8 bytes by opmod.
        MaskedFa = 0x15 "ATOMIC_MASKED_FA",
        /// Lets another send queue run.
        SendEn = 0x17 "SEND_EN",
        /// Fast memory registration, older form.
        Fmr = 0x19 "FMR",
        /// Invalidates a local key.
        LocalInval = 0x1b "LOCAL_INVAL",
        /// Configuration by WQE.
        ConfigCmd = 0x1f "CONFIG_CMD",
        /// Signature parameters.
        SetPsv = 0x20 "SET_PSV",
        /// Reads local memory and drops it; flushes inbound writes.
        Dump = 0x23 "DUMP",
        /// User-mode memory registration.
        Umr = 0x25 "UMR",
        /// Tag matching.
        TagMatching = 0x28 "TAG_MATCHING",
        /// Several Ethernet packets in one WQE.
        EnhancedMpsw = 0x29 "ENHANCED_MPSW",
        /// Steering table access.
        FlowTblAccess = 0x2c "FLOW_TBL_ACCESS",
        /// Advanced steering object access.
        AccessAso = 0x2d "ACCESS_ASO",
        /// Memory-to-memory offload: DMA, compression, regular expressions.
        Mmo = 0x2f "MMO",
    }

    /// Opcode of a CQE: the high nibble of its last byte.
    pub open enum CqeOpcode: u8 as "cqe_opcode" {
        /// A send WQE completed.
        Req = 0,
        /// An RDMA WRITE with immediate arrived.
        RespWrImm = 1,
        /// A SEND arrived.
        RespSend = 2,
        /// A SEND with immediate arrived.
        RespSendImm = 3,
        /// A SEND with invalidate arrived.
        RespSendInv = 4,
        /// The CQ was resized.
        ResizeCq = 5,
        /// A receive ended without a packet.
        NoPacket = 6,
        /// A signature check failed.
        SigErr = 12,
        /// A send WQE failed.
        ReqErr = 13,
        /// A receive WQE failed.
        RespErr = 14,
        /// The hardware has not written this entry.
        Invalid = 15,
    }
}

impl SendOpcode {
    /// The parser's support for it; `None` for an unknown value.
    pub const fn support(self) -> Option<Support> {
        match self {
            Self::Nop
            | Self::SendInval
            | Self::RdmaWrite
            | Self::RdmaWriteImm
            | Self::Send
            | Self::SendImm
            | Self::Wait
            | Self::RdmaRead
            | Self::AtomicCs
            | Self::AtomicFa
            | Self::MaskedCs
            | Self::MaskedFa
            | Self::LocalInval
            | Self::Dump => Some(Support::Parsed),
            Self::Unknown(_) => None,
            _ => Some(Support::NamedOnly),
        }
    }
}

impl core::fmt::Display for SendOpcode {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} ({:#04x})", self.name(), self.value())
    }
}

impl CqeOpcode {
    /// The opcode of the low four bits of `nibble`.
    #[inline]
    pub const fn from_nibble(nibble: u8) -> Self {
        Self::from_value(nibble & 0xf)
    }

    /// The nibble.
    #[inline]
    pub const fn nibble(self) -> u8 {
        self.value() & 0xf
    }
}
