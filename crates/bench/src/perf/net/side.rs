//! One end of a measurement: its NIC, and queue pairs with their memory.

use super::messages::{End, EngineMode, Setup};
use super::pair::PairEnd;
use crate::rig::machine::RIGHTS;
use crate::rig::plan::{Op, mtu};
use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use warpverbs::gpu::Gpu;
use warpverbs::raw::mem::pause;
use warpverbs::raw::nic::{Config, EngineThread, LinkConfig, LinkKind, SoftNic, Step, UdpConfig};
use warpverbs::transport::{
    Context, Device, EndpointConfig, MemoryRegion, NicChoice, VerbsProvider, Way,
};

/// Which end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Measures.
    Client,
    /// Follows.
    Server,
}

/// The NIC of an end.
#[derive(Args, Clone, Debug)]
pub(crate) struct NicArgs {
    /// The NIC of this end: soft, or the name of an RDMA device
    #[arg(long, default_value = "soft")]
    pub(crate) nic: String,
    /// How an RDMA device's queues are read: auto, proxy (by the CPU) or direct (by the device)
    #[arg(long, default_value_t = Way::Auto, env = "WARPVERBS_WAY")]
    pub(crate) way: Way,
}

/// Keeps a NIC going.
pub(crate) struct Engine {
    /// A software NIC that has no thread of its own.
    stepped: Option<SoftNic>,
    _thread: Option<EngineThread>,
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
        match &self.stepped {
            Some(nic) => {
                let idle = nic.step() == Step::Idle;
                // The peer may need this core: there may be fewer than programs.
                if idle && fruitless % LOOKS == LOOKS - 1 {
                    pause();
                }
            }
            None if fruitless > PATIENCE => pause(),
            None => std::hint::spin_loop(),
        }
    }

    /// After work was posted.
    #[inline]
    pub(crate) fn push(&self) {
        if let Some(nic) = &self.stepped {
            nic.step();
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

/// Code of the time after which a device misses an answer: 67 ms, as perftest has it.
const ACK_TIMEOUT: u8 = 14;
/// Rings, keys and memory beside the ones in use.
const MAX_QPS: u32 = 8192;

impl Side {
    /// A software NIC on a port of the interface `at`, or an RDMA device.
    pub(crate) fn open(
        role: Role,
        setup: Setup,
        (args, at): (&NicArgs, (IpAddr, u16)),
        gpu: Option<Arc<dyn Gpu>>,
    ) -> Result<Self> {
        let (device, engine) = match NicChoice::from(args.nic.as_str()) {
            choice if choice.soft().is_some() => {
                let nic = soft(role, &setup, at)?;
                let device = Context::builder().soft_nic(nic.clone()).build()?.open(choice)?;
                let (stepped, thread) = match setup.engine {
                    EngineMode::Thread => (None, Some(nic.spawn()?)),
                    EngineMode::Inline => (Some(nic), None),
                };
                (device, Engine { stepped, _thread: thread })
            }
            NicChoice::Auto => bail!("--nic is auto, expected soft or the name of an RDMA device"),
            named => {
                let verbs = VerbsProvider::default().with_way(args.way);
                let device = Context::builder().verbs(verbs).build()?.open(named)?;
                (device, Engine { stepped: None, _thread: None })
            }
        };
        Ok(Self { role, setup, engine, gpu, device })
    }

    /// Whether the NIC is software of this process.
    pub(crate) fn is_soft(&self) -> bool {
        self.device.info().provider == "soft"
    }

    pub(crate) fn row_limit(&self) -> Duration {
        Duration::from_secs(self.setup.row_limit_s)
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
        // A ring of ionic keeps one free.
        let receives = self.recv_depth().saturating_sub(1);
        pairs.iter_mut().zip(ends).try_for_each(|(pair, end)| pair.connect(end, receives))
    }

    fn endpoint_config(&self) -> EndpointConfig {
        let config = match &self.gpu {
            Some(gpu) => EndpointConfig::for_gpu(gpu),
            None => EndpointConfig::host(),
        };
        let config = config.send_depth(self.send_depth()).recv_depth(self.recv_depth());
        let config = config.timeout(self.row_limit());
        let config = if self.is_soft() { config } else { config.timers(ACK_TIMEOUT, 12) };
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

/// A software NIC on a port of the interface `at`.
fn soft(role: Role, setup: &Setup, at: (IpAddr, u16)) -> Result<SoftNic> {
    let bind = SocketAddr::new(at.0.to_canonical(), at.1);
    let at = UdpConfig { max_mtu: setup.mtu.map(mtu).transpose()?, ..UdpConfig::at(bind) };
    let link = LinkConfig::Udp(at);
    let mut config = Config { max_qps: MAX_QPS, link, ..Config::default() }.with_env()?;
    if let Some(link) = &setup.link {
        config.link = link.parse::<LinkKind>()?.at(at);
    }
    if let Some(faults) = &setup.faults {
        config.faults = faults.parse()?;
    }
    Ok(SoftNic::new(config.for_process(u32::from(role == Role::Server)))?)
}
