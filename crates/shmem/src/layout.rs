//! The heap as kernels see it, in bytes.
//!
//! Mirrored field by field in `kernels/include/warpverbs/heap.h`; size and offsets are asserted on
//! both sides. Integers are in native (little-endian) byte order, addresses are those of the rank
//! whose kernels read them.

use core::mem::{offset_of, size_of};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// How a rank's heap is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Reach {
    /// Not at all.
    None = 0,
    /// By loads and stores.
    Direct = 1,
    /// Through queue pairs.
    Rdma = 2,
}

/// One rank's heap as another rank reaches it, `wv::Peer`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Peer {
    /// Direct: what takes an address of the own heap to the peer's, modulo 2^64. 0 for oneself.
    pub delta: u64,
    /// Address of [`Peer::qp_count`] addresses of queue pairs, 0 if there are none.
    pub qps: u64,
    /// Address of a [`Segment`] for each of the peer's segments, 0 if there are none.
    pub segments: u64,
    /// A [`Reach`].
    pub route: u8,
    /// 1: some rank reaches this heap by RDMA, so all do their fetching atomics on it by RDMA.
    pub shared_atomics: u8,
    /// Queue pairs to this rank.
    pub qp_count: u16,
    /// 1: reached by loads and stores, but some registered buffer of this rank by RDMA, so that signals
    /// must follow the puts of both.
    pub signals_by_rdma: u32,
}

/// A registered buffer, `wv::Window`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Window {
    /// Address of the own buffer's first byte.
    pub base: u64,
    /// Its length, the same on all ranks.
    pub bytes: u64,
    /// Its first byte as the own NIC knows it; address 0 without RDMA.
    pub near: Segment,
    /// Address of a [`WindowPeer`] for each rank.
    pub peers: u64,
    /// Zero.
    pub reserved: u64,
}

/// A rank's registered buffer as another rank reaches it, `wv::WindowPeer`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct WindowPeer {
    /// Direct: what takes an address of the own buffer to the peer's, modulo 2^64.
    pub delta: u64,
    /// RDMA: its first byte as its NIC knows it.
    pub far: Segment,
    /// A [`Reach`].
    pub route: u8,
    /// Zero.
    pub reserved: [u8; 7],
}

/// The first byte of a segment as a NIC knows it: `wv::Local` and `wv::Remote`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Segment {
    /// Its address.
    pub addr: u64,
    /// lkey or rkey.
    pub key: u32,
    /// Zero.
    pub reserved: u32,
}

/// A rank's heap, `wv::Heap`. 128 bytes, never written after it was handed out.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Heap {
    /// Address of the own heap's first byte.
    pub base: u64,
    /// Size of the heap in bytes.
    pub bytes: u64,
    /// Address of a [`Peer`] for each rank, this one included.
    pub peers: u64,
    /// Address of a [`Segment`] for each of the own segments, 0 without RDMA.
    pub segments: u64,
    /// Address of the [`HeapState`].
    pub state: u64,
    /// Address of `1 + world` u32 in memory that the host writes: see [`ALARM_OF_HEAP`].
    pub alarms: u64,
    /// The deadline, in nanoseconds, of every wait that is not given its own.
    pub timeout_ns: u64,
    /// The own rank.
    pub rank: u32,
    /// Number of ranks.
    pub world: u32,
    /// log2 of the bytes of segment 0. Segment `k > 0` is `[2^(log + k - 1), 2^(log + k))`.
    pub log_segment: u8,
    /// Number of segments, at most 64.
    pub segment_count: u8,
    /// Zero.
    pub reserved: [u8; 6],
    /// If not 0: every rank is reached by loads and stores, by these alone, and lies so many bytes
    /// (modulo 2^64) behind the one before it. Kernels then look up no [`Peer`].
    pub stride: u64,
    /// Address of [`Heap::window_count`] times [`Window`].
    pub windows: u64,
    /// Registered buffers.
    pub window_count: u32,
    /// Zero.
    pub no_more: u32,
    /// Zero.
    pub more: [u64; 4],
}

/// Index behind [`Heap::alarms`] of the word that ends every wait on the heap once it is not 0. The
/// word `1 + rank` ends every wait for this rank alone.
pub const ALARM_OF_HEAP: usize = 0;

/// In [`HeapFault::peer`]: no rank in particular.
pub const NO_RANK: u32 = u32::MAX;

/// What a wait that failed leaves for the host: first writer wins (`claim`).
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct HeapFault {
    /// 0 free, 1 being written, 2 complete.
    pub claim: u32,
    /// A `wv::Status` code (see `status.h`).
    pub status: u32,
    /// What was waited for: a `wv::wait_for` code.
    pub what: u32,
    /// Rank that was waited for, or [`NO_RANK`].
    pub peer: u32,
    /// Where in the heap the word lies.
    pub offset: u64,
    /// The value that was waited for.
    pub expected: u64,
    /// What was there when the wait gave up.
    pub actual: u64,
    /// Flat thread number of the waiter: block * threads per block + thread.
    pub thread: u64,
}

/// What kernels write about the heap; zero-filled at creation.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct HeapState {
    /// The first failed wait.
    pub fault: HeapFault,
    /// Keeps the line to itself.
    pub pad: [u64; 10],
}

/// A signal of the heap, `wv::Signal`, 16-byte aligned: its value is the sum of both.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(16))]
pub struct Signal {
    /// Raised by kernels' loads and stores.
    pub direct: u64,
    /// Raised by NICs.
    pub remote: u64,
}

impl Signal {
    /// What waits compare.
    pub const fn value(self) -> u64 {
        self.direct.wrapping_add(self.remote)
    }
}

/// Size of a `wv::TeamBlock`: what a team's barriers need at the same offset of every heap, 16-byte
/// aligned and zero before the first call.
pub const TEAM_BLOCK_BYTES: u64 = 656;

/// Size of the block of a `wv::Mailbox` for messages of up to `bytes`, `1 << log_slots` of them
/// under way at once: at the same offset of both heaps, 16-byte aligned, zero before the first use.
/// `u64::MAX` for more slots than there are bytes. Kernels take [`MOST_LOG_SLOTS`] and blocks of less
/// than 64 GiB.
pub const fn mail_block_bytes(bytes: u32, log_slots: u8) -> u64 {
    /// Bytes of the longest message in narrow lines.
    const NARROW_MOST: u64 = 4096;
    let bytes = bytes as u64;
    // A message of 0 bytes takes a line as well.
    let narrow = match bytes {
        0 => 16,
        1..NARROW_MOST => 16 * bytes.div_ceil(8),
        _ => 16 * NARROW_MOST.div_ceil(8),
    };
    let wide = if bytes > NARROW_MOST { 512 * bytes.div_ceil(504) } else { 0 };
    let slot = if wide > narrow { wide } else { narrow };
    let slots = match 1u64.checked_shl(log_slots as u32) {
        Some(slots) => slots,
        None => u64::MAX,
    };
    slots.saturating_mul(2 * slot).saturating_add(128)
}

/// The most that `Mailbox::log_slots` may be.
pub const MOST_LOG_SLOTS: u8 = 16;
/// Kernels tell lines of a mailbox's block, of 16 bytes, by 32-bit numbers.
pub(crate) const MOST_MAIL_BLOCK: u64 = 16 * (u32::MAX as u64);

const _: () = {
    assert!(size_of::<Peer>() == 32);
    assert!(offset_of!(Peer, qps) == 8);
    assert!(offset_of!(Peer, segments) == 16);
    assert!(offset_of!(Peer, route) == 24);
    assert!(offset_of!(Peer, shared_atomics) == 25);
    assert!(offset_of!(Peer, qp_count) == 26);
    assert!(offset_of!(Peer, signals_by_rdma) == 28);
    assert!(size_of::<Window>() == 48);
    assert!(offset_of!(Window, near) == 16);
    assert!(offset_of!(Window, peers) == 32);
    assert!(size_of::<WindowPeer>() == 32);
    assert!(offset_of!(WindowPeer, far) == 8);
    assert!(offset_of!(WindowPeer, route) == 24);
    assert!(size_of::<Segment>() == 16);
    assert!(offset_of!(Segment, key) == 8);
    assert!(size_of::<Heap>() == 128);
    assert!(offset_of!(Heap, peers) == 16);
    assert!(offset_of!(Heap, segments) == 24);
    assert!(offset_of!(Heap, state) == 32);
    assert!(offset_of!(Heap, alarms) == 40);
    assert!(offset_of!(Heap, timeout_ns) == 48);
    assert!(offset_of!(Heap, rank) == 56);
    assert!(offset_of!(Heap, world) == 60);
    assert!(offset_of!(Heap, log_segment) == 64);
    assert!(offset_of!(Heap, segment_count) == 65);
    assert!(offset_of!(Heap, stride) == 72);
    assert!(offset_of!(Heap, windows) == 80);
    assert!(offset_of!(Heap, window_count) == 88);
    assert!(size_of::<HeapFault>() == 48);
    assert!(offset_of!(HeapFault, offset) == 16);
    assert!(offset_of!(HeapFault, thread) == 40);
    assert!(size_of::<HeapState>() == 128);
    assert!(size_of::<Signal>() == 16);
};
