//! The parts of models.
use super::Row;
use std::cmp::Ordering;

/// Words that instructions treat specially, or that lie beside such ones; as integers and as floats.
pub(super) const EDGES: [u32; 52] = [
    0,
    1,
    2,
    3,
    7,
    8,
    15,
    16,
    23,
    24,
    30,
    31,
    32,
    33,
    63,
    64,
    0x7f,
    0x80,
    0xff,
    0x100,
    0x7fff,
    0x8000,
    0xffff,
    0x1_0000,
    0x5_0003,
    0x20_0000,
    0x1f_0001,
    0x7f_ffff,
    0x80_0000,
    0xff_ffff,
    0x0706_0504,
    0x0c0b_0a09,
    0x7fff_ffff,
    0x8000_0000,
    0x8000_0001,
    0xffff_ffff,
    0xffff_8000,
    // 1, -1, 0.5, 1.5, 2^23 + 0.5, 2^31, -2^31, 2^32, 2^64, 2^127
    0x3f80_0000,
    0xbf80_0000,
    0x3f00_0000,
    0x3fc0_0000,
    0x4b00_0001,
    0x4f00_0000,
    0xcf00_0000,
    0x4f80_0000,
    0x5f80_0000,
    0x7f00_0000,
    // Infinities, a quiet and a signalling NaN, a small denormal number.
    0x7f80_0000,
    0xff80_0000,
    0x7fc0_0000,
    0x7f80_0001,
    0x8000_0010,
];

/// An operand as a number.
pub(super) type Number = fn(u64) -> i128;
/// A comparison, and the outcomes for which it holds.
type Comparison = (&'static str, fn(Ordering) -> bool);
/// `lg` is `ne` in vector instructions.
pub(super) const COMPARISONS: [Comparison; 6] = [
    ("eq", Ordering::is_eq),
    ("lg", Ordering::is_ne),
    ("gt", Ordering::is_gt),
    ("ge", Ordering::is_ge),
    ("lt", Ordering::is_lt),
    ("le", Ordering::is_le),
];

/// Opcodes without a result: the others of the tables are tested.
pub(super) const NO_RESULT: [&str; 20] = [
    "s_endpgm",
    "s_barrier",
    "s_waitcnt",
    "s_sethalt",
    "s_sleep",
    "s_setprio",
    "s_trap",
    "s_icache_inv",
    "s_load_dword",
    "s_load_dwordx2",
    "s_load_dwordx4",
    "s_load_dwordx8",
    "s_load_dwordx16",
    "s_dcache_inv",
    "s_dcache_wb",
    "s_memtime",
    "s_memrealtime",
    "s_branch",
    "s_nop",
    "v_nop",
];

/// The registers that instructions leave. Those that they do not write keep what was there.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Out {
    /// And bits that it has.
    value: Option<(u64, u32)>,
    flag: Option<bool>,
    exec: Option<u64>,
    float: bool,
}

impl Out {
    pub(super) fn flag(self, flag: bool) -> Out {
        Out { flag: Some(flag), ..self }
    }

    pub(super) fn exec(self, exec: u64) -> Out {
        Out { exec: Some(exec), ..self }
    }

    /// The flag says whether the result is not zero.
    pub(super) fn nonzero(self) -> Out {
        self.flag(self.value.is_some_and(|(value, _)| value != 0))
    }

    /// The difference of `found`: result, flag, EXEC.
    pub(super) fn differs(self, row: Row, found: &[u64], scalar: bool) -> Option<String> {
        let (value, bits) = self.value.unwrap_or((row.c, 64));
        let mask = u64::MAX >> (64 - bits);
        let expected = row.c & !mask | value & mask;
        let nan = |word: u64| f32::from_bits(word as u32).is_nan();
        let halves = |word: u64| [word & 0xffff_ffff, word >> 32];
        let same = |(found, expected): (u64, u64)| {
            found == expected || self.float && nan(found) && nan(expected)
        };
        let same = halves(found[0]).into_iter().zip(halves(expected)).all(same);
        if !same {
            return Some(format!("{:#x}, expected {expected:#x}", found[0]));
        }
        let flag = self.flag.unwrap_or(row.flag);
        if found[1] != u64::from(flag) {
            return Some(format!("flag {}, expected {flag}", found[1]));
        }
        let exec = self.exec.unwrap_or(u64::MAX);
        (scalar && found[2] != exec).then(|| format!("exec {:#x}, expected {exec:#x}", found[2]))
    }
}

/// Integers of 64, 32, 24 and 16 bits, without and with a sign, and floats of 32 bits, each as a wider type.
pub(super) fn u64_(word: u64) -> i128 {
    word.into()
}
pub(super) fn i64_(word: u64) -> i128 {
    signed(word, 64)
}
pub(super) fn u32_(word: u64) -> i128 {
    (word & 0xffff_ffff).into()
}
pub(super) fn i32_(word: u64) -> i128 {
    signed(word, 32)
}
pub(super) fn u24_(word: u64) -> i128 {
    (word & 0xff_ffff).into()
}
pub(super) fn i24_(word: u64) -> i128 {
    signed(word, 24)
}
pub(super) fn u16_(word: u64) -> i128 {
    (word & 0xffff).into()
}
pub(super) fn i16_(word: u64) -> i128 {
    signed(word, 16)
}
pub(super) fn f32_(word: u64) -> f64 {
    f32::from_bits(word as u32).into()
}
/// The low bits of a word, of which the highest counts negative.
pub(super) fn signed(word: u64, bits: u32) -> i128 {
    let value = i128::from(word) & ((1 << bits) - 1);
    if value >> (bits - 1) & 1 == 0 { value } else { value - (1 << bits) }
}
/// The low bits of a number of operands.
pub(super) fn low(word: u64, bits: u32) -> u32 {
    (word & ((1 << bits) - 1)) as u32
}

/// Results: of 64 and 32 bits; of 16, above which are zeros; none but a flag.
pub(super) fn w64(value: i128) -> Out {
    Out { value: Some((value as u64, 64)), ..Out::default() }
}
pub(super) fn w32(value: i128) -> Out {
    Out { value: Some((u64::from(value as u32), 32)), ..Out::default() }
}
pub(super) fn w16(value: i128) -> Out {
    w32(value & 0xffff)
}
pub(super) fn only(flag: bool) -> Out {
    Out::default().flag(flag)
}
/// Rounded to a float of 32 bits; which NaN it is does not matter.
pub(super) fn float(value: f64) -> Out {
    bits(value as f32)
}
pub(super) fn bits(value: f32) -> Out {
    Out { value: Some((value.to_bits().into(), 32)), float: true, ..Out::default() }
}
pub(super) fn pair(low: f64, high: f64) -> Out {
    let word = |value: f64| u64::from((value as f32).to_bits());
    Out { value: Some((word(low) | word(high) << 32, 64)), float: true, ..Out::default() }
}

/// `a * b + c` so that rounding it to 32 bits is as if it had not been rounded before: the product is exact, and if
/// the sum is not, its last bit is set.
pub(super) fn fma(a: f64, b: f64, c: f64) -> f64 {
    let product = a * b;
    let sum = product + c;
    if !sum.is_finite() {
        return sum;
    }
    let back = sum - product;
    let error = (product - (sum - back)) + (c - back);
    if error == 0.0 || sum.to_bits() & 1 != 0 {
        return sum;
    }
    // The sum was rounded away from the exact one, or towards it.
    let away = (error < 0.0) == (sum > 0.0);
    f64::from_bits(if away { sum.to_bits() - 1 } else { sum.to_bits() + 1 })
}

/// Place of the first bit that is set, in the order that `place` gives; -1 if there is none.
pub(super) fn first(word: u64, bits: u32, place: impl Fn(u32) -> u32) -> i128 {
    let found = (0..bits).find(|&index| word >> place(index) & 1 != 0);
    found.map_or(-1, i128::from)
}
/// Bits that are set.
pub(super) fn ones(word: u64, bits: u32) -> i128 {
    (0..bits).map(|index| i128::from(word >> index & 1)).sum()
}
/// Bits in the other order.
pub(super) fn mirrored(word: u64, bits: u32) -> i128 {
    (0..bits).map(|index| i128::from(word >> index & 1) << (bits - 1 - index)).sum()
}
