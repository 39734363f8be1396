//! Receives that several endpoints share.

use crate::alloc::alloc;
use crate::limits::MAX_RECV_SGES;
use crate::provider::{SharedQueue, SrqSpec};
use crate::sges::recv_sges;
use crate::shared::DeviceShared;
use crate::{LocalRegion, TransportError, UsageError, WaitError};
use std::fmt;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use warpverbs_gpu::Place;
use warpverbs_mem::Cells;
use warpverbs_mlx5::export::NicFormat;
use warpverbs_mlx5::recv::build_srq;

/// A shared receive queue: whichever of its endpoints gets a message takes the next receive.
/// Posted to by the host.
#[doc(alias = "ibv_srq")]
pub struct SharedReceiveQueue {
    // Dropped first: the NIC lets go before the memory does.
    queue: Arc<dyn SharedQueue>,
    ring: Cells<AtomicU64>,
    record: Cells<AtomicU32>,
    list: Mutex<FreeList>,
    depth: u32,
    max_sges: usize,
    _device: Arc<DeviceShared>,
}

/// The chain of WQEs as the NIC follows it. One WQE, the tail, is always kept back: its link is
/// what the next one given back is hung on.
struct FreeList {
    next: Vec<u16>,
    head: u16,
    tail: u16,
    posted: u16,
}

impl SharedReceiveQueue {
    pub(crate) fn new(
        device: Arc<DeviceShared>,
        depth: u32,
        sges: u32,
    ) -> Result<Self, TransportError> {
        let format = device.nic.format();
        if format != NicFormat::Mlx5 {
            let what = "a shared receive queue of this library";
            return Err(UsageError::NotOfFormat { what, format }.into());
        }
        let config = |field, value: u32, expected| UsageError::Config {
            field,
            value: value.into(),
            expected,
        };
        if !depth.is_power_of_two() || !(2..=32768).contains(&depth) {
            return Err(config("depth of an SRQ", depth, "a power of two from 2 to 32768").into());
        }
        if !sges.is_power_of_two() || sges > 32 {
            return Err(config("sges of an SRQ", sges, "a power of two from 1 to 32").into());
        }
        let stride = (16 * (sges + 1)).next_power_of_two();
        let bytes = (depth * stride) as usize;
        let memory = alloc(None, bytes as u64 + 128, Place::Shared)?;
        let buf = memory.region().slice(0, bytes)?;
        let record = memory.region().slice(bytes.next_multiple_of(64) as u64, 4)?;
        let (log_depth, log_stride) = (depth.ilog2() as u8, stride.ilog2() as u8);
        let memory = memory.region();
        let spec = SrqSpec { memory, buf: &buf, log_depth, log_stride, record: &record };
        let next = (1..=depth).map(|next| (next % depth) as u16).collect();
        let list = FreeList { next, head: 0, tail: (depth - 1) as u16, posted: 0 };
        Ok(Self {
            queue: device.nic.create_srq(&spec)?,
            ring: buf.cells(0, bytes / 8)?,
            record: record.cells(0, 1)?,
            list: Mutex::new(list),
            depth,
            max_sges: sges as usize,
            _device: device,
        })
    }

    pub(crate) fn object(&self) -> &dyn SharedQueue {
        &*self.queue
    }

    /// Its number.
    pub fn srqn(&self) -> u32 {
        self.queue.srqn()
    }

    /// Receives it has room for, and one more.
    pub(crate) fn depth(&self) -> u32 {
        self.depth
    }

    /// Asks for one [`AsyncEvent::SrqLimit`](crate::AsyncEvent::SrqLimit), in the
    /// [`Health`](crate::Health) of every endpoint of the queue, when fewer than `limit` receives
    /// are left; 0 asks for none.
    pub fn set_limit(&self, limit: u16) {
        self.queue.set_limit(limit);
    }

    /// Gives the NIC memory for one message of any endpoint. At most `depth - 1` receives may be
    /// waiting; a full queue is an error at once.
    pub fn post_recv(&self, local: impl AsRef<[LocalRegion]>) -> Result<(), TransportError> {
        let (sges, count) = recv_sges(local.as_ref(), self.max_sges)?;
        let stride = self.ring.len() * 8 / self.depth as usize;
        let mut slot = [0; 16 * (MAX_RECV_SGES + 1)];
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        let (index, next) = (list.head, list.next[usize::from(list.head)]);
        if index == list.tail {
            return Err(WaitError::SharedQueueFull {
                srqn: self.srqn(),
                receives: self.depth - 1,
                after: Duration::ZERO,
            }
            .into());
        }
        build_srq(&mut slot[..stride], next, &sges[..count]).map_err(UsageError::from)?;
        let first = usize::from(index) * stride / 8;
        let (words, _) = slot[..stride].as_chunks::<8>();
        for (cell, word) in self.ring[first..].iter().zip(words) {
            cell.store(u64::from_ne_bytes(*word), Relaxed);
        }
        list.head = next;
        list.posted = list.posted.wrapping_add(1);
        // Release: the WQE, and the link of the one before, come first.
        self.record[0].store(u32::from(list.posted).to_be(), Release);
        Ok(())
    }

    /// Hangs the WQE of number `index`, filled or failed, on the end of the chain.
    pub(crate) fn give_back(&self, index: u16) {
        if u32::from(index) >= self.depth {
            return;
        }
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        let tail = usize::from(list.tail);
        list.next[tail] = index;
        let stride = self.ring.len() / self.depth as usize;
        let mut link = [0; 16];
        if build_srq(&mut link, index, &[]).is_ok() {
            let (words, _) = link.as_chunks::<8>();
            self.ring[tail * stride].store(u64::from_ne_bytes(words[0]), Relaxed);
        }
        list.tail = index;
    }
}

impl fmt::Debug for SharedReceiveQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedReceiveQueue({}, depth {})", self.srqn(), self.depth)
    }
}
