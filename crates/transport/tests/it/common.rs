//! Helpers of all tests: a NIC, and a connected pair of endpoints on it.

use std::any::Any;
use std::sync::Arc;
use warpverbs_gpu::{Gpu, GpuChoice};
use warpverbs_nic::{Config, DoorbellPolicy, SoftNic};
use warpverbs_transport::{Access, Context, Device, Endpoint, EndpointConfig, MemoryRegion};

pub(crate) const POLICIES: [DoorbellPolicy; 4] = [
    DoorbellPolicy::DoorbellFirst,
    DoorbellPolicy::RecordFirst,
    DoorbellPolicy::Random,
    DoorbellPolicy::DropThenRecover { polls: 3 },
];

pub(crate) fn all_access() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC
}

/// The software NIC with queues of every format.
pub(crate) const NICS: [&str; 3] = ["soft", "soft-bnxt", "soft-ionic"];

/// Two connected endpoints on one device, and a region for each.
pub(crate) struct Pair {
    pub(crate) a: Endpoint,
    pub(crate) b: Endpoint,
    pub(crate) src: MemoryRegion,
    pub(crate) dst: MemoryRegion,
    pub(crate) device: Device,
}

impl Pair {
    pub(crate) fn new(config: &EndpointConfig) -> Self {
        Self::on(Context::new().unwrap().open("soft").unwrap(), config)
    }

    /// On a NIC by name.
    pub(crate) fn over(nic: &str, config: &EndpointConfig) -> Self {
        println!("{nic}");
        Self::on(Context::new().unwrap().open(nic).unwrap(), config)
    }

    pub(crate) fn with_policy(policy: DoorbellPolicy, seed: u64, config: &EndpointConfig) -> Self {
        println!("policy {policy:?}, seed {seed}");
        let nic = Config { policy, seed: Some(seed), ..Config::default() };
        let context = Context::builder().soft_config(nic).build().unwrap();
        Self::on(context.open("auto").unwrap(), config)
    }

    /// On a NIC that the caller steps.
    pub(crate) fn stepped(nic: &SoftNic, config: &EndpointConfig) -> Self {
        let context = Context::builder().soft_nic(nic.clone()).build().unwrap();
        Self::on(context.open("soft").unwrap(), config)
    }

    pub(crate) fn on(device: Device, config: &EndpointConfig) -> Self {
        let (a, b) = device.pair(config).unwrap();
        let src = device.alloc_host(1 << 16, all_access()).unwrap();
        let dst = device.alloc_host(1 << 16, all_access()).unwrap();
        Self { a, b, src, dst, device }
    }

    /// Resets both endpoints and connects them again.
    pub(crate) fn restart(&mut self) {
        self.a.reset().unwrap();
        self.b.reset().unwrap();
        connect(&self.a, &self.b);
    }
}

/// To each other.
pub(crate) fn connect(a: &Endpoint, b: &Endpoint) {
    a.connect(&b.handle()).unwrap();
    b.connect(&a.handle()).unwrap();
}

pub(crate) fn simt() -> Arc<dyn Gpu> {
    warpverbs_gpu::open(GpuChoice::Simt).unwrap()
}

/// Drops `parts` in an order of its own for each number below the factorial of their count.
pub(crate) fn drop_in_order<const N: usize>(parts: [Box<dyn Any>; N], mut number: usize) {
    let mut left = Vec::from(parts);
    while !left.is_empty() {
        drop(left.remove(number % left.len()));
        number /= left.len() + 1;
        std::thread::yield_now();
    }
}

pub(crate) fn bytes(region: &MemoryRegion, offset: u64, len: usize) -> Vec<u8> {
    let mut out = vec![0; len];
    region.read(offset, &mut out).unwrap();
    out
}

pub(crate) fn word(region: &MemoryRegion, offset: u64) -> u64 {
    u64::from_le_bytes(bytes(region, offset, 8).try_into().unwrap())
}

/// Steps a NIC until it has nothing to do.
pub(crate) fn settle(nic: &SoftNic) {
    let mut idle = 0;
    while idle < 8 {
        idle = match nic.step() {
            warpverbs_nic::Step::Idle => idle + 1,
            warpverbs_nic::Step::Busy(_) => 0,
        };
    }
}
