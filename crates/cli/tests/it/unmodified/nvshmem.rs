//! The device as NVSHMEM's IBGDA, DOCA GPUNetIO and CUDA use it, by programs that need none of
//! them. NVSHMEM itself, on two GPUs: `crates/xtask/nvshmem/ibgda.sh`.

use super::unmapped::compiled;
use super::{done, run};
use std::path::Path;
use std::process::Command;

/// A library with a few functions of the GPUs' driver.
fn driver(folder: &Path) -> String {
    let driver = folder.join("libdriver.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/iomemory.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-DDRIVER", "-o"]);
    assert!(compiler.arg(&driver).arg(source).status().unwrap().success(), "iomemory.c");
    driver.to_str().unwrap().to_owned()
}

#[test]
fn what_nvshmem_makes_of_a_device_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compiled("ibgda", folder.path()) else { return };
    let driver = driver(folder.path());
    // Queues by their address, and by dmabufs.
    for (nics, driver) in [(1, ""), (2, ""), (1, &*driver), (2, &*driver)] {
        let stderr = done(run(&format!("--verbose --nics {nics} -- {program} {driver}")));
        let said = "ctrl.opcode: work of a dynamically connected QP is not supported";
        assert!(stderr.contains(said), "{nics} devices: {stderr}");
        // And one that no driver has exported.
        let said =
            "an unknown dmabuf, expected one that cuMemGetHandleForAddressRange has exported";
        assert!(stderr.contains(said), "{nics} devices: {stderr}");
    }
}

#[test]
fn what_doca_makes_of_a_device_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compiled("gdaki", folder.path()) else { return };
    for nics in [1, 2] {
        let stderr = done(run(&format!("--verbose --nics {nics} -- {program}")));
        let said = "WAIT for CQ 0x777777, which does not exist or has failed";
        assert!(stderr.contains(said), "{nics} devices: {stderr}");
    }
}

#[test]
fn doorbell_registers_are_mapped_into_gpus() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compiled("iomemory", folder.path()) else { return };
    done(run(&format!("-- {program} {}", driver(folder.path()))));
}
