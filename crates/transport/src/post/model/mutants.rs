//! Combining tokens that break one rule each.

use super::super::protocol::OFFERED;
use super::super::word::Word;
use loom::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{self, Acquire, Relaxed, Release};

/// A combining token, right or mutated.
pub(super) trait Token: Word<u32> + 'static {
    fn new() -> Self;
}

impl Token for AtomicU32 {
    fn new() -> Self {
        AtomicU32::new(0)
    }
}

macro_rules! mutant {
    ($name:ident, $($method:item)*) => {
        pub(super) struct $name(AtomicU32);
        impl Token for $name {
            fn new() -> Self {
                Self(AtomicU32::new(0))
            }
        }
        impl $name {
            $($method)*
        }
        impl Word<u32> for $name {
            fn load(&self, order: Ordering) -> u32 {
                self.0.load(order)
            }
            fn store(&self, value: u32, order: Ordering) {
                self.0.store(value, order);
            }
            fn fetch_xor(&self, value: u32, order: Ordering) -> u32 {
                self.0.fetch_xor(value, order)
            }
            fn exchange(&self, value: u32, order: Ordering) -> u32 {
                self.set(value, order)
            }
            fn fetch_add(&self, value: u32, order: Ordering) -> u32 {
                self.add(value, order)
            }
            fn compare_exchange(
                &self,
                now: u32,
                new: u32,
                ok: Ordering,
                err: Ordering,
            ) -> Result<u32, u32> {
                self.swap(now, new, ok, err)
            }
        }
    };
}

mutant! { GivenUpBlindly,
    fn add(&self, value: u32, order: Ordering) -> u32 {
        self.0.fetch_add(value, order)
    }
    fn swap(&self, now: u32, new: u32, _: Ordering, _: Ordering) -> Result<u32, u32> {
        self.0.store(new, Release);
        Ok(now)
    }
    fn set(&self, value: u32, order: Ordering) -> u32 {
        self.0.swap(value, order)
    }
}

mutant! { OfferedAndKept,
    fn add(&self, value: u32, order: Ordering) -> u32 {
        self.0.fetch_add(value, order)
    }
    fn swap(&self, now: u32, new: u32, ok: Ordering, err: Ordering) -> Result<u32, u32> {
        if now == OFFERED {
            return Ok(self.0.swap(new, ok));
        }
        self.0.compare_exchange(now, new, ok, err)
    }
    fn set(&self, value: u32, order: Ordering) -> u32 {
        self.0.swap(value, order)
    }
}

mutant! { LeftUnoffered,
    fn add(&self, value: u32, order: Ordering) -> u32 {
        self.0.fetch_add(value, order)
    }
    fn swap(&self, now: u32, new: u32, ok: Ordering, err: Ordering) -> Result<u32, u32> {
        if now == OFFERED {
            return Err(now);
        }
        self.0.compare_exchange(now, new, ok, err)
    }
    fn set(&self, _: u32, order: Ordering) -> u32 {
        self.0.swap(0, order)
    }
}

mutant! { TakenInTwoSteps,
    fn add(&self, value: u32, _: Ordering) -> u32 {
        let old = self.0.load(Acquire);
        self.0.store(old + value, Release);
        old
    }
    fn swap(&self, now: u32, new: u32, _: Ordering, _: Ordering) -> Result<u32, u32> {
        let old = self.0.load(Acquire);
        if old != now {
            return Err(old);
        }
        self.0.store(new, Release);
        Ok(old)
    }
    fn set(&self, value: u32, order: Ordering) -> u32 {
        self.0.swap(value, order)
    }
}

mutant! { Unordered,
    fn add(&self, value: u32, _: Ordering) -> u32 {
        self.0.fetch_add(value, Relaxed)
    }
    fn swap(&self, now: u32, new: u32, _: Ordering, _: Ordering) -> Result<u32, u32> {
        self.0.compare_exchange(now, new, Relaxed, Relaxed)
    }
    fn set(&self, value: u32, _: Ordering) -> u32 {
        self.0.swap(value, Relaxed)
    }
}
