//! How a line of the tables is written: types of operands and results, and what makes an opcode of a function.
use crate::inst::{Encoding, Kind, Op, Run};

/// A type of operands.
pub(super) trait Value: Sized {
    const KIND: Kind;
    fn of(bits: u64) -> Self;
    fn bits(self) -> u64;
}

macro_rules! values {
    ($($kind:ident $value:ty, |$bits:ident| $of:expr, |$self:ident| $to:expr;)*) => {$(
        impl Value for $value {
            const KIND: Kind = Kind::$kind;
            fn of($bits: u64) -> Self { $of }
            fn bits($self) -> u64 { $to }
        }
    )*};
}
values! {
    B16 u16, |bits| bits as u16, |self| self.into();
    B16 i16, |bits| bits as i16, |self| (self as u16).into();
    B32 u32, |bits| bits as u32, |self| self.into();
    B32 i32, |bits| bits as i32, |self| (self as u32).into();
    F32 f32, |bits| f32::from_bits(bits as u32), |self| self.to_bits().into();
    B64 u64, |bits| bits, |self| self;
    I64 i64, |bits| bits as i64, |self| self as u64;
    Flag bool, |bits| bits & 1 != 0, |self| self.into();
    Lane Lane, |bits| Lane(bits as u32), |self| self.0.into();
    Pair [u32; 2],
        |bits| [bits as u32, (bits >> 32) as u32],
        |self| u64::from(self[0]) | u64::from(self[1]) << 32;
    Pair [f32; 2],
        |bits| [f32::from_bits(bits as u32), f32::from_bits((bits >> 32) as u32)],
        |self| u64::from(self[0].to_bits()) | u64::from(self[1].to_bits()) << 32;
}

/// The number of the lane that computes.
pub(super) struct Lane(pub(super) u32);

/// A type of results: a value, a flag, or both.
pub(super) trait Output: Sized {
    const KIND: Kind;
    const FLAG: bool;
    fn parts(self) -> (u64, bool);
}
impl<T: Value> Output for T {
    const KIND: Kind = if matches!(T::KIND, Kind::Flag) { Kind::None } else { T::KIND };
    const FLAG: bool = matches!(T::KIND, Kind::Flag);
    fn parts(self) -> (u64, bool) {
        let bits = self.bits();
        (bits, Self::FLAG && bits != 0)
    }
}
impl<T: Value> Output for (T, bool) {
    const KIND: Kind = T::KIND;
    const FLAG: bool = true;
    fn parts(self) -> (u64, bool) {
        (self.0.bits(), self.1)
    }
}

/// A line of an opcode that is a function of its operands.
macro_rules! op {
    ($encoding:ident $number:expr, $name:expr, ($($a:ident: $t:ty),*) -> $r:ty = $e:expr) => {
        crate::inst::Op {
            encoding: crate::inst::Encoding::$encoding,
            number: $number,
            name: $name,
            src: &[$(<$t as crate::table::row::Value>::KIND),*],
            dst: <$r as crate::table::row::Output>::KIND,
            flag: <$r as crate::table::row::Output>::FLAG,
            run: crate::inst::Run::Compute(|bits| {
                let mut bits = bits.iter();
                $(let $a = <$t as crate::table::row::Value>::of(*bits.next().unwrap_or(&0));)*
                let result: $r = $e;
                crate::table::row::Output::parts(result)
            }),
        }
    };
}

/// Lines `Encoding number name(operands) -> result = expression;`.
macro_rules! compute {
    ($($encoding:ident $number:literal $name:ident ($($a:ident: $t:ty),*) -> $r:ty = $e:expr;)*) => {
        &[$(crate::table::row::op!($encoding $number, stringify!($name), ($($a: $t),*) -> $r = $e)),*]
    };
}
pub(super) use {compute, op};

/// A line of an opcode that is more than a function of its operands.
pub(super) const fn special(
    encoding: Encoding,
    number: u32,
    name: &'static str,
    dst: Kind,
    src: &'static [Kind],
    run: Run,
) -> Op {
    Op { encoding, number, name, src, dst, flag: false, run }
}

/// The sum with a carry, and whether it needs 33 bits.
pub(super) fn carry(a: u32, b: u32, c: bool) -> (u32, bool) {
    let sum = u64::from(a) + u64::from(b) + u64::from(c);
    (sum as u32, sum >> 32 != 0)
}

/// The difference less a borrow, and whether it is negative.
pub(super) fn borrow(a: u32, b: u32, c: bool) -> (u32, bool) {
    let difference = i64::from(a) - i64::from(b) - i64::from(c);
    (difference as u32, difference < 0)
}

/// Index from one side of the first bit that is set, or -1 where all `bits` are zeros.
pub(super) fn first(zeros: u32, bits: u32) -> u32 {
    if zeros == bits { u32::MAX } else { zeros }
}
