//! Several ranks' heaps in one process, and what their kernels need.

use crate::bed::{Bed, lockstep, open, repeat, simt};
use crate::model::Model;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;
use warpverbs::gpu::simt::{SimtConfig, SimtDevice};
use warpverbs::gpu::{
    Buffer, DeviceHeap, DeviceStatus, Dim, Element, KernelPtr, Local, Qp, SafeKernel,
};
use warpverbs::raw::gpu::KernelArg;
use warpverbs::raw::nic::link::{Chance, FaultPlan};
use warpverbs::raw::nic::{Clock, Config, LinkConfig, SoftNic, Step, UdpConfig, VirtualClock};
use warpverbs::transport::{Access, Device, EndpointConfig, MemoryRegion, Outcome};
use warpverbs_shmem::layout::{HeapFault, HeapState};
use warpverbs_shmem::{Export, Rank, RdmaRoute};
use zerocopy::FromBytes;

/// The first segment of every heap has 64 KiB, so that the larger transfers cross several.
pub(crate) const LOG_SEGMENT: u8 = 16;

/// Routes between ranks. Each rank reaches itself directly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Routes {
    Direct,
    Rdma,
    /// Ranks of the same parity share a machine, so to speak.
    Mixed,
    /// As `Rdma`, through queues of bnxt_re's format.
    Bnxt,
    /// The same of ionic's.
    Ionic,
}

impl Routes {
    pub(crate) const ALL: [Self; 5] =
        [Self::Direct, Self::Rdma, Self::Mixed, Self::Bnxt, Self::Ionic];
    /// Without those of several ways.
    pub(crate) const APART: [Self; 4] = [Self::Direct, Self::Rdma, Self::Bnxt, Self::Ionic];

    /// The software NIC, opened with queues of this format.
    fn nic(self) -> &'static str {
        match self {
            Self::Direct | Self::Rdma | Self::Mixed => "soft",
            Self::Bnxt => "soft-bnxt",
            Self::Ionic => "soft-ionic",
        }
    }

    /// Whether atomics of 4 bytes go by RDMA where a rank is not direct.
    pub(crate) fn has_narrow_atomics(self) -> bool {
        self.nic() == "soft"
    }

    pub(crate) fn direct(self, from: u32, to: u32) -> bool {
        match self {
            Self::Direct => true,
            Self::Rdma | Self::Bnxt | Self::Ionic => from == to,
            Self::Mixed => from % 2 == to % 2,
        }
    }
}

/// How the launches of a test are scheduled.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pace {
    /// Kernel and NIC on one thread, in turns as the seed says, under virtual clocks.
    Seeded(u64),
    /// The same, with a NIC for each rank, and packets between them that meet such faults.
    Networked(u64, FaultPlan),
    /// The NIC on a thread of its own.
    Real,
    /// The same, and kernels on a GPU.
    Gpu,
}

/// Faults by chance. A retransmission is due after milliseconds.
pub(crate) fn faults(seed: u64) -> FaultPlan {
    let mut rng = SmallRng::seed_from_u64(!seed);
    let mut chance = |most| Chance::thousandths(rng.random_range(0..=most));
    let (loss, duplicate, reorder) = (chance(60), chance(200), chance(200));
    let delay = Duration::from_micros(rng.random_range(0..200));
    let late = Duration::from_micros(rng.random_range(0..2000));
    FaultPlan { seed, loss, duplicate, reorder, delay, late, ..FaultPlan::default() }
}

pub(crate) struct Ranks {
    bed: Bed,
    pub(crate) heaps: Vec<KernelPtr<DeviceHeap>>,
    pub(crate) memory: Vec<Buffer>,
    pub(crate) states: Vec<Buffer>,
    pub(crate) alarms: Vec<Buffer>,
    _regions: Vec<MemoryRegion>,
}

impl Deref for Ranks {
    type Target = Bed;

    fn deref(&self) -> &Bed {
        &self.bed
    }
}

/// As [`Bed::seeded`] with `machines` NICs, which reach each other over links with the faults of `plan`.
fn networked(seed: u64, machines: u32, plan: FaultPlan) -> Bed {
    let clock = VirtualClock::new();
    let bind = ([127, 0, 0, 1], 0).into();
    let make = |machine: u32| {
        let config = Config {
            name: format!("soft{machine}"),
            seed: Some(seed ^ u64::from(machine)),
            clock: Clock::Virtual(clock.clone()),
            link: LinkConfig::Udp(UdpConfig::at(bind)),
            faults: plan,
            ..Config::default()
        };
        SoftNic::new(config.for_process(machine)).expect("NIC")
    };
    let nics: Vec<_> = (0..machines.max(1)).map(make).collect();
    let engines = nics.clone();
    let stepper = move || {
        let busy = |nic: &SoftNic| u32::from(matches!(nic.step(), Step::Busy(_)));
        if engines.iter().map(busy).sum::<u32>() != 0 {
            return true;
        }
        let wait = engines.iter().filter_map(SoftNic::next_timer).min();
        wait.into_iter().for_each(|wait| clock.expire(wait));
        wait.is_some()
    };
    let simt = SimtConfig::seeded(seed).lockstep(lockstep());
    let what = format!("{}, {plan}", repeat(seed, &simt));
    let simt = SimtDevice::with_stepper(simt, Arc::new(stepper)).expect("SIMT device");
    let mut nics = nics.into_iter();
    let first = nics.next().expect("a NIC");
    let mut bed = Bed::of(Arc::new(simt), first, what, None);
    bed.others = nics.map(|nic| (nic.clone(), open(&nic, "soft"))).collect();
    bed
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

/// Two queue pairs of each rank to each rank, by [from][to].
fn connect(bed: &mut Bed, world: usize) -> Vec<Vec<Vec<KernelPtr<Qp>>>> {
    let config = EndpointConfig::for_gpu(&bed.gpu).send_depth(128).inline_bytes(96);
    let mut qps = vec![vec![Vec::new(); world]; world];
    for (i, j) in (0..world).flat_map(|i| (i..world).map(move |j| (i, j))) {
        for _ in 0..2 {
            let [a, b] = bed.queue_pairs_of([i, j], &config);
            qps[i][j].push(a);
            if i != j {
                qps[j][i].push(b);
            }
        }
    }
    qps
}

impl Ranks {
    /// Heaps of `bytes` each, filled with zeros.
    pub(crate) fn new(world: u32, bytes: u64, routes: Routes, pace: Pace) -> Self {
        let mut bed = match pace {
            Pace::Seeded(seed) => Bed::seeded(seed, Config::default()),
            Pace::Networked(seed, plan) => networked(seed, world, plan),
            Pace::Real => Bed::real(simt(), Config::default()),
            Pace::Gpu => {
                let choice = warpverbs_dev::gpu(0).parse().expect("a choice");
                Bed::real(warpverbs::gpu::open(choice).expect("a GPU"), Config::default())
            }
        };
        bed.reopen(routes.nic());
        bed.what = format!("{world} ranks, {routes:?}, {}", bed.what);
        let each = |len: usize| (0..world).map(|_| bed.buffer(len)).collect::<Vec<_>>();
        let memory = each(bytes as usize);
        let (states, alarms) = (each(size_of::<HeapState>()), each(4 * (1 + world as usize)));
        let regions: Vec<_> =
            (0..).zip(&memory).map(|(i, memory)| register(bed.device_of(i), memory)).collect();
        let qps = connect(&mut bed, world as usize);
        let entry = |from: u32, to: u32| {
            let (rank, peer) = (from as usize, to as usize);
            let segments = regions[peer].iter().map(|region| region.remote().into()).collect();
            let shared_atomics = routes != Routes::Direct;
            let rdma = RdmaRoute { qps: qps[rank][peer].clone(), segments };
            Rank {
                direct: routes.direct(from, to).then(|| KernelPtr::new(&memory[peer])),
                rdma: shared_atomics.then_some(rdma),
                shared_atomics,
            }
        };
        let export = |rank: u32| Export {
            rank,
            ranks: (0..world).map(|to| entry(rank, to)).collect(),
            bytes,
            log_segment: LOG_SEGMENT,
            windows: vec![],
            segments: regions[rank as usize].iter().map(|r| Local::from(r.local())).collect(),
            state: KernelPtr::new(&states[rank as usize]),
            alarms: KernelPtr::new(&alarms[rank as usize]),
            timeout: Duration::from_secs(60),
        };
        let heaps =
            (0..world).map(|rank| export(rank).upload(&*bed.gpu).expect("a heap")).collect();
        let _regions = regions.into_iter().flatten().collect();
        Self { bed, heaps, memory, states, alarms, _regions }
    }

    /// Launches a kernel on one rank's heap; the status it left.
    pub(crate) fn launch_on<K: SafeKernel>(
        &self,
        rank: u32,
        dim: Dim,
        make: impl FnOnce(KernelPtr<DeviceHeap>, KernelPtr<DeviceStatus>) -> K,
    ) -> Result<(), Outcome> {
        self.launch(dim, |status| make(self.heaps[rank as usize].clone(), status))
    }

    /// The same, which must succeed.
    pub(crate) fn run_on<K: SafeKernel>(
        &self,
        rank: u32,
        dim: Dim,
        make: impl FnOnce(KernelPtr<DeviceHeap>, KernelPtr<DeviceStatus>) -> K,
    ) {
        self.run(dim, |status| make(self.heaps[rank as usize].clone(), status));
    }

    /// For kernels that run these ranks as blocks; `member` makes what an image has for one.
    pub(crate) fn members<M: KernelArg>(
        &self,
        of: impl IntoIterator<Item = u32>,
        member: fn(KernelPtr<DeviceHeap>) -> M,
    ) -> KernelPtr<M> {
        let one = |rank| member(self.heaps[rank as usize].clone());
        let members: Vec<_> = of.into_iter().map(one).collect();
        KernelPtr::upload(&*self.gpu, &members).expect("members")
    }

    pub(crate) fn fill(&self, rank: u32, offset: u64, data: &[u8]) {
        self.gpu.write(&self.memory[rank as usize], offset, data).expect("write");
    }

    /// Random bytes in all heaps.
    pub(crate) fn fill_all(&self, rng: &mut SmallRng) -> Model {
        let model = Model::new(self.heaps.len() as u32, self.memory[0].len(), rng);
        (0..self.heaps.len() as u32).for_each(|rank| self.fill(rank, 0, model.of(rank)));
        model
    }

    /// Every byte of all is as it should be.
    pub(crate) fn compare(&self, model: &Model, what: &str) {
        for rank in 0..self.heaps.len() as u32 {
            model.compare(rank, &self.bytes(rank), &format!("{what}; {}", self.what));
        }
    }

    pub(crate) fn bytes(&self, rank: u32) -> Vec<u8> {
        self.read(&self.memory[rank as usize])
    }

    /// The u64 at `offset` of a rank's heap.
    pub(crate) fn word(&self, rank: u32, offset: u64) -> u64 {
        let mut out = [0; 8];
        self.gpu.read(&self.memory[rank as usize], offset, &mut out).expect("read");
        u64::from_le_bytes(out)
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
