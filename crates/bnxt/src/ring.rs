//! Positions in rings. A doorbell tells a position, and in one bit the parity of the lap; the CQEs of a
//! ring tell the parity of theirs.

use crate::doorbell::{Doorbell, DoorbellViolation, Kind};
use crate::slot::STATIC_SLOTS;

/// The version of the user library, as far as the bytes differ that it writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Library {
    /// Before v50: doorbells have no epoch, and their valid bit, which v47 introduced, says nothing. A
    /// fetch-and-add has its summand where a compare-and-swap has the value to compare with.
    Early,
    /// v50 and later, and GPU libraries: doorbells have an epoch and the valid bit.
    #[default]
    Current,
}

/// How WQEs lie in a send queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Each takes 8 slots; doorbells and packet number tables count WQEs.
    Static,
    /// Each takes the slots that it uses; doorbells and packet number tables count slots.
    Variable,
}

impl Mode {
    /// Units by which a WQE of so many slots advances the counter of its ring.
    #[inline]
    pub const fn units(self, slots: u8) -> u32 {
        match self {
            Self::Static => 1,
            Self::Variable => slots as u32,
        }
    }

    /// Slots from the beginning of the ring to the unit at this position.
    #[inline]
    pub const fn slot(self, position: u32) -> u32 {
        match self {
            Self::Static => position * STATIC_SLOTS as u32,
            Self::Variable => position,
        }
    }
}

/// Why a ring cannot be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("ring of {size}, expected 1 to 2^24")]
pub struct RingSize {
    /// The size given.
    pub size: u32,
}

/// A ring as its doorbells and CQEs count it: in WQEs, slots, receives or CQEs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    size: u32,
    library: Library,
}

impl Ring {
    /// A ring of `size` units, which need not be a power of two, at most 2^24.
    pub const fn new(size: u32, library: Library) -> Result<Self, RingSize> {
        if size == 0 || size > 1 << 24 {
            return Err(RingSize { size });
        }
        Ok(Self { size, library })
    }

    /// The doorbell by which a library of this version tells the counter.
    pub const fn doorbell(&self, kind: Kind, queue: u32, counter: u64) -> Doorbell {
        let current = matches!(self.library, Library::Current);
        let index = (counter % self.size as u64) as u32;
        let epoch = current && !self.phase(counter);
        Doorbell { kind, queue, index, epoch, toggle: false, valid: current }
    }

    /// The counter that `doorbell` tells, at least `before`. Without epoch a ring that was filled
    /// entirely looks as if nothing had been posted; libraries leave some of it free.
    pub fn counter(&self, doorbell: &Doorbell, before: u64) -> Result<u64, DoorbellViolation> {
        let Doorbell { index, epoch, valid, .. } = *doorbell;
        let size = u64::from(self.size);
        let ahead = |position, laps| {
            let modulus = size * laps;
            (position + modulus - before % modulus) % modulus
        };
        if index >= self.size {
            return Err(DoorbellViolation::Index { value: index, size: self.size });
        }
        let position = u64::from(index);
        match self.library {
            Library::Early => Ok(before + ahead(position, 1)),
            Library::Current if !valid => Err(DoorbellViolation::NotValid),
            Library::Current => match ahead(position + u64::from(epoch) * size, 2) {
                ahead if ahead <= size => Ok(before + ahead),
                _ => {
                    let size = self.size;
                    Err(DoorbellViolation::Epoch { value: epoch, index, size, before })
                }
            },
        }
    }

    /// The phase of the CQE of this counter: 1 in the first lap, and it flips with each.
    #[inline]
    pub const fn phase(&self, counter: u64) -> bool {
        (counter / self.size as u64).is_multiple_of(2)
    }
}
