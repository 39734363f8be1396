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

use super::keeper::Keeper;
use super::loss::await_while;
use super::pulse::start_beating;
use super::successor::find_store;
use super::{View, World, WorldConfig, WorldError, random_token};
use crate::{ClientError, Deadline};
use std::time::Duration;

/// How long a member waits for processes that ask, before it looks whether another has proposed.
const SLICE: Duration = Duration::from_millis(100);

impl World {
    /// The ranks that take part, in order.
    pub fn members(&self) -> &[u32] {
        &self.view.members
    }

    /// The same, and which of them came back last.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Goes on with other members: the own rank and `members`, of which those that are none now must have
    /// called [`World::rejoin`]. All members of the next view call it, also if they propose others: the
    /// first proposal holds for all, and [`World::members`] says which it is. Exchanges and barriers begin
    /// anew. On failure it can be called again.
    ///
    /// Where the rank that ran the store is gone, a member on its machine runs the next one, at the same address;
    /// keys of the caller's own are not there.
    ///
    /// # Errors
    /// [`WorldError::Excluded`] if the view is one without this rank; [`WorldError::Missing`] or
    /// [`WorldError::Lost`] if a member does not come; [`WorldError::StoreGone`] if the store is gone, and no
    /// member on its machine has come.
    pub fn regroup(&mut self, members: &[u32]) -> Result<(), WorldError> {
        let (rank, world_size) = (self.rank, self.world_size);
        if let Some(&rank) = members.iter().find(|&&rank| rank >= world_size) {
            return Err(WorldError::Rank { rank, world_size });
        }
        let deadline = Deadline::after(self.timeout);
        find_store(self, deadline)?;
        let mut proposed: Vec<u32> = members.iter().copied().chain([rank]).collect();
        proposed.sort_unstable();
        proposed.dedup();
        let key = members_key(self, self.view.number + 1);
        let away = proposed.iter().copied().filter(|rank| !self.view.members.contains(rank));
        let newcomers = await_newcomers(self, &away.collect::<Vec<_>>(), &key, deadline)?;
        let next = View { number: self.view.number + 1, members: proposed, newcomers };
        let decided = self.client.compare_set(&key, b"", next.encode().as_bytes());
        let decided = decided.map_err(|error| self.refine(error))?;
        enter(self, View::decode(next.number, &decided), &decided, deadline)
    }

    /// Comes back as a rank of a world that goes on without it: a process that was started anew. Waits
    /// until the members [regroup](World::regroup) with this rank. Runs no store.
    ///
    /// # Errors
    /// As [`World::join`]; [`WorldError::NotLetIn`] if they do not within the timeout.
    pub fn rejoin(config: &WorldConfig) -> Result<World, WorldError> {
        config.check()?;
        let deadline = Deadline::after(config.timeout);
        let mut world = config.open(None)?;
        world.agree()?;
        start_beating(&mut world)?;
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
        // The next process that wants to be this rank is not taken for this one.
        let asked = world.client.delete_key(&format!("{root}/asks/{rank}"));
        asked.map_err(|error| world.refine(error))?;
        let text = world.value(&key)?;
        let text = String::from_utf8_lossy(&text).into_owned();
        let (number, members) = text.split_once(' ').unwrap_or_default();
        let number = number.parse().ok();
        let view = number.and_then(|number| View::decode(number, members.as_bytes()));
        let keeper = Keeper::ask(&mut world.client, &world.root);
        world.keeper = keeper.map_err(|error| world.refine(error))?.or(world.keeper.take());
        enter(&mut world, view, text.as_bytes(), deadline)?;
        Ok(world)
    }
}

/// The processes that ask to be the ranks that are `away`, with their tokens. None of them once another member
/// has proposed at `key`, since those that asked may have been let in.
///
/// A loss in this view is no reason to end: it is why there is a next one.
fn await_newcomers(
    world: &mut World,
    away: &[u32],
    key: &str,
    deadline: Deadline,
) -> Result<Vec<(u32, String)>, WorldError> {
    let undecided = |world: &mut World| {
        let decided = world.client.check(&[key]).map_err(|error| world.refine(error))?;
        Ok(!decided)
    };
    let asks: Vec<_> = away.iter().map(|rank| format!("{}/asks/{rank}", world.root)).collect();
    if asks.is_empty()
        || !undecided(world)?
        || !await_while(world, ("rejoin", ""), &asks, (deadline, SLICE), undecided)?
    {
        return Ok(Vec::new());
    }
    let mut newcomers = Vec::new();
    for (&rank, key) in away.iter().zip(&asks) {
        // A process that asks no more has been let in by another proposal, which then holds.
        let there = world.client.check(&[key]).map_err(|error| world.refine(error))?;
        let token = if there { world.value(key)? } else { Vec::new() };
        newcomers.push((rank, String::from_utf8_lossy(&token).into_owned()));
    }
    Ok(newcomers)
}

/// Where the members of a view stand.
pub(super) fn members_key(world: &World, number: u64) -> String {
    format!("{}/view/{number}/members", world.root)
}

/// Takes part in a view, whose members meet.
fn enter(
    world: &mut World,
    view: Option<View>,
    text: &[u8],
    deadline: Deadline,
) -> Result<(), WorldError> {
    let found = || String::from_utf8_lossy(text).chars().take(160).collect();
    let view = view.ok_or_else(|| WorldError::View { found: found() })?;
    if !view.members.contains(&world.rank) {
        return Err(WorldError::Excluded { rank: world.rank, members: view.members });
    }
    let prefix = format!("{}/view/{}", world.root, view.number);
    world.before = Some(std::mem::replace(&mut world.prefix, prefix));
    world.view = view;
    world.used.clear();
    if let Some(signs) = &mut world.signs {
        signs.forget();
    }
    world.make_will().map_err(|error| world.refine(error))?;
    let text = format!("{} {}", world.view.number, world.view.encode());
    for (rank, token) in world.view.newcomers.clone() {
        if rank != world.rank {
            let told = world.client.set(&format!("{}/let-in/{token}", world.root), text.as_bytes());
            told.map_err(|error| world.refine(error))?;
        }
    }
    world.joined = true;
    world.gather("barrier", "join", b"1", deadline).map(drop)
}
