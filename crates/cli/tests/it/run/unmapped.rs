//! A program that unmaps what it has registered, and writes garbage wherever the device reads.

use super::{finish, ready, run};
use crate::common::text;
use std::path::Path;
use std::process::{Command, Stdio};

/// Compiles a program of this folder that uses libibverbs and libmlx5. `None` without their headers.
fn compiled(name: &str, folder: &Path) -> Option<String> {
    if !ready() {
        return None;
    }
    if !Path::new("/usr/include/infiniband/mlx5dv.h").exists() {
        let reason = "needs the package libibverbs-dev";
        assert!(std::env::var_os("WARPVERBS_REQUIRE_RDMA_CORE").is_none(), "{reason}");
        eprintln!("SKIPPED: {reason}");
        return None;
    }
    let program = folder.join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/programs/{name}.c"));
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program).arg(source);
    assert!(compiler.args(["-libverbs", "-lmlx5"]).status().unwrap().success(), "{name}.c");
    Some(program.to_str().unwrap().to_owned())
}

/// On one device QPs are connected by loopback, on two by packets.
#[test]
fn memory_that_is_gone_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compiled("unmapped", folder.path()) else { return };
    let seed = std::process::id().to_string();
    for nics in [1, 2] {
        for case in ["payload", "rights", "queues", "handlers", &format!("noise {seed}")] {
            let mut command = run(&format!("--nics {nics} -- {program} {case}"));
            // Short messages would come in CQEs; libmlx5 would copy them to memory that is gone.
            command.env("MLX5_SCATTER_TO_CQE", "0");
            let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            let output = finish(child);
            let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
            let done = output.status.success() && stdout == "done\n";
            assert!(done, "{case}, {nics} devices: {} {stdout}{stderr}", output.status);
        }
    }
}
