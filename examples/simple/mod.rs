//! Either end of the write: an agent on a GPU, and what each level writes.

use crate::agents::WAIT;
use crate::common::sample;
use anyhow::Result;
use std::sync::Arc;
use warpverbs::agent::{Agent, AgentConfig, Registration};
use warpverbs::gpu::{self, Dim, Gpu, GpuChoice, SafeKernel};
use warpverbs::{Context, KernelStatus};

/// An agent with data and a counter that peers can map.
pub(crate) struct Side {
    pub(crate) gpu: Arc<dyn Gpu>,
    pub(crate) agent: Agent,
    pub(crate) data: Registration,
    pub(crate) counter: Registration,
}

impl Side {
    pub(crate) fn new(name: &str, gpu: &str, nic: Option<&str>, size: u64) -> Result<Self> {
        let choice: GpuChoice = gpu.parse()?;
        let gpu = gpu::open(choice)?;
        println!("[{name}] kernels on {}", gpu.info().name);
        let mut config = AgentConfig::default().gpu(&gpu);
        if let Some(nic) = nic {
            config = config.nic(&Context::new()?.open(nic)?);
        }
        let agent = Agent::new(name, config)?;
        let data = agent.alloc(size, "data")?;
        let counter = agent.alloc(16, "counter")?;
        Ok(Self { gpu, agent, data, counter })
    }

    pub(crate) fn run(&self, kernel: &dyn SafeKernel, status: &KernelStatus) -> Result<()> {
        self.gpu.launch(kernel, Dim::new(1, 32), 2 * WAIT)?.wait()?;
        Ok(status.check(&[])?)
    }
}

/// The bytes that the initiator writes at each level.
pub(crate) fn pattern(level: usize, size: u64) -> Vec<u8> {
    sample(size as usize).iter().map(|byte| byte.wrapping_add(101 * level as u8)).collect()
}
