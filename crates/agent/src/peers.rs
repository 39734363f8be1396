//! The agents that an agent knows.

use crate::control::{Asked, Control, Remote, is_alive};
use crate::deadline::Deadline;
use crate::memories::{self, Memories};
use crate::metadata::{Content, Metadata};
use crate::names::Owner;
use crate::peer::{Peer, Ways};
use crate::quota::Quota;
use crate::{AgentError, lock};
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock, Weak};
use std::time::Duration;

pub(crate) struct Peers {
    control: Arc<Control>,
    ways: Ways,
    /// The agent itself.
    itself: Arc<Peer>,
    table: RwLock<HashMap<Arc<str>, Arc<Peer>>>,
    /// Metadata has been loaded.
    news: Condvar,
    news_lock: Mutex<()>,
    /// How long a peer may take to answer that it runs.
    deadline: Duration,
    brought: Arc<Quota>,
}

/// Memory for metadata that connections have brought, of all peers together. Metadata that the program
/// loads is not counted.
const MOST_BROUGHT: usize = 1 << 30;

/// The source of metadata, and what it implies about the agent.
enum Means<'a> {
    /// The program has it.
    Program,
    /// The program has loaded it, and this earlier generation of the agent no longer answers.
    After(&'a Owner),
    /// It came by a connection whose other end is only known to belong to the job.
    Connection,
}

fn unknown(name: &str) -> AgentError {
    AgentError::UnknownPeer { name: name.to_owned() }
}

impl Peers {
    pub(crate) fn new(
        (control, memories): (&Arc<Control>, &Arc<Memories>),
        ways: Ways,
        deadline: Duration,
    ) -> Result<Self, AgentError> {
        Ok(Self {
            control: control.clone(),
            itself: Peer::itself(memories, &ways)?,
            ways,
            table: RwLock::default(),
            news: Condvar::new(),
            news_lock: Mutex::new(()),
            deadline,
            brought: Quota::new(MOST_BROUGHT),
        })
    }

    /// The agent as a peer of its own.
    pub(crate) fn itself(&self) -> &Arc<Peer> {
        &self.itself
    }

    /// Takes what connections may bring, as others do that keep it, but for this many bytes.
    #[cfg(test)]
    pub(crate) fn take_all_but(&self, bytes: usize) -> Option<crate::quota::Share> {
        self.brought.take(self.brought.free().checked_sub(bytes)?)
    }

    fn change<T>(&self, change: impl FnOnce(&mut HashMap<Arc<str>, Arc<Peer>>) -> T) -> T {
        change(&mut self.table.write().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn peer(&self, name: &str) -> Result<Arc<Peer>, AgentError> {
        if *name == *self.itself.name.name {
            return Ok(self.itself.clone());
        }
        let peers = self.table.read().unwrap_or_else(PoisonError::into_inner);
        peers.get(name).cloned().ok_or_else(|| unknown(name))
    }

    /// The peer, if it is the start that is known.
    pub(crate) fn peer_of(&self, owner: &Owner) -> Result<Arc<Peer>, AgentError> {
        let peer = self.peer(&owner.name)?;
        match peer.name == *owner {
            true => Ok(peer),
            false => Err(AgentError::Stale {
                peer: owner.name.to_string(),
                current: peer.name.generation,
                found: owner.generation,
            }),
        }
    }

    pub(crate) fn remove(&self, name: &str) -> Result<(), AgentError> {
        if *name == *self.itself.name.name {
            let expected = "a peer: an agent does not forget itself";
            return Err(AgentError::Config { field: "peer", value: name.to_owned(), expected });
        }
        let known = self.change(|peers| peers.remove(name)).ok_or_else(|| unknown(name))?;
        let (peer, why) = (known.name.to_string(), "it was removed here".to_owned());
        known.give_up(AgentError::PeerLost { peer, why });
        Ok(())
    }

    /// Ends the use of all, which are known no more.
    pub(crate) fn end_all(&self, why: &AgentError) -> Vec<Arc<dyn Remote>> {
        let all = self.change(std::mem::take);
        let all: Vec<_> = all.into_values().chain([self.itself.clone()]).collect();
        for peer in &all {
            peer.give_up(why.clone());
        }
        all.into_iter().map(|peer| peer as Arc<dyn Remote>).collect()
    }

    /// Peers that are known and not lost, and connections to them.
    pub(crate) fn size(&self) -> (u64, u64) {
        let peers = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let known = peers.values().filter(|peer| peer.check().is_ok());
        let connected = |peer: &&Arc<Peer>| peer.slot().get().is_some_and(|link| !link.is_lost());
        let connections = peers.values().filter(connected).count();
        (known.count() as u64, connections as u64)
    }

    pub(crate) fn knows(&self, name: &str) -> bool {
        self.peer(name).is_ok_and(|peer| peer.check().is_ok())
    }

    pub(crate) fn wait(&self, name: &str, timeout: Duration) -> Result<(), AgentError> {
        let deadline = Deadline::after(timeout);
        let mut guard = lock(&self.news_lock);
        while !self.knows(name) {
            guard = deadline.wait(&self.news, guard, || format!("metadata of {name}"))?;
        }
        Ok(())
    }

    /// Takes metadata, if it is of `from`. That of a start which is older by its host's clock is taken if
    /// the start that is known does not answer.
    pub(crate) fn load(
        &self,
        bytes: &[u8],
        from: Option<&Owner>,
        deadline: &Deadline,
    ) -> Result<String, AgentError> {
        match self.take(bytes, from, &Means::Program) {
            Err(AgentError::Stale { peer, current, found }) => {
                let known = self.peer(&peer)?;
                if known.name.generation == current && self.answers(&known, deadline)? {
                    return Err(AgentError::Stale { peer, current, found });
                }
                self.take(bytes, from, &Means::After(&known.name))
            }
            taken => taken,
        }
    }

    /// Loads metadata that `from` has sent on a connection. Never waits.
    pub(crate) fn load_brought(&self, bytes: &[u8], from: &Owner) -> Result<String, AgentError> {
        self.take(bytes, Some(from), &Means::Connection)
    }

    fn take(
        &self,
        bytes: &[u8],
        from: Option<&Owner>,
        means: &Means<'_>,
    ) -> Result<String, AgentError> {
        let own = &self.control.own;
        let metadata = Metadata::from_bytes(bytes, &own.token)?;
        let owner = Owner { name: metadata.name.clone(), generation: metadata.generation };
        let foreign = |expected| {
            let owner = owner.to_string();
            AgentError::Foreign { what: "the metadata", owner, expected }
        };
        if let Some(from) = from.filter(|from| **from != owner) {
            return Err(foreign(from.to_string()));
        }
        if owner == own.owner {
            // Its own, which it knows better.
            return Ok(owner.name.to_string());
        }
        if owner.name == own.owner.name {
            return Err(foreign("an agent of another name".into()));
        }
        self.change(|peers| self.learn(peers, metadata, &owner, means))?;
        // Under the lock, so that no waiter has looked and does not wait yet.
        drop(lock(&self.news_lock));
        self.news.notify_all();
        Ok(owner.name.to_string())
    }

    fn learn(
        &self,
        peers: &mut HashMap<Arc<str>, Arc<Peer>>,
        metadata: Metadata,
        owner: &Owner,
        means: &Means<'_>,
    ) -> Result<(), AgentError> {
        if let Some(known) = peers.get(&owner.name)
            && known.name != *owner
        {
            let (peer, current) = (owner.name.to_string(), known.name.generation);
            let found = owner.generation;
            // Hosts' clocks differ, and a sender may give any time, so a running generation is never
            // replaced by metadata from a connection.
            let stays = match means {
                Means::Connection => self.is_alive(known),
                Means::After(over) if **over == known.name => false,
                Means::Program | Means::After(_) => found.is_before(&current),
            };
            if stays && known.check().is_ok() {
                return Err(AgentError::Stale { peer, current, found });
            }
            known.lose(AgentError::Stale { peer, current: found, found: current });
            peers.remove(&owner.name);
        }
        if metadata.content == Content::Gone {
            if let Some(known) = peers.remove(&owner.name) {
                let (peer, why) =
                    (owner.to_string(), "the agent announced that it is shutting down".to_owned());
                known.give_up(AgentError::PeerLost { peer, why });
            }
            return Ok(());
        }
        let quota = matches!(means, Means::Connection).then_some(&self.brought);
        if quota.is_some_and(|quota| quota.free() < Peer::weight_of(&metadata)) {
            peers.retain(|_, peer| !peer.is_left_over());
        }
        // A peer that was lost is replaced.
        if let Some(known) = peers.get(&owner.name).filter(|known| known.check().is_ok()) {
            return known.learn(metadata, quota);
        }
        let here = memories::of_this_process(owner);
        let peer = Peer::new(&metadata, here, &self.ways, quota)?;
        peer.learn(metadata, quota)?;
        peers.insert(owner.name.clone(), Arc::new(peer));
        Ok(())
    }

    /// Whether this start of a peer is known to run, without asking it.
    fn is_alive(&self, peer: &Peer) -> bool {
        let here = peer.here.as_ref().is_some_and(|agent| Weak::strong_count(agent) > 0);
        let connected = || peer.slot().get().is_some_and(|link| is_alive(&link));
        here || connected() || self.control.is_connected(&peer.name)
    }

    /// Whether this generation of a peer runs. Asks it; without an answer within the agent's deadline it
    /// counts as ended. A caller with less time gets an error.
    fn answers(&self, peer: &Arc<Peer>, deadline: &Deadline) -> Result<bool, AgentError> {
        if peer.check().is_err() || self.is_alive(peer) {
            return Ok(peer.check().is_ok());
        }
        let own = Deadline::after(self.deadline);
        let is_short = deadline.0.end() < own.0.end();
        match peer.clone().link(if is_short { deadline } else { &own }) {
            Ok(_) => Ok(true),
            Err(late @ AgentError::Timeout { .. }) if is_short => Err(late),
            Err(_) => Ok(false),
        }
    }
}
