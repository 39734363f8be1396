//! All ranks of a job, and what they do together.
//!
//! Keys, as a client of PyTorch would write them:
//!
//! | key | value | written by |
//! |---|---|---|
//! | `warpverbs/JOB/GENERATION/world` | `1 WORLD_SIZE`: version of this layout, then the size | the rank that comes first |
//! | `warpverbs/JOB/GENERATION/rank/RANK` | anything unique | each rank, to claim its number |
//! | `warpverbs/JOB/GENERATION/exchange/NAME/SEQUENCE/RANK` | that rank's bytes | each rank |
//! | `warpverbs/JOB/GENERATION/barrier/NAME/SEQUENCE/RANK` | `1` | each rank |
//! | `warpverbs/JOB/GENERATION/broadcast/NAME/SEQUENCE/ROOT` | the bytes | the root |
//! | `warpverbs/JOB/GENERATION/said/TOPIC/RANK` | that rank's bytes, the last it announced | each rank |
//! | `warpverbs/JOB/GENERATION/left/RANK` | `1` | each rank, when it leaves |
//! | `warpverbs/JOB/GENERATION/alive/RANK` | a number that rises | each rank, if [`WorldConfig::silence`] is less than the timeout |
//! | `warpverbs/JOB/GENERATION/lost` | `RANK gone`, `RANK failed CAUSE`: the first loss | the rank itself, or our store |
//! | `warpverbs/JOB/GENERATION/store` | who runs the store: `keeper.rs` | the rank that does |
//! | `warpverbs/JOB/GENERATION/refused` | why a rank was not let in | that rank |
//!
//! SEQUENCE counts the uses of a name from 0. Joining ends with the barrier `join`. Keys of ranks that
//! leave and come back: `regroup.rs`.

mod background;
mod config;
mod error;
mod keeper;
mod loss;
mod pulse;
mod regroup;
mod successor;
#[cfg(test)]
mod tests;
mod view;
mod watch;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use background::Background;
pub use config::{Host, WorldConfig};
pub use error::WorldError;
use keeper::Keeper;
use loss::FAREWELL;
pub use loss::Loss;
use pulse::{Signs, start_beating};
pub use view::View;
pub use watch::{News, Watch};

use crate::{Client, Deadline, Limits, Server};

/// Longest name of an exchange, barrier or broadcast, in bytes.
const LONGEST_NAME: usize = 256;

/// Most names that one world counts the uses of.
const MOST_NAMES: usize = 1 << 16;

/// Version of the keys' layout.
const LAYOUT: u32 = 1;

/// This rank among the others.
///
/// Every rank makes the same calls with the same names; calls of different names may come in any
/// order. If some rank does not come within the timeout, the others get
/// [`WorldError::Missing`], which names it. If a rank that had joined ends without
/// [`World::leave`], they get [`WorldError::Lost`] within a second (more in worlds above 64
/// ranks), unless the store is PyTorch's, which does not say.
#[derive(Debug)]
pub struct World {
    rank: u32,
    world_size: u32,
    /// Begins the keys of all views.
    root: String,
    /// Begins those of this one, and of the last.
    prefix: String,
    before: Option<String>,
    view: View,
    limits: Limits,
    client: Client,
    /// How long a call waits for the other ranks.
    timeout: Duration,
    /// `None` if no rank shows signs of life.
    signs: Option<Signs>,
    pulse: Option<Background>,
    /// The rank that runs the store, unless that runs elsewhere.
    keeper: Option<Keeper>,
    /// Whether all have met.
    joined: bool,
    /// Whether this rank has left: the store may end at any time.
    left: Arc<AtomicBool>,
    /// How often each name has been used.
    used: HashMap<String, u64>,
    /// How long a failed rank that runs the store keeps it, so that the others learn of the failure.
    farewell: Duration,
    /// Declared last, so that the client is gone before its server.
    server: Option<Server>,
}

impl World {
    /// Meets the other ranks: runs the store if that is this rank's part, claims the rank's number,
    /// and waits until all have joined.
    pub fn join(config: &WorldConfig) -> Result<World, WorldError> {
        config.check()?;
        // A rank that has not come shows no sign of life either.
        let deadline = Deadline::after(config.silence.min(config.timeout));
        let server = config.serve(deadline)?;
        let mut world = config.open(server)?;
        if let Err(error) = world.agree().and_then(|()| world.claim(config)) {
            return Err(world.turn_away(error));
        }
        world.make_will().map_err(|error| world.refine(error))?;
        if let Some(server) = &world.server {
            let keeper = Keeper::of_server(world.rank, server, random_token()?);
            keeper.tell(&mut world.client, &world.root).map_err(|error| world.refine(error))?;
        }
        start_beating(&mut world)?;
        if let Err(error) = world.gather("barrier", "join", b"1", deadline) {
            return Err(world.turn_away(error));
        }
        world.joined = true;
        let keeper = Keeper::ask(&mut world.client, &world.root);
        world.keeper = keeper.map_err(|error| world.refine(error))?.or(world.keeper);
        Ok(world)
    }

    /// This rank.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// How many ranks there are.
    pub fn world_size(&self) -> u32 {
        self.world_size
    }

    /// The store that this rank runs, if it does.
    pub fn server(&self) -> Option<&Server> {
        self.server.as_ref()
    }

    /// The connection to the store, for keys of the caller's own.
    pub fn client(&mut self) -> &mut Client {
        &mut self.client
    }

    /// How long a call waits for the other ranks.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// How long a call waits for the other ranks, be they alive.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
        if self.signs.is_none() {
            self.client.set_timeout(timeout);
        }
    }

    /// Gives `mine` to all members, and takes theirs. The result is indexed by rank; of a rank that is no
    /// member it is empty.
    pub fn exchange(&mut self, name: &str, mine: &[u8]) -> Result<Vec<Vec<u8>>, WorldError> {
        let deadline = Deadline::after(self.timeout);
        let keys = self.gather("exchange", name, mine, deadline)?;
        let values = self.client.read(&borrowed(&keys)).map_err(|error| self.refine(error))?;
        let mut all = vec![Vec::new(); self.world_size as usize];
        for (&rank, value) in self.view.members.iter().zip(values) {
            all[rank as usize] = value;
        }
        Ok(all)
    }

    /// Returns once all ranks have called it.
    pub fn barrier(&mut self, name: &str) -> Result<(), WorldError> {
        let deadline = Deadline::after(self.timeout);
        self.gather("barrier", name, b"1", deadline).map(drop)
    }

    /// Gives the bytes of rank `root`, which passes them, to all ranks, which pass `None`. The
    /// root does not wait for the others. The bytes stay in the store.
    pub fn broadcast(
        &mut self,
        name: &str,
        root: u32,
        mine: Option<&[u8]>,
    ) -> Result<Vec<u8>, WorldError> {
        if root >= self.world_size || mine.is_some() != (root == self.rank) {
            let (rank, world_size) = (self.rank, self.world_size);
            return Err(WorldError::Root { root, rank, world_size, given: mine.is_some() });
        }
        let (family, _) = self.family("broadcast", name)?;
        let key = format!("{family}/{root}");
        if let Some(mine) = mine {
            self.client.set(&key, mine).map_err(|error| self.refine(error))?;
            return Ok(mine.to_vec());
        }
        let deadline = Deadline::after(self.timeout);
        self.await_all("broadcast", name, std::slice::from_ref(&key), deadline)?;
        self.value(&key)
    }

    /// Leaves `mine` in the store for any rank that asks, in place of what this rank announced of this
    /// topic before. Waits for nobody.
    pub fn announce(&mut self, topic: &str, mine: &[u8]) -> Result<(), WorldError> {
        let key = self.said(topic, self.rank)?;
        self.client.set(&key, mine).map_err(|error| self.refine(error))
    }

    /// The last announcement of a topic by `rank`, if there is one.
    pub fn announced(&mut self, topic: &str, rank: u32) -> Result<Option<Vec<u8>>, WorldError> {
        let key = self.said(topic, rank)?;
        match self.client.check(&[&key]).map_err(|error| self.refine(error))? {
            true => self.value(&key).map(Some),
            false => Ok(None),
        }
    }

    /// The value of a key that is there.
    fn value(&mut self, key: &str) -> Result<Vec<u8>, WorldError> {
        let values = self.client.read(&[key]).map_err(|error| self.refine(error))?;
        Ok(values.into_iter().next().unwrap_or_default())
    }

    fn said(&self, topic: &str, rank: u32) -> Result<String, WorldError> {
        match topic.len() {
            1..=LONGEST_NAME => Ok(self.key(&format!("said/{topic}/{rank}"))),
            size => Err(WorldError::Name { size, limit: LONGEST_NAME }),
        }
    }

    /// Ends together: the rank that runs the store keeps it until the others have left as well.
    pub fn leave(mut self) -> Result<(), WorldError> {
        let mine = self.key(&format!("left/{}", self.rank));
        self.left.store(true, Ordering::Release);
        self.withdraw_will().map_err(|error| self.refine(error))?;
        self.client.set(&mine, b"1").map_err(|error| self.refine(error))?;
        if self.server.is_none() {
            // No reply to wait for: the store may go as soon as it knows, and is stopped if it says
            // nothing for the silence.
            let silence = self.signs.as_ref().map_or(self.timeout, |signs| signs.silence);
            self.client.set_timeout(self.timeout.min(silence));
            return self.client.close().map_err(|error| self.refine(error));
        }
        let deadline = Deadline::after(self.timeout);
        let members = self.view.members.iter();
        let keys: Vec<_> = members.map(|rank| self.key(&format!("left/{rank}"))).collect();
        self.await_all("leave", "", &keys, deadline)
    }

    fn key(&self, rest: &str) -> String {
        format!("{}/{rest}", self.prefix)
    }

    /// The keys' beginning for this use of a name, and for the use before.
    fn family(&mut self, kind: &str, name: &str) -> Result<(String, Option<String>), WorldError> {
        if name.is_empty() || name.len() > LONGEST_NAME {
            return Err(WorldError::Name { size: name.len(), limit: LONGEST_NAME });
        }
        let stem = self.key(&format!("{kind}/{name}"));
        if self.used.len() >= MOST_NAMES && !self.used.contains_key(&stem) {
            return Err(WorldError::TooManyNames { limit: MOST_NAMES });
        }
        let uses = self.used.entry(stem.clone()).or_insert(0);
        let now = *uses;
        *uses += 1;
        let before = now.checked_sub(1).map(|before| format!("{stem}/{before}"));
        Ok((format!("{stem}/{now}"), before))
    }

    /// Stores `mine` under a name and waits for all ranks' keys, which it gives.
    fn gather(
        &mut self,
        kind: &'static str,
        name: &str,
        mine: &[u8],
        deadline: Deadline,
    ) -> Result<Vec<String>, WorldError> {
        let (family, before) = self.family(kind, name)?;
        let members = self.view.members.iter();
        let keys: Vec<_> = members.map(|rank| format!("{family}/{rank}")).collect();
        let own = format!("{family}/{}", self.rank);
        self.client.set(&own, mine).map_err(|error| self.refine(error))?;
        self.await_all(kind, name, &keys, deadline)?;
        if let Some(before) = before {
            // A rank in this use has finished the previous one, whose keys are no longer read.
            let old = format!("{before}/{}", self.rank);
            self.client.delete_key(&old).map_err(|error| self.refine(error))?;
        }
        Ok(keys)
    }

    /// All ranks must mean the same world.
    fn agree(&mut self) -> Result<(), WorldError> {
        let (key, ours) = (self.key("world"), format!("{LAYOUT} {}", self.world_size));
        let theirs = self.client.compare_set(&key, b"", ours.as_bytes());
        let theirs = theirs.map_err(|error| self.refine(error))?;
        if theirs == ours.as_bytes() {
            return Ok(());
        }
        let theirs = String::from_utf8_lossy(&theirs).into_owned();
        let layout = theirs.split(' ').next().and_then(|first| first.parse::<u32>().ok());
        Err(match (layout, theirs.split_once(' ').and_then(|(_, size)| size.parse().ok())) {
            (Some(LAYOUT), Some(theirs)) => {
                WorldError::Size { rank: self.rank, ours: self.world_size, theirs }
            }
            _ => WorldError::Layout { ours, theirs },
        })
    }

    /// Two processes must not be the same rank.
    fn claim(&mut self, config: &WorldConfig) -> Result<(), WorldError> {
        let token = random_token()?;
        let key = self.key(&format!("rank/{}", self.rank));
        let taken = self.client.compare_set(&key, b"", token.as_bytes());
        if taken.map_err(|error| self.refine(error))? == token.as_bytes() {
            return Ok(());
        }
        let (job, generation) = (config.job.clone(), config.generation);
        Err(WorldError::RankTaken { rank: self.rank, job, generation })
    }
}

impl WorldConfig {
    /// With a connection to the store.
    fn open(&self, server: Option<Server>) -> Result<World, WorldError> {
        let mut client = self.connect(server.as_ref())?;
        let silence = self.silence.min(self.timeout);
        let beats = self.silence < self.timeout;
        if beats {
            client.set_grace(silence);
        }
        let root = format!("warpverbs/{}/{}", self.job, self.generation);
        let mut world = World {
            rank: self.rank,
            world_size: self.world_size,
            prefix: root.clone(),
            root,
            before: None,
            view: View::first(self.world_size),
            limits: self.limits.clone(),
            client,
            timeout: self.timeout,
            signs: beats.then(|| Signs::new(silence)),
            pulse: None,
            keeper: (self.host != Host::Elsewhere).then(|| Keeper::of_rank(0)),
            joined: false,
            left: Arc::default(),
            used: HashMap::new(),
            farewell: FAREWELL,
            server,
        };
        // PyTorch's server may be waiting for this count.
        world.client.join_workers().map_err(|error| world.refine(error))?;
        Ok(world)
    }
}

fn random_token() -> Result<String, WorldError> {
    let mut token = [0; 16];
    getrandom::fill(&mut token).map_err(WorldError::Random)?;
    Ok(token.map(|byte| format!("{byte:02x}")).concat())
}

fn borrowed(keys: &[String]) -> Vec<&str> {
    keys.iter().map(String::as_str).collect()
}
