//! Opcodes and flags of WQEs.

use bitflags::bitflags;
use warpverbs_rdma::SendFlags;

/// The firmware's protocol, which the kernel tells with a context: opcodes and the end of an atomic
/// differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// Opcodes 0 to 10.
    V1,
    /// Opcodes with bits that say what is sent; the only one that GPU libraries know.
    #[default]
    V2,
}

macro_rules! opcodes {
    ($($(#[$doc:meta])* $name:ident = $v1:literal, $v2:literal $text:literal;)*) => {
        /// Opcode of a send WQE.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Opcode {
            $($(#[$doc])* $name,)*
        }

        impl Opcode {
            /// Every opcode.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The opcode of a number in this protocol; `None` for one without a name here.
            #[inline]
            pub const fn from_value(protocol: Protocol, value: u8) -> Option<Self> {
                match (protocol, value) {
                    $((Protocol::V1, $v1) | (Protocol::V2, $v2) => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// The number in this protocol.
            #[inline]
            pub const fn value(self, protocol: Protocol) -> u8 {
                match (protocol, self) {
                    $((Protocol::V1, Self::$name) => $v1, (Protocol::V2, Self::$name) => $v2,)*
                }
            }
        }

        impl core::fmt::Display for Opcode {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(match self {
                    $(Self::$name => $text,)*
                })
            }
        }
    };
}

opcodes! {
    /// SEND.
    Send = 0x00, 0x20 "SEND";
    /// SEND that invalidates a key of the receiver.
    SendInvalidate = 0x01, 0xa0 "SEND_INVAL";
    /// SEND with an immediate.
    SendImm = 0x02, 0x60 "SEND_IMM";
    /// RDMA READ.
    Read = 0x03, 0x02 "READ";
    /// RDMA WRITE.
    Write = 0x04, 0x21 "WRITE";
    /// RDMA WRITE that also consumes a receive and delivers an immediate.
    WriteImm = 0x05, 0x61 "WRITE_IMM";
    /// 8-byte compare-and-swap.
    CompareSwap = 0x06, 0x04 "ATOMIC_CS";
    /// 8-byte fetch-and-add.
    FetchAdd = 0x07, 0x05 "ATOMIC_FA";
    /// Registers memory.
    Register = 0x08, 0x06 "REG_MR";
    /// Invalidates a local key.
    LocalInvalidate = 0x09, 0x07 "LOCAL_INVAL";
    /// Binds a memory window.
    Bind = 0x0a, 0x08 "BIND";
}

impl Opcode {
    /// Whether [`wqe::parse`](crate::wqe::parse) gives a request for it.
    pub const fn is_parsed(self) -> bool {
        !matches!(self, Self::Register | Self::LocalInvalidate | Self::Bind)
    }
}

bitflags! {
    /// Flags of a WQE.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct WqeFlags: u16 {
        /// Waits for earlier READs and atomics.
        const FENCE = 0x01;
        /// Raises a solicited event at the receiver.
        const SOLICITED = 0x02;
        /// The payload is in the WQE.
        const INLINE = 0x04;
        /// A success produces a CQE.
        const SIGNALED = 0x08;
        /// Says that the WQE is new: 1 in the first lap of the ring, and it flips with each.
        const COLOR = 0x10;
    }
}

impl WqeFlags {
    /// The flags of a WQE for those of a work request.
    pub fn of(flags: SendFlags) -> Self {
        let mut of = Self::empty();
        of.set(Self::FENCE, flags.contains(SendFlags::FENCE));
        of.set(Self::SIGNALED, flags.contains(SendFlags::SIGNALED));
        of.set(Self::SOLICITED, flags.contains(SendFlags::SOLICITED));
        of
    }

    /// The flags of a work request that asks for the same.
    pub fn send_flags(self) -> SendFlags {
        let mut flags = SendFlags::empty();
        flags.set(SendFlags::FENCE, self.contains(Self::FENCE));
        flags.set(SendFlags::SIGNALED, self.contains(Self::SIGNALED));
        flags.set(SendFlags::SOLICITED, self.contains(Self::SOLICITED));
        flags
    }
}
