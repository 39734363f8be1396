//! Whether links receive into host memory or into device memory, and where the bytes came.

use std::fmt;
use std::sync::Arc;
use warpverbs_devmem::unpack::UnpackConfig;
use warpverbs_devmem::{DeviceMemory, QueueChoice};
use warpverbs_devmem::{Fragment, Source};
use warpverbs_gpu::Gpu;

/// Where the links of domains receive. Domains of a process share it, since a queue can be
/// bound only once.
#[derive(Clone)]
pub enum Receive {
    /// Into host memory, for this reason.
    Host(Arc<str>),
    /// Into device memory.
    Device(DeviceMemory),
}

/// The reason for host memory where no receive queue was named.
const NOT_ASKED: &str = "the fallback: no receive queue was named";

impl Default for Receive {
    /// Into host memory.
    fn default() -> Self {
        Self::Host(NOT_ASKED.into())
    }
}

impl Receive {
    /// Binds `bytes` of `gpu`'s memory to `queues`, if there are any. An error that keeps them from
    /// being bound is the reason for host memory.
    pub fn choose(
        queues: Option<&QueueChoice>,
        bytes: u64,
        gpu: &Arc<dyn Gpu>,
        unpack: UnpackConfig,
    ) -> Self {
        let Some(queues) = queues else { return Self::default() };
        match queues.bind(gpu, bytes) {
            Ok(bound) => {
                Self::Device(DeviceMemory { sockets: Arc::new(bound), gpu: gpu.clone(), unpack })
            }
            Err(why) => Self::Host(format!("the fallback: {why}").into()),
        }
    }
}

/// Where the kernel put the payload that a link has received, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PayloadCounts {
    /// In device memory.
    pub device: u64,
    /// In host memory, beside headers: small packets, headers split badly, retransmissions.
    pub linear: u64,
    /// In host memory, from a queue without a binding.
    pub plain: u64,
}

impl PayloadCounts {
    pub(crate) fn count(&mut self, fragment: &Fragment) {
        *match fragment.source {
            Source::Dmabuf(_) => &mut self.device,
            Source::Linear => &mut self.linear,
            Source::Plain => &mut self.plain,
        } += fragment.len;
    }
}

impl fmt::Display for PayloadCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, linear, plain } = self;
        write!(
            f,
            "{device} bytes in device memory, {linear} beside headers, {plain} in host memory"
        )
    }
}
