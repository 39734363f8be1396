//! The setup of a measurement: an open device and NIC, and connected pairs of endpoints with a
//! buffer on either side.

use super::pattern::{compare, pattern, poison};
use super::plan::{Mem, Op, Poster};
use crate::output::{Chosen, Setting};
use crate::rig::Common;
use anyhow::{Context as _, Result, ensure};
use std::sync::Arc;
use std::time::Duration;
use warpverbs::gpu::{self, Gpu, GpuChoice, GpuInfo, GpuKind};
use warpverbs::raw::nic::Config;
use warpverbs::transport::{
    Access, ContextBuilder, Device, Endpoint, EndpointConfig, LocalRegion, MemoryRegion, NicFormat,
    QueuePlacement, RemoteRegion,
};

/// Rights to memory that any operation may be on.
pub(crate) const RIGHTS: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_ATOMIC);

/// An open device and NIC.
pub(crate) struct Rig {
    pub(crate) gpu: Arc<dyn Gpu>,
    pub(crate) nic: Device,
    gpu_why: String,
}

impl Rig {
    pub(crate) fn open(common: &Common) -> Result<Self> {
        Self::open_with(common, common.context())
    }

    /// As [`Rig::open`], on a NIC with room for this many queue pairs if it is ours.
    pub(crate) fn open_for(common: &Common, qps: u32) -> Result<Self> {
        let config = Config::default().with_env()?;
        let max_qps = config.max_qps.max(qps);
        Self::open_with(common, common.context().soft_config(Config { max_qps, ..config }))
    }

    /// As [`Rig::open`], on a NIC made as `builder` says.
    fn open_with(common: &Common, builder: ContextBuilder) -> Result<Self> {
        let choice: GpuChoice = common.gpu.parse()?;
        let opened = gpu::open_explained(choice)?;
        let nic = builder.build()?.open_near(common.nic.nic.as_str(), opened.gpu.info())?;
        Ok(Self { gpu: opened.gpu, nic, gpu_why: opened.why })
    }

    /// The device and NIC, and why they were taken; `kernels` is false where no kernel was run.
    pub(crate) fn chosen(&self, kernels: bool) -> Setting {
        Setting {
            gpu: kernels.then(|| Chosen::gpu(&*self.gpu, &self.gpu_why)),
            nic: Chosen::new(self.nic.info().name.clone(), self.nic.why()),
        }
    }

    /// Where the send queues of kernels lie by default.
    pub(crate) fn usual_placement(&self) -> QueuePlacement {
        match self.gpu.info().kind {
            GpuKind::Simt => QueuePlacement::Simt,
            _ => QueuePlacement::PinnedHost,
        }
    }

    /// Memory of the device, or memory that host and device share.
    pub(crate) fn register(&self, len: usize, mem: Mem) -> Result<MemoryRegion> {
        Ok(self.nic.register(self.gpu.alloc(len, mem.place())?, RIGHTS)?)
    }

    /// A pair whose first end `poster` posts to.
    pub(crate) fn pair(&self, poster: Poster, depth: u32, limit: Duration) -> Result<Link> {
        self.pair_for(Op::Write, poster, depth, limit)
    }

    /// The same, for an operation that may need receives at the second end: twice as many as can be
    /// under way, so that those used up can be replaced in time.
    pub(crate) fn pair_for(
        &self,
        op: Op,
        poster: Poster,
        depth: u32,
        limit: Duration,
    ) -> Result<Link> {
        let config = match poster {
            Poster::Host => EndpointConfig::host(),
            Poster::Kernel => EndpointConfig::for_gpu(&self.gpu),
        };
        let receives = if op == Op::Send { 2 * depth } else { 0 };
        self.pair_of(&config.send_depth(depth).recv_depth(0).timeout(limit), receives)
    }

    /// Whether the NIC completes whatever a doorbell announces without reading or moving it, on
    /// pairs of [`Self::consuming`].
    pub(crate) fn only_consumes(&self) -> bool {
        self.has_consumers() || only_consumes()
    }

    /// Whether the NIC has queue pairs of which it reads nothing: software, in the format that has them.
    fn has_consumers(&self) -> bool {
        self.nic.info().provider == "soft" && self.nic.format() == NicFormat::Mlx5
    }

    /// A pair that kernels post to, with the send queue where `placement` says, of which the NIC
    /// reads nothing, unless it executes what it is given.
    pub(crate) fn consuming(
        &self,
        placement: QueuePlacement,
        depth: u32,
        limit: Duration,
    ) -> Result<Link> {
        let config = EndpointConfig::for_gpu(&self.gpu).placement(placement);
        let config = config.consume_only(self.has_consumers());
        self.pair_of(&config.send_depth(depth).recv_depth(0).timeout(limit), 0)
    }

    fn pair_of(&self, config: &EndpointConfig, receives: u32) -> Result<Link> {
        let near = self.nic.endpoint(config)?;
        let far = self.nic.endpoint(&EndpointConfig::host().recv_depth(receives))?;
        near.connect(&far.handle())?;
        far.connect(&near.handle())?;
        // A ring of ionic keeps one free.
        Ok(Link { near, far, receives: receives.saturating_sub(1) })
    }
}

impl Chosen {
    /// A device with its architecture.
    pub(crate) fn gpu(gpu: &dyn Gpu, why: &str) -> Self {
        let info = gpu.info();
        Self::new(format!("{} ({})", info.name, info.arch), why)
    }
}

/// Whether the host's processors run the kernels, a hundred times slower than a GPU or more. By default there is
/// less for them to do, and no bound of a GPU holds.
pub(crate) fn on_host(info: &GpuInfo) -> bool {
    info.kind == GpuKind::Simt || info.is_emulated()
}

/// Whether this process runs on a device of `warpverbs run --consume`: its settings are in the
/// variable that the preloaded library reads.
pub(crate) fn only_consumes() -> bool {
    let settings = std::env::var("WARPVERBS_RUN").unwrap_or_default();
    let settings = settings.split("record=").next().unwrap_or_default();
    settings.split(',').any(|part| part == "consume")
}

pub(crate) struct Link {
    pub(crate) near: Endpoint,
    pub(crate) far: Endpoint,
    /// Receives that the other end has room for in every format.
    receives: u32,
}

/// A connected pair and its memory: `local` belongs to the poster's side.
pub(crate) struct Pair {
    pub(crate) link: Link,
    pub(crate) local: MemoryRegion,
    pub(crate) remote: MemoryRegion,
    tag: u64,
}

impl Pair {
    /// Makes pair number `index`, with `bytes` on either side.
    pub(crate) fn new(rig: &Rig, index: usize, link: Link, bytes: u64, mem: Mem) -> Result<Self> {
        let len = usize::try_from(bytes).context("message size")?;
        let (local, remote) = (rig.register(len, mem)?, rig.register(len, mem)?);
        Ok(Self { link, local, remote, tag: index as u64 + 1 })
    }

    #[inline]
    pub(crate) fn memory(&self) -> (LocalRegion, RemoteRegion) {
        (self.local.local(), self.remote.remote())
    }

    /// Offers the destination for as many messages as there is room for.
    pub(crate) fn offer(&self) -> Result<()> {
        let host = self.link.far.host()?;
        (0..self.link.receives)
            .try_for_each(|_| Ok(host.post_recv(self.remote.local()).map(drop)?))
    }

    /// Fills the source with its pattern and the destination with the opposite.
    pub(crate) fn prepare(&self, gpu: &dyn Gpu, op: Op) -> Result<()> {
        let data = pattern(self.tag, self.local.len());
        let (from, to) = self.direction(op);
        gpu.write(from.buffer(), 0, &data)?;
        gpu.write(to.buffer(), 0, &poison(&data))?;
        Ok(())
    }

    /// Compares the destination with what `messages` operations make of it.
    pub(crate) fn verify(&self, gpu: &dyn Gpu, op: Op, messages: u64) -> Result<()> {
        let sent = pattern(self.tag, self.local.len());
        let (_, to) = self.direction(op);
        let mut found = vec![0; to.len()];
        gpu.read(to.buffer(), 0, &mut found)?;
        if op != Op::Atomic {
            return Ok(compare(self.tag as usize - 1, &sent, &found)?);
        }
        let word = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).context("8 bytes");
        let expected = word(&poison(&sent))?.wrapping_add(messages);
        let found = word(&found)?;
        ensure!(found == expected, "counter is {found:#x}, expected {expected:#x}");
        Ok(())
    }

    /// Source and destination of `op`. An atomic's word is remote.
    fn direction(&self, op: Op) -> (&MemoryRegion, &MemoryRegion) {
        match op {
            Op::Write | Op::Send | Op::Atomic => (&self.local, &self.remote),
            Op::Read => (&self.remote, &self.local),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_emulated_gpu_is_as_slow_as_the_host() {
        let on_host = |kind, name| on_host(&GpuInfo::new(kind, 0, name));
        assert!(on_host(GpuKind::Simt, "host SIMT"));
        assert!(on_host(GpuKind::Hip, "emulated gfx942"));
        assert!(!on_host(GpuKind::Hip, "AMD Instinct MI300X"));
        assert!(!on_host(GpuKind::Cuda, "NVIDIA H200"));
    }
}
