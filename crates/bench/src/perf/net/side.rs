//! One end of a measurement: its NIC, and queue pairs with their memory.

use super::messages::{End, EngineMode, Setup};
use super::pair::PairEnd;
use crate::rig::machine::RIGHTS;
use crate::rig::plan::Op;
use anyhow::{Context as _, Result, ensure};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use warpverbs::gpu::Gpu;
use warpverbs::raw::mem::pause;
use warpverbs::raw::nic::{Config, EngineThread, LinkConfig, LinkKind, SoftNic, Step, UdpConfig};
use warpverbs::transport::{Context, Device, EndpointConfig, MemoryRegion, Mtu, NicChoice};

/// Which end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Measures.
    Client,
    /// Follows.
    Server,
}

/// Keeps a NIC going.
pub(crate) struct Engine {
    nic: SoftNic,
    thread: Option<EngineThread>,
}

/// Turns without news before a thread makes way for others, and between looks at the clock.
const PATIENCE: u32 = 256;
/// Turns that run the engine between two times that it gives way, about 10 µs.
const LOOKS: u32 = 16;

impl Engine {
    /// Something useful while there is nothing to do: a slice of the engine, or making way for the
    /// thread that runs it. `fruitless` counts the turns since the last news.
    #[inline]
    pub(crate) fn turn(&self, fruitless: u32) {
        match self.thread {
            None => {
                let idle = self.nic.step() == Step::Idle;
                // The peer may need this core: there may be fewer than programs.
                if idle && fruitless % LOOKS == LOOKS - 1 {
                    pause();
                }
            }
            Some(_) if fruitless > PATIENCE => pause(),
            Some(_) => std::hint::spin_loop(),
        }
    }

    /// After work was posted.
    #[inline]
    pub(crate) fn push(&self) {
        if self.thread.is_none() {
            self.nic.step();
        }
    }
}

/// One end.
pub(crate) struct Side {
    pub(crate) role: Role,
    pub(crate) setup: Setup,
    pub(crate) engine: Engine,
    pub(crate) gpu: Option<Arc<dyn Gpu>>,
    pub(crate) device: Device,
}

/// Rings, keys and memory beside the ones in use.
const MAX_QPS: u32 = 8192;

impl Side {
    /// A NIC on a port of the interface `at`.
    pub(crate) fn open(
        role: Role,
        setup: Setup,
        at: (IpAddr, u16),
        gpu: Option<Arc<dyn Gpu>>,
    ) -> Result<Self> {
        let bind = SocketAddr::new(at.0.to_canonical(), at.1);
        let max_mtu = setup.mtu.map(mtu).transpose()?;
        let at = UdpConfig { max_mtu, ..UdpConfig::at(bind) };
        let link = LinkConfig::Udp(at);
        let mut config = Config { max_qps: MAX_QPS, link, ..Config::default() }.with_env()?;
        if let Some(link) = &setup.link {
            config.link = link.parse::<LinkKind>()?.at(at);
        }
        if let Some(faults) = &setup.faults {
            config.faults = faults.parse()?;
        }
        let nic = SoftNic::new(config.for_process(u32::from(role == Role::Server)))?;
        let thread = match setup.engine {
            EngineMode::Thread => Some(nic.spawn()?),
            EngineMode::Inline => None,
        };
        let device = Context::builder().soft_nic(nic.clone()).build()?.open(NicChoice::Soft)?;
        Ok(Self { role, setup, engine: Engine { nic, thread }, gpu, device })
    }

    pub(crate) fn row_limit(&self) -> Duration {
        Duration::from_secs(self.setup.row_limit_s)
    }

    /// The link to the peer.
    pub(crate) fn link(&self) -> String {
        self.engine.nic.describe_link().unwrap_or_default()
    }

    /// Queue pairs of a group, with memory, not connected.
    pub(crate) fn pairs(&self, qps: u32, max_bytes: u64) -> Result<Vec<PairEnd>> {
        let config = self.endpoint_config();
        let (op, ping_pong) = (self.setup.op, self.setup.op.is_ping_pong());
        let pair = |index| -> Result<PairEnd> {
            let endpoint = self.device.endpoint(&config)?;
            let main = self.memory(max_bytes)?;
            let back = (ping_pong && index == 0).then(|| self.memory(max_bytes)).transpose()?;
            Ok(PairEnd::new((self.role, self.gpu.is_some()), op, index, endpoint, main, back))
        };
        (0..qps).map(pair).collect()
    }

    fn send_depth(&self) -> u32 {
        self.setup.tx_depth.next_power_of_two().clamp(128, 32768)
    }

    /// Receives of a queue pair, where there are any: twice what may be under way, so that those
    /// that have arrived can be taken while the next come.
    fn recv_depth(&self) -> u32 {
        if self.setup.op == Op::Send { (2 * self.send_depth()).min(32768) } else { 0 }
    }

    /// Connects every queue pair to its peer.
    pub(crate) fn connect(&self, pairs: &mut [PairEnd], ends: &[End]) -> Result<()> {
        ensure!(ends.len() == pairs.len(), "{} queue pairs, expected {}", ends.len(), pairs.len());
        let receives = self.recv_depth();
        pairs.iter_mut().zip(ends).try_for_each(|(pair, end)| pair.connect(end, receives))
    }

    fn endpoint_config(&self) -> EndpointConfig {
        let config = match &self.gpu {
            Some(gpu) => EndpointConfig::for_gpu(gpu),
            None => EndpointConfig::host(),
        };
        let config = config.send_depth(self.send_depth()).recv_depth(self.recv_depth());
        let config = config.timeout(self.row_limit());
        match self.setup.mtu.map(mtu) {
            Some(Ok(mtu)) => config.mtu(mtu),
            _ => config,
        }
    }

    fn memory(&self, bytes: u64) -> Result<MemoryRegion> {
        let len = usize::try_from(bytes).context("message size")?;
        Ok(match &self.gpu {
            Some(gpu) => self.device.register(gpu.alloc(len, self.setup.mem.place())?, RIGHTS)?,
            None => self.device.alloc_host(len, RIGHTS)?,
        })
    }
}

/// The path MTU of so many bytes.
pub(crate) fn mtu(bytes: u32) -> Result<Mtu> {
    let found = Mtu::from_bytes(bytes as usize);
    found.with_context(|| format!("--mtu is {bytes}, expected 256, 512, 1024, 2048 or 4096"))
}
