//! What the two ends of a family say to each other, over a control connection.

use anyhow::{Result, anyhow};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use warpverbs_meet::{Connection, MeetError, Listener, Message};

/// What one family says.
pub(crate) trait Words: Serialize + DeserializeOwned {
    /// Name of the protocol.
    const NAME: [u8; 6];
    /// Raised with every change of what is said.
    const VERSION: u16;
    /// The program that speaks it, for errors.
    const PROGRAM: &'static str;

    /// Kind of message, for errors.
    fn kind(&self) -> &'static str;
}

#[derive(Serialize, Deserialize)]
enum Said<T> {
    Words(T),
    /// Why the sender gives up.
    Failed(String),
}

impl<T: Words> Message for Said<T> {
    const NAME: [u8; 6] = T::NAME;
    const VERSION: u16 = T::VERSION;
    const PROGRAM: &'static str = T::PROGRAM;

    fn kind(&self) -> &'static str {
        match self {
            Self::Words(words) => words.kind(),
            Self::Failed(_) => "failed",
        }
    }

    fn failure(&self) -> Option<&str> {
        match self {
            Self::Words(_) => None,
            Self::Failed(why) => Some(why),
        }
    }
}

impl<T> Said<T> {
    /// A failure has become an error before this.
    fn words(self) -> Result<T> {
        match self {
            Self::Words(words) => Ok(words),
            Self::Failed(why) => Err(anyhow!(why)),
        }
    }
}

/// The connection to the other end.
pub(crate) struct Talk<T: Words>(Connection<Said<T>>);

impl<T: Words> Talk<T> {
    /// Tells `announce` where it listens, and waits for a client.
    pub(crate) fn accept(
        at: SocketAddr,
        limit: Duration,
        announce: impl FnOnce(SocketAddr) -> Result<()>,
    ) -> Result<Self> {
        let listener = Listener::bind(at)?;
        announce(listener.addr())?;
        Ok(Self(listener.accept(limit)?))
    }

    /// Connects to a server, which may still be starting.
    pub(crate) fn connect(host: &str, port: u16, limit: Duration) -> Result<Self> {
        Ok(Self(Connection::connect(host, port, limit)?))
    }

    /// For the error of a peer that ends: what went on.
    pub(crate) fn during(&mut self, what: &'static str) {
        self.0.during(what);
    }

    pub(crate) fn send(&mut self, words: T) -> Result<()> {
        Ok(self.0.send(&Said::Words(words))?)
    }

    pub(crate) fn recv(&mut self, awaited: &'static str, limit: Duration) -> Result<T> {
        self.0.recv(awaited, limit)?.words()
    }

    /// As [`Self::recv`], doing something meanwhile.
    pub(crate) fn wait(
        &mut self,
        awaited: &'static str,
        limit: Duration,
        meanwhile: impl FnMut(),
    ) -> Result<T> {
        self.0.wait(awaited, limit, meanwhile)?.words()
    }

    /// A message, if one is there.
    pub(crate) fn poll(&mut self) -> Result<Option<T>> {
        self.0.poll()?.map(Said::words).transpose()
    }

    /// The error of a message that does not come at this time.
    pub(crate) fn out_of_turn(&self, found: T, expected: &'static str) -> MeetError {
        self.0.out_of_turn(&Said::Words(found), expected)
    }

    /// What `work` comes to; the other end is told why it failed.
    pub(crate) fn failing<R>(&mut self, work: impl FnOnce(&mut Self) -> Result<R>) -> Result<R> {
        let outcome = work(self);
        if let Err(error) = &outcome {
            self.0.farewell(&Said::Failed(format!("{error:#}")));
        }
        outcome
    }

    /// Address of the interface that the connection uses.
    pub(crate) fn local_ip(&self) -> Result<IpAddr> {
        Ok(self.0.local_addr()?.ip().to_canonical())
    }

    /// Address of the other end, for people.
    pub(crate) fn peer(&self) -> String {
        self.0.peer_addr().map(|peer| peer.ip().to_string()).unwrap_or_default()
    }
}

/// The value of the one message that comes at this time.
macro_rules! only {
    ($talk:expr, $found:expr, $awaited:literal, $wanted:pat => $value:expr) => {
        match $found {
            $wanted => $value,
            other => return Err($talk.out_of_turn(other, $awaited).into()),
        }
    };
}
pub(crate) use only;
