//! Where kernels run and what consumes their queues, for tests of this crate and of `shmem`.

use std::sync::Arc;
use std::time::Duration;
use warpverbs::gpu::simt::{Mode, SimtConfig, SimtDevice};
use warpverbs::gpu::{
    Buffer, DeviceStatus, Dim, Gpu, KernelPtr, LaunchError, Place, Qp, SafeKernel,
};
use warpverbs::raw::nic::{Clock, Config, EngineThread, SoftNic, VirtualClock};
use warpverbs::transport::{Context, Device, Endpoint, EndpointConfig, KernelStatus, Outcome};

/// Bounds a test that goes wrong.
pub(crate) const DEADLINE: Duration = Duration::from_secs(120);

pub(crate) struct Bed {
    pub(crate) gpu: Arc<dyn Gpu>,
    pub(crate) nic: SoftNic,
    pub(crate) device: Device,
    /// NICs of other machines.
    pub(crate) others: Vec<(SoftNic, Device)>,
    pub(crate) endpoints: Vec<Endpoint>,
    /// For messages: how to see it again.
    pub(crate) what: String,
    _engine: Option<EngineThread>,
}

/// Whether the environment asks for warps in lockstep.
pub(crate) fn lockstep() -> bool {
    SimtConfig::lockstep_from_env().expect("0 or 1")
}

pub(crate) fn simt() -> Arc<dyn Gpu> {
    Arc::new(SimtDevice::new(SimtConfig::default().lockstep(lockstep())).expect("SIMT device"))
}

/// As `name`, which says the format of its queues.
pub(crate) fn open(nic: &SoftNic, name: &str) -> Device {
    let context = Context::builder().soft_nic(nic.clone()).build().expect("context");
    context.open(name).expect("the software NIC")
}

/// The variables that repeat a test on a device of this seed.
pub(crate) fn repeat(seed: u64, simt: &SimtConfig) -> String {
    format!("WARPVERBS_SIMT_SEED={seed:#x} WARPVERBS_SIMT_LOCKSTEP={}", u8::from(simt.lockstep))
}

impl Bed {
    /// Host SIMT and NIC on one thread, in turns as the seed says, under virtual clocks.
    pub(crate) fn seeded(seed: u64, config: Config) -> Self {
        Self::in_turns(SimtConfig::seeded(seed).lockstep(lockstep()), config)
    }

    /// The same, as `simt` says.
    pub(crate) fn in_turns(simt: SimtConfig, config: Config) -> Self {
        let Mode::Seeded { seed, .. } = simt.mode else { panic!("no seed") };
        let clock = VirtualClock::new();
        let config = Config { seed: Some(seed), clock: Clock::Virtual(clock.clone()), ..config };
        let nic = SoftNic::new(config).expect("NIC");
        let engine = nic.clone();
        let stepper = move || clock.drive(&engine);
        let what = repeat(seed, &simt);
        let simt = SimtDevice::with_stepper(simt, Arc::new(stepper));
        Self::of(Arc::new(simt.expect("SIMT device")), nic, what, None)
    }

    /// Launches that run at once, and a NIC on a thread of its own.
    pub(crate) fn real(gpu: Arc<dyn Gpu>, config: Config) -> Self {
        let nic = SoftNic::new(config).expect("NIC");
        let engine = nic.spawn().expect("engine");
        let what = format!("{} in real time", gpu.info().name);
        Self::of(gpu, nic, what, Some(engine))
    }

    pub(crate) fn of(
        gpu: Arc<dyn Gpu>,
        nic: SoftNic,
        what: String,
        engine: Option<EngineThread>,
    ) -> Self {
        let (device, others) = (open(&nic, "soft"), Vec::new());
        Self { gpu, nic, device, others, endpoints: Vec::new(), what, _engine: engine }
    }

    /// Has the queues of endpoints made from now on in the format of the NIC `name`.
    pub(crate) fn reopen(&mut self, name: &str) {
        self.device = open(&self.nic, name);
        for (nic, device) in &mut self.others {
            *device = open(nic, name);
        }
        self.what += &format!(", {name}");
    }

    /// The NIC of a machine; the only one is that of all.
    pub(crate) fn device_of(&self, machine: usize) -> &Device {
        let other = machine.checked_sub(1).and_then(|other| self.others.get(other));
        other.map_or(&self.device, |(_, device)| device)
    }

    /// The queue pairs of two connected endpoints, which live as long as this.
    pub(crate) fn queue_pairs(&mut self, config: &EndpointConfig) -> [KernelPtr<Qp>; 2] {
        self.queue_pairs_of([0, 0], config)
    }

    /// The same of two machines.
    pub(crate) fn queue_pairs_of(
        &mut self,
        machines: [usize; 2],
        config: &EndpointConfig,
    ) -> [KernelPtr<Qp>; 2] {
        let ends = machines.map(|machine| self.device_of(machine).endpoint(config));
        let [a, b] = ends.map(|end| end.expect("an endpoint"));
        a.connect(&b.handle()).and_then(|()| b.connect(&a.handle())).expect("a connection");
        let pointers = [a.device_qp(), b.device_qp()];
        self.endpoints.extend([a, b]);
        pointers
    }

    /// Zeroed memory that kernels and test reach.
    pub(crate) fn buffer(&self, len: usize) -> Buffer {
        self.gpu.alloc(len, Place::Shared).expect("memory")
    }

    pub(crate) fn read(&self, buffer: &Buffer) -> Vec<u8> {
        let mut out = vec![0; buffer.len()];
        self.gpu.read(buffer, 0, &mut out).expect("read");
        out
    }

    /// Runs a kernel to its end.
    pub(crate) fn run_kernel(&self, kernel: &dyn SafeKernel, dim: Dim) -> Result<(), LaunchError> {
        let launch = self.gpu.launch(kernel, dim, DEADLINE);
        let name = kernel.entry().name;
        launch.unwrap_or_else(|e| panic!("{name}, {}: {e}", self.what)).wait()
    }

    /// Launches what `make` makes of a pointer to a zeroed status; the status it left, or the fault that
    /// ended it.
    pub(crate) fn try_launch<K: SafeKernel>(
        &self,
        dim: Dim,
        make: impl FnOnce(KernelPtr<DeviceStatus>) -> K,
    ) -> Result<Result<(), Outcome>, LaunchError> {
        let status = KernelStatus::new(&self.gpu).expect("a status");
        self.run_kernel(&make(status.pointer()), dim)?;
        Ok(Outcome::of(status.read().expect("the status")))
    }

    /// The same, which must end without a fault.
    pub(crate) fn launch<K: SafeKernel>(
        &self,
        dim: Dim,
        make: impl FnOnce(KernelPtr<DeviceStatus>) -> K,
    ) -> Result<(), Outcome> {
        let ended = self.try_launch(dim, make);
        ended.unwrap_or_else(|e| panic!("{}, {}: {e}", std::any::type_name::<K>(), self.what))
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
