//! Views as kernels see them, in bytes: `kernels/include/warpverbs/nixl.h`. Native byte order; addresses
//! are those of the kernels that read them.

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// How a piece of a peer's memory is reached, `wv::reach`.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub(crate) enum Reach {
    Direct = 1,
    Rdma = 2,
}

/// Memory as a NIC knows it, `wv::Local` and `wv::Remote`.
#[derive(Clone, Copy, Debug, Default, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct Keyed {
    pub(crate) addr: u64,
    pub(crate) key: u32,
    pub(crate) reserved: u32,
}

/// `wv::LocalEntry`.
#[derive(Clone, Copy, Debug, Default, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct LocalEntry {
    pub(crate) addr: u64,
    pub(crate) bytes: u64,
    /// Address 0: the NIC does not know it.
    pub(crate) nic: Keyed,
}

/// `wv::RemoteEntry`; all zero is a hole.
#[derive(Clone, Copy, Debug, Default, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct RemoteEntry {
    pub(crate) addr: u64,
    pub(crate) bytes: u64,
    pub(crate) nic: Keyed,
    /// Address of [`RemoteEntry::qp_count`] addresses of queue pairs.
    pub(crate) qps: u64,
    /// A [`Reach`].
    pub(crate) route: u8,
    pub(crate) reserved: u8,
    pub(crate) qp_count: u16,
    pub(crate) peer: u32,
}

/// `wv::LocalView`.
#[derive(Clone, Copy, Debug, Default, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct LocalHead {
    /// Address of [`LocalHead::count`] entries.
    pub(crate) entries: u64,
    pub(crate) count: u32,
    /// That may be waited for.
    pub(crate) peers: u32,
    /// Address of a [`WaitState`].
    pub(crate) state: u64,
    /// Address of a u32 for all waits, then one for each peer.
    pub(crate) alarms: u64,
    pub(crate) timeout_ns: u64,
}

/// `wv::RemoteView`.
#[derive(Clone, Copy, Debug, Default, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct RemoteHead {
    /// Address of [`RemoteHead::count`] entries.
    pub(crate) entries: u64,
    pub(crate) count: u32,
    pub(crate) reserved: u32,
    pub(crate) timeout_ns: u64,
}

/// The first wait that failed, `wv::HeapFault`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct WaitFault {
    /// 0 free, 1 being written, [`WaitFault::COMPLETE`].
    pub(crate) claim: u32,
    pub(crate) status: u32,
    pub(crate) what: u32,
    pub(crate) peer: u32,
    pub(crate) offset: u64,
    pub(crate) expected: u64,
    pub(crate) actual: u64,
    pub(crate) thread: u64,
}

impl WaitFault {
    pub(crate) const COMPLETE: u32 = 2;
}

/// What kernels write about waits, `wv::HeapState`; zero at first.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct WaitState {
    pub(crate) fault: WaitFault,
    /// Keeps the line to itself.
    pub(crate) pad: [u64; 10],
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use warpverbs_kernel_build::{Mirror, mirrored};

    #[test]
    fn layouts_and_values_are_those_of_the_header() {
        let mut mirror = Mirror::new("#include \"warpverbs/nixl.h\"\nusing namespace wv;");
        mirrored!(mirror, "Local" = Keyed { addr, key as "lkey" });
        mirrored!(mirror, "Remote" = Keyed { addr, key as "rkey" });
        mirrored!(mirror, "LocalEntry" = LocalEntry { addr, bytes, nic });
        mirrored!(
            mirror,
            "RemoteEntry" = RemoteEntry { addr, bytes, nic, qps, route, reserved, qp_count, peer }
        );
        mirrored!(
            mirror,
            "LocalView" = LocalHead { entries, count, peers, state, alarms, timeout_ns }
        );
        mirrored!(mirror, "RemoteView" = RemoteHead { entries, count, reserved, timeout_ns });
        mirrored!(
            mirror,
            "HeapFault" = WaitFault { claim, status, what, peer, offset, expected, actual, thread }
        );
        mirrored!(mirror, "HeapState" = WaitState { fault, pad });
        mirror.equal("static_cast<u8>(reach::direct)", Reach::Direct as u8);
        mirror.equal("static_cast<u8>(reach::rdma)", Reach::Rdma as u8);
        mirror.equal("alarm_of_heap", 0);
        mirror.equal("alarm_of_peer(0)", 1);
        let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels/include");
        mirror.compile(&include).unwrap();
    }
}
