//! Doorbells: one 8-byte little-endian store to the doorbell page. There is no record beside them, and
//! all queues of a context share one register unless each has a page of its own.

warpverbs_layout::layout! {
    /// Kinds of doorbells: the top four bits.
    pub open enum Kind: u8 as "doorbell_kind" {
        /// Send WQEs were posted.
        Send = 0x0 "SQ",
        /// Receives were posted.
        Receive = 0x1 "RQ",
        /// Receives of an SRQ were posted.
        Shared = 0x2 "SRQ",
        /// Asks for an event when an SRQ has fewer receives than the index says.
        SharedArm = 0x3 "SRQ_ARM",
        /// CQEs were consumed.
        Completion = 0x4 "CQ",
        /// Asks for an event at the next solicited completion.
        ArmSolicited = 0x5 "CQ_ARM_SOLICITED",
        /// Asks for an event at the next completion.
        Arm = 0x6 "CQ_ARM",
        /// Allows a CQ to be armed.
        ArmEnable = 0x7 "CQ_ARM_ENABLE",
        /// Allows an SRQ to be armed.
        SharedArmEnable = 0x8 "SRQ_ARM_ENABLE",
        /// The last CQE of a resized CQ was seen.
        CutOffAck = 0x9 "CQ_CUT_OFF_ACK",
        /// A WQE follows in the push page.
        PushStart = 0xc "PUSH_START",
        /// The WQE in the push page is complete.
        PushEnd = 0xd "PUSH_END",
        /// Nothing.
        Null = 0xf "NULL",
    }

    /// The 8 bytes as a native number of a little-endian machine.
    pub(crate) word DoorbellWord[raw: u64] {
        /// Position.
        index: u32 = 0..24,
        /// Lap.
        epoch: bool = 24..25,
        /// Toggle.
        toggle: bool = 25..26,
        /// Queue.
        queue: u32 = 32..52,
        /// Valid.
        valid: bool = 58..59,
        /// Kind.
        kind: u8 = 60..64,
    }
}

/// The bits that no field has.
const RESERVED: u64 = !DoorbellWord::new(0xff_ffff, true, true, 0xf_ffff, true, 0xf).0;

/// A doorbell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Doorbell {
    /// Its kind: the queue, and the news of it.
    pub kind: Kind,
    /// The QP, CQ or SRQ, 20 bits.
    pub queue: u32,
    /// The next entry that is not posted, or not consumed, 24 bits; see [`crate::ring::Ring`].
    pub index: u32,
    /// Flips when the index begins anew. Libraries before v50 leave it 0.
    pub epoch: bool,
    /// Of arm doorbells: copied from a page of the kernel, if it offers one.
    pub toggle: bool,
    /// Set by libraries from v47 on.
    pub valid: bool,
}

/// Why a doorbell means nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DoorbellViolation {
    /// A bit without a meaning is set.
    #[error("doorbell is {value:#018x}, expected no bits of {reserved:#018x}")]
    Reserved {
        /// The doorbell.
        value: u64,
        /// The bits that must be zero.
        reserved: u64,
    },
    /// The kind has no name.
    #[error("doorbell.kind is {value:#x}, expected 0 to 9, 0xc, 0xd or 0xf")]
    Kind {
        /// In the doorbell.
        value: u8,
    },
    /// The library sets this bit in every doorbell, and here it is not set.
    #[error("doorbell.valid is 0, expected 1")]
    NotValid,
    /// The index lies outside of the ring.
    #[error("doorbell.index is {value}, expected less than {size}, the ring's size")]
    Index {
        /// In the doorbell.
        value: u32,
        /// Of the ring.
        size: u32,
    },
    /// With this epoch, more is announced than the ring has room for.
    #[error("doorbell.epoch is {value} with index {index}, expected {} (a ring of {size} at {before})", !*value as u8)]
    Epoch {
        /// In the doorbell.
        value: bool,
        /// In the doorbell.
        index: u32,
        /// Of the ring.
        size: u32,
        /// The counter so far.
        before: u64,
    },
}

impl DoorbellViolation {
    /// The field that is wrong.
    pub const fn field(&self) -> &'static str {
        match self {
            Self::Reserved { .. } => "doorbell.reserved",
            Self::Kind { .. } => "doorbell.kind",
            Self::NotValid => "doorbell.valid",
            Self::Index { .. } => "doorbell.index",
            Self::Epoch { .. } => "doorbell.epoch",
        }
    }
}

impl Doorbell {
    /// Decodes the register's 8 bytes, as a little-endian number.
    #[inline]
    pub const fn parse(word: u64) -> Result<Self, DoorbellViolation> {
        let bits = DoorbellWord(word);
        if word & RESERVED != 0 {
            return Err(DoorbellViolation::Reserved { value: word, reserved: RESERVED });
        }
        let kind = match Kind::from_value(bits.kind()) {
            Kind::Unknown(value) => return Err(DoorbellViolation::Kind { value }),
            kind => kind,
        };
        Ok(Self {
            kind,
            queue: bits.queue(),
            index: bits.index(),
            epoch: bits.epoch(),
            toggle: bits.toggle(),
            valid: bits.valid(),
        })
    }

    /// The 8 bytes as a little-endian number.
    #[inline]
    pub const fn word(self) -> u64 {
        let (index, queue) = (self.index & 0xff_ffff, self.queue & 0xf_ffff);
        DoorbellWord::new(
            index,
            self.epoch,
            self.toggle,
            queue,
            self.valid,
            self.kind.value() & 0xf,
        )
        .0
    }
}
