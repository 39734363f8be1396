//! Two agents' memory, and what their kernels are given of it.

use crate::bed::{Bed, simt};
use crate::model::Model;
use rand::rngs::SmallRng;
use std::ops::Deref;
use std::time::Duration;
use warpverbs::gpu::{Buffer, Dim, Element, KernelPtr, LocalView, Qp, RemoteView};
use warpverbs::raw::gpu::views::{
    LocalPart, RemotePart, RemoteWay, ViewWaits, local_view, remote_view,
};
use warpverbs::raw::nic::Config;
use warpverbs::transport::{Access, EndpointConfig, MemoryRegion};

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
    bed: Bed,
    pub(crate) route: Route,
    pub(crate) memory: [Buffer; 2],
    pub(crate) regions: [MemoryRegion; 2],
    pub(crate) waits: [ViewWaits; 2],
    /// Queue pairs of each agent to the other, one for each channel.
    pub(crate) qps: [Vec<KernelPtr<Qp>>; 2],
}

impl Deref for Agents {
    type Target = Bed;

    fn deref(&self) -> &Bed {
        &self.bed
    }
}

impl Agents {
    /// Agents with `bytes` of memory each, filled with zeros.
    pub(crate) fn new(bytes: usize, route: Route, seed: u64) -> Self {
        Self::made(bytes, route, Bed::seeded(seed, Config::default()))
    }

    /// The same, with launches and a NIC that run at once.
    pub(crate) fn real(bytes: usize, route: Route) -> Self {
        Self::made(bytes, route, Bed::real(simt(), Config::default()))
    }

    fn made(bytes: usize, route: Route, mut bed: Bed) -> Self {
        bed.what = format!("{route:?}, {}", bed.what);
        let memory = [0, 1].map(|_| bed.buffer(bytes));
        let register = |memory: &Buffer| bed.device.register(memory.clone(), Access::all());
        let regions = memory.each_ref().map(|memory| register(memory).expect("registration"));
        let waits = [0, 1].map(|_| {
            ViewWaits::new(&*bed.gpu, 2, Duration::from_secs(60)).expect("words of waits")
        });
        let config = EndpointConfig::for_gpu(&bed.gpu).send_depth(128);
        let mut qps = [Vec::new(), Vec::new()];
        for _ in 0..CHANNELS {
            let [a, b] = bed.queue_pairs(&config);
            qps[0].push(a);
            qps[1].push(b);
        }
        Self { bed, route, memory, regions, waits, qps }
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

    /// A kernel's array.
    pub(crate) fn array<T: Element>(&self, bytes: &[u8]) -> KernelPtr<T> {
        let buffer = self.buffer(bytes.len());
        self.gpu.write(&buffer, 0, bytes).expect("write");
        KernelPtr::new(&buffer)
    }

    /// The value of the counter at `offset` of an agent's memory.
    pub(crate) fn counter(&self, agent: usize, offset: u64) -> u64 {
        let mut out = [0; 16];
        self.gpu.read(&self.memory[agent], offset, &mut out).expect("read");
        let (direct, remote) = out.split_at(8);
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
        word(direct).wrapping_add(word(remote))
    }

    /// Random bytes in the memory of both.
    pub(crate) fn fill(&self, rng: &mut SmallRng) -> Model {
        let model = Model::new(2, self.memory[0].len(), rng);
        for (agent, memory) in (0..).zip(&self.memory) {
            self.gpu.write(memory, 0, model.of(agent)).expect("write");
        }
        model
    }

    /// Every byte of both is as it should be.
    pub(crate) fn compare(&self, model: &Model, what: &str) {
        for (agent, memory) in (0..).zip(&self.memory) {
            model.compare(agent, &self.read(memory), &format!("{what}, {}", self.what));
        }
    }
}

impl Route {
    /// Which half of a counter it adds to: bytes from its start.
    pub(crate) fn half(self) -> u64 {
        if self == Self::Direct { 0 } else { 8 }
    }
}
