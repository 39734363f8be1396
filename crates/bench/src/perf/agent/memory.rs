//! Memory of one end, and the agent that registers it.

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use warpverbs::agent::{Agent, AgentConfig, Registration};
use warpverbs::gpu::{self, Gpu, GpuChoice, Place};
use warpverbs::raw::mem::HostBuf;
use warpverbs::transport::{Context, Device, LinkKind};

/// Devices of one end.
#[derive(Args, Clone, Debug)]
pub(crate) struct SideArgs {
    /// Device for kernels and memory: auto, simt, cuda[:N] or hip[:N]
    #[arg(long, default_value = "simt", env = "WARPVERBS_GPU")]
    pub(super) gpu: String,
    /// NICs of the network path at both ends: none, soft or the name of a NIC; several are separated
    /// by commas
    #[arg(long, default_value = "none")]
    pub(super) nic: String,
    /// Link of the software NIC: udp, shm or auto [default: udp]
    #[arg(long)]
    pub(super) link: Option<String>,
    /// Secret that both ends share. The one by default is no secret: whoever reaches an end may use its
    /// memory, which holds test data
    #[arg(long, default_value = "public", env = "WARPVERBS_PERF_TOKEN", hide_env_values = true)]
    pub(super) token: String,
}

/// A kind of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Mem {
    /// Bytes of the process, on huge pages if they are many, as numpy's are.
    Host,
    /// Host memory that other processes can map.
    Shared,
    /// Host memory for the GPU.
    Pinned,
    /// Of the GPU, by its virtual memory management.
    Gpu,
    /// Of the GPU, by `cudaMalloc`.
    Malloc,
}

/// Devices of one end.
pub(super) struct Side {
    pub(super) gpu: Arc<dyn Gpu>,
    pub(super) why: String,
    server: bool,
    link: Option<LinkKind>,
    token: String,
    /// In the order of their names; none yet for a software NIC, whose interface is that of the
    /// connection to the peer.
    named: Vec<Option<Device>>,
    nics: OnceLock<Vec<Device>>,
}

impl Side {
    pub(super) fn open(args: &SideArgs, server: bool) -> Result<Self> {
        let opened = gpu::open_explained(args.gpu.parse::<GpuChoice>()?)?;
        let link = args.link.as_ref().map(|link| link.parse()).transpose()?;
        let open = |name| -> Result<Option<Device>> {
            Ok(if name == "soft" { None } else { Some(Context::new()?.open(name)?) })
        };
        let names = args.nic.split(',').filter(|name| *name != "none");
        let named = names.map(open).collect::<Result<_>>()?;
        let (gpu, why, token) = (opened.gpu, opened.why, args.token.clone());
        Ok(Self { gpu, why, server, link, token, named, nics: OnceLock::new() })
    }

    /// For an agent on this interface.
    pub(super) fn config(&self, at: IpAddr) -> Result<AgentConfig> {
        let open = |(named, number): (&Option<Device>, u32)| match named {
            Some(device) => Ok(device.clone()),
            None => self.soft(at, number),
        };
        let nics = self.named.iter().zip(0..).map(open).collect::<Result<Vec<_>>>()?;
        let nics = self.nics.get_or_init(|| nics);
        let config = AgentConfig::default().gpu(&self.gpu).token(&*self.token);
        Ok(nics.iter().fold(config, AgentConfig::nic))
    }

    fn soft(&self, at: IpAddr, number: u32) -> Result<Device> {
        let kind = self.link.unwrap_or_default();
        let nics = Context::builder().soft_link(kind, SocketAddr::new(at, 0));
        let process = 2 * number + u32::from(self.server);
        Ok(nics.soft_env(Some(process))?.build()?.open("soft")?)
    }

    pub(super) fn nics(&self) -> &[Device] {
        self.nics.get().map_or(&[], Vec::as_slice)
    }

    /// Registers so much memory of a kind.
    pub(super) fn register(&self, agent: &Agent, mem: Mem, bytes: u64) -> Result<Registration> {
        let len = usize::try_from(bytes).context("bytes of memory")?;
        Ok(match mem {
            Mem::Host => agent.register(HostBuf::region(len)?, LABEL)?,
            Mem::Shared => agent.alloc_host(bytes, LABEL)?,
            Mem::Pinned => agent.register(self.gpu.alloc(len, Place::Shared)?, LABEL)?,
            Mem::Gpu => agent.alloc(bytes, LABEL)?,
            Mem::Malloc => agent.register(self.gpu.alloc(len, Place::Device)?, LABEL)?,
        })
    }
}

/// Under which each end registers its memory.
pub(super) const LABEL: &str = "perf";
