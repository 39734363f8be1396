//! The Rust side's layouts and numbers as assertions for the C++ side to compile.

use std::fmt::Write as _;
use std::mem::offset_of;
use std::path::Path;
use std::process::Command;
use warpverbs_shmem::layout::{
    ALARM_OF_HEAP, Heap, HeapFault, HeapState, NO_RANK, Peer, Reach, Segment, Signal,
    TEAM_BLOCK_BYTES, Window, WindowPeer, mail_block_bytes,
};

macro_rules! same_layout {
    ($out:ident, $cpp:literal = $rust:ty { $($name:literal = $field:ident),* $(,)? }) => {
        let (size, align) = (size_of::<$rust>(), align_of::<$rust>());
        writeln!($out, "static_assert(sizeof({}) == {size}, \"\");", $cpp).expect("text");
        writeln!($out, "static_assert(alignof({}) == {align}, \"\");", $cpp).expect("text");
        $(
            let at = offset_of!($rust, $field);
            writeln!($out, "static_assert(__builtin_offsetof({}, {}) == {at}, \"\");", $cpp, $name)
                .expect("text");
        )*
    };
    ($out:ident, $cpp:literal = $rust:ty { $($field:ident),* $(,)? }) => {
        let (size, align) = (size_of::<$rust>(), align_of::<$rust>());
        writeln!($out, "static_assert(sizeof({}) == {size}, \"\");", $cpp).expect("text");
        writeln!($out, "static_assert(alignof({}) == {align}, \"\");", $cpp).expect("text");
        $(
            let (name, at) = (stringify!($field), offset_of!($rust, $field));
            writeln!($out, "static_assert(__builtin_offsetof({}, {name}) == {at}, \"\");", $cpp)
                .expect("text");
        )*
    };
}

/// A translation unit that compiles only if every mirrored field and number is the same.
fn asserts() -> String {
    let mut out = String::from(
        "#include \"warpverbs/barrier.h\"\n#include \"warpverbs/mail.h\"\nusing namespace wv;\n",
    );
    same_layout!(
        out,
        "wv::Heap" = Heap {
            base,
            bytes,
            peers,
            segments,
            state,
            alarms,
            timeout_ns,
            rank,
            world,
            log_segment,
            segment_count,
            reserved,
            stride,
            windows,
            window_count,
            no_more,
            more,
        }
    );
    same_layout!(out, "Window" = Window { base, bytes, near, peers, reserved });
    same_layout!(out, "WindowPeer" = WindowPeer { delta, far, route, reserved });
    same_layout!(
        out,
        "Peer" = Peer { delta, qps, segments, route, shared_atomics, qp_count, signals_by_rdma }
    );
    same_layout!(
        out,
        "HeapFault" = HeapFault { claim, status, what, peer, offset, expected, actual, thread }
    );
    same_layout!(out, "HeapState" = HeapState { fault, pad });
    same_layout!(out, "Signal" = Signal { direct, remote });
    same_layout!(out, "Local" = Segment { "addr" = addr, "lkey" = key });
    same_layout!(out, "Remote" = Segment { "addr" = addr, "rkey" = key });
    for (name, value) in [("none", Reach::None), ("direct", Reach::Direct), ("rdma", Reach::Rdma)] {
        let value = value as u8;
        writeln!(out, "static_assert(static_cast<u8>(reach::{name}) == {value}, \"\");")
            .expect("text");
    }
    writeln!(out, "static_assert(alarm_of_heap == {ALARM_OF_HEAP}, \"\");").expect("text");
    writeln!(out, "static_assert(sizeof(TeamBlock) == {TEAM_BLOCK_BYTES}, \"\");").expect("text");
    for (bytes, log_slots) in [(0, 1), (1, 1), (8, 3), (9, 3), (65_537, 4), (u32::MAX, 16)] {
        let size = mail_block_bytes(bytes, log_slots);
        let mailbox = format!("Mailbox{{0, {bytes}u, {log_slots}, 30, 0}}");
        writeln!(out, "static_assert(mail_block_bytes({mailbox}) == {size}ull, \"\");")
            .expect("text");
    }
    writeln!(out, "static_assert(no_rank == {NO_RANK}u, \"\");").expect("text");
    out
}

#[test]
fn layouts_and_values_are_the_same() {
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
