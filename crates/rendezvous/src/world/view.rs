//! Ranks that leave a world and come back: views, each with its members.
//!
//! A world begins with view 0, whose members are all ranks. For the next view every member proposes its
//! members, and the proposal that reaches the store first is the view. Every view has keys of its own, so
//! nothing that was under way in the last one is mixed up with what follows.
//!
//! | key, behind `warpverbs/JOB/GENERATION/` | value | written by |
//! |---|---|---|
//! | `view/VIEW/members` | ranks, each with `+TOKEN` if it comes back | the first member that proposes |
//! | `view/VIEW/…` | the keys of that view, as those of view 0 are | its members |
//! | `asks/RANK` | a token | a process that wants to be this rank |
//! | `let-in/TOKEN` | number and members of its first view | that view's other members |

use super::{World, WorldConfig, WorldError, random_token};
use crate::{ClientError, Deadline};

/// Members of a view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct View {
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

    fn is_new(&self, rank: u32) -> bool {
        self.newcomers.iter().any(|(newcomer, _)| *newcomer == rank)
    }

    fn encode(&self) -> String {
        let token = |rank: u32| self.newcomers.iter().find(|(newcomer, _)| *newcomer == rank);
        let member = |&rank: &u32| match token(rank) {
            Some((_, token)) => format!("{rank}+{token}"),
            None => rank.to_string(),
        };
        self.members.iter().map(member).collect::<Vec<_>>().join(" ")
    }

    fn decode(number: u64, text: &[u8]) -> Result<Self, WorldError> {
        let text = String::from_utf8_lossy(text);
        let wrong = || WorldError::View { found: text.chars().take(160).collect() };
        let mut view = Self { number, members: Vec::new(), newcomers: Vec::new() };
        for member in text.split(' ') {
            let (rank, token) =
                member.split_once('+').map_or((member, None), |(r, t)| (r, Some(t)));
            let rank = rank.parse().map_err(|_| wrong())?;
            view.members.push(rank);
            view.newcomers.extend(token.map(|token| (rank, token.to_owned())));
        }
        Ok(view)
    }
}

impl World {
    /// The ranks that take part, in order: all at first, later those of the last
    /// [regroup](World::regroup).
    pub fn members(&self) -> &[u32] {
        &self.view.members
    }

    /// Members that came back with the last regroup. They have nothing of what the others share.
    pub fn newcomers(&self) -> Vec<u32> {
        self.view.newcomers.iter().map(|(rank, _)| *rank).collect()
    }

    /// How many times the ranks have regrouped.
    pub fn view(&self) -> u64 {
        self.view.number
    }

    /// Goes on with other members: the own rank and `members`, of which those that are none now must have
    /// called [`World::rejoin`]. All members of the next view call it, also if they propose others: the
    /// first proposal holds for all, and [`World::members`] says which it is. Exchanges and barriers begin
    /// anew. On failure it can be called again.
    ///
    /// # Errors
    /// [`WorldError::Excluded`] if the view is one without this rank; [`WorldError::Missing`] or
    /// [`WorldError::Lost`] if a member does not come.
    pub fn regroup(&mut self, members: &[u32]) -> Result<(), WorldError> {
        let (rank, world_size) = (self.rank, self.world_size);
        if let Some(&rank) = members.iter().find(|&&rank| rank >= world_size) {
            return Err(WorldError::Rank { rank, world_size });
        }
        let deadline = Deadline::after(self.timeout);
        let mut proposed: Vec<u32> = members.iter().copied().chain([rank]).collect();
        proposed.sort_unstable();
        proposed.dedup();
        let mut next = View { number: self.view.number + 1, members: proposed, newcomers: vec![] };
        for &rank in &next.members {
            if !self.view.members.contains(&rank) {
                let key = format!("{}/asks/{rank}", self.root);
                // A loss in this view is no reason to end: it is why there is a next one.
                match self.client.wait(&[&key], deadline) {
                    Ok(()) => {}
                    Err(ClientError::Missing { missing, .. }) => {
                        return Err(self.missing("rejoin", "", &missing, deadline.waited()));
                    }
                    Err(error) => return Err(self.refine(error)),
                }
                let token = self.value(&key)?;
                next.newcomers.push((rank, String::from_utf8_lossy(&token).into_owned()));
            }
        }
        let key = format!("{}/view/{}/members", self.root, next.number);
        let decided = self.client.compare_set(&key, b"", next.encode().as_bytes());
        let decided = View::decode(next.number, &decided.map_err(|error| self.refine(error))?)?;
        self.enter(decided, deadline)
    }

    /// Comes back as a rank of a world that goes on without it: a process that was started anew. Waits
    /// until the members [regroup](World::regroup) with this rank. Runs no store.
    ///
    /// # Errors
    /// As [`World::join`]; [`WorldError::NotLetIn`] if they do not within the timeout.
    pub fn rejoin(config: &WorldConfig) -> Result<World, WorldError> {
        config.check()?;
        let deadline = Deadline::after(config.timeout);
        let mut world = World::open(config, None)?;
        world.agree()?;
        world.beat_at(config)?;
        let token = random_token()?;
        let (rank, root) = (world.rank, world.root.clone());
        let asks = world.client.set(&format!("{root}/asks/{rank}"), token.as_bytes());
        asks.map_err(|error| world.refine(error))?;
        let key = format!("{root}/let-in/{token}");
        match world.client.wait(&[&key], deadline) {
            Ok(()) => {}
            Err(ClientError::Missing { .. }) => {
                return Err(WorldError::NotLetIn { rank, waited: deadline.waited() });
            }
            Err(error) => return Err(world.refine(error)),
        }
        let text = world.value(&key)?;
        let text = String::from_utf8_lossy(&text).into_owned();
        let (number, members) = text.split_once(' ').unwrap_or_default();
        let number = number.parse().map_err(|_| WorldError::View { found: text.clone() })?;
        let view = View::decode(number, members.as_bytes())?;
        world.enter(view, deadline)?;
        Ok(world)
    }

    /// Takes part in a view, whose members meet.
    fn enter(&mut self, view: View, deadline: Deadline) -> Result<(), WorldError> {
        if !view.members.contains(&self.rank) {
            return Err(WorldError::Excluded { rank: self.rank, members: view.members });
        }
        let prefix = format!("{}/view/{}", self.root, view.number);
        self.before = Some(std::mem::replace(&mut self.prefix, prefix));
        self.view = view;
        self.used.clear();
        if let Some(signs) = &mut self.signs {
            signs.forget();
        }
        self.make_will().map_err(|error| self.refine(error))?;
        let text = format!("{} {}", self.view.number, self.view.encode());
        for (rank, token) in self.view.newcomers.clone() {
            if rank != self.rank {
                let told =
                    self.client.set(&format!("{}/let-in/{token}", self.root), text.as_bytes());
                told.map_err(|error| self.refine(error))?;
            }
        }
        self.joined = true;
        self.gather("barrier", "join", b"1", deadline).map(drop)
    }

    /// Whether a loss in the last view is that of a member of this one, which it then entered before.
    pub(super) fn counts(&self, rank: u32) -> bool {
        self.view.members.contains(&rank) && !self.view.is_new(rank)
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
        assert_eq!(View::decode(7, view.encode().as_bytes()).unwrap(), view);
        let first = View::first(3);
        assert_eq!(View::decode(0, first.encode().as_bytes()).unwrap(), first);
        for bad in ["", "x", "1  2", "-1", "+ab"] {
            let error = View::decode(1, bad.as_bytes()).unwrap_err();
            assert!(matches!(error, WorldError::View { .. }), "{bad:?}: {error}");
        }
    }
}
