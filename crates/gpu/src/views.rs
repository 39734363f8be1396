//! Views: tables of registered memory that kernels transfer between, `kernels/include/warpverbs/nixl.h`.

use crate::{Buffer, Gpu, GpuError, KernelPtr, Local, LocalView, Place, Qp, Remote, RemoteView};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use warpverbs_layout::{
    FAULT_COMPLETE, HeapFault, HeapState, LocalEntry, LocalHead, NicAddress, Reach, RemoteEntry,
    RemoteHead,
};
use zerocopy::{Immutable, IntoBytes};

/// A piece of this agent's memory.
#[derive(Clone, Debug)]
pub struct LocalPart {
    /// The bytes.
    pub memory: Buffer,
    /// The first byte as the NIC knows it; without that the part takes no part in transfers by RDMA.
    pub nic: Option<Local>,
}

/// A piece of a peer's memory.
#[derive(Clone, Debug)]
pub struct RemotePart {
    /// Number of the peer, for [`ViewWaits::give_up`].
    pub peer: u32,
    /// How it is reached: alike for all parts of a peer.
    pub way: RemoteWay,
}

/// How kernels reach a piece of a peer's memory.
#[derive(Clone, Debug)]
pub enum RemoteWay {
    /// By loads and stores.
    Direct(Buffer),
    /// Through queue pairs.
    Rdma {
        /// The first byte under the peer's key.
        place: Remote,
        /// Size in bytes.
        bytes: u64,
        /// Connected queue pairs, one for each channel.
        qps: Vec<KernelPtr<Qp>>,
    },
}

/// Parts that do not make a view.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "fields are named by what they are")]
pub enum ViewError {
    /// No queue pairs, or more than fit.
    #[error("entry {entry}: expected 1 to 65535 queue pairs, found {found}")]
    QueuePairs { entry: usize, found: usize },
    /// Some parts of a peer are reached by loads and stores and others by RDMA, which would leave a
    /// counter without order behind puts.
    #[error(
        "entry {entry}: peer {peer} is reached by loads and stores in some entries and by RDMA in \
         others"
    )]
    MixedRoutes { entry: usize, peer: u32 },
    /// More entries than a u32 counts.
    #[error("expected at most 2^32 - 1 entries, found {0}")]
    Entries(usize),
    /// The device refused memory for the table.
    #[error(transparent)]
    Gpu(#[from] GpuError),
}

/// The first wait of kernels that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitRecord {
    /// How it ended: a `wv::Status` code.
    pub status: u32,
    /// Number of the peer that was waited for; `u32::MAX` if any.
    pub peer: u32,
    /// Address of the word, as the kernel knows it.
    pub address: u64,
    /// The value that was waited for.
    pub expected: u64,
    /// The value found when the wait gave up.
    pub actual: u64,
    /// Flat number of the thread in its launch.
    pub thread: u64,
}

/// The host's side of the waits of kernels on an agent's counters: how it ends them, and where it
/// reads why one failed.
#[derive(Clone, Debug)]
pub struct ViewWaits {
    state: Buffer,
    alarms: Buffer,
    peers: u32,
    timeout: Duration,
}

impl ViewWaits {
    /// For `peers` peers; waits that are not given their own deadline have `timeout`.
    ///
    /// # Errors
    /// The device refused memory.
    pub fn new(gpu: &dyn Gpu, peers: u32, timeout: Duration) -> Result<Self, GpuError> {
        let state = gpu.alloc(size_of::<HeapState>(), Place::Shared)?;
        let alarms = gpu.alloc(4 * (1 + peers as usize), Place::Shared)?;
        Ok(Self { state, alarms, peers, timeout })
    }

    /// Ends all waits with `aborted`, now and from now on.
    ///
    /// # Errors
    /// The device refused the write.
    pub fn abort(&self, gpu: &dyn Gpu) -> Result<(), GpuError> {
        gpu.write(&self.alarms, 0, &1u32.to_ne_bytes())
    }

    /// Ends waits for `peer` with `peer_lost`, now and from now on. Numbers without a peer are ignored.
    ///
    /// # Errors
    /// The device refused the write.
    pub fn give_up(&self, gpu: &dyn Gpu, peer: u32) -> Result<(), GpuError> {
        if peer >= self.peers {
            return Ok(());
        }
        gpu.write(&self.alarms, 4 * (1 + u64::from(peer)), &1u32.to_ne_bytes())
    }

    /// The first wait that failed.
    ///
    /// # Errors
    /// The device refused the read.
    pub fn record(&self, gpu: &dyn Gpu) -> Result<Option<WaitRecord>, GpuError> {
        let mut state = HeapState::default();
        gpu.read(&self.state, 0, state.as_mut_bytes())?;
        let HeapFault { claim, status, peer, offset, expected, actual, thread, .. } = state.fault;
        // Offsets of views count from address 0.
        let record = WaitRecord { status, peer, address: offset, expected, actual, thread };
        Ok((claim == FAULT_COMPLETE).then_some(record))
    }
}

/// A table in the memory of `gpu`: a head, then entries, then what these point to.
struct Table {
    buffer: Buffer,
    bytes: Vec<u8>,
}

impl Table {
    fn new(gpu: &dyn Gpu, len: usize) -> Result<Self, GpuError> {
        let buffer = gpu.alloc(len, Place::Device)?;
        Ok(Self { buffer, bytes: Vec::with_capacity(len) })
    }

    /// Where kernels find byte `offset`.
    fn address(&self, offset: usize) -> u64 {
        self.buffer.kernel_addr() + offset as u64
    }

    fn push(&mut self, part: &(impl IntoBytes + Immutable)) {
        self.bytes.extend_from_slice(part.as_bytes());
    }

    fn write(self, gpu: &dyn Gpu) -> Result<Buffer, GpuError> {
        gpu.write(&self.buffer, 0, &self.bytes)?;
        Ok(self.buffer)
    }
}

fn nanoseconds(timeout: Duration) -> u64 {
    u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX)
}

/// Copies a view of this agent's memory to `gpu`: `const wv::LocalView*` for its kernels. All that it
/// refers to lives as long as the pointer or a launch that was given it.
///
/// # Errors
/// There are too many parts, or the device refused memory.
pub fn local_view(
    gpu: &dyn Gpu,
    parts: &[LocalPart],
    waits: &ViewWaits,
) -> Result<KernelPtr<LocalView>, ViewError> {
    let count = u32::try_from(parts.len()).map_err(|_| ViewError::Entries(parts.len()))?;
    let head = size_of::<LocalHead>();
    let mut table = Table::new(gpu, head + size_of::<LocalEntry>() * parts.len())?;
    table.push(&LocalHead {
        entries: table.address(head),
        count,
        peers: waits.peers,
        state: waits.state.kernel_addr(),
        alarms: waits.alarms.kernel_addr(),
        timeout_ns: nanoseconds(waits.timeout),
    });
    for LocalPart { memory, nic } in parts {
        let nic = nic.unwrap_or_default();
        let nic = NicAddress { addr: nic.addr, key: nic.lkey, reserved: 0 };
        let (addr, bytes) = (memory.kernel_addr(), memory.len() as u64);
        table.push(&LocalEntry { addr, bytes, nic });
    }
    let buffer = table.write(gpu)?;
    // SAFETY: the buffer holds a `wv::LocalView` and its entries, which nobody writes again; what
    // their addresses refer to is named below.
    let view = unsafe { KernelPtr::from_buffer(&buffer, Arc::new(())) };
    let view = view.reaching(&waits.state).reaching(&waits.alarms);
    Ok(parts.iter().fold(view, |view, part| view.reaching(&part.memory)))
}

/// Copies a view of peers' memory to `gpu`, whose kernels reach it as each part says; `None` is a hole.
/// Waits for room in a queue pair that are not given their own deadline have `timeout`.
///
/// # Errors
/// The parts do not make a view, or the device refused memory.
pub fn remote_view(
    gpu: &dyn Gpu,
    parts: &[Option<RemotePart>],
    timeout: Duration,
) -> Result<KernelPtr<RemoteView>, ViewError> {
    let count = u32::try_from(parts.len()).map_err(|_| ViewError::Entries(parts.len()))?;
    let pairs = check_ways(parts)?;
    let head = size_of::<RemoteHead>();
    let behind = head + size_of::<RemoteEntry>() * parts.len();
    let mut table = Table::new(gpu, behind + size_of::<u64>() * pairs)?;
    let (entries, timeout_ns) = (table.address(head), nanoseconds(timeout));
    table.push(&RemoteHead { entries, count, reserved: 0, timeout_ns });
    let mut addresses = Vec::with_capacity(pairs);
    for part in parts {
        let hole = RemoteEntry::default();
        let entry = part.as_ref().map_or(hole, |RemotePart { peer, way }| match way {
            RemoteWay::Direct(memory) => RemoteEntry {
                addr: memory.kernel_addr(),
                bytes: memory.len() as u64,
                route: Reach::Direct as u8,
                peer: *peer,
                ..hole
            },
            RemoteWay::Rdma { place, bytes, qps } => {
                let channels = table.address(behind + size_of::<u64>() * addresses.len());
                addresses.extend(qps.iter().map(KernelPtr::addr));
                RemoteEntry {
                    bytes: *bytes,
                    nic: NicAddress { addr: place.addr, key: place.rkey, reserved: 0 },
                    qps: channels,
                    route: Reach::Rdma as u8,
                    // At most 65535, by `check_ways`.
                    qp_count: qps.len() as u16,
                    peer: *peer,
                    ..hole
                }
            }
        });
        table.push(&entry);
    }
    addresses.iter().for_each(|address: &u64| table.push(address));
    let buffer = table.write(gpu)?;
    // SAFETY: the buffer holds a `wv::RemoteView`, its entries and their queue pairs, which nobody
    // writes again; what their addresses refer to is named below.
    let mut view = unsafe { KernelPtr::from_buffer(&buffer, Arc::new(())) };
    for part in parts.iter().flatten() {
        view = match &part.way {
            RemoteWay::Direct(memory) => view.reaching(memory),
            RemoteWay::Rdma { qps, .. } => qps.iter().fold(view, KernelPtr::reaching_all_of),
        };
    }
    Ok(view)
}

/// The number of all queue pairs together.
fn check_ways(parts: &[Option<RemotePart>]) -> Result<usize, ViewError> {
    let mut direct = BTreeMap::new();
    let mut pairs = 0;
    for (entry, part) in parts.iter().enumerate() {
        let Some(RemotePart { peer, way }) = part else { continue };
        let is_direct = matches!(way, RemoteWay::Direct(_));
        if *direct.entry(*peer).or_insert(is_direct) != is_direct {
            return Err(ViewError::MixedRoutes { entry, peer: *peer });
        }
        if let RemoteWay::Rdma { qps, .. } = way {
            let found = qps.len();
            if found == 0 || found > usize::from(u16::MAX) {
                return Err(ViewError::QueuePairs { entry, found });
            }
            pairs += found;
        }
    }
    Ok(pairs)
}
