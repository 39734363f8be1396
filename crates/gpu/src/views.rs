//! Views: tables of registered memory that kernels transfer between, `kernels/include/warpverbs/nixl.h`.

use crate::{Buffer, Gpu, GpuError, KernelPtr, Local, LocalView, Place, Qp, Remote, RemoteView};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;

/// `wv::LocalEntry`, `wv::RemoteEntry`, `wv::LocalView`, `wv::RemoteView`, as words.
const LOCAL_WORDS: usize = 4;
const REMOTE_WORDS: usize = 6;
const LOCAL_VIEW_WORDS: usize = 5;
const REMOTE_VIEW_WORDS: usize = 3;
/// `wv::reach`.
const DIRECT: u64 = 1;
const RDMA: u64 = 2;
/// `wv::HeapState`.
const STATE_BYTES: usize = 128;

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
pub enum ViewError {
    /// No queue pairs, or more than fit.
    #[error("entry {entry}: expected 1 to 65535 queue pairs, found {found}")]
    QueuePairs {
        /// Index of the entry.
        entry: usize,
        /// How many it has.
        found: usize,
    },
    /// Some parts of a peer are reached by loads and stores and others by RDMA, which would leave a
    /// counter without order behind puts.
    #[error(
        "entry {entry}: peer {peer} is reached by loads and stores in some entries and by RDMA in \
         others"
    )]
    MixedRoutes {
        /// Index of the first entry that differs.
        entry: usize,
        /// The peer.
        peer: u32,
    },
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
    /// What was there when the wait gave up.
    pub actual: u64,
    /// Flat number of the thread in its launch.
    pub thread: u64,
}

/// What the waits of kernels on an agent's counters need of the host: how it ends them, and where it
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
        let state = gpu.alloc(STATE_BYTES, Place::Shared)?;
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
        const COMPLETE: u32 = 2;
        let mut bytes = [0; STATE_BYTES];
        gpu.read(&self.state, 0, &mut bytes)?;
        let half = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap_or_default());
        let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap_or_default());
        let record = WaitRecord {
            status: half(4),
            peer: half(12),
            address: word(16),
            expected: word(24),
            actual: word(32),
            thread: word(40),
        };
        Ok((half(0) == COMPLETE).then_some(record))
    }
}

/// A table in the memory of `gpu`: `head` words, of which the first will be the address of what
/// follows them, then `entries`, then what `entries` point to.
struct Table {
    buffer: Buffer,
    words: Vec<u64>,
}

impl Table {
    fn new(gpu: &dyn Gpu, words: usize) -> Result<Self, GpuError> {
        let buffer = gpu.alloc(8 * words, Place::Device)?;
        Ok(Self { buffer, words: Vec::with_capacity(words) })
    }

    /// Address of word `index`.
    fn address(&self, index: usize) -> u64 {
        self.buffer.kernel_addr() + 8 * index as u64
    }

    fn write(self, gpu: &dyn Gpu) -> Result<Buffer, GpuError> {
        let bytes: Vec<u8> = self.words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        gpu.write(&self.buffer, 0, &bytes)?;
        Ok(self.buffer)
    }
}

/// Two u32 of a structure that lie in one word.
const fn pair(first: u32, second: u32) -> u64 {
    first as u64 | (second as u64) << 32
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
    let mut table = Table::new(gpu, LOCAL_VIEW_WORDS + LOCAL_WORDS * parts.len())?;
    let entries = table.address(LOCAL_VIEW_WORDS);
    let (state, alarms) = (waits.state.kernel_addr(), waits.alarms.kernel_addr());
    let timeout = nanoseconds(waits.timeout);
    table.words.extend([entries, pair(count, waits.peers), state, alarms, timeout]);
    for LocalPart { memory, nic } in parts {
        let nic = nic.unwrap_or_default();
        let (addr, bytes) = (memory.kernel_addr(), memory.len() as u64);
        table.words.extend([addr, bytes, nic.addr, u64::from(nic.lkey)]);
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
    let head = REMOTE_VIEW_WORDS + REMOTE_WORDS * parts.len();
    let mut table = Table::new(gpu, head + pairs)?;
    let entries = table.address(REMOTE_VIEW_WORDS);
    table.words.extend([entries, u64::from(count), nanoseconds(timeout)]);
    let mut addresses = Vec::with_capacity(pairs);
    for part in parts {
        let Some(RemotePart { peer, way }) = part else {
            table.words.extend([0; REMOTE_WORDS]);
            continue;
        };
        let peer = u64::from(*peer) << 32;
        match way {
            RemoteWay::Direct(memory) => {
                let (addr, bytes) = (memory.kernel_addr(), memory.len() as u64);
                table.words.extend([addr, bytes, 0, 0, 0, DIRECT | peer]);
            }
            RemoteWay::Rdma { place, bytes, qps } => {
                let channels = table.address(head + addresses.len());
                addresses.extend(qps.iter().map(KernelPtr::addr));
                let route = RDMA | (qps.len() as u64) << 16 | peer;
                let key = u64::from(place.rkey);
                table.words.extend([0, *bytes, place.addr, key, channels, route]);
            }
        }
    }
    table.words.extend(addresses);
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
