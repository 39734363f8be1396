//! News of a world for those who do not call it: whoever waits for ranks by other means learns that one of
//! them is lost.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::background::{Background, Stop};
use super::keeper::Keeper;
use super::loss::{LOST, decode, slice};
use super::regroup::members_key;
use super::{Loss, World, WorldError};
use crate::{Client, ClientError, Deadline};

/// How long the store is asked at a time for a loss, of which it tells at once; then whether the members
/// regroup.
const SLICE: Duration = Duration::from_millis(100);
/// Slices between the first proposal of other members and its news: who can still end what it does, does.
const GRACE: u32 = 5;

/// An event of a view.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum News {
    /// The first rank that is lost, and how.
    Lost(u32, Loss),
    /// A member has called [`World::regroup`], half a second ago: this is the last that is heard of this view.
    Regrouping,
}

/// Tells the news of one view, by a thread and a connection of its own, until it is dropped.
#[derive(Debug)]
pub struct Watch {
    _thread: Background,
}

impl Watch {
    /// Calls `tell` on another thread with the news of the present view, each once. The end of a store that another
    /// rank runs is the loss of that rank, and the last news. A rank that is only silent is no news: see [`World::check`].
    ///
    /// # Errors
    /// No connection to the store.
    pub fn start(
        world: &World,
        tell: impl FnMut(News) + Send + 'static,
    ) -> Result<Self, WorldError> {
        let client = world.client.again(world.timeout).map_err(WorldError::Connect)?;
        let (keeper, left) = (Keeper::other(world.keeper.as_ref(), world.rank), world.left.clone());
        let mut tell = tell;
        let watching = Watching {
            client,
            lost: world.key(LOST),
            next: members_key(world, world.view.number() + 1),
            slice: slice(world, SLICE),
        };
        let thread = Background::start("warpverbs-watch", move |stop| {
            let Err(error) = watching.run(stop, &mut tell) else { return };
            tracing::debug!(%error, "no more news of the world");
            // The store stays for a rank that has not left, unless its own is gone.
            let lost = keeper.filter(|_| error.is_end() && !left.load(Ordering::Acquire));
            lost.into_iter().for_each(|rank| tell(News::Lost(rank, Loss::Gone)));
        });
        Ok(Watch { _thread: thread.map_err(WorldError::Thread)? })
    }
}

struct Watching {
    client: Client,
    lost: String,
    next: String,
    slice: Duration,
}

impl Watching {
    fn run(mut self, stop: &Stop, tell: &mut impl FnMut(News)) -> Result<(), ClientError> {
        let (mut told, mut since) = (false, 0);
        loop {
            let listens = !told && since == 0;
            if stop.comes_within(if listens { Duration::ZERO } else { self.slice }) {
                return Ok(());
            }
            if listens && let Some(value) = self.await_loss()? {
                decode(&value).into_iter().for_each(|(rank, loss)| tell(News::Lost(rank, loss)));
                told = true;
            }
            if since == GRACE {
                tell(News::Regrouping);
                return Ok(());
            }
            if since > 0 || self.client.check(&[&self.next])? {
                since += 1;
            }
        }
    }

    /// The loss that the store has, or gets within a slice.
    fn await_loss(&mut self) -> Result<Option<Vec<u8>>, ClientError> {
        match self.client.wait(&[&self.lost], Deadline::after(self.slice)) {
            Ok(()) => Ok(self.client.read(&[&self.lost])?.pop()),
            Err(ClientError::Missing { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
