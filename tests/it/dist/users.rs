//! The distributed examples as a user starts them.

use crate::common::{example, fails, passes, text};
use crate::dist::ranks::{Job, Rank, all_fail, free_port};

/// Each with flags for little to do.
const EXAMPLES: [(&str, &[&str], &str); 3] = [
    ("dist_write", &["-b", "3", "-e", "3000", "-n", "5"], "5 sizes, every byte at"),
    ("dist_send_recv", &["-b", "3001", "-n", "21"], "once and in order"),
    ("dist_atomic", &["-n", "5", "-t", "3"], "came back once each, twice"),
];

#[test]
fn distributed_examples_pass() {
    for (name, flags, told) in EXAMPLES {
        for procs in ["2", "3"] {
            let last = passes(name, &[flags, &["--procs", procs]].concat());
            assert!(last.contains(told), "{last}");
        }
    }
    fails("dist_write", &["--gpu", "simt", "--procs", "1"], &["expected two or more"]);
    // Fewer messages than places, and as many.
    for messages in ["1", "8"] {
        passes("dist_send_recv", &["--procs", "2", "-b", "8", "-n", messages]);
    }
}

#[test]
fn their_ranks_may_be_started_one_by_one() {
    for (name, flags, _) in EXAMPLES {
        for rank in Job::new(name, 2, flags).start_all() {
            rank.end().passed();
        }
    }
}

#[test]
fn a_launcher_s_environment_is_enough() {
    let port = free_port().to_string();
    let ranks = ["0", "1"].map(|rank| {
        let mut command = example("dist_write");
        command.args(["--gpu", "simt", "-e", "64", "-n", "4"]);
        command.env("RANK", rank).env("WORLD_SIZE", "2").env("LOCAL_RANK", rank);
        command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", &port);
        Rank::start(command)
    });
    ranks.into_iter().for_each(|rank| rank.end().passed());
}

#[test]
fn the_table_has_a_row_of_json_for_every_size() {
    let mut command = example("dist_write");
    command.args(["--gpu", "simt", "--procs", "2", "--json", "-b", "1", "-e", "256", "-n", "3"]);
    let out = command.output().expect("a process");
    let (stdout, stderr) = (text(&out.stdout), text(&out.stderr));
    assert!(out.status.success(), "{stderr}");
    let json: serde_json::Value = serde_json::from_str(&stdout).expect("JSON");
    assert_eq!((&json["result"], &json["ranks"]), (&"passed".into(), &2.into()), "{json}");
    let rows = json["rows"].as_array().expect("rows");
    assert!(rows.len() == 5 && rows.iter().all(|row| row["us"].as_f64() > Some(0.0)), "{json}");
    assert!(stderr.contains("Index        Size      GB/s"), "{stderr}");
}

#[test]
fn ranks_with_other_flags_and_flags_that_cannot_be_are_told() {
    let job = Job::new("dist_write", 2, &["-e", "64", "-n", "4"]);
    let other = Job { flags: vec!["-e", "64", "-n", "5"], ..job.clone() };
    all_fail(vec![job.start(0), other.start(1)], &["started with `dist_write -b 8 -e 64 -n"]);
    fails("dist_write", &["--procs", "2", "-b", "0"], &["--begin is 0"]);
    fails("dist_write", &["--procs", "2", "-b", "64K", "-e", "8"], &["--end is 8"]);
    fails("dist_write", &["--procs", "2", "-e", "1Q"], &["1Q", "expected digits"]);
    fails("dist_send_recv", &["--procs", "2", "-n", "0"], &["--messages is 0"]);
    fails("dist_atomic", &["--procs", "2", "-t", "1025"], &["--threads is 1025"]);
}

/// A rank whose kernel works with one that was killed says which, and does not wait for its deadline.
#[test]
fn a_rank_that_was_killed_is_named() {
    for (name, flags, kernel) in [
        ("dist_write", &["-b", "8", "-e", "8", "-n", "1000000"][..], "write_all"),
        ("shmem_ring", &["-b", "8", "-n", "1000000"][..], "shm_ring"),
    ] {
        let mut ranks = Job::new(name, 3, flags).start_all();
        ranks[2].await_kernel(&[kernel]);
        ranks.remove(2).kill();
        all_fail(ranks, &["rank 2 is gone", "work towards rank 2 failed"]);
    }
}
