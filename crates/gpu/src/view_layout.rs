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
    use std::fmt::Write as _;
    use std::mem::offset_of;
    use std::path::Path;
    use std::process::Command;

    macro_rules! same_layout {
        ($out:ident, $cpp:literal = $rust:ty { $($field:ident),* $(,)? }) => {
            let (size, align) = (size_of::<$rust>(), align_of::<$rust>());
            writeln!($out, "static_assert(sizeof({0}) == {size}, \"{0}\");", $cpp).expect("text");
            writeln!($out, "static_assert(alignof({0}) == {align}, \"{0}\");", $cpp).expect("text");
            $(
                let (name, at) = (stringify!($field), offset_of!($rust, $field));
                let place = format!("__builtin_offsetof({}, {name})", $cpp);
                writeln!($out, "static_assert({place} == {at}, \"{}.{name}\");", $cpp).expect("text");
            )*
        };
    }

    /// A translation unit that compiles only if every mirrored field and number is the same.
    fn asserts() -> String {
        let mut out = String::from("#include \"warpverbs/nixl.h\"\nusing namespace wv;\n");
        same_layout!(out, "LocalEntry" = LocalEntry { addr, bytes, nic });
        same_layout!(
            out,
            "RemoteEntry" = RemoteEntry { addr, bytes, nic, qps, route, reserved, qp_count, peer }
        );
        same_layout!(
            out,
            "LocalView" = LocalHead { entries, count, peers, state, alarms, timeout_ns }
        );
        same_layout!(out, "RemoteView" = RemoteHead { entries, count, reserved, timeout_ns });
        same_layout!(
            out,
            "HeapFault" = WaitFault { claim, status, what, peer, offset, expected, actual, thread }
        );
        same_layout!(out, "HeapState" = WaitState { fault, pad });
        for (name, key) in [("Local", "lkey"), ("Remote", "rkey")] {
            let (size, at) = (size_of::<Keyed>(), offset_of!(Keyed, key));
            writeln!(out, "static_assert(sizeof({name}) == {size}, \"{name}\");").expect("text");
            let place = format!("__builtin_offsetof({name}, {key})");
            writeln!(out, "static_assert({place} == {at}, \"{name}.{key}\");").expect("text");
        }
        for (name, value) in [("direct", Reach::Direct), ("rdma", Reach::Rdma)] {
            let value = value as u8;
            writeln!(out, "static_assert(static_cast<u8>(reach::{name}) == {value}, \"reach\");")
                .expect("text");
        }
        out.push_str("static_assert(alarm_of_heap == 0 && alarm_of_peer(0) == 1, \"alarms\");\n");
        out
    }

    #[test]
    fn layouts_and_values_are_those_of_the_header() {
        let dir = tempfile::tempdir().expect("a folder");
        let unit = dir.path().join("layout.cpp");
        std::fs::write(&unit, asserts()).expect("write");
        let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels/include");
        let cxx = std::env::var("CXX").unwrap_or_else(|_| "c++".into());
        let mut command = Command::new(cxx);
        command.args(["-std=c++20", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I"]);
        let output = command.arg(include).arg(&unit).output().expect("a C++ compiler");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}
