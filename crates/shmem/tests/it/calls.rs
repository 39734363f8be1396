//! Kernels of the calls that several tests make, each to be given a heap and a status.

use warpverbs_gpu::{DeviceHeap, DeviceStatus, KernelPtr};
use warpverbs_shmem::layout::NO_RANK;
use warpverbs_test_kernels::{shm as k, shm_mail as m};

type Heap = KernelPtr<DeviceHeap>;
type Status = KernelPtr<DeviceStatus>;

/// Bytes that a group (0 thread, 1 warp, 2 block) moves between its rank and rank `pe`; offsets of the heap.
#[derive(Clone, Copy)]
pub(crate) struct Move {
    pub(crate) group: u32,
    pub(crate) to: u64,
    pub(crate) from: u64,
    pub(crate) bytes: u64,
    pub(crate) pe: u32,
}

impl Move {
    pub(crate) fn put(self) -> impl FnOnce(Heap, Status) -> k::ShmPut {
        let Self { group, to, from, bytes, pe } = self;
        move |heap, status| k::ShmPut { heap, group, to, from, bytes, pe, status }
    }

    /// 1: by loads and stores, 2: by RDMA.
    pub(crate) fn put_by(self, route: u32) -> impl FnOnce(Heap, Status) -> k::ShmPutBy {
        let Self { group, to, from, bytes, pe } = self;
        move |heap, status| k::ShmPutBy { heap, group, route, to, from, bytes, pe, status }
    }

    pub(crate) fn get(self) -> impl FnOnce(Heap, Status) -> k::ShmGet {
        let Self { group, to, from, bytes, pe } = self;
        move |heap, status| k::ShmGet { heap, group, to, from, bytes, pe, status }
    }

    /// Then adds to a signal, or sets it.
    pub(crate) fn put_signal(
        self,
        signal: u64,
        set: bool,
        value: u64,
    ) -> impl FnOnce(Heap, Status) -> k::ShmPutSignal {
        let (Self { group, to, from, bytes, pe }, set) = (self, set.into());
        move |heap, status| k::ShmPutSignal {
            heap,
            group,
            to,
            from,
            bytes,
            signal,
            set,
            value,
            pe,
            status,
        }
    }
}

/// Puts the low `width` bytes of a value.
pub(crate) fn put_value(
    group: u32,
    to: u64,
    (value, width): (u64, u32),
    pe: u32,
) -> impl FnOnce(Heap, Status) -> k::ShmPutValue {
    move |heap, status| k::ShmPutValue { heap, group, to, value, width, pe, status }
}

/// `wv::compare`.
pub(crate) const EQUAL: u32 = 0;
pub(crate) const AT_LEAST: u32 = 2;

/// A wait for a signal, of `ns` nanoseconds at most; 0 is as long as the heap says.
#[derive(Clone, Copy)]
pub(crate) struct Wait {
    pub(crate) group: u32,
    pub(crate) signal: u64,
    pub(crate) how: u32,
    pub(crate) value: u64,
    pub(crate) ns: u64,
    pub(crate) from: u32,
}

/// Of one thread, for any rank.
pub(crate) const WAIT: Wait =
    Wait { group: 0, signal: 0, how: EQUAL, value: 0, ns: 0, from: NO_RANK };

impl Wait {
    pub(crate) fn kernel(self) -> impl FnOnce(Heap, Status) -> k::ShmWait {
        let Self { group, signal, how, value, ns, from } = self;
        move |heap, status| k::ShmWait { heap, group, signal, how, value, ns, from, status }
    }
}

/// Values for the signals of `count` ranks from `first` on, one each.
pub(crate) fn signal_each(
    group: u32,
    signal: u64,
    value: u64,
    (first, count): (u32, u32),
) -> impl FnOnce(Heap, Status) -> k::ShmSignalEach {
    move |heap, status| k::ShmSignalEach { heap, group, signal, value, first, count, status }
}

/// A barrier of one rank of a team.
pub(crate) fn meet(
    (first, stride, size): (u32, u32, u32),
    team_block: u64,
    ns: u64,
) -> impl FnOnce(Heap, Status) -> m::ShmMeet {
    move |heap, status| m::ShmMeet { heap, team_block, first, stride, size, ns, status }
}
