//! The symmetric heap and what its waits leave, `kernels/include/warpverbs/heap.h`.

use crate::header::Header;

pub(crate) const HEADER: Header = Header {
    path: "layout/heap.h",
    table: "layout/src/heap.rs",
    namespace: "wv",
    includes: &["status.h"],
    items: &[
        Reach::LAYOUT,
        Peer::LAYOUT,
        Window::LAYOUT,
        WindowPeer::LAYOUT,
        Heap::LAYOUT,
        HeapFault::LAYOUT,
        HeapState::LAYOUT,
        Signal::LAYOUT,
        NUMBERS,
    ],
};

crate::layout! {
    /// How memory of another rank or agent is reached. Fixed by the host before kernels run.
    pub enum Reach: u8 as "reach" {
        /// Not at all: calls return no_peer.
        None = 0,
        /// By loads and stores: one's own memory, or memory that is mapped here.
        Direct = 1,
        /// Through queue pairs.
        Rdma = 2,
    }

    /// A byte of registered memory as a NIC knows it: `wv::Local` and `wv::Remote`.
    pub struct NicAddress[16]: Default {
        /// Its address.
        pub addr: u64,
        /// lkey or rkey.
        pub key: u32,
        /// Zero.
        pub reserved: u32,
    }

    /// One rank's heap as another rank reaches it.
    pub struct Peer[32]: Default {
        /// Direct: what takes an address of the own heap to the peer's, modulo 2^64. 0 for oneself.
        pub delta: u64 as "i64",
        /// Address of `qp_count` addresses of queue pairs, 0 if there are none.
        pub qps: u64,
        /// Address of the first byte of each of the peer's segments, `Remote`, 0 if there are none.
        pub segments: u64,
        /// A [`Reach`].
        pub route: u8 as "reach",
        /// 1: some rank reaches this heap by RDMA, so all do their fetching atomics on it by RDMA.
        pub shared_atomics: u8,
        /// Queue pairs to this rank.
        pub qp_count: u16,
        /// 1: reached by loads and stores, but some registered buffer of this rank by RDMA, so that
        /// signals must follow the puts of both.
        pub signals_by_rdma: u32,
    }

    /// A buffer of the user's that all ranks have registered, each its own.
    pub struct Window[48]: Default {
        /// Address of the own buffer's first byte.
        pub base: u64,
        /// Its length, the same on all ranks.
        pub bytes: u64,
        /// Its first byte as the own NIC knows it; address 0 without RDMA.
        pub near: NicAddress as "Local",
        /// Address of a [`WindowPeer`] for each rank.
        pub peers: u64,
        /// Zero.
        pub reserved: u64,
    }

    /// A rank's registered buffer as another rank reaches it.
    pub struct WindowPeer[32]: Default {
        /// Direct: what takes an address of the own buffer to the peer's, modulo 2^64.
        pub delta: u64,
        /// RDMA: its first byte as its NIC knows it.
        pub far: NicAddress as "Remote",
        /// A [`Reach`].
        pub route: u8 as "reach",
        /// Zero.
        pub reserved: [u8; 7],
    }

    /// A rank's heap. Never written after it was handed out, and always where the host put it: kernels
    /// read it as constants of global memory, so a copy elsewhere is not usable.
    pub struct Heap[128] with "Heap(const Heap&) = delete;" {
        /// Address of the own heap's first byte.
        pub base: u64,
        /// Size of the heap in bytes.
        pub bytes: u64,
        /// Address of a [`Peer`] for each rank, this one included.
        pub peers: u64,
        /// Address of the first byte of each of the own segments, `Local`, 0 without RDMA.
        pub segments: u64,
        /// Address of the [`HeapState`].
        pub state: u64,
        /// Address of `1 + world` u32 in memory that the host writes: for the heap, then for each rank.
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
        /// If not 0: every rank is reached by loads and stores, by these alone, and lies this many bytes
        /// (modulo 2^64) behind the one before it. Kernels then look up no [`Peer`].
        pub stride: u64,
        /// Address of `window_count` times [`Window`].
        pub windows: u64,
        /// Registered buffers.
        pub window_count: u32,
        /// Zero.
        pub no_more: u32,
        /// Zero.
        pub more: [u64; 4],
    }

    /// The first wait on a heap or a view that failed, for the host: the first writer claims it.
    pub struct HeapFault[48]: Default {
        /// 0 free, 1 being written, 2 complete.
        pub claim: u32,
        /// A `wv::Status` code (see `status.h`).
        pub status: u32,
        /// Purpose of the wait: a `wv::wait_for` code.
        pub what: u32,
        /// Rank or peer that was waited for, `no_rank` if none in particular.
        pub peer: u32,
        /// Where in the heap the word lies; of a view its address.
        pub offset: u64,
        /// The value that was waited for.
        pub expected: u64,
        /// The value found when the wait gave up.
        pub actual: u64,
        /// Flat thread number of the waiter: block * threads per block + thread.
        pub thread: u64,
    }

    /// Record that kernels write about waits; zero-filled at creation.
    pub struct HeapState[128]: Default {
        /// The first failed wait.
        pub fault: HeapFault,
        /// Keeps the line to itself.
        pub pad: [u64; 10],
    }

    /// A signal: a word for the adds of kernels and a word for those of NICs, whose atomics know nothing
    /// of each other. Its value is their sum.
    pub struct Signal[16] align(16): Default, PartialEq, Eq {
        /// Raised by kernels' loads and stores.
        pub direct: u64,
        /// Raised by NICs.
        pub remote: u64,
    }

    consts NUMBERS {
        /// In HeapFault.peer and for calls that wait: no rank in particular.
        pub NO_RANK: u32 = u32::MAX,
        /// Index behind Heap.alarms of the word that ends every wait on the heap once it is not 0. The
        /// word `1 + rank` ends every wait for this rank alone.
        pub ALARM_OF_HEAP: usize as "u32" = 0,
    }
}

impl Signal {
    /// The value that waits compare.
    pub const fn value(self) -> u64 {
        self.direct.wrapping_add(self.remote)
    }
}
