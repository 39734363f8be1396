//! When the rank that runs the store is gone, a member on its machine runs another store at the same address,
//! which begins empty, and all go on there with their next view.
//!
//! Only one process can listen at an address, and none while the last store does: so there is no second store, and
//! nobody has to be elected.

use super::keeper::Keeper;
use super::pulse::start_beating;
use super::{View, World, WorldError, random_token};
use crate::{Client, Deadline, Server};
use std::time::Duration;

/// How long one attempt to connect may take, before the address is tried again.
const ATTEMPT: Duration = Duration::from_secs(2);
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(20);

/// Returns with a store that answers: that of before or, where its rank is gone, the next one, at which nothing of
/// the last is known.
pub(super) fn find_store(world: &mut World, deadline: Deadline) -> Result<(), WorldError> {
    let last = world.keeper.clone().filter(|keeper| keeper.rank != world.rank);
    let Some(last) = last else { return Ok(()) };
    let found = match Keeper::ask(&mut world.client, &world.root) {
        Ok(found) if found.as_ref().map_or("", |keeper| &keeper.token) == last.token => {
            return Ok(());
        }
        // Another store, of which an earlier call has not come to know everything.
        Ok(found) => found,
        Err(error) if error.is_end() => {
            world.pulse = None;
            world.client = next_store(world, &last, deadline)?;
            Keeper::ask(&mut world.client, &world.root).map_err(|error| world.refine(error))?
        }
        Err(error) => return Err(world.refine(error)),
    };
    let told = match (found, &world.server) {
        (Some(keeper), _) => Ok(Some(keeper)),
        (None, Some(server)) => {
            let keeper = Keeper::of_server(world.rank, server, random_token()?);
            keeper.tell(&mut world.client, &world.root).map(|()| Some(keeper))
        }
        // Its rank says so as soon as it listens.
        (None, None) => Keeper::await_word(&mut world.client, &world.root, deadline),
    };
    let keeper = told.map_err(|error| world.refine(error))?;
    world.agree()?;
    if keeper.as_ref().is_none_or(|keeper| keeper.token != last.token) {
        tracing::info!(?keeper, "the store of rank {} is gone: there is another", last.rank);
        let members = std::mem::take(&mut world.view.members);
        world.view = View { number: 0, members, newcomers: Vec::new() };
        (world.prefix, world.before) = (world.root.clone(), None);
    }
    world.keeper = keeper.or(Some(last));
    start_beating(world)
}

/// A connection to the store at the address of the last one, which this rank runs if nobody else does and the
/// address is this machine's.
fn next_store(world: &mut World, last: &Keeper, deadline: Deadline) -> Result<Client, WorldError> {
    loop {
        let served = last.listens.map(|addr| Server::bind(addr, world.limits.clone()));
        if let Some(Ok(server)) = served {
            world.server = Some(server);
        }
        let left = deadline.remaining().unwrap_or_default().min(ATTEMPT);
        let cause = match world.client.again(left) {
            Ok(client) => return Ok(client),
            Err(cause) => cause,
        };
        if deadline.passed() {
            let (rank, waited) = (last.rank, deadline.waited());
            return Err(WorldError::StoreGone { rank, waited, cause });
        }
        std::thread::sleep(PAUSE);
    }
}
