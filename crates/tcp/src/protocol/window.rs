//! The window: how many bytes of messages without a receive, and of notifications, one end may send to
//! the other.
//!
//! The slots of an agent's stream (`warpverbs_agent`'s `stream/account.rs`) are another account: it knows
//! for each place of a ring whether it is filled or given back, in any order. Here either end keeps
//! one sum of bytes, so that there is nothing to share but a comparison with a quarter.

use super::agreed::OVERHEAD;

/// The window of one direction, as either end keeps it.
#[derive(Debug)]
pub(super) struct Window {
    size: u64,
    charged: u64,
    /// Bytes that the receiver has given back since the link began.
    pub(super) credit: u64,
}

impl Window {
    pub(super) fn new(size: u64) -> Self {
        Self { size, charged: 0, credit: 0 }
    }

    /// Charges `len` bytes, which returns what has to be given back for them.
    ///
    /// # Errors
    /// The window has no room for them: how many would be charged, and its size.
    pub(super) fn charge(&mut self, len: u64) -> Result<u64, (u64, u64)> {
        let charge = len.saturating_add(OVERHEAD);
        let used = (self.charged - self.credit).saturating_add(charge);
        if used > self.size {
            return Err((used, self.size));
        }
        self.charged += charge;
        Ok(charge)
    }

    /// Bytes charged since the link began.
    pub(super) fn charged(&self) -> u64 {
        self.charged
    }
}

/// The receive count and credit that each frame carries to the other end.
#[derive(Debug, Default)]
pub(super) struct News {
    /// Receives that were posted, and bytes of the window that were given back.
    now: (u64, u64),
    told: (u64, u64),
    /// The peer may have to wait for it.
    pub(super) urgent: bool,
}

impl News {
    pub(super) fn posted(&mut self, urgent: bool) {
        self.now.0 += 1;
        self.urgent |= urgent;
    }

    /// Bytes of the window are free again.
    pub(super) fn give_back(&mut self, window: &mut Window, bytes: u64) {
        window.credit += bytes;
        self.now.1 = window.credit;
        self.urgent |= window.credit - self.told.1 >= window.size / 4;
    }

    /// Whether the values have changed since they were last sent.
    pub(super) fn is_new(&self) -> bool {
        self.now != self.told
    }

    /// The values to send; they count as sent.
    pub(super) fn tell(&mut self) -> (u64, u64) {
        (self.told, self.urgent) = (self.now, false);
        self.now
    }
}
