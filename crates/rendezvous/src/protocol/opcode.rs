//! The first byte of a request, and what follows it.

/// First byte of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Opcode {
    /// The protocol's magic number, first on every connection.
    Validate = 0,
    /// Stores a value.
    Set = 1,
    /// Stores a value if the present one is as expected.
    CompareSet = 2,
    /// Reads a value.
    Get = 3,
    /// Adds to a decimal number.
    Add = 4,
    /// Asks whether all of some keys are there.
    Check = 5,
    /// Waits until all of some keys are there.
    Wait = 6,
    /// Counts the keys.
    KeyCount = 7,
    /// Removes a key.
    Delete = 8,
    /// Adds to the end of a value.
    Append = 9,
    /// Reads several values.
    MultiGet = 10,
    /// Stores several values.
    MultiSet = 11,
    /// Ends a wait or a barrier.
    CancelWait = 12,
    /// Asks for a number back.
    Ping = 13,
}

/// Parts of a request after its opcode, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// `u32`.
    Word,
    /// `i64`.
    Number,
    /// Length and bytes, bounded as a key.
    Key,
    /// Length and bytes, bounded as a value.
    Value,
    /// Count, then as many keys.
    Keys,
    /// Count, then as many times a key and a value.
    Pairs,
}

impl Opcode {
    /// Every opcode; each stands at the index that is its byte.
    pub const ALL: [Opcode; 14] = [
        Opcode::Validate,
        Opcode::Set,
        Opcode::CompareSet,
        Opcode::Get,
        Opcode::Add,
        Opcode::Check,
        Opcode::Wait,
        Opcode::KeyCount,
        Opcode::Delete,
        Opcode::Append,
        Opcode::MultiGet,
        Opcode::MultiSet,
        Opcode::CancelWait,
        Opcode::Ping,
    ];

    /// The opcode of a byte.
    pub fn from_byte(byte: u8) -> Option<Opcode> {
        Self::ALL.get(usize::from(byte)).copied()
    }

    /// The byte of an opcode.
    pub fn byte(self) -> u8 {
        self as u8
    }

    pub(super) fn parts(self) -> &'static [Part] {
        match self {
            Opcode::Validate | Opcode::Ping => &[Part::Word],
            Opcode::Set | Opcode::Append => &[Part::Key, Part::Value],
            Opcode::CompareSet => &[Part::Key, Part::Value, Part::Value],
            Opcode::Get | Opcode::Delete => &[Part::Key],
            Opcode::Add => &[Part::Key, Part::Number],
            Opcode::Check | Opcode::Wait | Opcode::MultiGet => &[Part::Keys],
            Opcode::MultiSet => &[Part::Pairs],
            Opcode::KeyCount | Opcode::CancelWait => &[],
        }
    }
}

impl std::fmt::Display for Opcode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Opcode::Validate => "validate",
            Opcode::Set => "set",
            Opcode::CompareSet => "compare_set",
            Opcode::Get => "get",
            Opcode::Add => "add",
            Opcode::Check => "check",
            Opcode::Wait => "wait",
            Opcode::KeyCount => "num_keys",
            Opcode::Delete => "delete_key",
            Opcode::Append => "append",
            Opcode::MultiGet => "multi_get",
            Opcode::MultiSet => "multi_set",
            Opcode::CancelWait => "cancel_wait",
            Opcode::Ping => "ping",
        })
    }
}
