//! Control segment byte 11: fence mode (FM), completion mode (CE), solicited event (SE).

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
        matches!(self, Self::Always | Self::AlwaysWithEvent)
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
        matches!(self, Self::Fence | Self::Strong | Self::FenceAndSmall)
    }

    #[inline]
    const fn from_bits(bits: u8) -> Option<Self> {
        match bits {
            0 => Some(Self::None),
            1 => Some(Self::InitiatorSmall),
            2 => Some(Self::Fence),
            3 => Some(Self::Strong),
            4 => Some(Self::FenceAndSmall),
            _ => None,
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

    /// `None` if the fence mode is above 4 or a reserved bit is set.
    #[inline]
    pub const fn from_byte(byte: u8) -> Option<Self> {
        match Fence::from_bits(byte >> 5) {
            Some(fence) if byte & Self::RESERVED == 0 => Some(Self {
                fence,
                completion: Completion::from_bits(byte >> 2),
                solicited: byte & 2 != 0,
            }),
            _ => None,
        }
    }

    /// The byte.
    #[inline]
    pub const fn to_byte(self) -> u8 {
        (self.fence as u8) << 5 | (self.completion as u8) << 2 | (self.solicited as u8) << 1
    }
}
