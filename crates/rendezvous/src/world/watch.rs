//! News of a world for those who do not call it: whoever waits for ranks by other means learns that one of
//! them is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use super::loss::{LOST, decode};
use super::{Loss, World, WorldError};
use crate::{Client, ClientError, Deadline};

/// How long the store is asked at a time for a loss, of which it tells at once; then whether the members
/// regroup.
const SLICE: Duration = Duration::from_millis(100);
/// A world of this many ranks more asks that much less often.
const RANKS_PER_SLICE: u32 = 32;
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
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Calls `tell` on another thread with the news of the present view, each once. A rank that is only
    /// silent is no news: see [`World::check`].
    ///
    /// # Errors
    /// No connection to the store.
    pub fn start(
        world: &World,
        tell: impl FnMut(News) + Send + 'static,
    ) -> Result<Self, WorldError> {
        let (peer, limits) = (world.client.peer(), world.limits.clone());
        let client = Client::connect(&peer.ip().to_string(), peer.port(), world.timeout, limits);
        let stop = Arc::new(AtomicBool::new(false));
        let watching = Watching {
            client: client.map_err(WorldError::Connect)?,
            lost: world.key(LOST),
            next: format!("{}/view/{}/members", world.root, world.view.number() + 1),
            slice: SLICE * (1 + world.world_size / RANKS_PER_SLICE),
            stop: stop.clone(),
        };
        let thread = Builder::new().name("warpverbs-watch".into());
        let thread = thread.spawn(move || {
            if let Err(error) = watching.run(tell) {
                tracing::debug!(%error, "no more news of the world");
            }
        });
        Ok(Watch { stop, thread: Some(thread.map_err(WorldError::Thread)?) })
    }
}

struct Watching {
    client: Client,
    lost: String,
    next: String,
    slice: Duration,
    stop: Arc<AtomicBool>,
}

impl Watching {
    fn run(mut self, mut tell: impl FnMut(News)) -> Result<(), ClientError> {
        let (mut told, mut since) = (false, 0);
        while !self.stop.load(Ordering::Relaxed) {
            if told || since > 0 {
                std::thread::sleep(self.slice);
            } else {
                match self.client.wait(&[&self.lost], Deadline::after(self.slice)) {
                    Ok(()) => {
                        let value = self.client.read(&[&self.lost])?;
                        let lost = value.first().and_then(|value| decode(value));
                        lost.into_iter().for_each(|(rank, loss)| tell(News::Lost(rank, loss)));
                        told = true;
                    }
                    Err(ClientError::Missing { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            if since == GRACE {
                tell(News::Regrouping);
                return Ok(());
            }
            if since > 0 || self.client.check(&[&self.next])? {
                since += 1;
            }
        }
        Ok(())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It has nothing to say.
            let _ = thread.join();
        }
    }
}
