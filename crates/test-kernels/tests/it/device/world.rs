//! A device, a NIC, and memory under its keys.

use crate::bed::Bed;
use std::ops::Deref;
use std::time::Duration;
use warpverbs::gpu::simt::SimtConfig;
use warpverbs::gpu::{self, Dim, Element, KernelPtr, SafeKernel};
use warpverbs::raw::nic::{Config, DoorbellPolicy};
use warpverbs::transport::{Access, CqMode, Endpoint, EndpointConfig, MemoryRegion};

/// Every doorbell policy there is.
pub(crate) const POLICIES: [DoorbellPolicy; 4] = [
    DoorbellPolicy::DoorbellFirst,
    DoorbellPolicy::RecordFirst,
    DoorbellPolicy::Random,
    DoorbellPolicy::DropThenRecover { polls: 50 },
];

pub(crate) struct World(Bed);

impl Deref for World {
    type Target = Bed;

    fn deref(&self) -> &Bed {
        &self.0
    }
}

impl World {
    /// Host SIMT and NIC in turns as the seed says.
    pub(crate) fn seeded(seed: u64, policy: DoorbellPolicy) -> Self {
        let config = Config { policy, watch_rewrites: true, ..Config::default() };
        Self::of(Bed::seeded(seed, config), policy)
    }

    /// The same with warps in lockstep.
    pub(crate) fn lockstep(seed: u64, policy: DoorbellPolicy) -> Self {
        let config = Config { policy, watch_rewrites: true, ..Config::default() };
        Self::of(Bed::in_turns(SimtConfig::seeded(seed).lockstep(true), config), policy)
    }

    /// A device by its name, and a NIC with an engine thread.
    pub(crate) fn real(gpu: &str, policy: DoorbellPolicy) -> Self {
        let gpu = gpu::open(gpu.parse().expect("a choice")).expect("device");
        Self::of(Bed::real(gpu, Config { policy, ..Config::default() }), policy)
    }

    /// The same through queues of the format that the NIC's name says.
    pub(crate) fn through(nic: &str, seed: u64) -> Self {
        let mut world = Self::seeded(seed, DoorbellPolicy::DoorbellFirst);
        world.0.reopen(nic);
        world
    }

    fn of(mut bed: Bed, policy: DoorbellPolicy) -> Self {
        bed.what += &format!(", {policy:?}");
        Self(bed)
    }

    pub(crate) fn config(&self, depth: u32) -> EndpointConfig {
        EndpointConfig::for_gpu(&self.gpu)
            .send_depth(depth)
            .inline_bytes(96)
            .send_cq(CqMode::Collapsed)
            .timeout(Duration::from_secs(60))
    }

    pub(crate) fn pair(&self, config: &EndpointConfig) -> (Endpoint, Endpoint) {
        self.device.pair(config).expect("a pair")
    }

    /// Zeroed memory that kernels, NIC and test reach, with every right.
    pub(crate) fn memory(&self, len: usize) -> MemoryRegion {
        self.device.register(self.buffer(len), Access::all()).expect("registration")
    }

    pub(crate) fn bytes(&self, memory: &MemoryRegion) -> Vec<u8> {
        self.read(memory.buffer())
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
        self.run_kernel(kernel, dim).unwrap_or_else(|e| panic!("{name}, {}: {e}", self.what));
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

pub(crate) fn pointer<T: Element>(memory: &MemoryRegion) -> KernelPtr<T> {
    KernelPtr::new(memory.buffer())
}
