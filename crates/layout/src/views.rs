//! Views of agents' memory, `kernels/include/warpverbs/nixl.h`. They are never written after they were
//! handed out.

use crate::header::Header;
use crate::heap::NicAddress;

pub(crate) const HEADER: Header = Header {
    path: "layout/views.h",
    table: "layout/src/views.rs",
    namespace: "wv",
    includes: &["layout/heap.h"],
    items: &[LocalEntry::LAYOUT, RemoteEntry::LAYOUT, LocalHead::LAYOUT, RemoteHead::LAYOUT],
};

crate::layout! {
    /// A piece of this agent's memory.
    pub struct LocalEntry[32]: Default {
        /// Where kernels reach it.
        pub addr: u64,
        /// Its size.
        pub bytes: u64,
        /// Its first byte; address 0 if the NIC does not know it.
        pub nic: NicAddress as "Local",
    }

    /// A piece of a peer's memory; all zero is a hole.
    pub struct RemoteEntry[48]: Default {
        /// Direct: where kernels here reach it.
        pub addr: u64,
        /// Its size.
        pub bytes: u64,
        /// Its first byte.
        pub nic: NicAddress as "Remote",
        /// Address of `qp_count` addresses of queue pairs, one for each channel; 0 if there are none.
        pub qps: u64,
        /// How it is reached; none is a hole.
        pub route: u8 as "reach",
        /// Zero.
        pub reserved: u8,
        /// Channels.
        pub qp_count: u16,
        /// Number of the peer; see alarm_of_peer.
        pub peer: u32,
    }

    /// Memory of this agent.
    pub struct LocalHead[40] as "LocalView": Default {
        /// Address of `count` times [`LocalEntry`].
        pub entries: u64,
        /// Entries.
        pub count: u32,
        /// Peers that may be waited for.
        pub peers: u32,
        /// Address of the `HeapState` for the first wait that failed.
        pub state: u64,
        /// Address of a u32 for all waits, then one for each peer.
        pub alarms: u64,
        /// The deadline, in nanoseconds, of every wait that is not given its own.
        pub timeout_ns: u64,
    }

    /// Memory of peers.
    pub struct RemoteHead[24] as "RemoteView": Default {
        /// Address of `count` times [`RemoteEntry`].
        pub entries: u64,
        /// Entries.
        pub count: u32,
        /// Zero.
        pub reserved: u32,
        /// The deadline, in nanoseconds, of every wait that is not given its own.
        pub timeout_ns: u64,
    }
}
