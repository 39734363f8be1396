//! The numbers by which instructions name their operands: 0 to 127 are scalar registers, 128 to 253 constants and bits.

/// The operand that is the literal behind the instruction.
pub(crate) const LITERAL: u16 = 255;
/// The first vector register among the codes of operands.
pub(crate) const VECTOR: u16 = 256;
/// The first accumulation register.
pub(crate) const ACC: u16 = 512;
pub(crate) const FLAT_SCRATCH: u16 = 102;
pub(crate) const VCC: u16 = 106;
pub(crate) const EXEC: u16 = 126;
/// No register.
pub(crate) const OFF: u16 = 0x7f;
/// A segment behind FLAT's three: scratch memory as a buffer.
pub(crate) const BUFFER: u8 = 3;
