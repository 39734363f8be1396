//! Ranks that the real `mpirun` of Open MPI and of MPICH starts on this machine. Where one is not
//! installed its test says that it is skipped; `WARPVERBS_REQUIRE_MPI` makes that a failure.

use std::io::{ErrorKind, Write};
use std::process::Command;

use warpverbs_rendezvous::{Flags, RankInfo, World, WorldConfig};

use crate::{PATIENCE, free_port};

/// Set for a process that is a rank: the file in which the first one says whom it has met. MPICH's `mpirun` may
/// lose what ranks print last.
const RANK: &str = "WARPVERBS_TEST_MPI";

#[test]
#[ignore = "a rank that the tests below start"]
fn one_rank() {
    // A run of all ignored tests has no others to meet.
    let Some(file) = std::env::var_os(RANK) else { return };
    let launch = RankInfo::from_env(&Flags::default()).unwrap();
    let config = WorldConfig::new(&launch).timeout(PATIENCE);
    let mut world = World::join(&config).unwrap();
    let mine = format!("{} of {} by {}", launch.rank, launch.world_size, launch.launcher);
    let all = world.exchange("who", mine.as_bytes()).unwrap();
    if launch.rank == 0 {
        let all: Vec<_> = all.iter().map(|one| String::from_utf8_lossy(one)).collect();
        std::fs::write(file, all.join(", ")).unwrap();
    }
    world.leave().unwrap();
}

/// Starts this many ranks by `mpirun`, which hands them the variables of this process.
fn meet(mpirun: &str, flags: &[&str], ranks: u32, launcher: &str) {
    let mut command = Command::new(mpirun);
    command.args(flags).args(["-n", &ranks.to_string()]).arg(std::env::current_exe().unwrap());
    command.args(["--exact", "mpi::one_rank", "--ignored", "--nocapture"]);
    // Not those of a launcher that started this test.
    for name in ["RANK", "WORLD_SIZE", "MASTER_ADDR", "PMI_RANK", "PMI_SIZE"] {
        command.env_remove(name);
    }
    let file = format!("{}/{mpirun}-{ranks}-{}", env!("CARGO_TARGET_TMPDIR"), std::process::id());
    command.env(RANK, &file);
    let out = match command.env("MASTER_PORT", free_port().to_string()).output() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            assert!(std::env::var_os("WARPVERBS_REQUIRE_MPI").is_none(), "{mpirun}: {error}");
            // Past the test harness, which keeps the output of tests that pass.
            let line = format!("SKIPPED ranks by {mpirun}: it is not installed\n");
            return std::io::stderr().write_all(line.as_bytes()).unwrap();
        }
        out => out.unwrap(),
    };
    let (text, errors) =
        (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{mpirun}: {text}{errors}");
    let all = (0..ranks).map(|rank| format!("{rank} of {ranks} by {launcher}"));
    let met = std::fs::read_to_string(&file);
    let met = met.unwrap_or_else(|error| panic!("{mpirun}, {file}: {error}: {text}{errors}"));
    std::fs::remove_file(&file).unwrap();
    assert_eq!(met, all.collect::<Vec<_>>().join(", "), "{mpirun}: {text}{errors}");
}

#[test]
fn ranks_of_open_mpi_meet() {
    for ranks in [2, 4] {
        // Root may start ranks only if it says so, and more ranks than cores too.
        meet("mpirun.openmpi", &["--allow-run-as-root", "--oversubscribe"], ranks, "Open MPI");
    }
}

#[test]
fn ranks_of_mpich_meet() {
    for ranks in [2, 4] {
        meet("mpirun.mpich", &[], ranks, "a PMI starter");
    }
}
