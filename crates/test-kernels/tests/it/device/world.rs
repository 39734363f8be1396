//! A device, a NIC, and two connected endpoints.

use std::sync::Arc;
use std::time::Duration;
use warpverbs::gpu::simt::{SimtConfig, SimtDevice};
use warpverbs::gpu::{self, Dim, Element, Gpu, KernelPtr, Place, SafeKernel};
use warpverbs::raw::nic::{Clock, Config, DoorbellPolicy, EngineThread, SoftNic, VirtualClock};
use warpverbs::transport::{
    Access, Context, CqMode, Device, Endpoint, EndpointConfig, MemoryRegion,
};

/// Every doorbell policy there is.
pub(crate) const POLICIES: [DoorbellPolicy; 4] = [
    DoorbellPolicy::DoorbellFirst,
    DoorbellPolicy::RecordFirst,
    DoorbellPolicy::Random,
    DoorbellPolicy::DropThenRecover { polls: 50 },
];

/// Bounds a test that goes wrong.
const DEADLINE: Duration = Duration::from_secs(120);

/// Where kernels run and what consumes their queues.
pub(crate) struct World {
    pub(crate) gpu: Arc<dyn Gpu>,
    pub(crate) nic: SoftNic,
    pub(crate) device: Device,
    /// For messages: how to see it again.
    pub(crate) what: String,
    _engine: Option<EngineThread>,
}

fn connect_to(nic: &SoftNic) -> Device {
    let context = Context::builder().soft_nic(nic.clone()).build().expect("context");
    context.open("soft").expect("the software NIC")
}

impl World {
    /// Host SIMT and NIC on one thread, in turns as the seed says, under virtual clocks.
    pub(crate) fn seeded(seed: u64, policy: DoorbellPolicy) -> Self {
        let clock = VirtualClock::new();
        let config = Config {
            seed: Some(seed),
            policy,
            clock: Clock::Virtual(clock.clone()),
            watch_rewrites: true,
            ..Config::default()
        };
        let nic = SoftNic::new(config).expect("NIC");
        let engine = nic.clone();
        let stepper = move || clock.drive(&engine);
        let simt = SimtDevice::with_stepper(SimtConfig::seeded(seed), Arc::new(stepper));
        let device = connect_to(&nic);
        let what = format!("WARPVERBS_SIMT_SEED={seed:#x}, {policy:?}");
        Self { gpu: Arc::new(simt.expect("SIMT device")), nic, device, what, _engine: None }
    }

    /// A device by its name, and a NIC with an engine thread.
    pub(crate) fn real(gpu: &str, policy: DoorbellPolicy) -> Self {
        let nic = SoftNic::new(Config { policy, ..Config::default() }).expect("NIC");
        let engine = nic.spawn().expect("engine");
        let device = connect_to(&nic);
        let gpu = gpu::open(gpu.parse().expect("a choice")).expect("device");
        let what = format!("{} in real time, {policy:?}", gpu.info().name);
        Self { gpu, nic, device, what, _engine: Some(engine) }
    }

    pub(crate) fn config(&self, depth: u32) -> EndpointConfig {
        EndpointConfig::for_gpu(&self.gpu)
            .send_depth(depth)
            .inline_bytes(96)
            .send_cq(CqMode::Collapsed)
            .timeout(Duration::from_secs(60))
    }

    pub(crate) fn pair(&self, config: &EndpointConfig) -> (Endpoint, Endpoint) {
        let make = || self.device.endpoint(config).expect("endpoint");
        let (a, b) = (make(), make());
        a.connect(&b.handle()).expect("connect");
        b.connect(&a.handle()).expect("connect");
        (a, b)
    }

    /// Zeroed memory that kernels, NIC and test reach, with every right.
    pub(crate) fn memory(&self, len: usize) -> MemoryRegion {
        let buffer = self.gpu.alloc(len, Place::Shared).expect("memory");
        self.device.register(buffer, Access::all()).expect("registration")
    }

    pub(crate) fn bytes(&self, memory: &MemoryRegion) -> Vec<u8> {
        let mut out = vec![0; memory.len()];
        self.gpu.read(memory.buffer(), 0, &mut out).expect("read");
        out
    }

    pub(crate) fn words(&self, memory: &MemoryRegion) -> Vec<u64> {
        let bytes = self.bytes(memory);
        bytes.chunks_exact(8).map(|b| u64::from_le_bytes(b.try_into().expect("8 bytes"))).collect()
    }

    pub(crate) fn statuses(&self, memory: &MemoryRegion) -> Vec<u32> {
        let bytes = self.bytes(memory);
        bytes.chunks_exact(4).map(|b| u32::from_le_bytes(b.try_into().expect("4 bytes"))).collect()
    }

    pub(crate) fn fill(&self, memory: &MemoryRegion, data: &[u8]) {
        self.gpu.write(memory.buffer(), 0, data).expect("write");
    }

    pub(crate) fn run(&self, kernel: &dyn SafeKernel, dim: Dim) {
        let name = kernel.entry().name;
        let launch = self.gpu.launch(kernel, dim, DEADLINE);
        let launch = launch.unwrap_or_else(|e| panic!("{name}, {}: {e}", self.what));
        launch.wait().unwrap_or_else(|e| panic!("{name}, {}: {e}", self.what));
    }

    /// Everybody's status was ok, and the NIC saw nothing to complain of.
    pub(crate) fn all_ok(&self, status: &MemoryRegion, endpoints: &[&Endpoint]) {
        let bad: Vec<_> =
            self.statuses(status).into_iter().enumerate().filter(|(_, code)| *code != 0).collect();
        let violations = self.nic.take_violations();
        for endpoint in endpoints {
            let health = endpoint.health().expect("health");
            assert!(
                bad.is_empty() && violations.is_empty() && health.is_ok(),
                "{}\n{} threads failed, first {:x?}\n{health}\n{violations:?}",
                self.what,
                bad.len(),
                bad.first()
            );
        }
    }
}

/// Bytes no two words of which are equal.
pub(crate) fn pattern(len: usize, salt: u64) -> Vec<u8> {
    let word = |i: u64| (i ^ salt << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    (0..len.div_ceil(8) as u64).flat_map(word).take(len).collect()
}

pub(crate) fn pointer<T: Element>(memory: &MemoryRegion) -> KernelPtr<T> {
    KernelPtr::new(memory.buffer())
}
