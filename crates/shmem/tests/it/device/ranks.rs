//! Several ranks' heaps in one process, and what their kernels need.

use std::sync::Arc;
use std::time::Duration;
use warpverbs::gpu::simt::{SimtConfig, SimtDevice};
use warpverbs::gpu::{
    Buffer, DeviceHeap, DeviceStatus, Dim, Element, Gpu, KernelPtr, Local, Place, Qp, SafeKernel,
};
use warpverbs::raw::gpu::KernelArg;
use warpverbs::raw::nic::{Clock, Config, EngineThread, SoftNic, VirtualClock};
use warpverbs::transport::{
    Access, Context, Device, Endpoint, EndpointConfig, MemoryRegion, Outcome,
};
use warpverbs_shmem::layout::{HeapFault, HeapState};
use warpverbs_shmem::{Export, Rank, RdmaRoute};
use zerocopy::FromBytes;

/// Bounds a test that goes wrong.
const DEADLINE: Duration = Duration::from_secs(120);

/// The first segment of every heap has 64 KiB, so that the larger transfers cross several.
pub(crate) const LOG_SEGMENT: u8 = 16;

/// Routes between ranks. Each rank reaches itself directly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Routes {
    Direct,
    Rdma,
    /// Ranks of the same parity share a machine, so to speak.
    Mixed,
}

impl Routes {
    pub(crate) fn direct(self, from: usize, to: usize) -> bool {
        match self {
            Self::Direct => true,
            Self::Rdma => from == to,
            Self::Mixed => from % 2 == to % 2,
        }
    }
}

/// How the launches of a test are scheduled.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pace {
    /// Kernel and NIC on one thread, in turns as the seed says, under virtual clocks.
    Seeded(u64),
    /// The NIC on a thread of its own.
    Real,
}

pub(crate) struct Ranks {
    pub(crate) gpu: Arc<dyn Gpu>,
    pub(crate) heaps: Vec<KernelPtr<DeviceHeap>>,
    pub(crate) memory: Vec<Buffer>,
    pub(crate) states: Vec<Buffer>,
    pub(crate) alarms: Vec<Buffer>,
    pub(crate) endpoints: Vec<Endpoint>,
    /// For messages: how to see it again.
    pub(crate) what: String,
    _regions: Vec<MemoryRegion>,
    _engine: Option<EngineThread>,
}

fn device_and_nic(pace: Pace) -> (Arc<dyn Gpu>, Device, Option<EngineThread>) {
    let connect = |nic: &SoftNic| {
        let context = Context::builder().soft_nic(nic.clone()).build().expect("context");
        context.open("soft").expect("the software NIC")
    };
    let Pace::Seeded(seed) = pace else {
        let nic = SoftNic::new(Config::default()).expect("NIC");
        let engine = nic.spawn().expect("engine");
        let simt = SimtDevice::new(SimtConfig::default()).expect("SIMT device");
        return (Arc::new(simt), connect(&nic), Some(engine));
    };
    let clock = VirtualClock::new();
    let config =
        Config { seed: Some(seed), clock: Clock::Virtual(clock.clone()), ..Config::default() };
    let nic = SoftNic::new(config).expect("NIC");
    let engine = nic.clone();
    let stepper = move || clock.drive(&engine);
    let simt = SimtDevice::with_stepper(SimtConfig::seeded(seed), Arc::new(stepper));
    (Arc::new(simt.expect("SIMT device")), connect(&nic), None)
}

/// `[start, end)` of every segment of a heap of `bytes`.
fn segments(bytes: usize) -> Vec<(usize, usize)> {
    let mut end = 1 << LOG_SEGMENT;
    let mut found = vec![(0, end.min(bytes))];
    while end < bytes {
        found.push((end, (2 * end).min(bytes)));
        end *= 2;
    }
    found
}

/// One rank's heap under the NIC's keys, a region for each segment.
fn register(device: &Device, memory: &Buffer) -> Vec<MemoryRegion> {
    let one = |(start, end): (usize, usize)| {
        let slice = memory.slice(start as u64, end - start).expect("a slice");
        device.register(slice, Access::all()).expect("registration")
    };
    segments(memory.len()).into_iter().map(one).collect()
}

/// Connected endpoints of every pair of ranks, `per_pair` of them, by [from][to].
fn connect(
    device: &Device,
    gpu: &Arc<dyn Gpu>,
    world: usize,
    per_pair: usize,
    endpoints: &mut Vec<Endpoint>,
) -> Vec<Vec<Vec<KernelPtr<Qp>>>> {
    let config = EndpointConfig::for_gpu(gpu).send_depth(128).inline_bytes(96);
    let mut qps = vec![vec![Vec::new(); world]; world];
    for (i, j) in (0..world).flat_map(|i| (i..world).map(move |j| (i, j))) {
        for _ in 0..per_pair {
            let make = || device.endpoint(&config).expect("endpoint");
            let (a, b) = (make(), make());
            a.connect(&b.handle()).expect("connect");
            b.connect(&a.handle()).expect("connect");
            qps[i][j].push(a.device_qp());
            if i != j {
                qps[j][i].push(b.device_qp());
            }
            endpoints.extend([a, b]);
        }
    }
    qps
}

impl Ranks {
    /// Heaps of `bytes` each, filled with zeros.
    pub(crate) fn new(world: usize, bytes: usize, routes: Routes, pace: Pace) -> Self {
        let (gpu, device, engine) = device_and_nic(pace);
        let alloc = |len| gpu.alloc(len, Place::Shared).expect("memory");
        let memory: Vec<_> = (0..world).map(|_| alloc(bytes)).collect();
        let states: Vec<_> = (0..world).map(|_| alloc(size_of::<HeapState>())).collect();
        let alarms: Vec<_> = (0..world).map(|_| alloc(4 * (1 + world))).collect();
        let regions: Vec<_> = memory.iter().map(|memory| register(&device, memory)).collect();
        let mut endpoints = Vec::new();
        let qps = connect(&device, &gpu, world, 2, &mut endpoints);
        let entry = |from: usize, to: usize| {
            let segments = regions[to].iter().map(|region| region.remote().into()).collect();
            let shared_atomics = routes != Routes::Direct;
            let rdma = RdmaRoute { qps: qps[from][to].clone(), segments };
            Rank {
                direct: routes.direct(from, to).then(|| KernelPtr::new(&memory[to])),
                rdma: shared_atomics.then_some(rdma),
                shared_atomics,
            }
        };
        let export = |rank: usize| Export {
            rank: rank as u32,
            ranks: (0..world).map(|to| entry(rank, to)).collect(),
            bytes: bytes as u64,
            log_segment: LOG_SEGMENT,
            windows: vec![],
            segments: regions[rank].iter().map(|region| Local::from(region.local())).collect(),
            state: KernelPtr::new(&states[rank]),
            alarms: KernelPtr::new(&alarms[rank]),
            timeout: Duration::from_secs(60),
        };
        let heaps = (0..world).map(|rank| export(rank).upload(&*gpu).expect("a heap")).collect();
        let what = format!("{world} ranks, {routes:?}, {pace:x?}");
        let _regions = regions.into_iter().flatten().collect();
        Self { gpu, heaps, memory, states, alarms, endpoints, what, _regions, _engine: engine }
    }

    /// Memory of kernels that is no heap's.
    pub(crate) fn buffer(&self, len: usize) -> Buffer {
        self.gpu.alloc(len, Place::Shared).expect("memory")
    }

    /// For kernels that run these ranks as blocks; `member` makes what an image has for one.
    pub(crate) fn members<M: KernelArg>(
        &self,
        of: impl IntoIterator<Item = usize>,
        member: fn(KernelPtr<DeviceHeap>) -> M,
    ) -> KernelPtr<M> {
        let members: Vec<_> = of.into_iter().map(|rank| member(self.heaps[rank].clone())).collect();
        KernelPtr::upload(&*self.gpu, &members).expect("members")
    }

    pub(crate) fn fill(&self, rank: usize, offset: u64, data: &[u8]) {
        self.gpu.write(&self.memory[rank], offset, data).expect("write");
    }

    pub(crate) fn bytes(&self, rank: usize) -> Vec<u8> {
        self.read(&self.memory[rank])
    }

    pub(crate) fn read(&self, buffer: &Buffer) -> Vec<u8> {
        let mut out = vec![0; buffer.len()];
        self.gpu.read(buffer, 0, &mut out).expect("read");
        out
    }

    /// The u64 at `offset` of a rank's heap.
    pub(crate) fn word(&self, rank: usize, offset: u64) -> u64 {
        let mut out = [0; 8];
        self.gpu.read(&self.memory[rank], offset, &mut out).expect("read");
        u64::from_le_bytes(out)
    }

    /// Launches what `make` makes of a pointer to a zeroed status; the status it left.
    pub(crate) fn launch<K: SafeKernel>(
        &self,
        dim: Dim,
        make: impl FnOnce(KernelPtr<DeviceStatus>) -> K,
    ) -> Result<(), Outcome> {
        let status = self.buffer(4);
        let kernel = make(KernelPtr::new(&status));
        let name = kernel.entry().name;
        let launch = self.gpu.launch(&kernel, dim, DEADLINE);
        let launch = launch.unwrap_or_else(|e| panic!("{name}, {}: {e}", self.what));
        launch.wait().unwrap_or_else(|e| panic!("{name}, {}: {e}", self.what));
        let code = self.read(&status);
        Outcome::of(DeviceStatus(u32::from_le_bytes(code.try_into().expect("4 bytes"))))
    }

    /// The same, which must succeed.
    pub(crate) fn run<K: SafeKernel>(
        &self,
        dim: Dim,
        make: impl FnOnce(KernelPtr<DeviceStatus>) -> K,
    ) {
        if let Err(outcome) = self.launch(dim, make) {
            let health: Vec<_> = self.endpoints.iter().map(Endpoint::health).collect();
            panic!("{}: {outcome}\n{health:?}", self.what);
        }
    }

    pub(crate) fn fault(&self, rank: usize) -> HeapFault {
        HeapState::read_from_bytes(&self.read(&self.states[rank])).expect("a state").fault
    }

    pub(crate) fn raise_alarm(&self, rank: usize, index: usize) {
        let word = 1u32.to_ne_bytes();
        self.gpu.write(&self.alarms[rank], 4 * index as u64, &word).expect("write");
    }
}

/// Memory for one value of each of `count` threads.
pub(crate) fn pointer<T: Element>(buffer: &Buffer) -> KernelPtr<T> {
    KernelPtr::new(buffer)
}
