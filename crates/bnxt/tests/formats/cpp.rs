//! The header of kernels: what is checked in is that of the tables, its encoders make the bytes that
//! libraries wrote, and its decoders read what the Rust encoders make.

use crate::golden::{PSN, hex, wqes};
use std::path::{Path, PathBuf};
use warpverbs_bnxt::cqe::Cqe;
use warpverbs_bnxt::doorbell::Kind;
use warpverbs_bnxt::header::HEADER;
use warpverbs_bnxt::packets::{Packets, Table};
use warpverbs_bnxt::recv;
use warpverbs_bnxt::ring::{Library, Ring};
use warpverbs_bnxt::status::{RecvStatus, SendStatus};
use warpverbs_kernel_build::{Mirror, generated};
use warpverbs_mlx5::syndrome::Syndrome;
use warpverbs_rdma::{Mtu, Sge, Status};

fn include() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels/include")
}

fn mirror() -> Mirror {
    Mirror::new(
        "#include \"warpverbs/bnxt/cqe.h\"\n#include \"warpverbs/bnxt/wqe.h\"\nusing namespace wv;
         constexpr u64 at = 0x99aabbccddeeff00, from = 0x1122334455667788;
         constexpr u64 small = 0x0102030405060708, large = 0x1112131415161718;
         constexpr u32 rkey = 0x55667788, lkey = 0xaabbccdd, imm = 0xcafef00d;
         constexpr Seg to = bnxt::remote(at, rkey), entry = bnxt::entry(from, 3000, lkey);
         constexpr Seg word = bnxt::entry(from, 8, lkey);",
    )
}

#[test]
fn the_header_is_that_of_the_tables() {
    generated(&include().join("warpverbs").join(HEADER.path), &HEADER.to_string()).unwrap();
}

#[test]
fn encoders_make_the_bytes_of_libraries() {
    let mut mirror = mirror();
    let slots = [
        ["bnxt::header(bnxt::wqe_type::write, bnxt::signaled, 3000)", "to", "entry"],
        ["bnxt::header(bnxt::wqe_type::send_imm, bnxt::signaled, 3000, imm)", "Seg{}", "entry"],
        ["bnxt::header(bnxt::wqe_type::read, bnxt::signaled, 3000)", "to", "entry"],
        [
            "bnxt::atomic_header(bnxt::wqe_type::fetch_add, bnxt::signaled, at, rkey)",
            "bnxt::operands(small, 0)",
            "word",
        ],
        [
            "bnxt::atomic_header(bnxt::wqe_type::compare_swap, bnxt::signaled, at, rkey)",
            "bnxt::operands(large, small)",
            "word",
        ],
        ["bnxt::header(bnxt::wqe_type::write_imm, bnxt::signaled, 3000, imm)", "to", "entry"],
        [
            "bnxt::header(bnxt::wqe_type::write, bnxt::inline_data, 8)",
            "to",
            "(Seg{{0x04030201, 0x08070605, 0, 0}})",
        ],
    ];
    for ((_, bytes), slots) in wqes().iter().zip(slots) {
        mirror.segments(&slots, &hex(bytes));
    }
    let mut buf = [0; 64];
    let wqe = recv::build(&mut buf, 77, &[Sge::new(0x1122_3344_5566_7788, 3000, 0xaabb_ccdd)]);
    mirror.segments(&["bnxt::receive_header(77)", "Seg{}", "entry"], wqe.expect("it fits"));
    mirror.compile(&include()).unwrap();
}

#[test]
fn packet_numbers_and_doorbells_are_alike() {
    let mut mirror = mirror();
    for (len, place, first) in
        [(0, 0, PSN), (1, 1, 0xff_ffff), (1024, 255, 0), (3000, 7, 0xff_fffe)]
    {
        let mut entry = [0; 8];
        let packets = Packets::of(first, len, Mtu::B1024, place * 3);
        packets.write(Table::Msn, 0, &mut entry).expect("the size of an entry");
        let made = format!("bnxt::packet_numbers({first}, bnxt::packets({len}, 10), {place})");
        mirror.equal(&made, format!("{}ull", u64::from_le_bytes(entry)));
    }
    let (wqes, cqes) = (Ring::new(768, Library::Current), Ring::new(64, Library::Current));
    let (wqes, cqes) = (wqes.expect("a size"), cqes.expect("a size"));
    for next in [1_u64, 255, 256, 257, 511, 512, 1 << 40] {
        let word = wqes.doorbell(Kind::Send, 0x42, 3 * next).word();
        let made = format!("bnxt::doorbell(bnxt::doorbell_kind::send, 0x42, {next}ull, 8, 3)");
        mirror.equal(&made, format!("{word}ull"));
        let word = cqes.doorbell(Kind::Completion, 5, next).word();
        let made = format!("bnxt::doorbell(bnxt::doorbell_kind::completion, 5, {next}ull, 6)");
        mirror.equal(&made, format!("{word}ull"));
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
    let tail = |cqe: Cqe, phase| {
        let bytes = cqe.emit(phase);
        let tail = u64::from_le_bytes(*bytes.last_chunk().expect("32 bytes"));
        format!("(bnxt::CqeTail{{{tail}ull}})")
    };
    for (n, &status) in SendStatus::ALL.iter().enumerate() {
        let sent = Cqe::Sent { qp_handle: 7, consumed: 9, status };
        let raw = tail(sent, n % 2 == 0);
        mirror.equal(&format!("{raw}.is_error()"), status != SendStatus::Ok);
        mirror.equal(&format!("bnxt::is_new({raw}, 3, 2)"), n % 2 == 0);
        mirror.equal(&format!("bnxt::is_new({raw}, 4, 2)"), n % 2 == 1);
        let of = format!("bnxt::syndrome_of(static_cast<bnxt::send_status>({raw}.status()))");
        mirror.equal(&format!("static_cast<int>({of})"), syndrome(status.status()));
    }
    for &status in RecvStatus::ALL {
        let (id, shared, kind, length) = (3, false, Default::default(), 8);
        let raw = tail(Cqe::Received { qp_handle: 7, id, shared, status, kind, length }, true);
        mirror.equal(&format!("{raw}.is_error()"), status != RecvStatus::Ok);
        let of = format!("bnxt::syndrome_of(static_cast<bnxt::recv_status>({raw}.status()))");
        mirror.equal(&format!("static_cast<int>({of})"), syndrome(status.status()));
    }
    let ended = tail(Cqe::Terminal { qp_handle: 7 }, true);
    mirror.equal(&format!("{ended}.is_error()"), true);
    mirror.compile(&include()).unwrap();
}
