//! Random payload through whatever others have written: every byte is compared, and rings go round many
//! times.
//!
//! `WARPVERBS_SEED=<seed>` repeats a round, `WARPVERBS_RUNS=<n>` makes more of them.

use super::ucx::protocol_settings;
use super::unmapped::compiled;
use super::{devices, done, first, output, ready, rings_queues_alone, run_on, skip};
use crate::common::text;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use warpverbs_dev::{runs, seed};

/// Calls `round` with the seeds that the environment asks for.
fn rounds(round: impl Fn(u32)) {
    (0..runs(1)).for_each(|_| round(seed() as u32));
}

/// A program of ours, by each library, on one device, where QPs are connected by loopback, and on two, by
/// packets.
#[test]
fn verbs_bring_every_byte() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compiled("payload", folder.path()) else { return };
    rounds(|seed| {
        for (nics, transport) in [(1, "rc"), (2, "rc"), (1, "ud"), (2, "ud")] {
            for device in devices() {
                let line = format!("--nics {nics} -- {program} {transport} {seed} 400");
                done(run_on(device)(&line));
            }
        }
    });
}

/// How an implementation of MPI compiles and starts programs.
struct Mpi {
    name: &'static str,
    packages: &'static str,
    arguments: &'static [&'static str],
    /// Its ranks are not to meet by memory that they share.
    env: &'static [(&'static str, &'static str)],
}

const OPEN_MPI: Mpi = Mpi {
    name: "openmpi",
    packages: "openmpi-bin and libopenmpi-dev",
    arguments: &[
        "--allow-run-as-root",
        "--oversubscribe",
        "--mca",
        "pml",
        "ucx",
        "--mca",
        "osc",
        "ucx",
        "--mca",
        "btl",
        "^openib",
    ],
    env: &[],
};
const MPICH: Mpi = Mpi {
    name: "mpich",
    packages: "mpich and libmpich-dev",
    arguments: &[],
    env: &[("MPIR_CVAR_NOLOCAL", "1")],
};

impl Mpi {
    /// The program that exchanges messages. `None` where this MPI is not installed.
    fn compiled(&self, folder: &Path) -> Option<PathBuf> {
        if !ready() {
            return None;
        }
        let program = folder.join("mpi_payload");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/mpi_payload.c");
        let mut compiler = Command::new(format!("mpicc.{}", self.name));
        let compiler = compiler.args(["-O1", "-o"]).arg(&program).arg(source);
        let done = compiler.stderr(Stdio::null()).status().is_ok_and(|status| status.success());
        if !done {
            skip(&format!("needs the packages {}", self.packages));
        }
        done.then_some(program)
    }

    /// Two ranks that have nothing but these transports of UCX.
    fn exchanges(&self, program: &Path, (device, transports): (&str, &str), link: &str, seed: u32) {
        let inner = run_on(device)(&format!("--verbose --link {link} --"));
        let mut command = Command::new(format!("mpirun.{}", self.name));
        command.args(self.arguments).args(["-np", "2"]);
        command.arg(inner.get_program()).args(inner.get_args());
        command.arg(program).args([seed.to_string(), "1200".into()]);
        for (name, value) in inner.get_envs().filter_map(|(name, value)| Some((name, value?))) {
            command.env(name, value);
        }
        command.envs(self.env.iter().copied()).env("UCX_TLS", format!("{transports},self"));
        command.envs(protocol_settings(device));
        let output = output({
            command.stdin(Stdio::null());
            command
        });
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        let what = format!("{}, {device}, {transports} over {link}, seed {seed}", self.name);
        let done = output.status.success() && stdout.lines().any(|line| line == "done");
        assert!(done, "{what}: {stdout}{stderr}");
        rings_queues_alone(&stdout);
        rings_queues_alone(&stderr);
        // The bytes went through the devices.
        let link = if link == "udp" { "UDP" } else { "shared memory" };
        let taken = format!("{}: {link} at 127.", first(device));
        assert!(stderr.contains(&taken) || stdout.contains(&taken), "{what}: {stdout}{stderr}");
    }

    fn every_way(&self) {
        let folder = tempfile::tempdir().unwrap();
        let Some(program) = self.compiled(folder.path()) else { return };
        rounds(|seed| {
            for device in devices() {
                let all = match *device {
                    "mlx5" => &["rc_x", "rc_v", "ud_x", "ud_v"][..],
                    "bnxt_re" => &["rc_v", "ud_v"],
                    _ => &["ud_v"],
                };
                for transports in all {
                    self.exchanges(&program, (device, transports), "shm", seed);
                }
            }
            self.exchanges(&program, ("mlx5", "rc_x"), "udp", seed);
        });
    }
}

#[test]
fn open_mpi_brings_every_byte() {
    OPEN_MPI.every_way();
}

#[test]
fn mpich_brings_every_byte() {
    MPICH.every_way();
}
