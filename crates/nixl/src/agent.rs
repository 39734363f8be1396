//! An agent as NIXL's programs know it.

mod lists;
mod peers;

use crate::backend::{BackendId, Backends, Params, Plugin};
use crate::exchange::Exchanger;
use crate::index::Index;
use crate::memory::Memories;
use crate::{Config, Desc, Error, Files, Kind, MOST_DESCRIPTORS, RegList, Status};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use warpverbs_agent::{Owner, Sent};
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

/// A peer's memory by address, and the version of it that this is of.
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

    /// As [`Agent::notify`], and leaves it to the caller to wait.
    ///
    /// # Errors
    /// As for [`Agent::notify`], as far as it is known before the peer has answered.
    pub fn send_notification(&self, peer: &str, bytes: &[u8]) -> Result<Sent, Error> {
        Ok(self.agent()?.send_notification(peer, bytes, self.config.deadline)?)
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
