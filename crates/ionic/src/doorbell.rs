//! Doorbells: one 8-byte little-endian store to a register of a page. There is no record beside them, and
//! all queues of a context share the registers.

use warpverbs_rdma::Qpn;

warpverbs_layout::layout! {
    /// The 8 bytes as a native number of a little-endian machine.
    pub(crate) word DoorbellWord[raw: u64] {
        /// Position.
        index: u16 = 0..16,
        /// Arm.
        arm: bool = 16..17,
        /// Arm for solicited completions alone.
        arm_solicited: bool = 17..18,
        /// Queue.
        queue: u32 = 24..48,
    }
}

/// The bits that no field has.
const RESERVED: u64 = !DoorbellWord::new(0xffff, true, true, Qpn::MAX.get()).0;

/// Bytes of the block of eight registers, which fills the page again and again: lanes of a GPU use
/// different copies, so that their stores are not merged.
pub const REGISTERS: usize = 64;

/// A queue's type: the number of its register. The kernel tells which type is which with a context.
pub const fn queue_type(offset: usize) -> u8 {
    (offset % REGISTERS / size_of::<u64>()) as u8
}

/// The completions for which a CQ shall raise an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arm {
    /// The next.
    Any,
    /// The next that is solicited.
    Solicited,
}

/// A doorbell. The register says what kind of queue it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Doorbell {
    /// The QP or CQ.
    pub queue: Qpn,
    /// Place of the next entry that is not posted, or not consumed.
    pub index: u16,
    /// Of CQs: asks for an event; the index then is that of the request.
    pub arm: Option<Arm>,
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
    /// Solicited completions are asked for without asking.
    #[error("doorbell.arm is 0 with arm_solicited 1, expected 1")]
    Arm,
    /// The index lies outside of the ring.
    #[error("doorbell.index is {value}, expected less than {size}, the ring's size")]
    Index {
        /// In the doorbell.
        value: u16,
        /// Of the ring.
        size: u32,
    },
}

impl DoorbellViolation {
    /// The field that is wrong.
    pub const fn field(&self) -> &'static str {
        match self {
            Self::Reserved { .. } => "doorbell.reserved",
            Self::Arm => "doorbell.arm",
            Self::Index { .. } => "doorbell.index",
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
        let arm = match (bits.arm(), bits.arm_solicited()) {
            (false, false) => None,
            (true, false) => Some(Arm::Any),
            (true, true) => Some(Arm::Solicited),
            (false, true) => return Err(DoorbellViolation::Arm),
        };
        Ok(Self { queue: Qpn::truncate(bits.queue()), index: bits.index(), arm })
    }

    /// The 8 bytes as a little-endian number.
    #[inline]
    pub const fn word(self) -> u64 {
        let solicited = matches!(self.arm, Some(Arm::Solicited));
        DoorbellWord::new(self.index, self.arm.is_some(), solicited, self.queue.get()).0
    }
}
