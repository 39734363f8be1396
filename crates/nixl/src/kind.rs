//! Kinds of memory and operations, by NIXL's names and numbers.

use std::fmt;

/// Where the bytes of a descriptor are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Host memory; the device number means nothing.
    Dram,
    /// Memory of the GPU whose ordinal is the device number.
    Vram,
    /// A block device.
    Block,
    /// An object of a store.
    Object,
    /// A file: the device number is an open file descriptor, the address an offset in it.
    File,
}

impl Kind {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 5] = [Self::Dram, Self::Vram, Self::Block, Self::Object, Self::File];

    /// Its number in NIXL's interfaces.
    pub fn number(self) -> u32 {
        self as u32
    }

    /// The kind of a number.
    pub fn of_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.number() == number)
    }

    /// Its name in NIXL's interfaces.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dram => "DRAM_SEG",
            Self::Vram => "VRAM_SEG",
            Self::Block => "BLK_SEG",
            Self::Object => "OBJ_SEG",
            Self::File => "FILE_SEG",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
