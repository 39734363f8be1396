//! From a rank's memory and its ways to the others to what its kernels are given.

use crate::layout::{self, HeapState, NicAddress, Reach};
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use warpverbs_gpu::{DeviceHeap, Gpu, GpuError, KernelPtr, Local, Place, Qp, Remote};
use zerocopy::IntoBytes;

/// A rank's heap as its kernels need it. All ranks have the same size and the same segments.
#[derive(Debug)]
pub struct Export {
    /// The own rank, whose entry in `ranks` leads to its own memory.
    pub rank: u32,
    /// Every rank, in order.
    pub ranks: Vec<Rank>,
    /// Size of the heap in bytes.
    pub bytes: u64,
    /// log2 of the bytes of segment 0; each later segment ends at twice its start.
    pub log_segment: u8,
    /// The own segments for RDMA; empty if no rank is reached so.
    pub segments: Vec<Local>,
    /// Registered buffers.
    pub windows: Vec<ExportWindow>,
    /// A [`HeapState`], zeroed.
    pub state: KernelPtr<u64>,
    /// One zeroed word for the heap and one for each rank; see [`layout::ALARM_OF_HEAP`]. In memory
    /// that the host writes while kernels run.
    pub alarms: KernelPtr<u32>,
    /// The deadline of waits that are not given their own.
    pub timeout: Duration,
}

/// How to reach one rank's heap. Loads and stores are preferred.
#[derive(Clone, Debug, Default)]
pub struct Rank {
    /// The memory where it is mapped here, or the own memory.
    pub direct: Option<KernelPtr<u8>>,
    /// Queue pairs. A rank that is reached directly has them for fetching atomics alone.
    pub rdma: Option<RdmaRoute>,
    /// Some rank reaches this heap by RDMA, so that all do their fetching atomics on it by RDMA.
    pub shared_atomics: bool,
}

/// The way to a rank by RDMA.
#[derive(Clone, Debug)]
pub struct RdmaRoute {
    /// One connected queue pair or more.
    pub qps: Vec<KernelPtr<Qp>>,
    /// The first byte of each of the rank's segments.
    pub segments: Vec<Remote>,
}

/// A registered buffer: one of each rank, all of one length.
#[derive(Clone, Debug)]
pub struct ExportWindow {
    /// The own one.
    pub own: KernelPtr<u8>,
    /// Its first byte for RDMA.
    pub near: Option<Local>,
    /// Routes to the buffer of each rank, in order; the own entry is not looked at.
    pub ranks: Vec<WindowRank>,
}

/// Routes to one rank's registered buffer. Loads and stores are preferred.
#[derive(Clone, Debug, Default)]
pub struct WindowRank {
    /// The memory where it is mapped here.
    pub direct: Option<KernelPtr<u8>>,
    /// Its first byte, for the queue pairs of the heap.
    pub rdma: Option<Remote>,
}

/// Reason why the parts do not make a heap.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "fields are named by what they are")]
pub enum ExportError {
    /// The own rank has no entry with its own memory.
    #[error("rank {rank} of {world} has no memory of its own")]
    NoOwnMemory { rank: u32, world: usize },
    /// A piece of memory is too small, or not aligned for what it holds.
    #[error("{what} of rank {rank}: expected {expected} aligned bytes or more, found {found}")]
    Small { what: &'static str, rank: u32, expected: u64, found: u64 },
    /// A route by RDMA without queue pairs, or with more than fit.
    #[error("rank {rank}: expected 1 to 65535 queue pairs, found {found}")]
    QueuePairs { rank: u32, found: usize },
    /// Segments do not cover the heap, or more are given than do.
    #[error("rank {rank}: expected {expected} segments of a heap of {bytes} bytes, found {found}")]
    Segments { rank: u32, expected: u32, bytes: u64, found: usize },
    /// The device refused memory for the tables.
    #[error(transparent)]
    Gpu(#[from] GpuError),
}

/// Grows at an address that is known.
struct Table {
    base: u64,
    bytes: Vec<u8>,
}

impl Table {
    /// Appends, and returns the address.
    fn push<T: IntoBytes + zerocopy::Immutable>(&mut self, items: &[T]) -> u64 {
        let at = self.base + self.bytes.len() as u64;
        self.bytes.extend_from_slice(items.as_bytes());
        self.bytes.resize(self.bytes.len().next_multiple_of(16), 0);
        at
    }
}

impl Export {
    /// Copies the structures to memory of `gpu` that its kernels read: `const wv::Heap*` in device
    /// code. All that they refer to lives as long as the pointer or a launch that was given it.
    #[allow(unsafe_code)]
    pub fn upload(&self, gpu: &dyn Gpu) -> Result<KernelPtr<DeviceHeap>, ExportError> {
        self.check()?;
        let buffer = gpu.alloc(self.table(0).bytes.len(), Place::Device)?;
        let table = self.table(buffer.kernel_addr());
        gpu.write(&buffer, 0, &table.bytes)?;
        // SAFETY: the buffer holds the structures, which nobody writes again; all they point to was
        // checked for size and is named below.
        let heap = unsafe { KernelPtr::from_buffer(&buffer, Arc::new(())) };
        let mut heap = heap.reaching_all_of(&self.state).reaching_all_of(&self.alarms);
        for window in &self.windows {
            heap = heap.reaching_all_of(&window.own);
            let mapped = window.ranks.iter().flat_map(|rank| &rank.direct);
            heap = mapped.fold(heap, KernelPtr::reaching_all_of);
        }
        for rank in &self.ranks {
            heap = rank.direct.iter().fold(heap, KernelPtr::reaching_all_of);
            let qps = rank.rdma.iter().flat_map(|rdma| &rdma.qps);
            heap = qps.fold(heap, KernelPtr::reaching_all_of);
        }
        Ok(heap)
    }

    fn segment_count(&self) -> u32 {
        let first = 1u64 << self.log_segment.min(62);
        if self.bytes <= first {
            1
        } else {
            1 + (self.bytes - 1).ilog2() + 1 - u32::from(self.log_segment)
        }
    }

    fn check(&self) -> Result<(), ExportError> {
        let (rank, world) = (self.rank, self.ranks.len());
        let own = self.ranks.get(rank as usize).and_then(|own| own.direct.as_ref());
        if own.is_none() {
            return Err(ExportError::NoOwnMemory { rank, world });
        }
        let small = |what, rank, expected, found| {
            if expected <= found {
                return Ok(());
            }
            Err(ExportError::Small { what, rank, expected, found })
        };
        let aligned = |at: u64, align: u64, len| if at.is_multiple_of(align) { len } else { 0 };
        let found = aligned(self.state.addr(), 8, self.state.len() * 8);
        small("state", rank, size_of::<HeapState>() as u64, found)?;
        let found = aligned(self.alarms.addr(), 4, self.alarms.len() * 4);
        small("alarms", rank, 4 * (1 + world as u64), found)?;
        let expected = self.segment_count();
        let segments = |rank, found: usize| {
            if found == expected as usize {
                return Ok(());
            }
            Err(ExportError::Segments { rank, expected, bytes: self.bytes, found })
        };
        if self.ranks.iter().any(|rank| rank.rdma.is_some()) {
            segments(rank, self.segments.len())?;
        }
        for (rank, entry) in (0..).zip(&self.ranks) {
            if let Some(memory) = &entry.direct {
                small("memory", rank, self.bytes, aligned(memory.addr(), 16, memory.len()))?;
            }
            if let Some(rdma) = &entry.rdma {
                let found = rdma.qps.len();
                if found == 0 || found > usize::from(u16::MAX) {
                    return Err(ExportError::QueuePairs { rank, found });
                }
                segments(rank, rdma.segments.len())?;
            }
        }
        for window in &self.windows {
            for (rank, entry) in (0..).zip(&self.ranks) {
                let Some(entries) = window.ranks.get(rank as usize) else {
                    return small("registered buffer", rank, window.own.len().max(1), 0);
                };
                let found = match entries {
                    WindowRank { direct: Some(memory), .. } => memory.len(),
                    // Through queue pairs of the heap alone.
                    WindowRank { rdma: Some(_), .. } if entry.rdma.is_none() => 0,
                    _ => window.own.len(),
                };
                small("registered buffer", rank, window.own.len(), found)?;
            }
        }
        Ok(())
    }

    /// How far each rank lies behind the one before, if that is the same for all, and all are
    /// reached by loads and stores alone; else 0.
    fn stride(&self) -> u64 {
        let place = |rank: &Rank| match (&rank.direct, &rank.rdma, rank.shared_atomics) {
            (Some(memory), None, false) => Some(memory.addr()),
            _ => None,
        };
        let places: Option<Vec<_>> = self.ranks.iter().map(place).collect();
        let places = places.unwrap_or_default();
        let mut strides = places.windows(2).map(|pair| pair[1].wrapping_sub(pair[0]));
        let first = strides.next().unwrap_or(0);
        if strides.all(|stride| stride == first) { first } else { 0 }
    }

    /// The structures, to be put at `base`.
    fn table(&self, base: u64) -> Table {
        let own = self.ranks[self.rank as usize].direct.as_ref().map_or(0, KernelPtr::addr);
        // The heap and the peers come first and are known last.
        let head = size_of::<layout::Heap>() + 32 * self.ranks.len();
        let mut table = Table { base, bytes: vec![0; head] };
        let segments: Vec<_> = self.segments.iter().map(|s| nic_address(s.addr, s.lkey)).collect();
        let segments = if segments.is_empty() { 0 } else { table.push(&segments) };
        let mut peers: Vec<_> = self.ranks.iter().map(|rank| rank.entry(own, &mut table)).collect();
        for (rank, peer) in peers.iter_mut().enumerate() {
            let by_rdma = self.windows.iter().any(|window| window.ranks[rank].is_by_rdma());
            let both = peer.route == Reach::Direct as u8 && by_rdma;
            peer.signals_by_rdma = both.into();
        }
        let windows: Vec<_> = self
            .windows
            .iter()
            .map(|window| window.entry(self.rank as usize, &mut table))
            .collect();
        let windows = if windows.is_empty() { 0 } else { table.push(&windows) };
        let heap = layout::Heap {
            base: own,
            bytes: self.bytes,
            peers: base + size_of::<layout::Heap>() as u64,
            segments,
            state: self.state.addr(),
            alarms: self.alarms.addr(),
            timeout_ns: u64::try_from(self.timeout.as_nanos()).unwrap_or(u64::MAX),
            rank: self.rank,
            world: peers.len() as u32,
            log_segment: self.log_segment,
            segment_count: if segments == 0 { 0 } else { self.segments.len() as u8 },
            reserved: [0; 6],
            stride: self.stride(),
            windows,
            window_count: self.windows.len() as u32,
            no_more: 0,
            more: [0; 4],
        };
        let parts = [heap.as_bytes(), peers.as_bytes()].concat();
        table.bytes[..head].copy_from_slice(&parts);
        table
    }
}

impl Rank {
    fn entry(&self, own: u64, table: &mut Table) -> layout::Peer {
        let mut peer = layout::Peer { route: self.route() as u8, ..layout::Peer::default() };
        peer.shared_atomics = u8::from(self.shared_atomics);
        if let Some(memory) = &self.direct {
            peer.delta = memory.addr().wrapping_sub(own);
        }
        if let Some(rdma) = &self.rdma {
            let qps: Vec<_> = rdma.qps.iter().map(KernelPtr::addr).collect();
            let segments: Vec<_> =
                rdma.segments.iter().map(|s| nic_address(s.addr, s.rkey)).collect();
            peer.qp_count = qps.len() as u16;
            peer.qps = table.push(&qps);
            peer.segments = table.push(&segments);
        }
        peer
    }

    fn route(&self) -> Reach {
        match (&self.direct, &self.rdma) {
            (Some(_), _) => Reach::Direct,
            (None, Some(_)) => Reach::Rdma,
            (None, None) => Reach::None,
        }
    }
}

impl WindowRank {
    fn is_by_rdma(&self) -> bool {
        self.direct.is_none() && self.rdma.is_some()
    }

    fn entry(&self, own: u64) -> layout::WindowPeer {
        let mut entry = layout::WindowPeer::default();
        if let Some(far) = self.rdma {
            (entry.far, entry.route) = (nic_address(far.addr, far.rkey), Reach::Rdma as u8);
        }
        if let Some(memory) = &self.direct {
            (entry.delta, entry.route) = (memory.addr().wrapping_sub(own), Reach::Direct as u8);
        }
        entry
    }
}

impl ExportWindow {
    fn entry(&self, rank: usize, table: &mut Table) -> layout::Window {
        let base = self.own.addr();
        let mut peers: Vec<_> = self.ranks.iter().map(|rank| rank.entry(base)).collect();
        // Oneself.
        peers[rank] = layout::WindowPeer { route: Reach::Direct as u8, ..Default::default() };
        let near = self.near.map(|near| nic_address(near.addr, near.lkey)).unwrap_or_default();
        let peers = table.push(&peers);
        layout::Window { base, bytes: self.own.len(), near, peers, reserved: 0 }
    }
}

fn nic_address(addr: u64, key: u32) -> NicAddress {
    NicAddress { addr, key, reserved: 0 }
}
