//! Members of a world, by views.

/// The ranks that take part in a world: all at first, later those of the last
/// [regroup](super::World::regroup).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    pub(super) number: u64,
    /// In order.
    pub(super) members: Vec<u32>,
    /// Those that come back with it, with their tokens.
    pub(super) newcomers: Vec<(u32, String)>,
}

impl View {
    pub(super) fn first(world_size: u32) -> Self {
        Self { number: 0, members: (0..world_size).collect(), newcomers: Vec::new() }
    }

    /// How many times the ranks have regrouped.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Members that came back with this view. They have nothing of what the others share.
    pub fn newcomers(&self) -> Vec<u32> {
        self.newcomers.iter().map(|(rank, _)| *rank).collect()
    }

    /// Whether a loss in the view before is that of a member of this one.
    pub(super) fn counts(&self, rank: u32) -> bool {
        let is_new = self.newcomers.iter().any(|(newcomer, _)| *newcomer == rank);
        self.members.contains(&rank) && !is_new
    }

    pub(super) fn encode(&self) -> String {
        let token = |rank: u32| self.newcomers.iter().find(|(newcomer, _)| *newcomer == rank);
        let member = |&rank: &u32| match token(rank) {
            Some((_, token)) => format!("{rank}+{token}"),
            None => rank.to_string(),
        };
        self.members.iter().map(member).collect::<Vec<_>>().join(" ")
    }

    /// None for what is no list of members.
    pub(super) fn decode(number: u64, text: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(text);
        let mut view = Self { number, members: Vec::new(), newcomers: Vec::new() };
        for member in text.split(' ') {
            let (rank, token) =
                member.split_once('+').map_or((member, None), |(r, t)| (r, Some(t)));
            let rank = rank.parse().ok()?;
            view.members.push(rank);
            view.newcomers.extend(token.map(|token| (rank, token.to_owned())));
        }
        Some(view)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_travels_as_text() {
        let view = View {
            number: 7,
            members: vec![0, 2, 11],
            newcomers: vec![(2, "ab".to_owned()), (11, "0".to_owned())],
        };
        assert_eq!(view.encode(), "0 2+ab 11+0");
        assert_eq!(View::decode(7, view.encode().as_bytes()), Some(view));
        let first = View::first(3);
        assert_eq!(View::decode(0, first.encode().as_bytes()), Some(first));
        for bad in ["", "x", "1  2", "-1", "+ab"] {
            assert_eq!(View::decode(1, bad.as_bytes()), None, "{bad:?}");
        }
    }
}
