//! Control segment byte 11: fence mode (FM), completion mode (CE), solicited event (SE).

use warpverbs_rdma::SendFlags;

warpverbs_layout::layout! {
    /// CE, bits 3..2: when the WQE produces a CQE.
    pub enum Completion: u8 as "ce" {
        /// Only if it fails.
        OnError = 0,
        /// Only if it is the first to fail.
        OnFirstError = 1,
        /// Always: what a signalled work request asks for.
        Always = 2,
        /// Always, and an event beside it.
        AlwaysWithEvent = 3,
    }

    /// FM, bits 7..5: what must be over before the WQE starts.
    pub enum Fence: u8 as "fm" {
        /// Nothing.
        None = 0,
        /// Small fence of the initiator: earlier local invalidates and UMRs.
        InitiatorSmall = 1,
        /// Earlier reads and atomics.
        Fence = 2,
        /// Strong ordering.
        Strong = 3,
        /// Fence and small fence: what a fenced work request asks for.
        FenceAndSmall = 4,
    }
}

impl Completion {
    /// A success produces a CQE.
    #[inline]
    pub const fn is_signaled(self) -> bool {
        self as u8 & Self::Always as u8 != 0
    }
}

impl Fence {
    /// Waits for earlier READs and atomics.
    #[inline]
    pub const fn waits_for_reads(self) -> bool {
        self as u8 >= Self::Fence as u8
    }
}

/// Byte 11 of the control segment, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flags {
    /// FM.
    pub fence: Fence,
    /// CE.
    pub completion: Completion,
    /// SE: raise a solicited event at the receiver.
    pub solicited: bool,
}

impl Default for Flags {
    fn default() -> Self {
        Self::of(SendFlags::empty())
    }
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
        let (Some(completion), fence) =
            (Completion::from_value(byte >> 2 & 3), Fence::from_value(byte >> 5))
        else {
            unreachable!()
        };
        // The table has bytes that are not valid, too.
        let fence = match fence {
            Some(fence) => fence,
            None => Fence::FenceAndSmall,
        };
        Self { fence, completion, solicited: byte & 2 != 0 }
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
