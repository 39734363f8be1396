//! Doorbells: one 8-byte little-endian store to a register of a page. There is no record beside them, and
//! all queues of a context share the registers.

use warpverbs_rdma::Qpn;

warpverbs_layout::layout! {
    /// The 8 bytes as a native number of a little-endian machine.
    pub(crate) word DoorbellWord[raw: u64] {
        /// Position.
        index: u16 = 0..16,
        /// Arm: 0 does not, 1 for any completion, 2 for solicited ones alone.
        arm: u8 = 16..18,
        /// Queue.
        queue: u32 = 24..48,
    }
}

/// The bits that no field has.
const RESERVED: u64 = !DoorbellWord::new(0xffff, 3, Qpn::MAX.get()).0;

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
    /// An event is asked for in no known way.
    #[error("doorbell.arm is 3, expected 0, 1 or 2")]
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
        let arm = match bits.arm() {
            0 => None,
            1 => Some(Arm::Any),
            2 => Some(Arm::Solicited),
            _ => return Err(DoorbellViolation::Arm),
        };
        Ok(Self { queue: Qpn::truncate(bits.queue()), index: bits.index(), arm })
    }

    /// The 8 bytes as a little-endian number.
    #[inline]
    pub const fn word(self) -> u64 {
        let arm = match self.arm {
            None => 0,
            Some(Arm::Any) => 1,
            Some(Arm::Solicited) => 2,
        };
        DoorbellWord::new(self.index, arm, self.queue.get()).0
    }
}
