//! Some of the ranks, numbered anew, with what their barriers need.

use crate::layout::{MOST_LOG_SLOTS, MOST_MAIL_BLOCK, TEAM_BLOCK_BYTES, mail_block_bytes};
use crate::{Heap, ShmemError, Sym};
use std::panic::Location;
use warpverbs_gpu::Element;
use warpverbs_rendezvous::World;

/// Ranks `first`, `first + stride`, … of a heap, and a `wv::TeamBlock` at the same offset of each of
/// them: what `wv::Team` in device code is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Team {
    block: Sym<u64>,
    members: Members,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Members {
    first: u32,
    stride: u32,
    size: u32,
}

impl Members {
    /// All of them are ranks below `world`, and different ones.
    fn check(self, world: u32) -> Result<Self, ShmemError> {
        let Self { first, stride, size } = self;
        let wrong = |field, value: u32, expected: &str| ShmemError::Config {
            field,
            value: value.to_string(),
            expected: expected.to_owned(),
        };
        if size == 0 {
            return Err(wrong("size of a team", size, "one rank or more"));
        }
        if stride == 0 && size > 1 {
            return Err(wrong("stride of a team", stride, "1 or more"));
        }
        let last = u64::from(first) + u64::from(stride) * u64::from(size - 1);
        match last < world.into() {
            true => Ok(self),
            false => Err(ShmemError::Rank { rank: u32::try_from(last).unwrap_or(u32::MAX), world }),
        }
    }

    fn rank(self, member: u32) -> Option<u32> {
        (member < self.size).then(|| self.first + member * self.stride)
    }

    fn member(self, rank: u32) -> Option<u32> {
        (0..self.size).find(|&member| self.rank(member) == Some(rank))
    }

    fn split(self, start: u32, stride: u32, size: u32) -> Option<Self> {
        let last = u64::from(start) + u64::from(stride) * u64::from(size.checked_sub(1)?);
        let inside = last < self.size.into() && (stride > 0 || size == 1);
        inside.then(|| Self {
            first: self.first + start * self.stride,
            // One rank may have any stride.
            stride: self.stride.saturating_mul(stride),
            size,
        })
    }
}

impl Team {
    /// Where its block is: `Team::block` in device code is this place's offset. [`Heap::free`] gives it
    /// back.
    pub fn block(&self) -> Sym<u64> {
        self.block
    }

    /// Its first rank.
    pub fn first(&self) -> u32 {
        self.members.first
    }

    /// From one rank to the next.
    pub fn stride(&self) -> u32 {
        self.members.stride
    }

    /// How many members.
    pub fn len(&self) -> u32 {
        self.members.size
    }

    /// Whether there are none: never.
    pub fn is_empty(&self) -> bool {
        self.members.size == 0
    }

    /// The heap's rank of a member.
    pub fn rank(&self, member: u32) -> Option<u32> {
        self.members.rank(member)
    }

    /// The number in this team of a rank of the heap.
    pub fn member(&self, rank: u32) -> Option<u32> {
        self.members.member(rank)
    }
}

impl Heap {
    /// As [`Heap::alloc`], zeroed on all ranks before it is given out on any: for signals and other
    /// words that peers write. Waits for all ranks, and checks that they agree.
    ///
    /// # Errors
    /// As [`Heap::alloc`] and [`Heap::agree`].
    #[track_caller]
    pub fn alloc_zeroed<T: Element>(
        &mut self,
        world: &mut World,
        len: u64,
    ) -> Result<Sym<T>, ShmemError> {
        let place = self.places.alloc::<T>(len, 256, Location::caller());
        let cleared = place.and_then(|place| self.clear(&place).map(|()| place));
        // A rank without room takes part as well: all ranks fail in the same way.
        if !self.replays {
            self.agree(world)?;
        }
        cleared
    }

    /// A team of `size` ranks: `first`, `first + stride`, …. All ranks of the heap make the same call,
    /// members or not.
    ///
    /// # Errors
    /// They are not all ranks of the heap, or as [`Heap::alloc_zeroed`].
    #[track_caller]
    pub fn team(
        &mut self,
        world: &mut World,
        first: u32,
        stride: u32,
        size: u32,
    ) -> Result<Team, ShmemError> {
        let members = Members { first, stride, size }.check(self.world())?;
        Ok(Team { block: self.alloc_zeroed(world, TEAM_BLOCK_BYTES / 8)?, members })
    }

    /// A team of `size` members of another: `start`, `start + stride`, …. All ranks of the heap make
    /// the same call.
    ///
    /// # Errors
    /// They are not all members, or as [`Heap::alloc_zeroed`].
    #[track_caller]
    pub fn split(
        &mut self,
        world: &mut World,
        team: &Team,
        (start, stride, size): (u32, u32, u32),
    ) -> Result<Team, ShmemError> {
        let members =
            team.members.split(start, stride, size).ok_or_else(|| ShmemError::Config {
                field: "members of a team",
                value: format!("{size} from {start} on, stride {stride}"),
                expected: format!("different ones of {}", team.len()),
            })?;
        self.team(world, members.first, members.stride, members.size)
    }

    /// The block of a `wv::Mailbox` for messages of up to `bytes`, `1 << log_slots` of them under way
    /// at once. All ranks make the same call.
    ///
    /// # Errors
    /// Other than 2 to 2^16 slots, a block of 64 GiB or more, or as [`Heap::alloc_zeroed`].
    #[track_caller]
    pub fn mail_block(
        &mut self,
        world: &mut World,
        bytes: u32,
        log_slots: u8,
    ) -> Result<Sym<u64>, ShmemError> {
        self.alloc_zeroed(world, mail_block(bytes, log_slots)? / 8)
    }
}

/// Bytes of the block of a mailbox that kernels take.
fn mail_block(bytes: u32, log_slots: u8) -> Result<u64, ShmemError> {
    if !(1..=MOST_LOG_SLOTS).contains(&log_slots) {
        return Err(ShmemError::Config {
            field: "log_slots of a mailbox",
            value: log_slots.to_string(),
            expected: format!("1 to {MOST_LOG_SLOTS}"),
        });
    }
    let len = mail_block_bytes(bytes, log_slots);
    if len > MOST_MAIL_BLOCK {
        return Err(ShmemError::Config {
            field: "block of a mailbox",
            value: format!("{len} bytes, for messages of {bytes} bytes in 2^{log_slots} slots"),
            expected: format!("at most {MOST_MAIL_BLOCK} bytes"),
        });
    }
    Ok(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn team(first: u32, stride: u32, size: u32) -> Members {
        Members { first, stride, size }
    }

    #[test]
    fn members_are_numbered_in_order_and_split_by_stride() {
        let all = team(0, 1, 8).check(8).unwrap();
        let odd = all.split(1, 2, 4).unwrap();
        let ranks = |team: Members| (0..9).filter_map(|m| team.rank(m)).collect::<Vec<_>>();
        assert_eq!(ranks(odd), [1, 3, 5, 7]);
        assert_eq!(ranks(odd.split(1, 2, 2).unwrap()), [3, 7]);
        assert_eq!((odd.member(5), odd.member(4)), (Some(2), None));
        for (start, stride, size) in [(1, 2, 5), (0, 0, 2), (0, 1, 0), (8, 1, 1), (0, u32::MAX, 3)]
        {
            assert_eq!(all.split(start, stride, size), None, "{start} {stride} {size}");
        }
        assert_eq!(ranks(all.split(7, 0, 1).unwrap()), [7]);
        let one = team(3, u32::MAX, 1);
        assert_eq!(one.split(1, 0, 1), None);
        assert_eq!(ranks(one.split(0, u32::MAX, 1).unwrap()), [3]);
        for wrong in
            [team(0, 1, 0), team(0, 0, 2), team(3, 2, 2), team(u32::MAX, u32::MAX, u32::MAX)]
        {
            assert!(wrong.check(4).is_err(), "{wrong:?}");
        }
        assert!(team(3, 0, 1).check(4).is_ok());
    }

    /// Nothing is allocated for a mailbox that kernels would refuse.
    #[test]
    fn a_mailbox_has_as_many_slots_and_bytes_as_kernels_take() {
        for (bytes, log_slots) in [(0, 1), (8, 16), (1 << 20, 14), (u32::MAX, 2)] {
            assert_eq!(mail_block(bytes, log_slots).unwrap(), mail_block_bytes(bytes, log_slots));
        }
        for log_slots in [0, 17, 31, 32, 64, u8::MAX] {
            let refused = mail_block(8, log_slots).unwrap_err().to_string();
            let expected = format!("log_slots of a mailbox is \"{log_slots}\", expected 1 to 16");
            assert_eq!(refused, expected);
        }
        for (bytes, log_slots) in [(u32::MAX, 16), (1 << 20, 16), (u32::MAX, 4)] {
            let refused = mail_block(bytes, log_slots).unwrap_err().to_string();
            assert!(refused.starts_with("block of a mailbox is "), "{refused}");
        }
        assert_eq!(mail_block_bytes(u32::MAX, u8::MAX), u64::MAX);
        assert_eq!(mail_block_bytes(u32::MAX, 31), u64::MAX);
    }
}
