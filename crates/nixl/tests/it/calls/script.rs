//! The calls of a script, as they are made of bytes.

use super::model::ARENA;
use arbitrary::Arbitrary;
use warpverbs_nixl::{Desc, Kind, Strided};

/// A number, mostly from a small set, so that registrations, lists and transfers often name the same things.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub(super) struct Number {
    pub(super) small: u8,
    pub(super) how: u8,
}

impl Number {
    /// One of these, or one that is odd, beyond the arena, or such that sums overflow.
    pub(super) fn of(self, few: &[u64], base: u64) -> u64 {
        let small = u64::from(self.small);
        match self.how {
            0..=235 => base + few[usize::from(self.small) % few.len()],
            236..=241 => base + small,
            242..=244 => 0,
            245..=248 => u64::MAX - small,
            249..=252 => u64::MAX / 2 + 1,
            _ => base + ARENA + small,
        }
    }

    pub(super) fn count(self) -> u64 {
        match self.how {
            0..=243 => u64::from(self.small % 6),
            244..=247 => 1 << 27,
            248..=251 => u32::MAX.into(),
            _ => u64::MAX - u64::from(self.small),
        }
    }
}

#[derive(Arbitrary, Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) at: Number,
    pub(super) len: Number,
    pub(super) dev: u8,
    pub(super) stride: Number,
    pub(super) count: Number,
}

impl Row {
    pub(super) fn desc(self, base: u64) -> Desc {
        // A device means nothing for host memory. No number of an open file, which a script would write to.
        let dev = if self.dev < 200 { u64::from(self.dev) << 32 } else { u64::MAX };
        let at = [0, 0, 64, 512, 1024, 1536, 2048, 3072, 4032];
        Desc { addr: self.at.of(&at, base), len: self.len.of(&[64, 64, 64, 512, 2048], 0), dev }
    }

    pub(super) fn strided(self, base: u64) -> Strided {
        let Desc { addr, len, dev } = self.desc(base);
        let stride = self.stride.of(&[64, 64, 256, 512, 0], 0);
        Strided { addr, len, dev, stride, count: self.count.count() }
    }
}

/// The kind of memory: mostly of the host.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub(super) struct KindOf(u8);

impl KindOf {
    pub(super) fn get(self) -> Kind {
        Kind::ALL[usize::from(self.0.saturating_sub(245)) % Kind::ALL.len()]
    }
}

#[derive(Arbitrary, Clone, Copy, Debug)]
pub(super) struct Rows {
    pub(super) kind: KindOf,
    pub(super) count: u8,
    pub(super) rows: [Row; 4],
}

impl Rows {
    pub(super) fn rows(&self) -> &[Row] {
        &self.rows[..[1, 1, 2, 1, 3, 1, 4, 0][usize::from(self.count % 8)]]
    }
}

impl Rows {
    /// With the lengths of the other's.
    pub(super) fn alike(mut self, other: &Self) -> Self {
        (self.kind, self.count) = (other.kind, other.count);
        for (mine, theirs) in self.rows.iter_mut().zip(&other.rows) {
            mine.len = theirs.len;
        }
        self
    }
}

/// Whose memory: of the initiator's side, of the same agent as its own peer, of the other, or of nobody.
#[derive(Arbitrary, Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    Mine,
    Itself,
    Other,
    Nobody,
}

#[derive(Arbitrary, Debug)]
pub(super) enum Call {
    Backend(u8),
    Register(Rows),
    RegisterAll,
    Deregister(Rows),
    DeregisterOne(u8),
    Prepare(Whose, Rows),
    PrepareStrided(Whose, Rows),
    Make {
        read: bool,
        lists: (u8, u8),
        index: [(u8, u8); 3],
        count: u8,
        note: Option<u8>,
        posts: bool,
    },
    Create {
        read: bool,
        local: Rows,
        remote: Rows,
        alike: bool,
        whose: Whose,
        note: Option<u8>,
        posts: bool,
    },
    Post {
        transfer: u8,
        note: Option<u8>,
        waits: bool,
    },
    Look(u8),
    Cancel(u8),
    Release(u8),
    ReleaseList(u8),
    Load {
        part: Option<Rows>,
        spoilt: Option<(u16, u8)>,
    },
    LoadAny([u8; 16]),
    Withdraw,
    Forget,
    Notify(Whose, u8),
    Take,
    Knows(Rows),
}

#[derive(Arbitrary, Debug)]
pub(super) struct Step {
    pub(super) by_b: bool,
    pub(super) call: Call,
}
