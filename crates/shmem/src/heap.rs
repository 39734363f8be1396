//! The heap of one rank.

use crate::alarms::Alarms;
use crate::create::{Making, Routes};
use crate::layout::HeapState;
use crate::local::Local;
use crate::places::Places;
use crate::registered::Window;
use crate::remote::Remote;
use crate::report::{HeapReport, PeerReport};
use crate::steps::Steps;
use crate::{Allocator, Export, HeapConfig, Rank, ShmemError, Sym};
use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;
use warpverbs_gpu::{Buffer, Element, Gpu, KernelPtr, Place};
use warpverbs_peer::{Decision, Route};
use warpverbs_rendezvous::{Watch, World};

/// Memory at the same offsets on every rank, which kernels of all ranks reach.
///
/// [`Heap::create`] makes it on all ranks together. [`Heap::alloc`] and [`Heap::free`] do not
/// communicate: every rank makes the same calls in the same order, which [`Heap::agree`] checks.
/// Dropping it does not communicate either. The memory lives on while a launch that was given
/// [`Heap::device`] runs, and on other ranks as long as they have it mapped; work by RDMA that still
/// comes for it is refused.
pub struct Heap {
    pub(crate) parts: Parts,
    /// The tables for kernels, and all of the own memory.
    pub(crate) exported: KernelPtr<warpverbs_gpu::DeviceHeap>,
    own: Buffer,
    overrides: Vec<String>,
    pub(crate) places: Places,
    /// Bytes that it may grow to.
    pub(crate) limit: u64,
    decisions: Vec<Decision>,
    pub(crate) next_window: u64,
    /// Ends before the alarms that it raises do.
    pub(crate) watch: Option<Watch>,
    /// It came back, and makes the calls again that the others have made.
    pub(crate) replays: bool,
    pub(crate) times: Vec<(&'static str, Duration)>,
}

/// Parts of which the tables for kernels are made.
pub(crate) struct Parts {
    pub(crate) id: u64,
    pub(crate) rank: u32,
    pub(crate) gpu: Arc<dyn Gpu>,
    pub(crate) config: HeapConfig,
    /// Bytes of each rank's heap.
    pub(crate) size: u64,
    /// Of the first segment.
    pub(crate) log_segment: u8,
    // The queue pairs end before their memory does.
    pub(crate) remote: Option<Remote>,
    pub(crate) local: Local,
    pub(crate) routes: Routes,
    /// The user's own buffers, before what reaches them.
    pub(crate) windows: Vec<Window>,
    pub(crate) state: Buffer,
    pub(crate) alarms: Arc<Alarms>,
}

/// The tables for kernels, and the own memory.
pub(crate) type Uploaded = (KernelPtr<warpverbs_gpu::DeviceHeap>, Buffer);

impl Parts {
    /// With what no rank but this one needs to know.
    pub(crate) fn new(
        making: &Making<'_>,
        (id, size, log_segment): (u64, u64, u8),
        local: Local,
        routes: Routes,
        remote: Option<Remote>,
    ) -> Result<Self, ShmemError> {
        Ok(Self {
            id,
            rank: making.rank,
            gpu: making.gpu.clone(),
            config: making.config.clone(),
            size,
            log_segment,
            remote,
            local,
            routes,
            windows: Vec::new(),
            state: making.gpu.alloc(size_of::<HeapState>(), Place::Device)?,
            alarms: Arc::new(Alarms::new(making.gpu, making.world)?),
        })
    }

    /// Makes the tables of a heap of `size` bytes.
    pub(crate) fn upload(&self, size: u64) -> Result<Uploaded, ShmemError> {
        let own = self.local.memory()?;
        let world = self.local.mapped.len();
        let ranks = (0..world).map(|rank| {
            let memory = match rank == self.rank as usize {
                true => Some(own.clone()),
                false => self.local.memory_of(rank)?,
            };
            Ok(Rank {
                direct: memory.as_ref().map(KernelPtr::new),
                rdma: self.remote.as_ref().and_then(|remote| remote.route(rank)),
                shared_atomics: self.routes.is_shared(rank),
            })
        });
        let export = Export {
            rank: self.rank,
            ranks: ranks.collect::<Result<_, ShmemError>>()?,
            bytes: size,
            log_segment: self.log_segment,
            segments: self.remote.as_ref().map(Remote::segments).unwrap_or_default(),
            windows: self.windows.iter().map(Window::export).collect(),
            state: KernelPtr::new(&self.state),
            alarms: self.alarms.pointer(),
            timeout: self.config.timeout,
        };
        Ok((export.upload(&*self.gpu)?, own))
    }
}

impl Heap {
    pub(crate) fn new(
        parts: Parts,
        reserved: u64,
        limit: u64,
        overrides: Vec<String>,
        decisions: Vec<Decision>,
    ) -> Result<Self, ShmemError> {
        let (exported, own) = parts.upload(parts.size)?;
        Ok(Self {
            places: Places::new(parts.id, Allocator::new(reserved, parts.size, limit)),
            parts,
            exported,
            own,
            overrides,
            limit,
            decisions,
            next_window: 0,
            watch: None,
            replays: false,
            times: Vec::new(),
        })
    }

    /// Whether this rank has come back, and makes the calls again that the others have made: see
    /// [`Heap::regroup`].
    pub fn is_behind(&self) -> bool {
        self.replays
    }

    /// How ranks that came back are reached.
    pub(crate) fn decide(&mut self, decisions: Vec<Option<Decision>>) {
        for (decision, new) in self.decisions.iter_mut().zip(decisions) {
            if let Some(new) = new {
                *decision = new;
            }
        }
    }

    /// Kernels are given this from now on.
    pub(crate) fn switch(&mut self, (exported, own): Uploaded) {
        (self.exported, self.own) = (exported, own);
    }

    /// This rank.
    pub fn rank(&self) -> u32 {
        self.parts.rank
    }

    /// How many ranks.
    pub fn world(&self) -> u32 {
        self.decisions.len() as u32
    }

    /// Bytes of each rank's heap.
    pub fn bytes(&self) -> u64 {
        self.parts.size
    }

    /// The device whose kernels use it.
    pub fn gpu(&self) -> &Arc<dyn Gpu> {
        &self.parts.gpu
    }

    /// Queue pairs from a rank to another that it reaches by RDMA; 0 if none reaches any so. The same on
    /// all ranks. A call of a block takes that of the block's number.
    pub fn rdma_lanes(&self) -> u32 {
        if self.parts.routes.need_nics() { self.parts.config.qps } else { 0 }
    }

    /// How each rank is reached, in order.
    pub fn routes(&self) -> Vec<Route> {
        self.decisions.iter().map(|decision| decision.route).collect()
    }

    pub(crate) fn decisions(&self) -> &[Decision] {
        &self.decisions
    }

    /// `len` elements, aligned to 256 bytes, at the same offset on every rank. Not zeroed if the
    /// place was used before. Every rank makes the same call.
    ///
    /// # Errors
    /// No room: what was asked for, what is free, and how far the heap may [grow](Heap::grow).
    #[track_caller]
    pub fn alloc<T: Element>(&mut self, len: u64) -> Result<Sym<T>, ShmemError> {
        self.alloc_aligned(len, 256)
    }

    /// As [`Heap::alloc`], at a multiple of `align` bytes from the heap's start: a power of two up to
    /// 2 MiB. On the host SIMT device, addresses are aligned to 4096 bytes at most.
    ///
    /// # Errors
    /// As [`Heap::alloc`].
    #[track_caller]
    pub fn alloc_aligned<T: Element>(
        &mut self,
        len: u64,
        align: u64,
    ) -> Result<Sym<T>, ShmemError> {
        self.places.alloc(len, align, Location::caller())
    }

    /// Gives a place back. Every rank makes the same call, after no rank uses it any more.
    ///
    /// # Errors
    /// It is of another heap, is a part of a place, or was given back before.
    #[track_caller]
    pub fn free<T: Element>(&mut self, place: Sym<T>) -> Result<(), ShmemError> {
        self.places.free(place, Location::caller())
    }

    /// Checks that all ranks have made the same calls so far; waits for all ranks.
    ///
    /// # Errors
    /// [`ShmemError::Order`] names two ranks and where in the program their calls begin to differ.
    pub fn agree(&mut self, world: &mut World) -> Result<(), ShmemError> {
        let mut steps = Steps::new(world, Some(self.parts.id), self.parts.config.deadline);
        let all = steps.end_of_members("agree", Ok(self.places.history()))?;
        self.replays = false;
        let here = (0..).zip(&all).filter_map(|(rank, calls)| Some((rank, calls.as_ref()?)));
        self.places.agree(here)
    }

    /// For kernels: `const wv::Heap*`. Objects that it refers to live as long as the pointer, or a
    /// launch that holds it, does. After [`Heap::grow`], a new one reaches the new memory as well.
    pub fn device(&self) -> KernelPtr<warpverbs_gpu::DeviceHeap> {
        self.exported.clone()
    }

    /// A place in the own heap, for kernels and for the host.
    ///
    /// # Errors
    /// It is of another heap, or was given back.
    pub fn local<T: Element>(&self, place: &Sym<T>) -> Result<Buffer, ShmemError> {
        self.places.check(place)?;
        let (offset, len, size) = (place.offset(), place.bytes(), self.parts.size);
        let outside = |_| ShmemError::Outside { offset, len, size };
        self.own.slice(offset, len as usize).map_err(outside)
    }

    /// A place in another rank's heap as it is mapped here, for kernels of this rank and for copies;
    /// None if the rank is not reached by loads and stores.
    ///
    /// # Errors
    /// The place is of another heap or was given back, or there is no such rank.
    pub fn mapped<T: Element>(
        &self,
        place: &Sym<T>,
        rank: u32,
    ) -> Result<Option<Buffer>, ShmemError> {
        let own = self.local(place)?;
        let world = self.world();
        if rank >= world {
            return Err(ShmemError::Rank { rank, world });
        }
        if rank == self.parts.rank {
            return Ok(Some(own));
        }
        let memory = self.parts.local.memory_of(rank as usize)?;
        let (offset, len) = (place.offset(), own.len());
        let slice =
            |memory: Buffer| memory.slice(offset, len).map_err(warpverbs_gpu::GpuError::from);
        Ok(memory.map(slice).transpose()?)
    }

    /// Copies bytes into a place of the own heap.
    ///
    /// # Errors
    /// It is of another heap, was given back, or is shorter than `data`.
    pub fn write<T: Element>(&self, place: &Sym<T>, data: &[u8]) -> Result<(), ShmemError> {
        Ok(self.parts.gpu.write(&self.part(place, data.len())?, 0, data)?)
    }

    /// Zeroes a place of the own heap.
    pub(crate) fn clear<T: Element>(&self, place: &Sym<T>) -> Result<(), ShmemError> {
        Ok(self.parts.gpu.zero(&self.local(place)?)?)
    }

    /// Copies bytes out of a place of the own heap.
    ///
    /// # Errors
    /// It is of another heap, was given back, or is shorter than `out`.
    pub fn read<T: Element>(&self, place: &Sym<T>, out: &mut [u8]) -> Result<(), ShmemError> {
        Ok(self.parts.gpu.read(&self.part(place, out.len())?, 0, out)?)
    }

    fn part<T: Element>(&self, place: &Sym<T>, len: usize) -> Result<Buffer, ShmemError> {
        if len as u64 > place.bytes() {
            let (offset, len, size) = (place.offset(), len as u64, place.bytes());
            return Err(ShmemError::Outside { offset, len, size });
        }
        self.local(place)
    }

    /// Its sizes and settings, and the route to every rank.
    pub fn report(&self) -> HeapReport {
        let peers = self.decisions.iter().enumerate().map(|(rank, route)| {
            let identity = self.parts.local.identity(rank);
            PeerReport {
                rank: rank as u32,
                host: identity.host.clone(),
                pid: identity.pid,
                gpu: identity.gpu.clone(),
                route: route.clone(),
                shared_atomics: self.parts.routes.is_shared(rank),
                lost: self.parts.alarms.is_lost(rank as u32),
            }
        });
        let (free_bytes, allocations) = self.places.room();
        HeapReport {
            rank: self.parts.rank,
            heap: self.parts.id,
            bytes: self.parts.size,
            max_bytes: self.limit,
            free_bytes,
            allocations,
            segments: self.parts.local.segments(),
            base: self.own.kernel_addr(),
            reserved: self.parts.local.reserved_bytes(),
            plain: self.parts.local.plain_of(self.parts.rank as usize),
            routes: self.parts.config.routes.to_string(),
            overrides: self.overrides.clone(),
            nic: self.parts.remote.as_ref().map(Remote::describe),
            peers: peers.collect(),
            steps: self.times.clone(),
        }
    }

    /// The heap has `size` bytes now.
    pub(crate) fn enlarge(&mut self, size: u64) {
        self.parts.size = size;
        self.places.grow(size);
    }
}

impl fmt::Debug for Heap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rank, world, bytes) = (self.parts.rank, self.world(), self.parts.size);
        write!(f, "Heap({:016x}, rank {rank} of {world}, {bytes} bytes)", self.parts.id)
    }
}
