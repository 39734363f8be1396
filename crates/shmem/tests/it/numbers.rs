//! Numbers for tests.

/// A generator of numbers without quality, the same for the same seed.
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 ^ self.0 >> 29
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 16) % end
    }
}
