//! Bits of big-endian words, by name.

use thiserror::Error;

/// A field: bits `high` to `low` of the big-endian word at byte `at`, of 64 bits if `high` is above
/// 31 and of 32 bits otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// Byte of its word.
    pub at: u16,
    /// Its highest bit.
    pub high: u8,
    /// Its lowest bit.
    pub low: u8,
}

/// Bits that are not understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "{mailbox}: bits {bits:#010x} of the word at byte {at:#x} belong to no known field, expected 0"
)]
pub struct MailboxError {
    /// The mailbox, or the context in it.
    pub mailbox: &'static str,
    /// Byte of the word, from the start of the mailbox or context.
    pub at: usize,
    /// The bits.
    pub bits: u32,
}

impl Field {
    fn mask(self) -> u64 {
        let bits = u32::from(self.high - self.low) + 1;
        u64::MAX >> (64 - bits)
    }

    fn word(self, bytes: &[u8]) -> u64 {
        let at = usize::from(self.at);
        let len = if self.high > 31 { 8 } else { 4 };
        (0..len).fold(0, |word, i| word << 8 | u64::from(bytes.get(at + i).copied().unwrap_or(0)))
    }

    /// Its value in `bytes`; those that are missing are zero.
    pub fn get(self, bytes: &[u8]) -> u64 {
        self.word(bytes) >> self.low & self.mask()
    }

    /// Puts the low bits of `value` in.
    pub fn set(self, bytes: &mut [u8], value: u64) {
        let clear = self.word(bytes) & !(self.mask() << self.low);
        let word = (clear | (value & self.mask()) << self.low).to_be_bytes();
        let (at, word) = match self.high > 31 {
            true => (usize::from(self.at), &word[..]),
            false => (usize::from(self.at), &word[4..]),
        };
        if let Some(place) = bytes.get_mut(at..at + word.len()) {
            place.copy_from_slice(word);
        }
    }

    /// Its bits in the 32-bit word at byte `at`.
    fn bits_at(self, at: usize) -> u32 {
        let mask = self.mask() << self.low;
        let own = usize::from(self.at);
        match (self.high > 31, at.wrapping_sub(own)) {
            (false, 0) | (true, 4) => mask as u32,
            (true, 0) => (mask >> 32) as u32,
            _ => 0,
        }
    }
}

/// Every set bit of `bytes` is one of a field.
pub(super) fn check(
    mailbox: &'static str,
    fields: &[Field],
    bytes: &[u8],
) -> Result<(), MailboxError> {
    for (i, word) in bytes.chunks(4).enumerate() {
        let set = word.iter().fold(0, |word, byte| word << 8 | u32::from(*byte));
        let known = fields.iter().fold(0, |bits, field| bits | field.bits_at(i * 4));
        if set & !known != 0 {
            return Err(MailboxError { mailbox, at: i * 4, bits: set & !known });
        }
    }
    Ok(())
}

/// Declares structures whose members are fields of `$size` bytes of mailbox.
macro_rules! mailbox {
    ($($(#[$doc:meta])* $name:ident, $size:literal {
        $($(#[$field_doc:meta])* $field:ident: $ty:ty = ($at:literal, $high:literal, $low:literal),)*
    })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[allow(missing_docs, unreachable_pub)]
        pub struct $name { $($(#[$field_doc])* pub $field: $ty,)* }

        #[allow(unreachable_pub)]
        impl $name {
            /// Bytes of it.
            pub const SIZE: usize = $size;
            /// Where each member is.
            pub const FIELDS: &'static [$crate::prm::Field] = &[$($crate::prm::Field {
                name: stringify!($field), at: $at, high: $high, low: $low,
            },)*];

            /// The values in the first [`Self::SIZE`] of `bytes`; those that are missing are zero.
            ///
            /// # Errors
            /// A set bit that no field has.
            pub fn parse(bytes: &[u8]) -> Result<Self, $crate::prm::MailboxError> {
                let mut whole = [0; $size];
                let len = bytes.len().min($size);
                whole[..len].copy_from_slice(&bytes[..len]);
                super::field::check(stringify!($name), Self::FIELDS, &whole)?;
                Ok(Self::read(&whole))
            }

            /// The values in `bytes`, as a device's answer has them: bits that no field has are passed
            /// over, and values that are missing are zero.
            pub fn read(bytes: &[u8]) -> Self {
                let mut fields = Self::FIELDS.iter();
                // In the order of the declaration, which is that of the members.
                let mut next = || fields.next().map_or(0, |field| field.get(bytes));
                Self { $($field: next() as $ty,)* }
            }

            /// Puts the values into `bytes`, which are at least [`Self::SIZE`].
            pub fn emit(&self, bytes: &mut [u8]) {
                let mut fields = Self::FIELDS.iter();
                $(if let Some(field) = fields.next() {
                    field.set(bytes, u64::from(self.$field));
                })*
            }
        }
    )*};
}
pub(super) use mailbox;
