//! Some of the ranks, numbered anew.

use crate::ShmemError;

/// Ranks of a heap in a chosen order. Making one needs no traffic: every member makes the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Team {
    ranks: Vec<u32>,
    world: u32,
}

impl Team {
    /// All ranks of a heap of `world` ranks.
    pub(crate) fn all(world: u32) -> Self {
        Self { ranks: (0..world).collect(), world }
    }

    /// These ranks of the heap, in this order.
    ///
    /// # Errors
    /// No rank at all, one that does not exist, or one that is given twice.
    pub(crate) fn of(world: u32, ranks: &[u32]) -> Result<Self, ShmemError> {
        for (i, &rank) in ranks.iter().enumerate() {
            if rank >= world {
                return Err(ShmemError::Rank { rank, world });
            }
            if ranks[..i].contains(&rank) {
                return Err(wrong(format!("{ranks:?}"), "each rank once"));
            }
        }
        match ranks.is_empty() {
            true => Err(wrong("[]".to_owned(), "one rank or more")),
            false => Ok(Self { ranks: ranks.to_vec(), world }),
        }
    }

    /// Every `stride`-th member from member `start` on, `len` in all.
    ///
    /// # Errors
    /// They are not all members, or there are none.
    pub fn split(&self, start: u32, stride: u32, len: u32) -> Result<Self, ShmemError> {
        let members = (0..u64::from(len)).map(|i| {
            let member = u64::from(start) + i * u64::from(stride);
            let found = usize::try_from(member).ok().and_then(|member| self.ranks.get(member));
            found.copied().ok_or_else(|| {
                wrong(format!("member {member}"), &format!("one of {} members", self.ranks.len()))
            })
        });
        Self::of(self.world, &members.collect::<Result<Vec<_>, _>>()?)
    }

    /// The heap's ranks, in the team's order.
    pub fn ranks(&self) -> &[u32] {
        &self.ranks
    }

    /// How many members.
    pub fn len(&self) -> u32 {
        self.ranks.len() as u32
    }

    /// Whether there are none: never.
    pub fn is_empty(&self) -> bool {
        self.ranks.is_empty()
    }

    /// The number in this team of a rank of the heap.
    pub fn member(&self, rank: u32) -> Option<u32> {
        self.ranks.iter().position(|&member| member == rank).map(|at| at as u32)
    }

    /// The heap's rank of a member.
    pub fn rank(&self, member: u32) -> Option<u32> {
        self.ranks.get(member as usize).copied()
    }
}

fn wrong(value: String, expected: &str) -> ShmemError {
    ShmemError::Config { field: "team", value, expected: expected.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_numbered_in_order_and_split_by_stride() {
        let all = Team::all(8);
        let odd = all.split(1, 2, 4).unwrap();
        assert_eq!(odd.ranks(), [1, 3, 5, 7]);
        assert_eq!(odd.split(1, 2, 2).unwrap().ranks(), [3, 7]);
        assert_eq!(
            (odd.member(5), odd.member(4), odd.rank(3), odd.rank(4)),
            (Some(2), None, Some(7), None)
        );
        assert!(all.split(1, 2, 5).is_err() && all.split(0, 0, 2).is_err());
        assert!(all.split(u32::MAX, u32::MAX, 3).is_err() && all.split(0, 1, 0).is_err());
        assert!(
            Team::of(4, &[3, 0]).is_ok() && Team::of(4, &[4]).is_err() && Team::of(4, &[]).is_err()
        );
    }
}
