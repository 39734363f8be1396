//! The Rust side's layouts and numbers are those of the C++ side.

use std::path::Path;
use warpverbs_kernel_build::{Mirror, mirrored};
use warpverbs_shmem::layout::{
    ALARM_OF_HEAP, Heap, HeapFault, HeapState, MOST_LOG_SLOTS, NO_RANK, Peer, Reach, Segment,
    Signal, TEAM_BLOCK_BYTES, Window, WindowPeer, mail_block_bytes,
};

#[test]
fn layouts_and_values_are_the_same() {
    let mut mirror = Mirror::new(
        "#include \"warpverbs/barrier.h\"\n#include \"warpverbs/mail.h\"\nusing namespace wv;",
    );
    mirrored!(
        mirror,
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
    mirrored!(mirror, "Window" = Window { base, bytes, near, peers, reserved });
    mirrored!(mirror, "WindowPeer" = WindowPeer { delta, far, route, reserved });
    mirrored!(
        mirror,
        "Peer" = Peer { delta, qps, segments, route, shared_atomics, qp_count, signals_by_rdma }
    );
    mirrored!(
        mirror,
        "HeapFault" = HeapFault { claim, status, what, peer, offset, expected, actual, thread }
    );
    mirrored!(mirror, "HeapState" = HeapState { fault, pad });
    mirrored!(mirror, "Signal" = Signal { direct, remote });
    mirrored!(mirror, "Local" = Segment { addr, key as "lkey" });
    mirrored!(mirror, "Remote" = Segment { addr, key as "rkey" });
    for (name, value) in [("none", Reach::None), ("direct", Reach::Direct), ("rdma", Reach::Rdma)] {
        mirror.equal(&format!("static_cast<u8>(reach::{name})"), value as u8);
    }
    mirror.equal("alarm_of_heap", ALARM_OF_HEAP);
    mirror.equal("sizeof(TeamBlock)", TEAM_BLOCK_BYTES);
    for (bytes, log_slots) in [(0, 1), (1, 1), (8, 3), (9, 3), (65_537, 4), (u32::MAX, 16)] {
        let mailbox = format!("mail_block_bytes(Mailbox{{0, {bytes}u, {log_slots}, 30, 0}})");
        mirror.equal(&mailbox, format!("{}ull", mail_block_bytes(bytes, log_slots)));
    }
    mirror.equal("impl::most_log_slots", MOST_LOG_SLOTS);
    mirror.equal("no_rank", format!("{NO_RANK}u"));
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels/include");
    mirror.compile(&include).unwrap();
}
