//! The header of kernels: what is checked in is that of the tables, its encoders make the bytes that the
//! library wrote, and its decoders read what the Rust encoders make.

use crate::golden::{posted, wqe};
use std::path::{Path, PathBuf};
use warpverbs_ionic::cqe::Cqe;
use warpverbs_ionic::doorbell::Doorbell;
use warpverbs_ionic::header::HEADER;
use warpverbs_ionic::recv;
use warpverbs_ionic::ring::Position;
use warpverbs_ionic::status::Failure;
use warpverbs_kernel_build::{Mirror, generated};
use warpverbs_mlx5::syndrome::Syndrome;
use warpverbs_rdma::{Qpn, Sge, Status};

fn include() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels/include")
}

fn mirror() -> Mirror {
    Mirror::new(
        "#include \"warpverbs/ionic/cqe.h\"\n#include \"warpverbs/ionic/wqe.h\"\nusing namespace wv;
         constexpr u64 at = 0x99aabbccddeeff00, from = 0x1122334455667788;
         constexpr u64 small = 0x0102030405060708, large = 0x1112131415161718;
         constexpr u32 rkey = 0x55667788, lkey = 0xaabbccdd, imm = 0xcafef00d;
         constexpr Seg to = ionic::remote(at, rkey, 3000), none{};
         constexpr Seg entry = ionic::entry(from, 3000, lkey);
         constexpr Seg head(u64 index, u8 op, u8 entries, u8 flags, u32 word = 0) {
           return ionic::header(index, 6, op, entries, flags, word);
         }
         constexpr ionic::Wqe add = ionic::atomic_wqe(
             head(3, ionic::op_fetch_add, 1, ionic::signaled), at, rkey, small, 0, from, lkey);
         constexpr ionic::Wqe swap = ionic::atomic_wqe(
             head(4, ionic::op_compare_swap, 1, ionic::signaled), at, rkey, large, small, from, lkey);",
    )
}

#[test]
fn the_header_is_that_of_the_tables() {
    generated(&include().join("warpverbs").join(HEADER.path), &HEADER.to_string()).unwrap();
}

#[test]
fn encoders_make_the_bytes_of_the_library() {
    let mut mirror = mirror();
    let parts = [
        ["head(0, ionic::op_write, 1, ionic::signaled)", "to", "entry", "none"],
        [
            "head(1, ionic::op_send_imm, 1, ionic::signaled, imm)",
            "ionic::message(3000)",
            "entry",
            "none",
        ],
        ["head(2, ionic::op_read, 1, ionic::signaled)", "to", "entry", "none"],
        ["add.part[0]", "add.part[1]", "add.part[2]", "add.part[3]"],
        ["swap.part[0]", "swap.part[1]", "swap.part[2]", "swap.part[3]"],
        ["head(5, ionic::op_write_imm, 1, ionic::signaled, imm)", "to", "entry", "none"],
        [
            "head(6, ionic::op_write, 0, ionic::inline_data)",
            "ionic::remote(at, rkey, 8)",
            "(Seg{{0x04030201, 0x08070605, 0, 0}})",
            "none",
        ],
    ];
    for ((_, bytes), parts) in posted().iter().zip(parts) {
        mirror.segments(&parts, &wqe(bytes));
    }
    // The colour of each lap.
    for (index, flags) in [(63, 0x18), (64, 0x08), (127, 0x08), (128, 0x18)] {
        let head = format!("head({index}, ionic::op_write, 1, ionic::signaled)");
        mirror.equal(&format!("{head}.w[2] >> 16"), flags << 8);
    }
    let (mut raw, at) = ([0; 64], Position { counter: 77, log_depth: 6 });
    let sge = Sge::new(0x1122_3344_5566_7788, 3000, 0xaabb_ccdd);
    recv::build(&mut raw, at, &[sge]).expect("it fits");
    mirror.segments(&["ionic::receive_header(77, 6, 3000)", "none", "entry", "none"], &raw);
    mirror.compile(&include()).unwrap();
}

#[test]
fn doorbells_are_alike() {
    let mut mirror = mirror();
    for counter in [1_u64, 63, 64, 65, 1 << 40] {
        let index = Position { counter, log_depth: 6 }.index();
        let queue = Qpn::new(0x12_3456).expect("24 bits");
        let word = Doorbell { queue, index, arm: None }.word();
        mirror.equal(&format!("ionic::doorbell(0x123456, {counter}ull, 6)"), format!("{word}ull"));
    }
    mirror.compile(&include()).unwrap();
}

/// The number by which mlx5 tells a status, 0 for one that it does not know.
fn syndrome(status: Status) -> u8 {
    let known = Syndrome::of(status).filter(|syndrome| !matches!(syndrome, Syndrome::Unknown(_)));
    known.map_or(0, Syndrome::value)
}

#[test]
fn cqes_are_read_alike() {
    let mut mirror = mirror();
    let (qpn, msn, kind) = (Qpn::new(0x42).expect("24 bits"), 9, Default::default());
    let tail = |cqe: Cqe, color| {
        let bytes = cqe.emit(color);
        let tail = u64::from_le_bytes(*bytes.last_chunk().expect("32 bytes"));
        format!("(ionic::CqeTail{{{tail}ull}})")
    };
    for (n, &failure) in Failure::ALL.iter().enumerate() {
        let raw = tail(Cqe::Messages { qpn, msn, status: Err(failure) }, n % 2 == 0);
        mirror.equal(&format!("{raw}.is_error()"), true);
        mirror.equal(&format!("ionic::is_new({raw}, 3, 2)"), n % 2 == 0);
        mirror.equal(&format!("ionic::is_new({raw}, 4, 2)"), n % 2 == 1);
        let of = format!("ionic::syndrome_of(static_cast<ionic::failure>({raw}.status_length()))");
        mirror.equal(&format!("static_cast<int>({of})"), syndrome(failure.status()));
    }
    let (source, ipv4) = (Qpn::default(), false);
    let received = Cqe::Received { qpn, index: 3, kind, source, ipv4, status: Ok(3000) };
    let local = Cqe::Local { qpn, index: 3, status: Ok(()) };
    for (cqe, is_error) in [
        (Cqe::Messages { qpn, msn, status: Ok(()) }, false),
        (received, false),
        // No queue of a kernel has local operations.
        (local, true),
    ] {
        mirror.equal(&format!("{}.is_error()", tail(cqe, true)), is_error);
    }
    mirror.equal(&format!("{}.status_length()", tail(received, true)), 3000);
    mirror.compile(&include()).unwrap();
}
