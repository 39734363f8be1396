//! Examples of agents, run as a user runs them, on the host SIMT device.

use crate::common::{Running, example, fails, run, text, well};
use std::net::TcpListener;
use std::process::Command;

fn printed(name: &str, args: &[&str]) -> String {
    well(name, &run(name, args))
}

#[test]
fn unified_reads_and_writes() {
    let stdout = printed("unified", &["--bytes", "96K", "--blocks", "12"]);
    assert!(stdout.contains("same process"), "{stdout}");
    printed("unified", &["--bytes", "7", "--blocks", "7"]);
    fails("unified", &["--bytes", "100", "--blocks", "3"], &["--blocks", "100"]);
    fails("unified", &["--blocks", "0"], &["--blocks"]);
}

/// The steps of each process come in this order; the two interleave.
#[test]
fn two_processes_print_their_steps() {
    let stdout = printed("two_processes", &[]);
    let of = |who: &str| -> Vec<_> {
        let lines = stdout.lines().filter_map(|line| line.strip_prefix(who));
        lines.map(str::trim).map(str::to_owned).collect()
    };
    let main = [
        "Starting TCP metadata server...",
        "Starting target and initiator processes...",
        "✓ Test Complete - Both processes succeeded!",
    ];
    let target = [
        "Starting target process",
        "Memory registered",
        "Published metadata and xfer descriptors to TCP server",
        "Waiting for transfers...",
        "Transfer 1 done",
        "Transfer 2 done",
        "Target process complete",
    ];
    assert_eq!(of("[main]"), main);
    assert_eq!(of("[target]"), target);
    let mut initiator = of("[initiator]");
    // As the path has it.
    let state = initiator.remove(6);
    assert!(
        ["Initial transfer state: PROC", "Initial transfer state: DONE"].contains(&&*state),
        "{state}"
    );
    let steps = [
        "Starting initiator process",
        "Memory registered",
        "Waiting for target metadata...",
        "Loaded remote agent: target",
        "Successfully retrieved target descriptors",
        "Starting transfer 1 (READ)...",
        "Transfer 1 done",
        "Starting transfer 2 (WRITE)...",
        "Transfer 2 done",
        "Initiator process complete",
    ];
    assert_eq!(initiator, steps);
}

#[test]
fn kv_blocks_arrive_in_their_places() {
    let flags = ["--gpu", "simt", "--blocks", "300", "--block-bytes", "1000", "--seed", "5"];
    let stdout = printed("kv_blocks", &flags);
    let digests: Vec<_> = stdout.lines().filter_map(|line| line.split("SHA-256 ").nth(1)).collect();
    assert!(digests.len() == 2 && digests[0] == digests[1], "{stdout}");
    assert!(stdout.contains("GB/s"), "{stdout}");
    fails("kv_blocks", &["--gpu", "simt", "--blocks", "0"], &["--blocks 0"]);
}

#[test]
fn stream_backpressure_shows_credits_and_stalls() {
    let flags = ["--messages", "60", "--bytes", "3000", "--slots", "8", "--delay-us", "500"];
    let stdout = printed("stream_backpressure", &flags);
    let of = |what: &str| {
        let line = stdout.lines().find(|line| line.contains(&format!("[sender] {what} ")));
        line.unwrap_or_else(|| panic!("{what}: {stdout}")).to_owned()
    };
    assert!(of("one-shot transfers").contains("GB/s"), "{stdout}");
    assert!(of("stream").contains(" credits, "), "{stdout}");
    let slow = of("slow receiver");
    let number = |before: &str| -> u64 {
        let words: Vec<_> = slow.split_whitespace().collect();
        let at = words.iter().position(|word| word.starts_with(before)).expect(before);
        words[at - 1].parse().expect("a number")
    };
    // Beyond the 8 messages for which there was room at once, in quarters of the ring or singly.
    assert!((26..=60).contains(&number("credits")) && number("stalls") > 0, "{stdout}");
    fails("stream_backpressure", &["--messages", "0"], &["--messages is 0"]);
    fails("stream_backpressure", &["--slots", "0"], &["--slots is 0"]);
    fails("stream_backpressure", &["--bytes", "0"], &["--bytes is 0"]);
}

/// The parts of an example with too few descriptors end when one of them says so: no other part waits
/// until a deadline for what will not come.
#[test]
fn a_part_without_descriptors_ends_the_others() {
    // At once: those with too few wait for some to become free.
    let started = (10..22).step_by(3).map(|limit| {
        let mut command = Command::new("sh");
        let limited = format!("ulimit -n {limit}; exec \"$0\" --messages 16");
        command.args(["-c", &limited]).arg(example("stream_backpressure").get_program());
        (limit, Running::start(&mut command))
    });
    let mut failed = 0;
    for (limit, process) in started.collect::<Vec<_>>() {
        let out = process.end();
        let said = text(&out.stderr);
        let late = said.contains("waited") || said.contains("not done after");
        assert!(!late, "{limit} descriptors: {said}");
        failed += usize::from(!out.status.success());
    }
    assert!(failed > 0, "none had too few");
}

fn simple_write(args: &[&str]) -> Running {
    let mut command = example("simple_write");
    command.args(["--gpu", "simt", "--size", "5000", "--rounds", "3"]).args(args);
    Running::start(&mut command)
}

/// The output of one, which must end well.
fn written(process: Running) -> String {
    let said = well("simple_write", &process.end());
    assert!(said.contains("passed: 5000 bytes"), "{said}");
    said
}

#[test]
fn simple_write_with_the_initiator_first() {
    let mut initiator = simple_write(&["--mode", "initiator", "--port", "0"]);
    let address = initiator.says("waiting for the target at ");
    let port = address.rsplit(':').next().expect("a port");
    let target = simple_write(&["--mode", "target", "--port", port]);
    let said = written(initiator);
    for word in ["3 writes by a warp", "mapped memory"] {
        assert!(said.contains(word), "{said}");
    }
    assert!(written(target).contains("the counter is 3"));
}

#[test]
fn simple_write_with_the_target_first() {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its number");
    let port = free.port().to_string();
    let mut target = simple_write(&["--mode", "target", "--port", &port]);
    // Anything.
    target.says("");
    let initiator = simple_write(&["--mode", "initiator", "--port", &port, "--level", "thread"]);
    assert!(written(initiator).contains("3 writes by a thread"));
    written(target);
}

#[test]
fn simple_write_refuses_what_it_cannot_do() {
    let refused = |flags: &[&str], words: &[&str]| {
        fails("simple_write", &[&["--gpu", "simt"], flags].concat(), words);
    };
    refused(&["--size", "0"], &["--size"]);
    refused(&["--size", "3", "--pipeline", "4"], &["--pipeline"]);
    refused(&["--rounds", "0"], &["--rounds"]);
    refused(&["--mode", "initiator", "--host", "192.0.2.1", "--port", "0"], &["192.0.2.1"]);
}
