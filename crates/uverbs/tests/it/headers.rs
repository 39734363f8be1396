//! Names, numbers, sizes and offsets against the kernel's headers, by the machine's C compiler.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use warpverbs_uverbs::abi::{
    BNXT_FIXED_LAYOUTS, BNXT_LAYOUTS, CORE_LAYOUTS, IONIC_LAYOUTS, MLX5_LAYOUTS,
};
use warpverbs_uverbs::schema::OBJECTS;
use warpverbs_uverbs::{BnxtLibrary, Driver, Errno, VERBS_IOCTL, WRITE_COMMANDS, abi};

const HEADERS: &str = "
#include <errno.h>
#include <stddef.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/mlx5-abi.h>
#include <rdma/bnxt_re-abi.h>
";

/// Older systems do not have it.
const IONIC: &str = "#include <rdma/ionic-abi.h>\n";

/// Members that older systems do not have.
const FIXED: &str = "int fixed = BNXT_RE_QP_REQ_MASK_FIXED_QUE_ATTR;\n";

/// One assertion for each name of the tables.
fn source(with_ionic: bool, with_fixed: bool) -> String {
    let mut out = HEADERS.to_owned();
    out += if with_ionic { IONIC } else { "" };
    let mut same = |c: String, value: u64| {
        writeln!(out, "_Static_assert({c} == {value}ull, \"{c}\");").unwrap();
    };
    for object in OBJECTS {
        same(object.name.into(), object.id.into());
        for method in object.methods {
            same(method.name.into(), method.id.into());
            for attr in method.attrs.unwrap_or(&[]) {
                same(attr.name.into(), attr.id.into());
            }
        }
    }
    for command in WRITE_COMMANDS {
        let extended = command.name.contains("_EX_CMD_");
        assert_eq!(extended, command.id >> 31 == 1, "{}", command.name);
        same(command.name.into(), u64::from(command.id & !(1 << 31)));
    }
    let ionic = if with_ionic { IONIC_LAYOUTS } else { &[] };
    let fixed = if with_fixed { BNXT_FIXED_LAYOUTS } else { &[] };
    let bnxt = BNXT_LAYOUTS.iter().chain(fixed);
    for layout in CORE_LAYOUTS.iter().chain(MLX5_LAYOUTS).chain(bnxt).chain(ionic) {
        let name = layout.name;
        // An answer that holds its own length grows at its end with newer kernels, and so do structures of
        // bnxt_re.
        let grows = name.starts_with("bnxt_re")
            || layout.members.iter().any(|(member, _)| *member == "response_length");
        let size = format!("sizeof(struct {name})");
        match grows {
            true => same(format!("({size} >= {})", layout.size), 1),
            false => same(size, layout.size as u64),
        }
        for (member, offset) in layout.members {
            same(format!("offsetof(struct {name}, {member})"), *offset as u64);
        }
    }
    for errno in Errno::ALL {
        same(errno.name().into(), errno.number() as u64);
    }
    same("RDMA_VERBS_IOCTL".into(), VERBS_IOCTL);
    same("RDMA_DRIVER_MLX5".into(), Driver::Mlx5.number().into());
    if with_fixed {
        same("BNXT_RE_QP_REQ_MASK_FIXED_QUE_ATTR".into(), abi::FIXED);
        same("BNXT_RE_CQ_FIXED_NUM_CQE_ENABLE".into(), abi::FIXED);
    }
    if with_ionic {
        let ionic = Driver::Ionic { doorbells: 0 };
        same("RDMA_DRIVER_IONIC".into(), ionic.number().into());
    }
    same(
        "RDMA_DRIVER_BNXT_RE".into(),
        Driver::Bnxt { doorbells: 0, library: BnxtLibrary::Early }.number().into(),
    );
    same("sizeof(struct ib_uverbs_ioctl_hdr)".into(), warpverbs_uverbs::HEADER_BYTES as u64);
    same("sizeof(struct ib_uverbs_attr)".into(), 16);
    out
}

#[test]
fn the_headers_say_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let compile = |source: &str| {
        let file = folder.path().join("layout.c");
        std::fs::write(&file, source).unwrap();
        let mut compiler = Command::new("cc");
        // Those of a build of rdma-core have what an older system lacks.
        if let Some(built) = std::env::var_os("WARPVERBS_RDMA_CORE") {
            compiler.arg("-I").arg(Path::new(&built).join("include"));
        }
        compiler.arg("-fsyntax-only").arg(&file).output()
    };
    let compiles = |source: &str| compile(source).is_ok_and(|output| output.status.success());
    if !compiles(HEADERS) {
        let reason = "needs a C compiler and rdma-core's headers";
        assert!(std::env::var_os("WARPVERBS_REQUIRE_RDMA_CORE").is_none(), "{reason}");
        return eprintln!("SKIPPED: {reason}");
    }
    let has = |more: &str| compiles(&format!("{HEADERS}{more}"));
    let output = compile(&source(has(IONIC), has(FIXED))).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // A wrong number is found.
    let wrong = format!("{HEADERS}_Static_assert(UVERBS_OBJECT_PD == 2, \"PD\");");
    assert!(!compile(&wrong).unwrap().status.success());
}
