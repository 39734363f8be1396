//! Two agents' memory, and what their kernels are given of it.

use std::sync::Arc;
use std::time::Duration;
use warpverbs::gpu::simt::{SimtConfig, SimtDevice};
use warpverbs::gpu::{
    Buffer, DeviceStatus, Dim, Element, Gpu, GpuError, KernelPtr, LaunchError, LocalView, Place,
    Qp, RemoteView, SafeKernel,
};
use warpverbs::raw::gpu::views::{
    LocalPart, RemotePart, RemoteWay, ViewWaits, local_view, remote_view,
};
use warpverbs::raw::nic::{Clock, Config, EngineThread, SoftNic, VirtualClock};
use warpverbs::transport::{
    Access, Context, Device, Endpoint, EndpointConfig, MemoryRegion, Outcome,
};

/// Bounds a test that goes wrong.
const DEADLINE: Duration = Duration::from_secs(120);
pub(crate) const CHANNELS: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    Direct,
    Rdma,
}

pub(crate) const ROUTES: [Route; 2] = [Route::Direct, Route::Rdma];
/// Thread, warp, block.
pub(crate) const GROUPS: [u32; 3] = [0, 1, 2];
/// The last warp is not full, and not every thread has something to copy.
pub(crate) const DIM: Dim = Dim::new(2, 80);

pub(crate) struct Agents {
    pub(crate) gpu: Arc<dyn Gpu>,
    pub(crate) route: Route,
    pub(crate) memory: [Buffer; 2],
    pub(crate) regions: [MemoryRegion; 2],
    pub(crate) waits: [ViewWaits; 2],
    /// Queue pairs of each agent to the other, one for each channel.
    pub(crate) qps: [Vec<KernelPtr<Qp>>; 2],
    /// For messages: how to see it again.
    pub(crate) what: String,
    endpoints: Vec<Endpoint>,
    _engine: Option<EngineThread>,
}

/// Without a seed, several launches run at once, and the NIC on a thread of its own.
fn device_and_nic(seed: Option<u64>) -> (Arc<dyn Gpu>, Device, Option<EngineThread>) {
    let connect = |nic: SoftNic| {
        let context = Context::builder().soft_nic(nic).build().expect("context");
        context.open("soft").expect("the software NIC")
    };
    let Some(seed) = seed else {
        let nic = SoftNic::new(Config::default()).expect("NIC");
        let engine = nic.spawn().expect("engine");
        let simt = SimtDevice::new(SimtConfig::default()).expect("SIMT device");
        return (Arc::new(simt), connect(nic), Some(engine));
    };
    let clock = VirtualClock::new();
    let config =
        Config { seed: Some(seed), clock: Clock::Virtual(clock.clone()), ..Config::default() };
    let nic = SoftNic::new(config).expect("NIC");
    let engine = nic.clone();
    let stepper = move || clock.drive(&engine);
    let simt = SimtDevice::with_stepper(SimtConfig::seeded(seed), Arc::new(stepper));
    (Arc::new(simt.expect("SIMT device")), connect(nic), None)
}

impl Agents {
    /// Agents with `bytes` of memory each, filled with zeros.
    pub(crate) fn new(bytes: usize, route: Route, seed: u64) -> Self {
        Self::made(bytes, route, Some(seed))
    }

    /// The same, with launches and a NIC that run at once.
    pub(crate) fn real(bytes: usize, route: Route) -> Self {
        Self::made(bytes, route, None)
    }

    fn made(bytes: usize, route: Route, seed: Option<u64>) -> Self {
        let (gpu, device, engine) = device_and_nic(seed);
        let memory = [0, 1].map(|_| gpu.alloc(bytes, Place::Shared).expect("memory"));
        let regions = memory
            .each_ref()
            .map(|memory| device.register(memory.clone(), Access::all()).expect("registration"));
        let waits = [0, 1]
            .map(|_| ViewWaits::new(&*gpu, 2, Duration::from_secs(60)).expect("words of waits"));
        let config = EndpointConfig::for_gpu(&gpu).send_depth(128);
        let (mut endpoints, mut qps) = (Vec::new(), [Vec::new(), Vec::new()]);
        for _ in 0..CHANNELS {
            let pair = [0, 1].map(|_| device.endpoint(&config).expect("endpoint"));
            pair[0].connect(&pair[1].handle()).expect("connect");
            pair[1].connect(&pair[0].handle()).expect("connect");
            qps[0].push(pair[0].device_qp());
            qps[1].push(pair[1].device_qp());
            endpoints.extend(pair);
        }
        let what = match seed {
            Some(seed) => format!("{route:?}, WARPVERBS_SIMT_SEED={seed:#x}"),
            None => format!("{route:?} in real time"),
        };
        Self { gpu, route, memory, regions, waits, qps, what, endpoints, _engine: engine }
    }

    /// A view of agent `me`'s own memory: offset and length of each entry.
    pub(crate) fn local(&self, me: usize, entries: &[(u64, u64)]) -> KernelPtr<LocalView> {
        let part = |&(offset, len): &(u64, u64)| LocalPart {
            memory: self.memory[me].slice(offset, len as usize).expect("a slice"),
            nic: Some(warpverbs::gpu::Local::from(self.regions[me].local()).offset(offset)),
        };
        let parts: Vec<_> = entries.iter().map(part).collect();
        local_view(&*self.gpu, &parts, &self.waits[me]).expect("a view")
    }

    pub(crate) fn part(&self, me: usize, (offset, bytes): (u64, u64)) -> RemotePart {
        let peer = 1 - me;
        let way = match self.route {
            Route::Direct => {
                RemoteWay::Direct(self.memory[peer].slice(offset, bytes as usize).expect("a slice"))
            }
            Route::Rdma => RemoteWay::Rdma {
                place: warpverbs::gpu::Remote::from(self.regions[peer].remote()).offset(offset),
                bytes,
                qps: self.qps[me].clone(),
            },
        };
        RemotePart { peer: peer as u32, way }
    }

    /// The other's memory as agent `me` sees it.
    pub(crate) fn remote(&self, me: usize, entries: &[(u64, u64)]) -> KernelPtr<RemoteView> {
        let parts: Vec<_> = entries.iter().map(|entry| Some(self.part(me, *entry))).collect();
        remote_view(&*self.gpu, &parts, Duration::from_secs(60)).expect("a view")
    }

    pub(crate) fn buffer(&self, len: usize) -> Buffer {
        self.gpu.alloc(len, Place::Shared).expect("memory")
    }

    /// A kernel's array.
    pub(crate) fn array<T: Element>(&self, bytes: &[u8]) -> KernelPtr<T> {
        let buffer = self.buffer(bytes.len());
        self.gpu.write(&buffer, 0, bytes).expect("write");
        KernelPtr::new(&buffer)
    }

    pub(crate) fn read(&self, buffer: &Buffer) -> Vec<u8> {
        let mut out = vec![0; buffer.len()];
        self.gpu.read(buffer, 0, &mut out).expect("read");
        out
    }

    /// The value of the counter at `offset` of an agent's memory.
    pub(crate) fn counter(&self, agent: usize, offset: u64) -> u64 {
        let mut out = [0; 16];
        self.gpu.read(&self.memory[agent], offset, &mut out).expect("read");
        let (direct, remote) = out.split_at(8);
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
        word(direct).wrapping_add(word(remote))
    }

    /// Launches what `make` makes of a pointer to a zeroed status.
    pub(crate) fn try_launch<K: SafeKernel>(
        &self,
        dim: Dim,
        make: impl FnOnce(KernelPtr<DeviceStatus>) -> K,
    ) -> Result<Result<(), Outcome>, LaunchError> {
        let status = self.buffer(4);
        let kernel = make(KernelPtr::new(&status));
        let launch: Result<_, GpuError> = self.gpu.launch(&kernel, dim, DEADLINE);
        launch.expect("a launch").wait()?;
        let code = self.read(&status);
        Ok(Outcome::of(DeviceStatus(u32::from_le_bytes(code.try_into().expect("4 bytes")))))
    }

    pub(crate) fn launch<K: SafeKernel>(
        &self,
        dim: Dim,
        make: impl FnOnce(KernelPtr<DeviceStatus>) -> K,
    ) -> Result<(), Outcome> {
        self.try_launch(dim, make).unwrap_or_else(|e| panic!("{}: {e}", self.what))
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
}

/// Both agents' memory as it ought to be, and numbers without quality, the same for the same seed.
pub(crate) struct Model {
    pub(crate) memory: [Vec<u8>; 2],
    state: u64,
}

impl Model {
    /// Fills agents and model with the same bytes.
    pub(crate) fn fill(agents: &Agents, seed: u64) -> Self {
        let mut model = Self { memory: [Vec::new(), Vec::new()], state: seed };
        for agent in 0..2 {
            let words = agents.memory[agent].len() / 8;
            model.memory[agent] = (0..words).flat_map(|_| model.next().to_le_bytes()).collect();
            agents.gpu.write(&agents.memory[agent], 0, &model.memory[agent]).expect("write");
        }
        model
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.state = self
            .state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.state ^ self.state >> 29
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 16) % end
    }

    pub(crate) fn copy(&mut self, from: (usize, u64), to: (usize, u64), bytes: u64) {
        let source = self.memory[from.0][from.1 as usize..][..bytes as usize].to_vec();
        self.memory[to.0][to.1 as usize..][..bytes as usize].copy_from_slice(&source);
    }

    /// Adds to the half of a counter that `route` adds to.
    pub(crate) fn add(&mut self, agent: usize, offset: u64, value: u64, route: Route) {
        let at = offset as usize + if route == Route::Direct { 0 } else { 8 };
        let word = &mut self.memory[agent][at..at + 8];
        let old = u64::from_le_bytes(word.try_into().expect("8 bytes"));
        word.copy_from_slice(&old.wrapping_add(value).to_le_bytes());
    }

    /// Every byte of both.
    pub(crate) fn compare(&self, agents: &Agents, what: &str) {
        for (agent, expected) in self.memory.iter().enumerate() {
            let found = agents.read(&agents.memory[agent]);
            let wrong = found.iter().zip(expected).position(|(a, b)| a != b);
            assert_eq!(wrong, None, "{what}, {}: first wrong byte of agent {agent}", agents.what);
        }
    }
}
