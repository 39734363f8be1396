//! Metadata: of this agent, of its peers, by hand, by address and by a store.

use super::{Agent, Known};
use crate::exchange::{Place, Request};
use crate::index::{Index, Range};
use crate::{Error, Kind, List, RegList, Status};
use std::sync::Arc;

impl Agent {
    /// The memory of a peer by its metadata, looked up anew only if they have changed.
    pub(super) fn known(&self, peer: &str) -> Result<Known, Error> {
        let agent = self.agent()?;
        let memories = agent.memories_of(peer)?;
        let version = memories.version()?;
        if let Some(known) = crate::lock(&self.peers).get(peer).filter(|one| one.version == version)
        {
            return Ok(known.clone());
        }
        let memories = memories.all()?;
        let range = |memory: &warpverbs_agent::RemoteMemory| {
            let (kind, dev) = match memory.device() {
                None if !memory.is_host() => return None,
                None => (Kind::Dram, 0),
                Some(ordinal) => (Kind::Vram, ordinal.into()),
            };
            let (addr, len, id) = (memory.addr(), memory.len(), memory.id());
            Some(Range { kind, dev, addr, len, id, value: () })
        };
        let first = memories.first().ok_or_else(|| {
            Error::new(Status::NotFound, format!("the metadata of {peer} name no memory"))
        })?;
        let owner = first.owner().clone();
        let index = Arc::new(Index::new(memories.iter().filter_map(range).collect()));
        let known = Known { version, owner, index };
        crate::lock(&self.peers).insert(peer.to_owned(), known.clone());
        Ok(known)
    }

    /// The metadata of this agent and of all its registered memory.
    ///
    /// # Errors
    /// The agent cannot be made.
    pub fn metadata(&self) -> Result<Vec<u8>, Error> {
        Ok(self.agent()?.metadata()?)
    }

    /// As [`Agent::metadata`], with these registrations alone, which a peer adds to what it knows.
    ///
    /// # Errors
    /// A descriptor is not registered.
    pub fn partial_metadata(&self, list: &RegList) -> Result<Vec<u8>, Error> {
        let agent = self.agent()?;
        let named = self.memories.named(list)?;
        crate::memory::with(named, |these| Ok(agent.partial_metadata(these)?))
    }

    /// Bytes that make a peer forget this agent when it loads them.
    ///
    /// # Errors
    /// The agent cannot be made.
    pub fn invalidation(&self) -> Result<Vec<u8>, Error> {
        Ok(self.agent()?.invalidation()?)
    }

    /// Loads a peer's metadata, and returns the peer's name.
    ///
    /// # Errors
    /// The bytes are not metadata, or of an older start of an agent that runs.
    pub fn load(&self, metadata: &[u8]) -> Result<String, Error> {
        Ok(self.agent()?.load_metadata(metadata)?)
    }

    /// Forgets a peer. Its transfers fail.
    ///
    /// # Errors
    /// No peer has this name.
    pub fn forget(&self, peer: &str) -> Result<(), Error> {
        crate::lock(&self.peers).remove(peer);
        Ok(self.agent()?.remove_peer(peer)?)
    }

    /// Whether metadata of an agent of this name is loaded, and the agent not known to be lost; with a list,
    /// also whether all of it is in memory that these metadata describe.
    pub fn knows(&self, peer: &str, list: Option<&List>) -> bool {
        let has = |list: &List| {
            list.descs.is_empty() || self.blocks(peer, list.kind, list.rows()).is_ok()
        };
        self.made.get().is_some_and(|agent| agent.knows(peer)) && list.is_none_or(has)
    }

    /// Has the agent or the store at `place` given this agent's metadata: all, or of these registrations.
    /// It is done while the program goes on, after the calls before it.
    ///
    /// # Errors
    /// A descriptor is not registered; no store is set; too many requests wait.
    pub fn send_metadata(&self, list: Option<&RegList>, place: Place) -> Result<(), Error> {
        let metadata = match list {
            None => self.metadata()?,
            Some(list) => self.partial_metadata(list)?,
        };
        self.exchange(Request::Send(metadata), place)
    }

    /// Loads the metadata of a peer that are at `place`; [`Agent::knows`] says when they have come.
    ///
    /// # Errors
    /// No store is set; too many requests wait.
    pub fn fetch_metadata(&self, peer: &str, place: Place) -> Result<(), Error> {
        self.exchange(Request::Fetch(peer.to_owned()), place)
    }

    /// Makes the agent, or whoever reads the store, at `place` forget this one.
    ///
    /// # Errors
    /// No store is set; too many requests wait.
    pub fn withdraw_metadata(&self, place: Place) -> Result<(), Error> {
        self.exchange(Request::Send(self.invalidation()?), place)
    }

    fn exchange(&self, request: Request, place: Place) -> Result<(), Error> {
        let store = self.config.store.as_ref();
        self.exchanger.submit(self.agent()?, request, place, store)
    }

    /// Connects to a peer, which its first transfer would do otherwise.
    ///
    /// # Errors
    /// It is not known, does not answer, or refuses.
    pub fn connect(&self, peer: &str) -> Result<(), Error> {
        Ok(self.agent()?.connect(peer, self.config.deadline)?)
    }
}
