//! The side that is written to, read and sent to: in this process, or in another.

mod actor;
mod message;
mod objects;
mod shape;
mod trouble;

pub use actor::Actor;
pub use message::{About, Arrival, LONGEST_REGION, Piece, Reply, Request, Take, Taken, VERSION};
pub(crate) use objects::{PeerEndpoint, PeerQueue, PeerRegion};
pub use shape::Shape;
pub use trouble::{Failure, Trouble};

use crate::Side;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Carries requests to an [`Actor`] in another process, and its replies back.
pub trait Link: Send {
    /// Asks, and waits for the reply, for [`LONGEST_REPLY`] at most.
    ///
    /// # Errors
    /// There is no reply, and will be none any more; why, in one line.
    fn ask(&mut self, request: Request) -> Result<Reply, String>;
}

/// How long a reply may take: a kernel's end is waited for, on a slow machine.
pub const LONGEST_REPLY: std::time::Duration = std::time::Duration::from_secs(90);

/// The other side of every case. Cloning shares it.
#[derive(Clone)]
pub struct Peer(Arc<Inner>);

struct Inner {
    way: Way,
    lost: OnceLock<String>,
}

enum Way {
    Here(Box<Mutex<Actor>>),
    Far { link: Mutex<Box<dyn Link>>, about: About },
}

impl Peer {
    /// A side of this process.
    pub fn here(side: Side) -> Self {
        Self::new(Way::Here(Box::new(Mutex::new(Actor::new(side)))))
    }

    /// A peer in another process, which is asked for its description.
    ///
    /// # Errors
    /// It does not answer, or with something else.
    pub fn far(mut link: Box<dyn Link>) -> Result<Self, Trouble> {
        match link.ask(Request::About).map_err(Trouble::Lost)? {
            Reply::About(about) => Ok(Self::new(Way::Far { link: Mutex::new(link), about })),
            other => Err(out_of_turn(&other)),
        }
    }

    fn new(way: Way) -> Self {
        Self(Arc::new(Inner { way, lost: OnceLock::new() }))
    }

    /// Its NIC, and where kernels run beside it.
    pub fn about(&self) -> About {
        match &self.0.way {
            Way::Here(actor) => lock(actor).about(),
            Way::Far { about, .. } => about.clone(),
        }
    }

    /// Whether it is in another process.
    pub fn is_far(&self) -> bool {
        matches!(self.0.way, Way::Far { .. })
    }

    /// Why it cannot be reached any more, if that is so. No case passes from then on.
    pub fn lost(&self) -> Option<&str> {
        self.0.lost.get().map(String::as_str)
    }

    /// Changes a side of this process; one of another process stays as it is.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Side)) {
        if let Way::Here(actor) = &self.0.way {
            change(&mut lock(actor).side);
        }
    }

    pub(crate) fn call(&self, request: Request) -> Result<Reply, Trouble> {
        if let Some(why) = self.lost() {
            return Err(Trouble::Lost(why.to_owned()));
        }
        let reply = match &self.0.way {
            Way::Here(actor) => lock(actor).act(request),
            Way::Far { link, .. } => match lock(link).ask(request) {
                Ok(reply) => reply,
                Err(why) => return Err(Trouble::Lost(self.0.lost.get_or_init(|| why).clone())),
            },
        };
        match reply {
            Reply::Trouble(trouble) => Err(trouble),
            reply => Ok(reply),
        }
    }
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn out_of_turn(reply: &Reply) -> Trouble {
    Trouble::Other(format!("the peer's reply does not fit the request: {reply:?}"))
}
