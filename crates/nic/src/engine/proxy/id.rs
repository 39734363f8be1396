//! The identity of work at a device.

/// The identity of work at a device: what it is, in which generation of its QP, and its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Id {
    pub(super) kind: WorkKind,
    /// The low 14 bits: completions from before a RESET are dropped.
    pub(super) generation: u16,
    /// 48 bits.
    pub(super) index: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WorkKind {
    Send,
    Receive,
    /// A receive of an SRQ, which has no generation.
    Shared,
}

pub(super) const GENERATION: u16 = (1 << 14) - 1;
const INDEX: u64 = (1 << 48) - 1;

impl Id {
    #[inline]
    pub(super) fn pack(self) -> u64 {
        let kind = match self.kind {
            WorkKind::Send => 0,
            WorkKind::Receive => 1,
            WorkKind::Shared => 2,
        };
        kind << 62 | u64::from(self.generation & GENERATION) << 48 | self.index & INDEX
    }

    #[inline]
    pub(super) fn unpack(id: u64) -> Option<Self> {
        let kind = match id >> 62 {
            0 => WorkKind::Send,
            1 => WorkKind::Receive,
            2 => WorkKind::Shared,
            _ => return None,
        };
        Some(Self { kind, generation: (id >> 48) as u16 & GENERATION, index: id & INDEX })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_come_back() {
        for kind in [WorkKind::Send, WorkKind::Receive, WorkKind::Shared] {
            for (generation, index) in [(0, 0), (GENERATION, INDEX), (5, 0x1234_5678_9abc)] {
                let id = Id { kind, generation, index };
                assert_eq!(Id::unpack(id.pack()), Some(id));
            }
        }
        assert_eq!(Id::unpack(3 << 62), None);
    }
}
