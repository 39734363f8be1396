//! How many bytes may be in flight: fewer after losses, since everything behind a lost packet is
//! sent again, and more with every acknowledgement.

use crate::Config;

/// A window does not shrink below this many full packets: a few losses do not mean a full path.
const LEAST_PACKETS: u64 = 64;

#[derive(Debug)]
pub(crate) struct Window {
    /// [`Config::window_bytes`], as it is now.
    pub(crate) limit: u64,
    /// The cost of a full packet.
    packet: u64,
    /// The limit that losses have set.
    bytes: u64,
}

impl Window {
    pub(crate) fn new(config: &Config) -> Self {
        let packet = config.mtu.bytes() as u64 + Config::PACKET_OVERHEAD;
        Self { limit: config.window_bytes, packet, bytes: u64::MAX }
    }

    #[inline]
    pub(crate) fn bytes(&self) -> u64 {
        self.limit.min(self.bytes)
    }

    /// Half of it, once for each loss.
    //= [req.loss-window]
    pub(crate) fn shrink(&mut self) {
        self.bytes = (self.bytes() / 2).max(LEAST_PACKETS * self.packet);
    }

    /// `cost` was answered: a packet more for each window.
    #[inline]
    pub(crate) fn grow(&mut self, cost: u64) {
        if self.bytes < self.limit {
            let more = u128::from(cost) * u128::from(self.packet) / u128::from(self.bytes.max(1));
            self.bytes = self.bytes.saturating_add(more as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpverbs_wire::{Mtu, Qpn};

    //= [req.loss-window]
    #[test]
    fn losses_halve_it_and_answers_bring_it_back() {
        let config =
            Config { mtu: Mtu::B4096, window_bytes: 1 << 20, ..Config::new(Qpn::default()) };
        let packet = 4096 + Config::PACKET_OVERHEAD;
        let mut window = Window::new(&config);
        window.shrink();
        assert_eq!(window.bytes(), 1 << 19);
        (0..10).for_each(|_| window.shrink());
        assert_eq!(window.bytes(), LEAST_PACKETS * packet);
        // A window's worth of answers is about one packet more.
        (0..LEAST_PACKETS).for_each(|_| window.grow(packet));
        let more = window.bytes() - LEAST_PACKETS * packet;
        assert!(more > packet * 9 / 10 && more <= packet, "{more}");
        (0..100_000).for_each(|_| window.grow(packet));
        assert_eq!(window.bytes(), 1 << 20);
        // The connection's share applies even below the minimum.
        window.limit = 5000;
        assert_eq!(window.bytes(), 5000);
    }
}
