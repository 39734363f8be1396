//! The rank that runs the store, and what the others do when it is gone: a member on the same machine runs another
//! store at the same address, which begins empty, and all go on there with their next view.
//!
//! Only one process can listen at an address, and none while the last store does: so there is no second store, and
//! nobody has to be elected.
//!
//! | key, behind `warpverbs/JOB/GENERATION/` | value | written by |
//! |---|---|---|
//! | `store` | `RANK ADDRESS TOKEN`: who runs it, where it listens, and a token of this store | that rank |

use super::pulse::start_beating;
use super::{View, World, WorldError, random_token};
use crate::{Client, ClientError, ConnectError, Deadline, Server};
use std::net::SocketAddr;
use std::time::Duration;

const STORE: &str = "store";
/// How long one attempt to connect may take, before it is asked again whether the address is free.
const ATTEMPT: Duration = Duration::from_secs(2);
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(20);

/// The rank that runs the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Keeper {
    pub(super) rank: u32,
    /// None if that is every address of its machine: then other machines have it as well.
    listens: Option<SocketAddr>,
    /// Of this store, to tell it from the next.
    token: String,
}

impl Keeper {
    /// A rank of which no more is known.
    pub(super) fn of_rank(rank: u32) -> Self {
        Self { rank, listens: None, token: String::new() }
    }

    fn encode(&self) -> String {
        let listens = self.listens.map_or_else(|| "-".to_owned(), |addr| addr.to_string());
        format!("{} {listens} {}", self.rank, self.token)
    }

    /// None for what is no keeper.
    fn decode(text: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(text);
        let (rank, rest) = text.split_once(' ')?;
        let (listens, token) = rest.split_once(' ')?;
        let listens = if listens == "-" { None } else { Some(listens.parse().ok()?) };
        Some(Self { rank: rank.parse().ok()?, listens, token: token.to_owned() })
    }
}

/// Whether the store has ended the connection, or has ended itself.
pub(super) fn is_end(error: &ClientError) -> bool {
    matches!(error, ClientError::Ended { .. } | ClientError::Io { .. } | ClientError::Broken { .. })
}

impl World {
    /// The rank whose end is that of the store, if it is another one.
    pub(super) fn other_keeper(&self) -> Option<u32> {
        self.keeper.as_ref().map(|keeper| keeper.rank).filter(|rank| *rank != self.rank)
    }

    /// Says that this rank runs the store, if it does.
    pub(super) fn tell_keeper(&mut self) -> Result<(), WorldError> {
        let Some(server) = &self.server else { return Ok(()) };
        let addr = Some(server.local_addr()).filter(|addr| !addr.ip().is_unspecified());
        let keeper = Keeper { rank: self.rank, listens: addr, token: random_token()? };
        let key = self.store_key();
        let told = self.client.set(&key, keeper.encode().as_bytes());
        told.map_err(|error| self.refine(error))?;
        self.keeper = Some(keeper);
        Ok(())
    }

    /// Learns which rank runs the store, if one does.
    pub(super) fn learn_keeper(&mut self) -> Result<(), WorldError> {
        let key = self.store_key();
        if self.client.check(&[&key]).map_err(|error| self.refine(error))? {
            self.keeper = Keeper::decode(&self.value(&key)?).or(self.keeper.take());
        }
        Ok(())
    }

    /// Returns with a store that answers: that of before or, where its rank is gone, the next one, at which
    /// nothing of the last is known.
    pub(super) fn find_store(&mut self, deadline: Deadline) -> Result<(), WorldError> {
        let key = self.store_key();
        let Some(last) = self.keeper.clone().filter(|keeper| keeper.rank != self.rank) else {
            return Ok(());
        };
        match self.client.check(&[&key]) {
            Ok(_) => return Ok(()),
            Err(error) if is_end(&error) => {}
            Err(error) => return Err(self.refine(error)),
        }
        self.pulse = None;
        self.client = self.next_store(&last, deadline)?;
        if let Some(signs) = &self.signs {
            self.client.set_grace(signs.silence);
        }
        self.tell_keeper()?;
        // Its rank says so as soon as it listens.
        self.client.wait(&[&key], deadline).map_err(|error| self.refine(error))?;
        self.learn_keeper()?;
        self.agree()?;
        if self.keeper.as_ref().is_none_or(|keeper| keeper.token != last.token) {
            tracing::info!(keeper = ?self.keeper, "the store of rank {} is gone: another", last.rank);
            let members = std::mem::take(&mut self.view.members);
            self.view = View { number: 0, members, newcomers: Vec::new() };
            (self.prefix, self.before) = (self.root.clone(), None);
        }
        start_beating(self)
    }

    /// A connection to the store at the address of the last one, which this rank runs if nobody else does and
    /// the address is this machine's.
    fn next_store(&mut self, last: &Keeper, deadline: Deadline) -> Result<Client, WorldError> {
        loop {
            let served = last.listens.map(|addr| Server::bind(addr, self.limits.clone()));
            if let Some(Ok(server)) = served {
                self.server = Some(server);
            }
            let left = deadline.remaining().unwrap_or_default().min(ATTEMPT);
            let cause = match self.connect_again(left) {
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

    /// Another connection to where the store was reached.
    pub(super) fn connect_again(&self, timeout: Duration) -> Result<Client, ConnectError> {
        let peer = self.client.peer();
        let mut client =
            Client::connect(&peer.ip().to_string(), peer.port(), timeout, self.limits.clone())?;
        client.set_timeout(self.client.timeout());
        Ok(client)
    }

    fn store_key(&self) -> String {
        format!("{}/{STORE}", self.root)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_keeper_travels_as_text() {
        let token = "ab".to_owned();
        for listens in [None, Some(([127, 0, 0, 1], 7).into()), Some("[::1]:9".parse().unwrap())] {
            let keeper = Keeper { rank: 3, listens, token: token.clone() };
            assert_eq!(Keeper::decode(keeper.encode().as_bytes()), Some(keeper));
        }
        for bad in ["", "1", "1 -", "x - ab", "1 127.0.0.1 ab"] {
            assert_eq!(Keeper::decode(bad.as_bytes()), None, "{bad:?}");
        }
    }
}
