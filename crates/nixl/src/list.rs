//! Lists of descriptors, as programs write them: an address, a length and a device each.

use crate::{Error, Kind, Status};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Descriptors that one call may be given.
pub const MOST_DESCRIPTORS: usize = 1 << 26;

/// A range of memory, or of a file. Its layout is a row of three native 64-bit words, as arrays of
/// descriptors have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Desc {
    /// Where it begins: an address, or an offset in a file.
    pub addr: u64,
    /// Its length in bytes.
    pub len: u64,
    /// The GPU's ordinal, or the file descriptor; for host memory it means nothing.
    pub dev: u64,
}

impl Desc {
    /// The byte after the last one.
    ///
    /// # Errors
    /// It ends beyond the address space.
    pub fn end(&self) -> Result<u64, Error> {
        self.addr.checked_add(self.len).ok_or_else(|| {
            let why =
                format!("{} bytes at {:#x} end beyond the address space", self.len, self.addr);
            Error::new(Status::InvalidParam, why)
        })
    }
}

/// `count` blocks of `len` bytes, each `stride` bytes after the one before it. Its layout is a row of
/// five native 64-bit words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Strided {
    /// Where the first block begins.
    pub addr: u64,
    /// Bytes of each block.
    pub len: u64,
    /// As [`Desc::dev`].
    pub dev: u64,
    /// Bytes from the start of a block to that of the next.
    pub stride: u64,
    /// How many blocks.
    pub count: u64,
}

impl From<Desc> for Strided {
    fn from(one: Desc) -> Self {
        let Desc { addr, len, dev } = one;
        Self { addr, len, dev, stride: len, count: 1 }
    }
}

/// Descriptors of memory of one kind, to be moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List {
    /// The kind of memory.
    pub kind: Kind,
    /// The descriptors, in order.
    pub descs: Vec<Desc>,
}

impl List {
    /// Without descriptors.
    pub fn new(kind: Kind) -> Self {
        Self { kind, descs: Vec::new() }
    }

    /// The descriptors as rows of one block each.
    pub(crate) fn rows(&self) -> impl ExactSizeIterator<Item = Strided> + Clone + '_ {
        self.descs.iter().map(|one| Strided::from(*one))
    }
}

/// A range to be registered, with bytes of the program's own: a path or a key where the kind of memory
/// has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegDesc {
    /// The range.
    pub desc: Desc,
    /// Bytes that belong to it.
    pub meta: Vec<u8>,
}

/// Ranges of one kind of memory, to be registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegList {
    /// The kind of memory.
    pub kind: Kind,
    /// The ranges, in order.
    pub descs: Vec<RegDesc>,
}

impl RegList {
    /// Without ranges.
    pub fn new(kind: Kind) -> Self {
        Self { kind, descs: Vec::new() }
    }

    /// The ranges alone.
    pub fn trim(&self) -> List {
        List { kind: self.kind, descs: self.descs.iter().map(|one| one.desc).collect() }
    }
}
