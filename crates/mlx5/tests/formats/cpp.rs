//! The C++ mirror: same bytes, same layouts, clean under two compilers and two standards.

use crate::golden::{all_vectors, files, repository};
use std::fmt::Write as _;
use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use warpverbs_mlx5::cqe::{Cqe64, CqeTail, ErrCqe, TAIL_OFFSET};
use warpverbs_mlx5::doorbell::{CqDbr, QpDbr};
use warpverbs_mlx5::export::{Cq, ErrorWord, Fault, PostState, Qp, QueueState, SCRATCH_SLOTS};
use warpverbs_mlx5::opcode::SendOpcode;
use warpverbs_mlx5::segment::{
    AtomicSeg, CtrlSeg, DataSeg, MaskedCs4Seg, MaskedCs8Seg, MaskedFa4Seg, MaskedFa8Seg, RaddrSeg,
    SrqNextSeg,
};
use warpverbs_mlx5::syndrome::Syndrome;

const STRICT: &[&str] = &["-Wall", "-Wextra", "-Werror", "-Wpedantic"];

/// The compilers that are here; there must be one.
fn compilers() -> Vec<String> {
    let named = std::env::var("CXX").ok();
    let mut found: Vec<_> = named.into_iter().chain(["g++", "clang++"].map(String::from)).collect();
    found.retain(|cxx| Command::new(cxx).arg("--version").output().is_ok());
    assert!(!found.is_empty(), "no C++ compiler: set CXX, or install g++ or clang++");
    found
}

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let text = [output.stdout.as_slice(), &output.stderr].concat();
    assert!(output.status.success(), "{command:?}:\n{}", String::from_utf8_lossy(&text));
    output
}

fn cxx(compiler: &str, standard: &str) -> Command {
    let mut command = Command::new(compiler);
    command.arg(format!("-std={standard}")).args(STRICT);
    command.arg("-I").arg(repository().join("kernels/include"));
    command
}

/// A place for outputs of this test run.
fn scratch(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a scratch directory");
    dir
}

#[test]
fn encoders_make_the_vectors() {
    let dir = scratch("vectors");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cpp/vectors.cpp");
    let program = dir.join("vectors");
    run(cxx(&compilers()[0], "c++20").arg("-o").arg(&program).arg(source));
    let output = run(Command::new(&program).args(files()));
    let all = all_vectors().len();
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("compared {all}\n"));
    std::fs::remove_dir_all(dir).expect("remove");
}

#[test]
fn headers_stand_alone() {
    let include = repository().join("kernels/include/warpverbs");
    let entries = std::fs::read_dir(include.join("mlx5")).expect("headers");
    let mut headers: Vec<_> = entries.map(|e| e.expect("entry").path()).collect();
    headers.extend([include.join("qp.h"), include.join("arch/types.h")]);
    let dir = scratch("headers");
    for compiler in compilers() {
        for standard in ["c++17", "c++20"] {
            // One translation unit each, so that a missing #include shows.
            let mut command = cxx(&compiler, standard);
            command.arg("-fsyntax-only");
            for header in &headers {
                let unit = dir.join(header.file_stem().expect("a name")).with_extension("cpp");
                let text = format!("#include \"{}\"\n", header.display());
                std::fs::write(&unit, text).expect("write");
                command.arg(unit);
            }
            run(&mut command);
        }
    }
    std::fs::remove_dir_all(dir).expect("remove");
}

macro_rules! same_layout {
    ($out:ident, $cpp:literal = $rust:ty { $($field:ident),* $(,)? }) => {
        let size = size_of::<$rust>();
        writeln!($out, "static_assert(sizeof({}) == {size}, \"\");", $cpp).expect("text");
        $(
            let (name, at) = (stringify!($field), offset_of!($rust, $field));
            writeln!($out, "static_assert(__builtin_offsetof({}, {name}) == {at}, \"\");", $cpp)
                .expect("text");
        )*
    };
}

/// Every field of every mirrored struct, offsets taken from the Rust side.
fn layout_asserts() -> String {
    let mut out = String::from(
        "#include \"warpverbs/mlx5/layout.h\"\n#include \"warpverbs/mlx5/opcode.h\"\n\
         #include \"warpverbs/qp.h\"\nusing namespace wv;\nusing namespace wv::mlx5;\n",
    );
    same_layout!(out, "wv::Cq" = Cq { buf, dbr, cqn, log_size, mode, reserved });
    same_layout!(
        out,
        "wv::Qp" = Qp {
            sq,
            rq,
            dbr,
            doorbell,
            send_cq,
            recv_cq,
            state,
            sq_ready,
            rq_ready,
            sq_span,
            abort,
            scratch,
            timeout_ns,
            scratch_lkey,
            qpn,
            log_sq,
            log_rq,
            log_rq_stride,
            inline_words,
            reserved,
        }
    );
    same_layout!(
        out,
        "QueueState" = QueueState {
            reserved,
            pad0,
            published,
            ring_token,
            pad1,
            pad2,
            completed,
            cq_ci,
            poll_token,
            pad3,
            pad4,
        }
    );
    same_layout!(out, "Fault" = Fault { claim, status, what, qpn, expected, actual, thread });
    same_layout!(out, "PostState" = PostState { sq, rq, error, scratch_free, fault, pad });
    same_layout!(
        out,
        "CtrlSeg" = CtrlSeg {
            opmod,
            wqe_index,
            opcode,
            qpn,
            ds,
            signature,
            dci_stream_channel_id,
            fm_ce_se,
            imm,
        }
    );
    same_layout!(out, "RaddrSeg" = RaddrSeg { raddr, rkey, reserved });
    same_layout!(out, "DataSeg" = DataSeg { byte_count, lkey, addr });
    same_layout!(out, "AtomicSeg" = AtomicSeg { swap_add, compare });
    same_layout!(out, "MaskedFa4Seg" = MaskedFa4Seg { add, field_boundary, reserved });
    same_layout!(out, "MaskedFa8Seg" = MaskedFa8Seg { add, field_boundary });
    same_layout!(out, "MaskedCs4Seg" = MaskedCs4Seg { swap, compare, swap_mask, compare_mask });
    same_layout!(out, "MaskedCs8Seg" = MaskedCs8Seg { swap, compare, swap_mask, compare_mask });
    same_layout!(
        out,
        "SrqNextSeg" = SrqNextSeg { reserved0, next_wqe_index, signature, reserved1 }
    );
    same_layout!(
        out,
        "Cqe64" = Cqe64 {
            wqe_id,
            ml_path,
            slid,
            hds_ip_ext,
            l4_hdr_type_etc,
            vlan_info,
            srqn_uidx,
            imm_inval_pkey,
            app,
            app_op,
            app_info,
            byte_cnt,
            timestamp,
        }
    );
    same_layout!(
        out,
        "ErrCqe" =
            ErrCqe { srqn_uidx, hw_error_syndrome, hw_syndrome_type, vendor_err_synd, syndrome }
    );
    same_layout!(out, "QpDbr" = QpDbr { rcv, snd });
    same_layout!(out, "CqDbr" = CqDbr { set_ci, arm });
    for (field, at) in [
        ("wqe_opcode", offset_of!(CqeTail, wqe_opcode)),
        ("qpn", offset_of!(CqeTail, qpn)),
        ("wqe_counter", offset_of!(CqeTail, wqe_counter)),
        ("signature", offset_of!(CqeTail, signature)),
        ("op_own", offset_of!(CqeTail, op_own)),
    ] {
        for cqe in ["Cqe64", "ErrCqe"] {
            let at = TAIL_OFFSET + at;
            writeln!(out, "static_assert(__builtin_offsetof({cqe}, {field}) == {at}, \"\");")
                .expect("text");
        }
    }
    out
}

/// Opcodes and syndromes by their C++ names, values taken from the Rust side.
fn value_asserts() -> String {
    let mut out = String::new();
    for opcode in SendOpcode::ALL {
        let name = opcode.name().to_lowercase().replace("atomic_masked", "masked");
        let value = opcode.value();
        writeln!(out, "static_assert(static_cast<u8>(opcode::{name}) == {value}, \"\");")
            .expect("text");
    }
    for syndrome in Syndrome::ALL {
        // LocalQpOp → local_qp_op
        let mut name = String::new();
        for c in format!("{syndrome:?}").chars() {
            let separator = if c.is_uppercase() && !name.is_empty() { "_" } else { "" };
            write!(name, "{separator}{}", c.to_lowercase()).expect("text");
        }
        let value = syndrome.value();
        writeln!(out, "static_assert(static_cast<u8>(syndrome::{name}) == {value}, \"\");")
            .expect("text");
    }
    let word = ErrorWord::new(13, 0x13, 0x88, 8, 0x1f3a).0;
    writeln!(
        out,
        "static_assert(ErrorWord::pack(13, 0x13, 0x88, 8, 0x1f3a).raw == {word}ull, \"\");"
    )
    .expect("text");
    writeln!(out, "static_assert(scratch_slots == {SCRATCH_SLOTS}, \"\");").expect("text");
    out
}

#[test]
fn layouts_and_values_are_the_same() {
    let dir = scratch("layout");
    let unit = dir.join("layout.cpp");
    std::fs::write(&unit, layout_asserts() + &value_asserts()).expect("write");
    run(cxx(&compilers()[0], "c++20").arg("-fsyntax-only").arg(&unit));
    std::fs::remove_dir_all(dir).expect("remove");
}

/// rdma-core's public header, or the reason why the test that needs it says nothing.
fn mlx5dv() -> bool {
    let header = "#include <infiniband/mlx5dv.h>\n";
    let dir = scratch("probe");
    let unit = dir.join("probe.cpp");
    std::fs::write(&unit, header).expect("write");
    let found = Command::new(&compilers()[0]).arg("-fsyntax-only").arg(&unit).output();
    std::fs::remove_dir_all(dir).expect("remove");
    let found = found.is_ok_and(|output| output.status.success());
    if !found {
        eprintln!("SKIPPED: infiniband/mlx5dv.h is not installed (Debian: libibverbs-dev)");
    }
    found
}

#[test]
fn layouts_match_mlx5dv() {
    if mlx5dv() {
        let unit = repository().join("tests/vectors/gen/layout.cpp");
        let include = repository().join("kernels/include");
        // The foreign header is not clean under our warnings.
        let mut command = Command::new(&compilers()[0]);
        run(command.args(["-std=c++20", "-fsyntax-only", "-I"]).arg(include).arg(unit));
    }
}

#[test]
fn vectors_are_what_the_generator_makes() {
    if !mlx5dv() {
        return;
    }
    let dir = scratch("gen");
    let program = dir.join("gen");
    let source = repository().join("tests/vectors/gen/gen.c");
    let cc = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    run(Command::new(cc).arg("-o").arg(&program).arg(source));
    run(Command::new(&program).arg(&dir));
    let mut compared = 0;
    for committed in files() {
        let name = committed.file_name().expect("a name");
        if name == "public_error_cqe.txt" {
            continue;
        }
        let read = |path: &Path| std::fs::read_to_string(path).expect("readable");
        assert_eq!(read(&dir.join(name)), read(&committed), "{}", name.display());
        compared += 1;
    }
    let made = std::fs::read_dir(&dir).expect("made").count() - 1;
    assert_eq!(compared, made, "files made and files committed");
    std::fs::remove_dir_all(dir).expect("remove");
}
