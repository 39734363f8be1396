//! A list of moves, with neighbours merged.

use super::AreaOffset;

/// Bytes to move. Source and destination do not overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// First byte to read.
    pub from: AreaOffset,
    /// Where it goes.
    pub to: AreaOffset,
    /// Bytes.
    pub len: u64,
}

impl Move {
    /// Whether `next` goes on where this one ends, on both sides.
    fn continues_in(&self, next: &Self) -> bool {
        let follows = |place: AreaOffset, next: AreaOffset| {
            place.area == next.area && place.offset.checked_add(self.len) == Some(next.offset)
        };
        follows(self.from, next.from)
            && follows(self.to, next.to)
            && self.len.checked_add(next.len).is_some()
    }
}

/// Builds a batch of moves. A move that continues the one before, on both sides, becomes part of it.
#[derive(Clone, Debug, Default)]
pub struct Moves(Vec<Move>);

impl Moves {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a move; one of no bytes is left out.
    #[inline]
    pub fn push(&mut self, next: Move) {
        match self.0.last_mut() {
            _ if next.len == 0 => {}
            Some(last) if last.continues_in(&next) => last.len += next.len,
            _ => self.0.push(next),
        }
    }

    /// All, in the order in which they were pushed.
    pub fn as_slice(&self) -> &[Move] {
        &self.0
    }

    /// Empties the list and keeps its memory.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::super::AreaId;
    use super::*;

    fn moved(from: u64, to: u64, len: u64) -> Move {
        let place = |area, offset| AreaOffset { area: AreaId(area), offset };
        Move { from: place(0, from), to: place(1, to), len }
    }

    #[test]
    fn neighbours_on_both_sides_become_one_move() {
        let mut moves = Moves::new();
        for next in [moved(0, 100, 10), moved(10, 110, 5), moved(15, 200, 1), moved(20, 201, 1)] {
            moves.push(next);
        }
        assert_eq!(moves.as_slice(), [moved(0, 100, 15), moved(15, 200, 1), moved(20, 201, 1)]);
    }

    #[test]
    fn empty_moves_and_areas_that_differ_do_not_merge() {
        let mut moves = Moves::new();
        moves.push(moved(0, 0, 8));
        moves.push(moved(7, 7, 0));
        let mut other = moved(8, 8, 8);
        other.to.area = AreaId(2);
        moves.push(other);
        assert_eq!(moves.as_slice(), [moved(0, 0, 8), other]);
    }

    #[test]
    fn offsets_at_the_end_of_the_range_do_not_wrap() {
        let mut moves = Moves::new();
        moves.push(moved(u64::MAX - 3, 0, 4));
        moves.push(moved(0, 4, 4));
        assert_eq!(moves.as_slice().len(), 2);
    }
}
