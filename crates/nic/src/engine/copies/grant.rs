//! By what right a copy touches memory.

use crate::format::Sge;
use crate::violation::KeySide;
use warpverbs_mem::{Access, AccessError, KeyHint, KeyTable, MemError};

/// A key and what it is used for. It is checked again when a copy starts, so that memory is not
/// touched after its key was revoked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    key: u32,
    pd: u32,
    needed: Access,
    side: KeySide,
    segment: u8,
    addr: u64,
}

/// The grants of the first `len` bytes of a list of segments: one for each piece.
pub(crate) fn grants(
    (pd, side, needed): (u32, KeySide, Access),
    sges: impl Iterator<Item = Sge>,
    len: u64,
) -> Vec<Grant> {
    let mut left = len;
    let grant = |(segment, sge): (usize, Sge)| {
        let used = left.min(u64::from(sge.len));
        left -= used;
        let (key, segment) = (sge.lkey.0, segment as u8);
        (used > 0).then_some(Grant { key, pd, needed, side, segment, addr: sge.addr })
    };
    sges.enumerate().filter_map(grant).collect()
}

impl Grant {
    /// The next `len` bytes may still be accessed.
    pub(super) fn check(&self, keys: &KeyTable, len: u32) -> Result<(), Fault> {
        let Self { key, pd, needed, side, segment, addr } = *self;
        let found = keys.lookup(&mut KeyHint::default(), pd, key, addr, len, needed);
        found.map(drop).map_err(|error| Fault::Key { side, segment, error })
    }

    /// For the bytes behind the next `bytes`.
    pub(super) fn skip(&mut self, bytes: u32) {
        self.addr = self.addr.wrapping_add(u64::from(bytes));
    }
}

/// Why a copy failed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Fault {
    /// The copy engine.
    Copy(MemError),
    /// A key was revoked.
    Key { side: KeySide, segment: u8, error: AccessError },
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Copy(error) => error.fmt(f),
            Self::Key { error, .. } => error.fmt(f),
        }
    }
}

impl From<MemError> for Fault {
    fn from(error: MemError) -> Self {
        Self::Copy(error)
    }
}
