//! Control segment byte 11: fence mode (FM), completion mode (CE), solicited event (SE).

use warpverbs_rdma::SendFlags;

/// CE, bits 3..2: when the WQE produces a CQE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Completion {
    /// Only if it fails (0).
    #[default]
    OnError,
    /// Only if it is the first to fail (1).
    OnFirstError,
    /// Always (2): what a signalled work request asks for.
    Always,
    /// Always, and an event beside it (3).
    AlwaysWithEvent,
}

impl Completion {
    /// A success produces a CQE.
    #[inline]
    pub const fn is_signaled(self) -> bool {
        self as u8 & Self::Always as u8 != 0
    }

    #[inline]
    const fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::OnError,
            1 => Self::OnFirstError,
            2 => Self::Always,
            _ => Self::AlwaysWithEvent,
        }
    }
}

/// FM, bits 7..5: what must be over before the WQE starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Fence {
    /// Nothing (0).
    #[default]
    None,
    /// Small fence of the initiator (1): earlier local invalidates and UMRs.
    InitiatorSmall,
    /// Fence (2): earlier reads and atomics.
    Fence,
    /// Strong ordering (3).
    Strong,
    /// Fence and small fence (4): what a fenced work request asks for.
    FenceAndSmall,
}

impl Fence {
    /// Waits for earlier READs and atomics.
    #[inline]
    pub const fn waits_for_reads(self) -> bool {
        self as u8 >= Self::Fence as u8
    }

    /// Of bits that are at most 4.
    #[inline]
    const fn from_valid_bits(bits: u8) -> Self {
        match bits {
            0 => Self::None,
            1 => Self::InitiatorSmall,
            2 => Self::Fence,
            3 => Self::Strong,
            _ => Self::FenceAndSmall,
        }
    }
}

/// Byte 11 of the control segment, decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags {
    /// FM.
    pub fence: Fence,
    /// CE.
    pub completion: Completion,
    /// SE: raise a solicited event at the receiver.
    pub solicited: bool,
}

impl Flags {
    /// Bits 4 and 0, which must be zero.
    pub const RESERVED: u8 = 0x11;

    /// The fence mode is at most 4 and no reserved bit is set.
    #[inline]
    pub const fn is_valid(byte: u8) -> bool {
        byte >> 5 <= Fence::FenceAndSmall as u8 && byte & Self::RESERVED == 0
    }

    /// `None` unless the byte [`is_valid`](Self::is_valid).
    #[inline]
    pub const fn from_byte(byte: u8) -> Option<Self> {
        if Self::is_valid(byte) { Some(Self::from_valid_byte(byte)) } else { None }
    }

    /// Of every WQE, so it is looked up.
    #[inline]
    pub(crate) const fn from_valid_byte(byte: u8) -> Self {
        const OF_BYTE: [Flags; 256] = {
            let (mut table, mut byte) = ([Flags::decode(0); 256], 0);
            while byte < 256 {
                table[byte] = Flags::decode(byte as u8);
                byte += 1;
            }
            table
        };
        OF_BYTE[byte as usize]
    }

    const fn decode(byte: u8) -> Self {
        Self {
            fence: Fence::from_valid_bits(byte >> 5),
            completion: Completion::from_bits(byte >> 2),
            solicited: byte & 2 != 0,
        }
    }

    /// The flags of a WQE for those of a work request.
    #[inline]
    pub const fn of(flags: SendFlags) -> Self {
        let (fence, signaled) =
            (flags.contains(SendFlags::FENCE), flags.contains(SendFlags::SIGNALED));
        Self {
            fence: if fence { Fence::FenceAndSmall } else { Fence::None },
            completion: if signaled { Completion::Always } else { Completion::OnError },
            solicited: flags.contains(SendFlags::SOLICITED),
        }
    }

    /// The flags of a work request that asks for the same.
    #[inline]
    pub const fn send_flags(self) -> SendFlags {
        let fence = self.fence.waits_for_reads() as u32 * SendFlags::FENCE.bits();
        let signaled = self.completion.is_signaled() as u32 * SendFlags::SIGNALED.bits();
        let solicited = self.solicited as u32 * SendFlags::SOLICITED.bits();
        SendFlags::from_bits_retain(fence | signaled | solicited)
    }

    /// The byte.
    #[inline]
    pub const fn to_byte(self) -> u8 {
        (self.fence as u8) << 5 | (self.completion as u8) << 2 | (self.solicited as u8) << 1
    }
}
