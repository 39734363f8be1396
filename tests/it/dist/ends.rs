//! A rank is killed while all are at work: the others say which, and end.

use crate::common::example;
use crate::dist::ranks::{Ended, Job, Rank, all_fail, eventually, ignores, is_running};
use crate::seeds::{runs, seed};
use std::thread::sleep;
use std::time::Duration;

/// Without an end, but for the kill.
fn endless(name: &'static str) -> Job {
    let flags = match name {
        "ranks dist_atomic" => vec!["-n", "200000", "-w", "0"],
        _ => vec!["-b", "8", "-e", "8", "-n", "1000000", "-w", "0"],
    };
    Job::new(name, 3, &flags)
}

/// The kernels of a row.
const KERNELS: [&str; 3] = ["write_all", "exchange", "add_up"];

/// Kills one of the ranks, and expects the others to name it.
fn kill(mut ranks: Vec<Rank>, victim: u32) {
    let gone = format!("rank {victim} is gone: its connection to the store ended");
    ranks.remove(victim as usize).kill();
    all_fail(ranks, &[&gone]);
}

/// Runs jobs of three ranks that end because `victim` is lost, and expects the others to say so by one
/// of the words. `--wait` has to be longer than this machine keeps a rank from running, which no test
/// knows: if a rank that lives was given up, the job is repeated with twice the time.
fn named(victim: u32, mut run: impl FnMut(u64) -> Vec<Rank>, words: impl Fn(u64) -> Vec<String>) {
    for wait in [4, 8, 16, 32, 64] {
        let ended: Vec<_> = run(wait).into_iter().map(Rank::end).collect();
        let (silent, missing) = (" has shown no sign of life", " of 3 ranks: ");
        let is_victim = |line: &str| {
            line.contains(&format!("rank {victim}{silent}"))
                || line.contains(&format!("1{missing}{victim}"))
        };
        let is_early =
            |line: &String| (line.contains(silent) || line.contains(missing)) && !is_victim(line);
        if wait == 64 || !ended.iter().flat_map(|ended: &Ended| &ended.err).any(is_early) {
            let words = words(wait);
            let words: Vec<_> = words.iter().map(String::as_str).collect();
            return ended.iter().for_each(|ended| ended.failed(&words));
        }
        println!("a rank did not run for {wait} s: {ended:?}");
    }
}

#[test]
fn a_rank_killed_during_a_row_is_named() {
    for name in ["ranks dist_write", "ranks dist_send_recv", "ranks dist_atomic"] {
        for victim in [2, 0] {
            let ranks = endless(name).start_all();
            ranks[victim as usize].await_kernel(&KERNELS);
            kill(ranks, victim);
        }
    }
}

#[test]
fn a_rank_killed_between_rows_is_named() {
    for victim in [1, 0] {
        let flags = ["-b", "1", "-e", "256K", "-f", "2", "-n", "20", "-w", "0"];
        let ranks = Job::new("ranks dist_write", 3, &flags).start_all();
        ranks[0].await_rows(3);
        // The others come to a point where they wait for it, mostly outside of a kernel. One that
        // needs the frozen rank ends only when its retries are exceeded, which is another failure.
        ranks[victim as usize].freeze();
        let others = ranks.iter().enumerate().filter(|(rank, _)| *rank != victim as usize);
        others.for_each(|(_, rank)| rank.leave_kernel(&KERNELS, Duration::from_millis(350)));
        kill(ranks, victim);
    }
}

#[test]
fn a_rank_that_is_only_silent_is_named() {
    let mut job = endless("ranks dist_write");
    // A warp for each peer: with one, the silent rank would have its turn after the other.
    job.flags.extend(["-t", "64"]);
    let mut ranks = job.start_all();
    ranks[2].await_kernel(&KERNELS);
    ranks[2].freeze();
    let silent = ranks.pop();
    // One of them gives up, and the other hears of it or gives up likewise.
    all_fail(ranks, &["work towards rank 2 failed: transport retries exceeded"]);
    drop(silent);
}

/// The others wait for it at the end of a row, as long as `--wait` says.
#[test]
fn a_rank_that_is_stopped_between_rows_is_named() {
    let flags = ["-b", "1", "-e", "256K", "-f", "2", "-n", "20", "-w", "0"];
    let mut stopped = None;
    let run = |wait| {
        let job = Job { wait: Some(wait), ..Job::new("ranks dist_write", 3, &flags) };
        let mut ranks = job.start_all();
        ranks[0].await_rows(3);
        ranks[1].freeze();
        stopped = Some(ranks.remove(1));
        ranks
    };
    named(1, run, |wait| {
        let silent = format!("rank 1 has shown no sign of life for {wait}.0s");
        // In the midst of a row, the NIC of another notices first.
        vec![silent, "work towards rank 1 failed".into()]
    });
    drop(stopped);
}

/// By RDMA, and whether the rank is that of the store or another one: none of the waits of the others
/// follows on one that has failed.
#[test]
fn a_rank_of_a_heap_that_is_stopped_is_named() {
    for victim in [0, 1] {
        let flags = ["-b", "64K", "-n", "1000000"];
        let mut stopped = None;
        let run = |wait| {
            let job = Job { wait: Some(wait), ..Job::new("shmem_ring", 3, &flags) };
            let start = |rank| {
                let mut command = job.command(rank);
                command.env("WARPVERBS_SHMEM_ROUTE", "rdma");
                Rank::start(command)
            };
            let mut ranks: Vec<_> = (0..3).map(start).collect();
            ranks[2].await_kernel(&["shm_ring"]);
            ranks[victim as usize].freeze();
            stopped = Some(ranks.remove(victim as usize));
            ranks
        };
        named(victim, run, |wait| {
            vec![format!("rank {victim} has shown no sign of life for {wait}.0s")]
        });
        drop(stopped);
    }
}

/// `WARPVERBS_SEED=<seed>` repeats a moment, `WARPVERBS_RUNS=<n>` tries more of them.
#[test]
fn a_rank_killed_at_any_moment_is_named() {
    for _ in 0..runs(6) {
        let seed = seed();
        let (victim, after) = ((seed >> 20) as u32 % 3, Duration::from_micros(seed % 300_000));
        println!("rank {victim} after {after:?}");
        let run = |wait| {
            let job = Job { wait: Some(wait), ..endless("ranks dist_send_recv") };
            let mut ranks = job.start_all();
            // Any moment will do: it is drawn.
            sleep(after);
            ranks.remove(victim as usize).kill();
            ranks
        };
        // Before it had joined, it is missed; rank 0 is missed as the one who should listen.
        named(victim, run, |_| {
            vec![
                format!("rank {victim} is gone"),
                format!("1 of 3 ranks: {victim}"),
                format!("is rank {victim} running"),
            ]
        });
    }
}

/// However the process of `--procs` ends, its ranks do not outlive it.
#[test]
fn ranks_end_with_their_launcher() {
    let mut signals = vec!["-TERM", "-KILL"];
    // A shell ignores SIGINT for its background jobs, and children inherit that.
    if !ignores(2) {
        signals.push("-INT");
    }
    for signal in signals {
        let mut command = example("ranks dist_write");
        command.args(["--gpu", "simt", "--nic", "soft", "--procs", "2"]);
        command.args(["-b", "8", "-e", "1M", "-f", "2", "-n", "1000000", "-w", "0"]);
        let launcher = Rank::start(command);
        launcher.await_rows(1);
        let ranks = launcher.children();
        assert_eq!(ranks.len(), 2, "{signal}");
        launcher.signal(signal);
        eventually(|| !ranks.iter().any(|id| is_running(*id)), "ranks outlive their launcher");
    }
}
