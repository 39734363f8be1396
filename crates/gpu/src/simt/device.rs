//! The device as the rest of the world sees it.

use super::arena::Space;
use super::config::{SimtConfig, Stepper};
use super::graph::Sequence;
use super::run::{Finished, SimtLaunch};
use super::runner::Runner;
use super::stack::StackPool;
use super::warp::WARP;
use crate::buffer::check_adopted;
use crate::launch::Dim;
use crate::{
    Arena, ArenaError, Buffer, Gpu, GpuError, GpuInfo, GpuKind, Graph, Image, Keep, Kernel, Launch,
    Place, Step, Stops,
};
use std::sync::Arc;
use std::time::Duration;
use warpverbs_mem::{HostBuf, Kind, Region};

/// A host SIMT device. Launches run at the same time, each on a thread of its own.
pub struct SimtDevice {
    info: GpuInfo,
    runner: Runner,
    stops: Arc<Stops>,
}

impl SimtDevice {
    /// A device whose kernels' peers, if any, run on other threads.
    pub fn new(config: SimtConfig) -> Result<Self, GpuError> {
        config.check()?;
        let info = GpuInfo {
            kind: GpuKind::Simt,
            ordinal: config.ordinal,
            name: "host SIMT".to_owned(),
            arch: std::env::consts::ARCH.to_owned(),
            warp_size: WARP,
            sm_count: config.resident_lanes / 1024,
            memory_bytes: memory_bytes(),
            pci: None,
            dmabuf: false,
            ordered_nic_writes: true,
            shareable: true,
            uuid: None,
        };
        let stacks = Arc::new(StackPool::new(config.stack_bytes));
        let (launches, history) = (Arc::default(), Arc::default());
        // A launch that has ended has let go of everything by itself.
        let stops = Stops::new(|| (), |len| Ok(Buffer::of_region(HostBuf::region(len)?)));
        let runner = Runner { config, stacks, stepper: None, launches, history };
        Ok(Self { info, runner, stops })
    }

    /// A device that runs `stepper` between turns of its lanes, and whenever none can run.
    pub fn with_stepper(config: SimtConfig, stepper: Arc<dyn Stepper>) -> Result<Self, GpuError> {
        let mut device = Self::new(config)?;
        device.runner.stepper = Some(stepper);
        Ok(device)
    }

    /// The last launches that ended, oldest first, at most 64.
    pub fn finished(&self) -> Vec<Finished> {
        self.runner.history.all()
    }

    /// How it schedules.
    pub fn config(&self) -> &SimtConfig {
        &self.runner.config
    }

    fn unsupported(&self, what: &'static str) -> GpuError {
        self.runner.unsupported(what)
    }
}

impl Gpu for SimtDevice {
    fn info(&self) -> &GpuInfo {
        &self.info
    }

    fn alloc(&self, len: usize, _place: Place) -> Result<Buffer, GpuError> {
        let region = HostBuf::region(len)?;
        Ok(Buffer::of_region(region))
    }

    fn map(&self, region: &Region) -> Result<Buffer, GpuError> {
        if region.kind() != Kind::Host {
            return Err(self.unsupported("kernels on memory that the CPU cannot reach"));
        }
        Ok(Buffer::of_region(region.clone()))
    }

    fn read(&self, buffer: &Buffer, offset: u64, out: &mut [u8]) -> Result<(), GpuError> {
        Ok(buffer.region().read(offset, out)?)
    }

    fn write(&self, buffer: &Buffer, offset: u64, data: &[u8]) -> Result<(), GpuError> {
        Ok(buffer.region().write(offset, data)?)
    }

    fn zero(&self, buffer: &Buffer) -> Result<(), GpuError> {
        Ok(buffer.region().fill(0, buffer.len(), 0)?)
    }

    fn load(&self, _image: &'static Image) -> Result<(), GpuError> {
        // Kernels are part of the program.
        Ok(())
    }

    fn resident_blocks(&self, kernel: &dyn Kernel, dim: Dim) -> Result<u32, GpuError> {
        dim.check(kernel.entry().name, 1024)?;
        Ok(self.runner.config.resident_lanes / dim.threads())
    }

    unsafe fn launch_unchecked(
        &self,
        kernel: &dyn Kernel,
        dim: Dim,
        deadline: Duration,
    ) -> Result<Launch, GpuError> {
        let job = self.runner.job(kernel, dim, &Arc::default())?;
        // SAFETY: `Kernel` promises parameters that match the entry, and the caller that the kernel
        // touches what lies behind its pointers alone; the job keeps that alive.
        let state = unsafe { SimtLaunch::start(job) }?;
        Ok(Launch::new(Box::new(state), deadline))
    }

    fn prepare(&self, first: Step, more: Vec<Step>) -> Result<Graph, GpuError> {
        Ok(Graph::of(Sequence { runner: self.runner.clone(), first, more }))
    }

    fn stops(&self) -> &Arc<Stops> {
        &self.stops
    }

    fn arena(&self, len: u64) -> Result<Arena, ArenaError> {
        Ok(Arena::new(Arc::new(Space::reserve(len, self.info.memory_bytes)?)))
    }

    unsafe fn adopt(&self, addr: u64, len: usize, keep: Keep) -> Result<Buffer, GpuError> {
        check_adopted(addr)?;
        // SAFETY: the caller's promise about the memory and `keep`.
        Ok(Buffer::of_region(unsafe { Region::foreign(addr, len, keep) }))
    }

    fn enable_peer(&self, other: &dyn Gpu) -> Result<(), GpuError> {
        match other.info().kind {
            GpuKind::Simt => Ok(()),
            _ => Err(self.unsupported("kernels on the memory of a GPU")),
        }
    }
}

/// Physical memory of the machine; 0 if the system does not report it.
fn memory_bytes() -> u64 {
    // SAFETY: no preconditions.
    let pages = unsafe { libc::sysconf(libc::_SC_PHYS_PAGES) };
    // SAFETY: no preconditions.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(pages).unwrap_or(0) * u64::try_from(page).unwrap_or(0)
}
