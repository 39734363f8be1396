//! Ranks of a test: threads that meet as processes do.

use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;
use warpverbs_gpu::{DeviceHeap, DeviceStatus, Dim, Gpu, GpuChoice, KernelPtr, Launch, SafeKernel};
use warpverbs_rendezvous::{Host, Limits, Server, World, WorldConfig};
use warpverbs_shmem::{Heap, HeapConfig, ShmemError};
use warpverbs_transport::{Context, Device, KernelStatus, Outcome};

/// Ends a hang: nothing that comes at all takes this long, however slow the machine is. Less than the
/// silence after which ranks look for signs of life, which would be more calls to count.
pub(crate) const PATIENCE: Duration = Duration::from_secs(240);
pub(crate) const SIZE: u64 = 1 << 20;

pub(crate) fn config() -> HeapConfig {
    HeapConfig::new(SIZE).deadline(PATIENCE)
}

pub(crate) fn simt() -> Arc<dyn Gpu> {
    warpverbs_gpu::open(GpuChoice::Simt).unwrap()
}

/// One software NIC for all, with queues of the format that `name` says.
fn nic(name: &str) -> Device {
    static CONTEXT: OnceLock<Context> = OnceLock::new();
    CONTEXT.get_or_init(|| Context::builder().build().unwrap()).open(name).unwrap()
}

/// A rank before it has a heap.
pub(crate) struct Rank {
    pub(crate) world: World,
    pub(crate) gpu: Arc<dyn Gpu>,
    pub(crate) nic: Option<Device>,
}

impl Rank {
    pub(crate) fn number(&self) -> u32 {
        self.world.rank()
    }

    pub(crate) fn heap(&mut self, config: &HeapConfig) -> Result<Heap, ShmemError> {
        Heap::create(&mut self.world, &self.gpu, self.nic.as_ref(), config)
    }

    /// Starts a kernel of one block on the heap.
    pub(crate) fn start<K: SafeKernel>(
        &self,
        heap: &Heap,
        make: impl FnOnce(KernelPtr<DeviceHeap>, KernelPtr<DeviceStatus>) -> K,
    ) -> Running {
        let status = KernelStatus::new(&self.gpu).unwrap();
        let kernel = make(heap.device(), status.pointer());
        let launch = self.gpu.launch(&kernel, Dim::new(1, 64), PATIENCE).unwrap();
        Running { launch, status }
    }

    /// The same, to its end.
    pub(crate) fn run<K: SafeKernel>(
        &self,
        heap: &Heap,
        make: impl FnOnce(KernelPtr<DeviceHeap>, KernelPtr<DeviceStatus>) -> K,
    ) -> Result<(), Outcome> {
        self.start(heap, make).end()
    }

    /// Waits for all ranks, or for the loss of one.
    pub(crate) fn meet_if_possible(&mut self) {
        let _ = self.world.barrier("end");
    }

    /// Waits for all ranks.
    pub(crate) fn meet(&mut self) {
        self.world.barrier("test").unwrap();
    }
}

/// A kernel that runs, and the word where it says how it ended.
pub(crate) struct Running {
    pub(crate) launch: Launch,
    status: KernelStatus,
}

impl Running {
    pub(crate) fn end(self) -> Result<(), Outcome> {
        self.launch.wait().unwrap();
        Outcome::of(self.status.read().unwrap())
    }
}

pub(crate) fn world_config(rank: u32, world_size: u32, port: u16) -> WorldConfig {
    let config = WorldConfig::at(rank, world_size, "127.0.0.1", port).host(Host::Elsewhere);
    config.job("test").timeout(PATIENCE)
}

pub(crate) fn serve() -> Server {
    Server::bind("127.0.0.1:0".parse().unwrap(), Limits::default()).unwrap()
}

/// Runs `act` as every rank at once, and gives the results by rank.
pub(crate) fn ranks<T: Send>(count: u32, act: impl Fn(&mut Rank) -> T + Sync) -> Vec<T> {
    ranks_on("soft", count, act)
}

/// The same on the software NIC of this name.
pub(crate) fn ranks_on<T: Send>(
    name: &str,
    count: u32,
    act: impl Fn(&mut Rank) -> T + Sync,
) -> Vec<T> {
    let (server, act, nic) = (serve(), &act, &nic(name));
    thread::scope(|scope| {
        let start = |rank| {
            let config = world_config(rank, count, server.local_addr().port());
            scope.spawn(move || {
                let world = World::join(&config).unwrap();
                act(&mut Rank { world, gpu: simt(), nic: Some(nic.clone()) })
            })
        };
        let threads: Vec<_> = (0..count).map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}
