//! Programs that unmap what they have registered, write garbage wherever the device reads, and make
//! wrong calls.

use super::{devices, done, ready, run, skip};
use std::path::Path;
use std::process::Command;

/// Compiles a program of this folder that uses libibverbs and libmlx5. `None` without their headers.
pub(super) fn compiled(name: &str, folder: &Path) -> Option<String> {
    if !ready() {
        return None;
    }
    if !Path::new("/usr/include/infiniband/mlx5dv.h").exists() {
        skip("needs the package libibverbs-dev");
        return None;
    }
    let program = folder.join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/programs/{name}.c"));
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program).arg(source);
    // Its own `ioctl` comes before that of libraries.
    compiler.arg("-rdynamic");
    assert!(compiler.args(["-libverbs", "-lmlx5"]).status().unwrap().success(), "{name}.c");
    Some(program.to_str().unwrap().to_owned())
}

/// The program does what it should on one device, where QPs are connected by loopback, and on two, by
/// packets.
pub(super) fn passes(program: &str, case: &str) {
    passes_as("", program, case);
}

/// As [`passes`], on devices of a kind.
pub(super) fn passes_on(device: &str, program: &str, case: &str) {
    passes_as(&format!("--device {device}"), program, case);
}

/// As [`passes`], with flags of `warpverbs run`.
pub(super) fn passes_as(flags: &str, program: &str, case: &str) {
    for nics in [1, 2] {
        let mut command = run(&format!("{flags} --nics {nics} -- {program} {case}"));
        // Short messages would come in CQEs; libmlx5 would copy them to memory that is gone.
        command.env("MLX5_SCATTER_TO_CQE", "0");
        done(command);
    }
}

#[test]
fn memory_that_is_gone_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compiled("unmapped", folder.path()) else { return };
    let noise = format!("noise {}", std::process::id());
    for device in devices() {
        for case in ["payload", "rights", "queues", "handlers", &noise] {
            passes_on(device, &program, case);
        }
    }
}

#[test]
fn wrong_calls_and_doorbells_harm_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compiled("hostile", folder.path()) else { return };
    let seed = std::process::id();
    for device in devices() {
        passes_on(device, &program, &format!("calls {seed}"));
    }
    // Those of the others: `bells`.
    passes(&program, &format!("registers {seed}"));
}

#[test]
fn umems_are_kept_while_queues_use_them() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compiled("umems", folder.path()) else { return };
    passes(&program, "");
}
