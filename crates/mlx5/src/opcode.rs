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

macro_rules! send_opcodes {
    ($($(#[$doc:meta])* $name:ident = $value:literal, $text:literal, $support:ident;)*) => {
        /// Opcode of a send WQE: byte 3 of the control segment.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum SendOpcode {
            $($(#[$doc])* $name,)*
            /// A value without a name here.
            Unknown(u8),
        }

        impl SendOpcode {
            /// Every named opcode, in order of its value.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The name the format gives it; `UNKNOWN` for one without.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                    Self::Unknown(_) => "UNKNOWN",
                }
            }

            /// The parser's support for it; `None` for an unknown value.
            pub const fn support(self) -> Option<Support> {
                match self {
                    $(Self::$name => Some(Support::$support),)*
                    Self::Unknown(_) => None,
                }
            }

            /// The byte in the control segment.
            pub const fn value(self) -> u8 {
                match self {
                    $(Self::$name => $value,)*
                    Self::Unknown(value) => value,
                }
            }

            /// The opcode of a byte.
            pub const fn from_value(value: u8) -> Self {
                match value {
                    $($value => Self::$name,)*
                    value => Self::Unknown(value),
                }
            }
        }
    };
}

send_opcodes! {
    /// Does nothing; completes in order.
    Nop = 0x00, "NOP", Parsed;
    /// SEND that invalidates a key of the receiver.
    SendInval = 0x01, "SEND_INVAL", Parsed;
    /// RDMA WRITE.
    RdmaWrite = 0x08, "RDMA_WRITE", Parsed;
    /// RDMA WRITE that also consumes a receive and delivers an immediate.
    RdmaWriteImm = 0x09, "RDMA_WRITE_IMM", Parsed;
    /// SEND.
    Send = 0x0a, "SEND", Parsed;
    /// SEND with an immediate.
    SendImm = 0x0b, "SEND_IMM", Parsed;
    /// TCP segmentation offload, Ethernet queues.
    Tso = 0x0e, "TSO", NamedOnly;
    /// Holds the queue until a CQ has a CQE.
    Wait = 0x0f, "WAIT", Parsed;
    /// RDMA READ.
    RdmaRead = 0x10, "RDMA_READ", Parsed;
    /// 8-byte compare-and-swap.
    AtomicCs = 0x11, "ATOMIC_CS", Parsed;
    /// 8-byte fetch-and-add.
    AtomicFa = 0x12, "ATOMIC_FA", Parsed;
    /// Masked compare-and-swap, 4 or 8 bytes by opmod.
    MaskedCs = 0x14, "ATOMIC_MASKED_CS", Parsed;
    /// Masked fetch-and-add, 4 or 8 bytes by opmod.
    MaskedFa = 0x15, "ATOMIC_MASKED_FA", Parsed;
    /// Lets another send queue run.
    SendEn = 0x17, "SEND_EN", NamedOnly;
    /// Fast memory registration, older form.
    Fmr = 0x19, "FMR", NamedOnly;
    /// Invalidates a local key.
    LocalInval = 0x1b, "LOCAL_INVAL", Parsed;
    /// Configuration by WQE.
    ConfigCmd = 0x1f, "CONFIG_CMD", NamedOnly;
    /// Signature parameters.
    SetPsv = 0x20, "SET_PSV", NamedOnly;
    /// Reads local memory and drops it; flushes inbound writes.
    Dump = 0x23, "DUMP", Parsed;
    /// User-mode memory registration.
    Umr = 0x25, "UMR", NamedOnly;
    /// Tag matching.
    TagMatching = 0x28, "TAG_MATCHING", NamedOnly;
    /// Several Ethernet packets in one WQE.
    EnhancedMpsw = 0x29, "ENHANCED_MPSW", NamedOnly;
    /// Steering table access.
    FlowTblAccess = 0x2c, "FLOW_TBL_ACCESS", NamedOnly;
    /// Advanced steering object access.
    AccessAso = 0x2d, "ACCESS_ASO", NamedOnly;
    /// Memory-to-memory offload: DMA, compression, regular expressions.
    Mmo = 0x2f, "MMO", NamedOnly;
}

impl core::fmt::Display for SendOpcode {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} ({:#04x})", self.name(), self.value())
    }
}

/// Opcode of a CQE: the high nibble of its last byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CqeOpcode {
    /// A send WQE completed.
    Req,
    /// An RDMA WRITE with immediate arrived.
    RespWrImm,
    /// A SEND arrived.
    RespSend,
    /// A SEND with immediate arrived.
    RespSendImm,
    /// A SEND with invalidate arrived.
    RespSendInv,
    /// The CQ was resized.
    ResizeCq,
    /// A receive ended without a packet.
    NoPacket,
    /// A signature check failed.
    SigErr,
    /// A send WQE failed.
    ReqErr,
    /// A receive WQE failed.
    RespErr,
    /// The hardware has not written this entry.
    Invalid,
    /// Any other value, 7 to 11.
    Unknown(u8),
}

impl CqeOpcode {
    /// The opcode of the low four bits of `nibble`.
    #[inline]
    pub const fn from_nibble(nibble: u8) -> Self {
        match nibble & 0xf {
            0 => Self::Req,
            1 => Self::RespWrImm,
            2 => Self::RespSend,
            3 => Self::RespSendImm,
            4 => Self::RespSendInv,
            5 => Self::ResizeCq,
            6 => Self::NoPacket,
            12 => Self::SigErr,
            13 => Self::ReqErr,
            14 => Self::RespErr,
            15 => Self::Invalid,
            other => Self::Unknown(other),
        }
    }

    /// The nibble.
    #[inline]
    pub const fn nibble(self) -> u8 {
        match self {
            Self::Req => 0,
            Self::RespWrImm => 1,
            Self::RespSend => 2,
            Self::RespSendImm => 3,
            Self::RespSendInv => 4,
            Self::ResizeCq => 5,
            Self::NoPacket => 6,
            Self::SigErr => 12,
            Self::ReqErr => 13,
            Self::RespErr => 14,
            Self::Invalid => 15,
            Self::Unknown(other) => other & 0xf,
        }
    }
}
