//! An agent as NIXL's programs know it.

use crate::backend::{BackendId, Backends, Params, Plugin};
use crate::exchange::{Exchanger, Place, Request};
use crate::index::{Index, Range, runs};
use crate::memory::Memories;
use crate::prepared::{Blocks, Prepared, Rows};
use crate::transfer::{Notification, Terms, Transfer, Work};
use crate::{
    Config, Desc, Error, FileInfo, FileOp, FilePiece, Files, Kind, List, MOST_DESCRIPTORS, RegDesc,
    RegList, Status, Strided,
};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use warpverbs_agent::{BlockList, Op, Owner};
use warpverbs_gpu::{Buffer, Gpu, GpuChoice};

/// Gives the memory of a descriptor that a program registers: of the host where no GPU is given, else of
/// that GPU. The error is for people.
pub type Adopt<'a> = dyn FnMut(Option<&Arc<dyn Gpu>>, &Desc) -> Result<Buffer, String> + 'a;

/// Notifications by sender, in the order in which they came.
pub type Notifications = BTreeMap<String, Vec<Vec<u8>>>;

/// An agent: its memory, its peers, and the calls on both. Any thread may use it.
pub struct Agent {
    name: String,
    pub(crate) config: Config,
    made: OnceLock<warpverbs_agent::Agent>,
    making: Mutex<()>,
    backends: Backends,
    memories: Memories,
    gpus: Mutex<HashMap<u64, Arc<dyn Gpu>>>,
    peers: Mutex<HashMap<String, Known>>,
    exchanger: Exchanger,
    files: Files,
}

/// What is known of a peer's memory, and the state of knowledge that it is of.
#[derive(Clone)]
struct Known {
    version: u64,
    owner: Owner,
    index: Arc<Index<()>>,
}

impl Agent {
    /// Makes an agent. Its name is what peers call it.
    ///
    /// # Errors
    /// The name or a setting is wrong, or the port is taken.
    pub fn new(name: &str, config: Config) -> Result<Self, Error> {
        if name.is_empty() {
            return Err(Error::new(Status::InvalidParam, "an agent's name is empty"));
        }
        let agent = Self {
            name: name.to_owned(),
            config,
            made: OnceLock::new(),
            making: Mutex::default(),
            backends: Backends::default(),
            memories: Memories::default(),
            gpus: Mutex::default(),
            peers: Mutex::default(),
            exchanger: Exchanger::default(),
            files: Files::start(),
        };
        if agent.config.listen.is_some() {
            agent.agent()?;
        }
        Ok(agent)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The agent that does the work. It is made at the first use, since programs choose their GPU after
    /// they have made an agent.
    ///
    /// # Errors
    /// A setting is wrong, or the system does not give what an agent needs.
    pub fn agent(&self) -> Result<&warpverbs_agent::Agent, Error> {
        let gpu = || self.config.current_gpu.as_ref().and_then(|current| current());
        self.agent_on(&gpu)
    }

    fn agent_on(
        &self,
        gpu: &dyn Fn() -> Option<Arc<dyn Gpu>>,
    ) -> Result<&warpverbs_agent::Agent, Error> {
        if let Some(made) = self.made.get() {
            return Ok(made);
        }
        let _one_at_a_time = crate::lock(&self.making);
        if let Some(made) = self.made.get() {
            return Ok(made);
        }
        let Config { listen, address, deadline, .. } = self.config;
        let mut config = self.config.agent.clone().deadline(deadline);
        config = config.listen((address, listen.unwrap_or(0))).serve_metadata(listen.is_some());
        if let Some(gpu) = gpu() {
            config = config.gpu(&gpu);
        }
        let made = warpverbs_agent::Agent::new(&self.name, config)?;
        Ok(self.made.get_or_init(|| made))
    }

    /// Creates a backend. An agent has one of each plugin.
    ///
    /// # Errors
    /// There is no such plugin, or the agent has its backend.
    pub fn create_backend(&self, plugin: &str, params: &Params) -> Result<BackendId, Error> {
        self.backends.create(plugin, params)
    }

    /// The plugin of a backend.
    ///
    /// # Errors
    /// The agent has no such backend.
    pub fn backend_plugin(&self, backend: BackendId) -> Result<Plugin, Error> {
        self.backends.plugin(backend)
    }

    /// The parameters of a backend.
    ///
    /// # Errors
    /// The agent has no such backend.
    pub fn backend_params(&self, backend: BackendId) -> Result<Params, Error> {
        self.backends.params(backend)
    }

    /// Registers memory that `adopt` gives, or files: all of the list or nothing.
    ///
    /// # Errors
    /// A descriptor is empty or no memory, no backend takes its kind, or `adopt` refused.
    pub fn register(&self, list: &RegList, adopt: &mut Adopt<'_>) -> Result<(), Error> {
        self.backends.check(list.kind)?;
        checked_count(list.descs.len())?;
        for (at, one) in list.descs.iter().enumerate() {
            let empty = one.desc.len == 0 && list.kind != Kind::File;
            let wrong = |why| Error::new(Status::InvalidParam, format!("descriptor {at}: {why}"));
            if empty || (one.desc.addr == 0 && list.kind != Kind::File) {
                let Desc { addr, len, .. } = one.desc;
                return Err(wrong(format!(
                    "{len} bytes at {addr:#x}, expected some at an address"
                )));
            }
            one.desc.end().map_err(|error| wrong(error.why))?;
        }
        match list.kind {
            Kind::File => self.memories.register_files(list, &self.files),
            Kind::Dram => self.memories.register(self.agent()?, list, &mut |desc| {
                adopt(None, desc).map_err(|why| refused(list.kind, desc, &why))
            }),
            Kind::Vram => {
                let Some(first) = list.descs.first() else { return Ok(()) };
                let gpu = self.gpu(first.desc.dev)?;
                let agent = self.agent_on(&|| Some(gpu.clone()))?;
                self.memories.register(agent, list, &mut |desc| {
                    let gpu = self.gpu(desc.dev)?;
                    adopt(Some(&gpu), desc).map_err(|why| refused(list.kind, desc, &why))
                })
            }
            kind => Err(unsupported(kind)),
        }
    }

    /// The GPU of an ordinal, with the context that the process' other libraries share.
    fn gpu(&self, ordinal: u64) -> Result<Arc<dyn Gpu>, Error> {
        if let Some(known) = crate::lock(&self.gpus).get(&ordinal) {
            return Ok(known.clone());
        }
        let device = u32::try_from(ordinal).map_err(|_| {
            Error::new(Status::InvalidParam, format!("device {ordinal}, expected a GPU's ordinal"))
        })?;
        let current = self.config.current_gpu.as_ref().and_then(|current| current());
        let gpu = match current.filter(|gpu| u64::from(gpu.info().ordinal) == ordinal) {
            Some(gpu) => gpu,
            None => warpverbs_gpu::open(GpuChoice::Cuda(device))
                .map_err(|error| Error::new(Status::NotSupported, error.to_string()))?,
        };
        Ok(crate::lock(&self.gpus).entry(ordinal).or_insert(gpu).clone())
    }

    /// Deregisters, and waits until no transfer and no peer can touch the memory any more, so that the
    /// program may free it.
    ///
    /// # Errors
    /// A descriptor is not registered, in which case nothing changes; or a peer did not confirm in time, in which case the
    /// registrations have ended, and the memory must stay.
    pub fn deregister(&self, list: &RegList) -> Result<(), Error> {
        self.memories.deregister(list, self.config.deadline)
    }

    /// As [`Agent::deregister`], all that is registered: before memory goes away with its owner.
    ///
    /// # Errors
    /// A peer did not confirm in time: the registrations have ended, and the memory must stay.
    pub fn deregister_all(&self) -> Result<(), Error> {
        self.memories.deregister_all(self.config.deadline)
    }

    /// Looks up a list: of this agent's side of transfers if `agent` is empty, else of that peer, which may
    /// be this agent.
    ///
    /// # Errors
    /// A descriptor is not in registered memory, or the peer is not known.
    pub fn prepare(&self, agent: &str, list: &List) -> Result<Prepared, Error> {
        self.prepare_rows(agent, list.kind, list.descs.iter().map(|one| (*one).into()))
    }

    /// As [`Agent::prepare`], for blocks in rows of equal distances.
    ///
    /// # Errors
    /// As for [`Agent::prepare`].
    pub fn prepare_strided(
        &self,
        agent: &str,
        kind: Kind,
        rows: &[Strided],
    ) -> Result<Prepared, Error> {
        self.prepare_rows(agent, kind, rows.iter().copied())
    }

    fn prepare_rows(
        &self,
        agent: &str,
        kind: Kind,
        rows: impl ExactSizeIterator<Item = Strided> + Clone,
    ) -> Result<Prepared, Error> {
        let agent = agent.to_owned();
        if kind == Kind::File {
            let blocks = Blocks::Files(self.rows(&agent, kind, rows)?);
            return Ok(Prepared { kind, agent, blocks });
        }
        let blocks = self.blocks(&agent, kind, rows.clone())?;
        let prepared = self.agent()?.prepare(&blocks)?;
        let keeps = agent.is_empty() && self.backends.created(Plugin::Posix).is_some();
        let rows = keeps.then(|| self.rows(&agent, kind, rows)).transpose()?;
        Ok(Prepared { kind, agent, blocks: Blocks::Memory { prepared, rows } })
    }

    /// A list of this agent's memory or files, as transfers with files take it.
    fn rows(
        &self,
        agent: &str,
        kind: Kind,
        rows: impl ExactSizeIterator<Item = Strided>,
    ) -> Result<Rows, Error> {
        if !agent.is_empty() && agent != self.name {
            let why =
                format!("files of {agent}: only those of this agent, {}, are reached", self.name);
            return Err(Error::new(Status::NotSupported, why));
        }
        checked_count(rows.len())?;
        let (index, rows): (_, Vec<Strided>) = (self.memories.index(), rows.collect());
        runs(&index, kind, rows.iter().copied(), &self.owned())?;
        Ok(Rows::new(kind, index, rows))
    }

    /// The list as the agent takes it.
    fn blocks(
        &self,
        agent: &str,
        kind: Kind,
        rows: impl ExactSizeIterator<Item = Strided>,
    ) -> Result<BlockList, Error> {
        if !matches!(kind, Kind::Dram | Kind::Vram) {
            return Err(unsupported(kind));
        }
        checked_count(rows.len())?;
        if agent.is_empty() || agent == self.name {
            let runs = runs(&self.memories.index(), kind, rows, &self.owned())?;
            return Ok(BlockList::of_runs(self.agent()?.owner(), runs)?);
        }
        let known = self.known(agent)?;
        let of = format!("as the metadata of {agent} say");
        let runs = runs(&known.index, kind, rows, &of)?;
        Ok(BlockList::of_runs(&known.owner, runs)?)
    }

    /// For errors: whose memory it is.
    fn owned(&self) -> String {
        format!("of {}", self.name)
    }

    /// What the peer's metadata say, looked up anew only if they have changed.
    fn known(&self, peer: &str) -> Result<Known, Error> {
        let agent = self.agent()?;
        let version = agent.memories_version(peer)?;
        if let Some(known) = crate::lock(&self.peers).get(peer).filter(|one| one.version == version)
        {
            return Ok(known.clone());
        }
        let memories = agent.memories_of(peer)?;
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

    /// A transfer between blocks of prepared lists: the block `local_index[i]` here, `remote_index[i]` there.
    ///
    /// # Errors
    /// Indices or lengths do not fit, or no path leads there.
    pub fn make(
        &self,
        op: Op,
        (local, local_index): (&Prepared, &[u32]),
        (remote, remote_index): (&Prepared, &[u32]),
        notification: Notification,
    ) -> Result<Transfer, Error> {
        match (&local.blocks, &remote.blocks) {
            (Blocks::Memory { prepared: here, .. }, Blocks::Memory { prepared: there, .. }) => {
                let agent = self.agent()?;
                let inner = agent.prepared_transfer(op, here, local_index, there, remote_index)?;
                Ok(self.transfer(inner, local_index.len(), notification))
            }
            (Blocks::Memory { rows: Some(here), .. }, Blocks::Files(there)) => {
                let pairs = local_index.iter().zip(remote_index);
                if local_index.len() != remote_index.len() || local_index.is_empty() {
                    let (here, there) = (local_index.len(), remote_index.len());
                    let why = format!("{here} indices here, {there} of files, expected as many");
                    return Err(Error::new(Status::InvalidParam, why));
                }
                let pairs = pairs.map(|(here, there)| (*here as usize, *there as usize));
                self.file_transfer(op, (here, there), pairs, notification)
            }
            (Blocks::Files(_), _) => Err(unsupported(Kind::File)),
            _ => {
                let why =
                    "transfers with files need a backend POSIX, created before lists are prepared";
                Err(Error::new(Status::NotFound, why))
            }
        }
    }

    /// A transfer between all blocks of two lists, in order.
    ///
    /// # Errors
    /// As for [`Agent::prepare`] and [`Agent::make`].
    pub fn create(
        &self,
        op: Op,
        local: &List,
        remote: &List,
        peer: &str,
        notification: Notification,
    ) -> Result<Transfer, Error> {
        let (here, there) = (local.descs.len(), remote.descs.len());
        if here != there {
            let why = format!("{here} descriptors here, {there} at {peer}, expected as many");
            return Err(Error::new(Status::InvalidParam, why));
        }
        let rows = |list: &List| list.descs.clone().into_iter().map(Strided::from);
        if remote.kind == Kind::File {
            self.backends.check(Kind::File)?;
            let mine = self.rows("", local.kind, rows(local))?;
            let files = self.rows(peer, remote.kind, rows(remote))?;
            let pairs = (0..here).map(|at| (at, at));
            return self.file_transfer(op, (&mine, &files), pairs, notification);
        }
        let mine = self.blocks("", local.kind, rows(local))?;
        let theirs = self.blocks(peer, remote.kind, rows(remote))?;
        let inner = self.agent()?.transfer(op, &mine, &theirs)?;
        Ok(self.transfer(inner, here, notification))
    }

    fn transfer(
        &self,
        inner: warpverbs_agent::Transfer,
        descriptors: usize,
        notification: Notification,
    ) -> Transfer {
        Transfer::new(Work::Memory(inner), descriptors, notification, self.terms())
    }

    fn terms(&self) -> Terms {
        let Config { telemetry, transfer_deadline: deadline, .. } = self.config;
        Terms { deadline, telemetry }
    }

    /// A transfer between this agent's memory and its files, of blocks by their numbers.
    fn file_transfer(
        &self,
        op: Op,
        (here, there): (&Rows, &Rows),
        pairs: impl ExactSizeIterator<Item = (usize, usize)>,
        notification: Notification,
    ) -> Result<Transfer, Error> {
        let count = pairs.len();
        let mut pieces = Vec::with_capacity(count);
        for (number, (mine, theirs)) in pairs.enumerate() {
            let (memory, at, block) = here.get(mine)?;
            let (file, _, range) = there.get(theirs)?;
            if block.len != range.len {
                let (here, there) = (block.len, range.len);
                let why = format!("descriptor {number}: {here} bytes of memory, {there} of a file");
                return Err(Error::new(Status::InvalidParam, why));
            }
            let gone = || {
                Error::new(
                    Status::NotFound,
                    format!("descriptor {number} is not registered any more"),
                )
            };
            let (region, fd) = (memory.region().ok_or_else(gone)?, file.file().ok_or_else(gone)?);
            pieces.push(FilePiece { memory: region, at, fd, offset: range.addr, len: range.len });
        }
        let op = match op {
            Op::Read => FileOp::Read,
            Op::Write => FileOp::Write,
        };
        let inner = self.files.transfer(op, pieces)?;
        Ok(Transfer::new(Work::Files(inner), count, notification, self.terms()))
    }

    /// What is known of files, by path (the bytes of a descriptor) or by number: size, mode and time of change, or
    /// nothing if there is none.
    ///
    /// # Errors
    /// The backend is none of this agent's, or knows of no files.
    pub fn query(&self, list: &RegList, backend: BackendId) -> Result<Vec<Option<Params>>, Error> {
        let plugin = self.backends.plugin(backend)?;
        if plugin != Plugin::Posix {
            let why = format!("{} cannot be asked, expected POSIX", plugin.name());
            return Err(Error::new(Status::NotSupported, why));
        }
        let ask = |one: &RegDesc| match (&one.meta[..], i32::try_from(one.desc.dev)) {
            ([], Ok(fd)) => Files::query_descriptor(fd).ok(),
            ([], Err(_)) => None,
            (path, _) => Files::query(path),
        };
        let entries = |found: FileInfo| {
            found.entries().map(|(name, value)| (name.to_owned(), value)).into_iter().collect()
        };
        Ok(list.descs.iter().map(|one| ask(one).map(entries)).collect())
    }

    /// All notifications that have come since the last call.
    pub fn notifications(&self) -> Notifications {
        self.notifications_within(Duration::ZERO)
    }

    /// The same; if there are none, it waits for so long until one comes.
    pub fn notifications_within(&self, timeout: Duration) -> Notifications {
        let mut all = Notifications::new();
        let Some(agent) = self.made.get() else { return all };
        let mut next = agent.next_notification();
        if next.is_none() && !timeout.is_zero() {
            next = agent.wait_notification(timeout).ok();
        }
        while let Some(one) = next {
            all.entry(one.from.name.to_string()).or_default().push(one.bytes);
            next = agent.next_notification();
        }
        all
    }

    /// Sends a notification that belongs to no transfer, and waits until the peer has it.
    ///
    /// # Errors
    /// The peer is not known, is lost or does not answer in time; or the notification is too long.
    pub fn notify(&self, peer: &str, bytes: &[u8]) -> Result<(), Error> {
        Ok(self.agent()?.notify(peer, bytes, self.config.deadline)?)
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
        let rows = |list: &List| list.descs.clone().into_iter().map(Strided::from);
        let has =
            |list: &List| list.descs.is_empty() || self.blocks(peer, list.kind, rows(list)).is_ok();
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

fn checked_count(count: usize) -> Result<(), Error> {
    match count <= MOST_DESCRIPTORS {
        true => Ok(()),
        false => {
            let why = format!("{count} descriptors, expected at most {MOST_DESCRIPTORS}");
            Err(Error::new(Status::InvalidParam, why))
        }
    }
}

fn unsupported(kind: Kind) -> Error {
    Error::new(Status::NotSupported, format!("{kind} here, expected DRAM_SEG or VRAM_SEG"))
}

fn refused(kind: Kind, desc: &Desc, why: &str) -> Error {
    let Desc { addr, len, dev } = desc;
    let why = format!("{len} bytes at {addr:#x} of {kind} {dev}: {why}");
    Error::new(Status::InvalidParam, why)
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Agent({:?})", self.name)
    }
}
