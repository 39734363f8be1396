//! Worlds that do what they should.

use crate::common::{example, fails, passed, passes, text};
use crate::dist::ranks::{Job, Rank};

const NAMES: [&str; 3] = ["ranks dist_write", "ranks dist_send_recv", "ranks dist_atomic"];

/// Little to do.
fn few(name: &'static str) -> Vec<&'static str> {
    let mut flags = vec!["-n", "6", "-w", "2", "-q", "2"];
    if name != "ranks dist_atomic" {
        flags.extend(["-b", "1", "-e", "16K", "-f", "16"]);
    }
    flags
}

#[test]
fn worlds_of_two_three_and_four_pass() {
    for name in NAMES {
        for procs in ["2", "3", "4"] {
            let last = passes(name, &[&few(name)[..], &["--procs", procs]].concat());
            let told = if name == "ranks dist_atomic" { "came back once each" } else { "4 sizes" };
            assert!(last.contains(told), "{last}");
        }
    }
    passes("ranks dist_write", &["--procs", "2", "-e", "64", "-n", "5", "-w", "0", "-t", "64"]);
}

#[test]
fn worlds_pass_over_every_link() {
    for (link, said) in [("shm", "link: shared memory at"), ("auto", "link: shared memory at")] {
        let mut command = example("ranks dist_write");
        command
            .args(["--gpu", "simt", "--procs", "3"])
            .args(few("ranks dist_write"))
            .env("WARPVERBS_LINK", link);
        let output = command.output().expect("the example");
        let told = text(&output.stderr);
        assert!(output.status.success(), "{told}");
        assert_eq!(told.lines().filter(|line| line.contains(said)).count(), 1, "{told}");
    }
}

#[test]
fn more_messages_than_places_and_fewer() {
    // Beyond the 64 places of a queue pair, across the 16-bit index of a ring of 1024.
    for messages in ["1", "2", "65", "1100"] {
        let flags = ["--procs", "2", "-b", "3", "-e", "3", "-w", "0", "-n", messages];
        passes("ranks dist_send_recv", &flags);
    }
    passes("ranks dist_send_recv", &["--procs", "2", "-b", "2M", "-e", "4M", "-n", "5", "-f", "2"]);
}

#[test]
fn ranks_may_be_started_in_any_order() {
    for name in NAMES {
        let job = Job::new(name, 3, &few(name));
        for order in [[0, 1, 2], [2, 1, 0]] {
            let start = |rank| {
                let started = job.start(rank);
                // The order is likely then, and no other one fails.
                std::thread::sleep(std::time::Duration::from_millis(150));
                (rank, started)
            };
            let ranks = order.map(start);
            for (rank, running) in ranks {
                let ended = running.end();
                ended.passed();
                let told = ended.out.iter().any(|line| line.starts_with("passed"));
                assert_eq!(told, rank == 0, "only rank 0 tells: {ended:?}");
            }
        }
    }
}

#[test]
fn a_launcher_s_environment_is_enough() {
    let port = crate::dist::ranks::free_port().to_string();
    let ranks = ["0", "1"].map(|rank| {
        let mut command = example("ranks dist_write");
        command.args(["--gpu", "simt", "-e", "64", "-n", "4"]);
        command.env("RANK", rank).env("WORLD_SIZE", "2").env("LOCAL_RANK", rank);
        command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", &port);
        Rank::start(command)
    });
    for rank in ranks {
        rank.end().passed();
    }
}

#[test]
fn a_bad_network_changes_nothing_but_the_time() {
    let faults = "loss=5%,dup=1%,reorder=3%,late=300us,corrupt=0.5%,seed=11";
    for name in NAMES {
        let mut command = example(name);
        command.args(["--gpu", "simt", "--procs", "2"]).args(few(name));
        passed(command.env("WARPVERBS_FAULT", faults));
    }
    let mut command = example("ranks dist_write");
    command.args(["--gpu", "simt", "--procs", "2", "-b", "8", "-e", "1M", "-n", "8"]);
    passed(command.env("WARPVERBS_FAULT", "loss=5%,seed=1"));
}

#[test]
fn json_has_a_row_for_every_line() {
    for (name, rows) in
        [("ranks dist_write", 4), ("ranks dist_send_recv", 4), ("ranks dist_atomic", 2)]
    {
        let mut command = example(name);
        command.args(["--gpu", "simt", "--procs", "2", "--json"]).args(few(name));
        let out = command.output().expect("a process");
        let (stdout, stderr) = (text(&out.stdout), text(&out.stderr));
        assert!(out.status.success(), "{name}: {stderr}");
        assert_eq!(stdout.lines().count(), 1, "{name}: {stdout}");
        let json: serde_json::Value = serde_json::from_str(&stdout).expect("JSON");
        assert_eq!((&json["result"], &json["ranks"]), (&"passed".into(), &2.into()), "{name}");
        let found = json["rows"].as_array().expect("rows");
        assert_eq!(found.len(), rows, "{name}: {json}");
        assert!(found.iter().all(|row| row["us"].as_f64() > Some(0.0)), "{name}: {json}");
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let simt = |args: &[&'static str]| [&["--gpu", "simt"], args].concat();
    for name in NAMES {
        fails(name, &["--procs", "2", "--gpu", "abacus"], &["abacus", "rank"]);
        fails(name, &simt(&["-t", "33"]), &["--threads is 33", "multiple of 32"]);
        fails(name, &simt(&["-n", "0"]), &["--iters is 0"]);
        fails(name, &simt(&["--procs", "0"]), &["0 ranks of this machine", "expected 1 to 64"]);
        fails(name, &simt(&["--procs", "65"]), &["65 ranks of this machine", "expected 1 to 64"]);
        let alone = ["--rank", "0", "--world-size", "1", "--master-addr", "127.0.0.1"];
        fails(name, &alone, &["expected two or more"]);
    }
    fails(
        "ranks dist_write",
        &simt(&["-e", "1Q"]),
        &["1Q", "expected digits and perhaps K, M or G"],
    );
    fails("ranks dist_write", &simt(&["-b", "64K", "-e", "8"]), &["--end is 8, expected 65536"]);
    let few_warps = ["--procs", "3", "-q", "2", "-c", "1", "-t", "64"];
    fails("ranks dist_send_recv", &simt(&few_warps), &["are 2 warps, expected 8 or more"]);
    let many = ["--procs", "2", "-n", "1000000", "-t", "1024"];
    fails("ranks dist_atomic", &simt(&many), &["2048000000 operations"]);
}

#[test]
fn faults_and_captures_that_cannot_be_are_refused() {
    let with = |variable: &str, value: &str| {
        let mut command = example("ranks dist_write");
        command.args(["--gpu", "simt", "--procs", "2", "-e", "8", "-n", "1"]);
        let out = command.env(variable, value).output().expect("a process");
        assert!(!out.status.success());
        text(&out.stderr)
    };
    let error = with("WARPVERBS_FAULT", "loss=5");
    assert!(error.contains("WARPVERBS_FAULT") && error.contains("such as 0.1%"), "{error}");
    let error = with("WARPVERBS_PCAP", "/no/such/folder/wire.pcap");
    assert!(error.contains("cannot write the capture /no/such/folder/wire."), "{error}");
    // A NIC without a network has nothing to capture.
    let mut command = example("loopback_write");
    let out = command.args(["--gpu", "simt"]).env("WARPVERBS_PCAP", "wire.pcap").output();
    let error = text(&out.expect("a process").stderr);
    assert!(error.contains("a capture was asked for, but the NIC has no link"), "{error}");
}
