//! Masked atomics against a bit-by-bit reading of their definition.

use proptest::prelude::*;
use warpverbs_mlx5::amo::{MaskedCs, MaskedFa, Result8, result4_bytes};

/// Adds bit by bit; the carry out of a boundary bit is dropped.
fn add_by_bits(old: u64, add: u64, boundary: u64, width: u32) -> u64 {
    let (mut sum, mut carry) = (0, 0);
    for bit in 0..width {
        let total = (old >> bit & 1) + (add >> bit & 1) + carry;
        sum |= (total & 1) << bit;
        carry = if boundary >> bit & 1 == 1 { 0 } else { total >> 1 };
    }
    sum
}

/// Few bits set or clear, so that fields of every length occur.
fn mask() -> impl Strategy<Value = u64> {
    prop_oneof![any::<u64>(), Just(0), Just(u64::MAX), (0..64u32).prop_map(|bit| 1 << bit)]
}

proptest! {
    #[test]
    fn fetch_add_8(old: u64, add: u64, boundary in mask()) {
        let new = MaskedFa { add, boundary }.apply(old);
        prop_assert_eq!(new, add_by_bits(old, add, boundary, 64));
    }

    #[test]
    fn fetch_add_4(old: u32, add: u32, boundary in mask()) {
        let new = MaskedFa { add, boundary: boundary as u32 }.apply(old);
        prop_assert_eq!(u64::from(new), add_by_bits(old.into(), add.into(), boundary, 32));
    }

    #[test]
    fn fetch_add_without_boundary_is_addition(old: u64, add: u64) {
        prop_assert_eq!(MaskedFa { add, boundary: 0 }.apply(old), old.wrapping_add(add));
    }

    #[test]
    fn compare_swap_8(old: u64, swap: u64, differ in mask(), compare_mask in mask(), swap_mask in mask()) {
        let compare = old ^ differ;
        let new = MaskedCs { compare, compare_mask, swap, swap_mask }.apply(old);
        for bit in 0..64 {
            let from = if differ & compare_mask == 0 && swap_mask >> bit & 1 == 1 { swap } else { old };
            prop_assert_eq!(new >> bit & 1, from >> bit & 1, "bit {}", bit);
        }
    }

    #[test]
    fn compare_swap_4_is_the_low_half(old: u32, differ in mask(), swap: u32, cm in mask(), sm in mask()) {
        let (differ, cm, sm) = (differ as u32, cm as u32, sm as u32);
        let narrow = MaskedCs { compare: old ^ differ, compare_mask: cm, swap, swap_mask: sm };
        let wide = MaskedCs {
            compare: u64::from(old ^ differ),
            compare_mask: cm.into(),
            swap: swap.into(),
            swap_mask: sm.into(),
        };
        prop_assert_eq!(u64::from(narrow.apply(old)), wide.apply(old.into()));
    }
}

#[test]
fn emulated_operations() {
    let swap = MaskedCs { compare: 9, compare_mask: 0, swap: 5, swap_mask: u32::MAX };
    assert_eq!(swap.apply(0xdead), 5);
    let and = |v: u64| MaskedCs { compare: 0, compare_mask: 0, swap: v, swap_mask: !v };
    assert_eq!(and(0xf0f0).apply(0xffff), 0xf0f0);
    let or = |v: u64| MaskedCs { compare: 0, compare_mask: 0, swap: v, swap_mask: v };
    assert_eq!(or(0x0f).apply(0xf0), 0xff);
}

#[test]
fn byte_order_of_results() {
    assert_eq!(result4_bytes(0x0102_0304), [1, 2, 3, 4]);
    assert_eq!(Result8::HostEndian.bytes(0x0102), [2, 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!(Result8::BigEndian.bytes(0x0102), [0, 0, 0, 0, 0, 0, 1, 2]);
}
