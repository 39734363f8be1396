//! The atomics the protocol needs, as a trait, so that a model checker can stand in for memory.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// One shared word.
pub(crate) trait Word<T> {
    fn load(&self, order: Ordering) -> T;
    fn store(&self, value: T, order: Ordering);
    fn exchange(&self, value: T, order: Ordering) -> T;
    fn fetch_add(&self, value: T, order: Ordering) -> T;
    fn fetch_xor(&self, value: T, order: Ordering) -> T;
    fn compare_exchange(&self, now: T, new: T, ok: Ordering, err: Ordering) -> Result<T, T>;
}

macro_rules! word {
    ($($atomic:ty: $int:ty),*) => {$(
        impl $crate::post::word::Word<$int> for $atomic {
            #[inline]
            fn load(&self, order: Ordering) -> $int {
                <$atomic>::load(self, order)
            }
            #[inline]
            fn store(&self, value: $int, order: Ordering) {
                <$atomic>::store(self, value, order);
            }
            #[inline]
            fn exchange(&self, value: $int, order: Ordering) -> $int {
                <$atomic>::swap(self, value, order)
            }
            #[inline]
            fn fetch_add(&self, value: $int, order: Ordering) -> $int {
                <$atomic>::fetch_add(self, value, order)
            }
            #[inline]
            fn fetch_xor(&self, value: $int, order: Ordering) -> $int {
                <$atomic>::fetch_xor(self, value, order)
            }
            #[inline]
            fn compare_exchange(
                &self,
                now: $int,
                new: $int,
                ok: Ordering,
                err: Ordering,
            ) -> Result<$int, $int> {
                <$atomic>::compare_exchange(self, now, new, ok, err)
            }
        }
    )*};
}
word!(AtomicU64: u64, AtomicU32: u32);
