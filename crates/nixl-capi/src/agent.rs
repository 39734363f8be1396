//! Agents and their backends, as the handles of programs name them.

use crate::border::{In, Out, Text};
use crate::call::{Code, Failure, call};
use crate::handle::{Handle, Object};
use crate::{gpu, lock, log};
use std::ffi::{c_int, c_uint};
use std::sync::{Arc, Mutex, Weak};
use warpverbs_nixl::{BackendId, Config, Kind, Plugin};

/// An agent, and what its program has created of it.
pub(crate) struct Agent {
    pub(crate) nixl: warpverbs_nixl::Agent,
    backends: Mutex<Vec<(Plugin, BackendId)>>,
}

impl Object for Agent {
    const NAME: &'static str = "nixl_capi_agent_t";
}

impl Agent {
    fn new(name: &str, listen: Option<u16>, telemetry: bool) -> Result<Self, Failure> {
        log::start();
        let mut config = Config::from_env().map_err(Failure::backend)?.telemetry(telemetry);
        config.listen = listen;
        config.current_gpu = Some(Arc::new(gpu::current_gpu));
        let nixl = warpverbs_nixl::Agent::new(name, config).map_err(Failure::backend)?;
        Ok(Self { nixl, backends: Mutex::default() })
    }

    /// Notes a backend, to be found by [`Agent::backend`].
    pub(crate) fn created(&self, plugin: Plugin, id: BackendId) {
        lock(&self.backends).push((plugin, id));
    }

    /// The backend of a plugin.
    pub(crate) fn backend(self: &Arc<Self>, plugin: Plugin) -> Result<Backend, Failure> {
        let backends = lock(&self.backends);
        let found = backends.iter().find(|(of, _)| *of == plugin);
        let (_, id) = found.ok_or_else(|| {
            let why = format!("the agent has created no backend {}", plugin.name());
            Failure::new(Code::NOT_FOUND, why)
        })?;
        Ok(Backend::new(self, plugin, *id))
    }

    /// The first backend that takes memory of a kind.
    pub(crate) fn backend_for(&self, kind: Kind) -> Result<BackendId, Failure> {
        let backends = lock(&self.backends);
        let found = backends.iter().find(|(plugin, _)| plugin.kinds().contains(&kind));
        found.map(|(_, id)| *id).ok_or_else(|| {
            Failure::new(Code::NOT_FOUND, format!("the agent has created no backend for {kind}"))
        })
    }
}

/// A backend of an agent. It lives as long as the agent does, whatever becomes of handles.
pub(crate) struct Backend {
    agent: Weak<Agent>,
    plugin: Plugin,
    id: BackendId,
}

impl Object for Backend {
    const NAME: &'static str = "nixl_capi_backend_t";
}

impl Backend {
    pub(crate) fn new(agent: &Arc<Agent>, plugin: Plugin, id: BackendId) -> Self {
        Self { agent: Arc::downgrade(agent), plugin, id }
    }

    pub(crate) fn is_of(&self, agent: &Arc<Agent>) -> bool {
        self.agent.as_ptr() == Arc::as_ptr(agent)
    }

    pub(crate) fn plugin(&self) -> Plugin {
        self.plugin
    }

    pub(crate) fn id(&self) -> BackendId {
        self.id
    }
}

/// How an agent is made, as the interface has it. Flags are bytes, whatever the caller left in them.
#[derive(Clone, Copy)]
#[repr(C)]
struct AgentConfig {
    enable_prog_thread: u8,
    enable_listen_thread: u8,
    listen_port: c_int,
    thread_sync: c_uint,
    num_workers: c_uint,
    pthr_delay_us: u64,
    lthr_delay_us: u64,
    capture_telemetry: u8,
}

/// Makes an agent. Of the configuration the port and the wish for telemetry count: agents make progress
/// by threads of their own, and any thread may call them.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_create_configured_agent(
    name: Text,
    cfg: In<AgentConfig>,
    agent: Out<Handle<Agent>>,
) -> Code {
    call("nixl_capi_create_configured_agent", || {
        let (name, cfg) = (name.get("name")?, cfg.get("cfg")?);
        let agent = agent.place("agent")?;
        let port = (cfg.enable_listen_thread != 0).then_some(cfg.listen_port);
        let listen = port.map(u16::try_from).transpose().map_err(|_| {
            let port = cfg.listen_port;
            Failure::invalid(format!("listen_port is {port}, expected at most {}", u16::MAX))
        })?;
        agent.set(Handle::new(Agent::new(name, listen, cfg.capture_telemetry != 0)?));
        Ok(())
    })
}

/// Makes an agent that listens for nobody's metadata.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_create_agent(name: Text, agent: Out<Handle<Agent>>) -> Code {
    call("nixl_capi_create_agent", || {
        let (name, agent) = (name.get("name")?, agent.place("agent")?);
        agent.set(Handle::new(Agent::new(name, None, false)?));
        Ok(())
    })
}

/// Ends an agent. Its registrations end as by [`nixl_capi_deregister_mem`], and its handle in any case.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_destroy_agent(agent: Handle<Agent>) -> Code {
    call("nixl_capi_destroy_agent", || Ok(agent.take()?.nixl.deregister_all()?))
}
