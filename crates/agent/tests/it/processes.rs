//! Two processes: paths between them, and what remains of one that was killed.

use crate::bed::{SOON, transfer};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use warpverbs_agent::{
    Agent, AgentConfig, AgentError, CopyBy, Op, PathKind, PostOptions, Registration, State,
};
use warpverbs_dev::{Child, say};
use warpverbs_mem::Region;
use warpverbs_mem::testing::{LazyCopier, LazyMemory};

const LEN: usize = 1 << 20;

/// The part of another process: an agent with memory of two kinds, which it changes when told.
#[test]
fn target() {
    if std::env::var_os("AGENT_TARGET").is_none() {
        return;
    }
    let agent = Agent::new("target", AgentConfig::default().token("the job's")).unwrap();
    let private = agent.register(vec![3; LEN], "private").unwrap();
    let shared = agent.alloc(LEN as u64, "shared").unwrap();
    shared.write(0, &vec![4; LEN]).unwrap();
    say(agent.address());
    let mut private = Some(private);
    for line in std::io::stdin().lines() {
        let answer = match line.unwrap().as_str() {
            "sum" => {
                let private = private.as_ref().unwrap();
                format!("{} {}", sum(&private.to_vec().unwrap()), sum(&shared.to_vec().unwrap()))
            }
            "deregister" => {
                drop(private.take());
                "done".to_owned()
            }
            other => panic!("{other}"),
        };
        say(answer);
    }
}

fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(1, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

struct Target {
    child: Child,
    address: SocketAddr,
}

impl Target {
    fn start() -> Self {
        let mut child = Child::of_test("processes::target", "AGENT_TARGET", 1);
        let address = child.said().parse().unwrap();
        Self { child, address }
    }
}

fn initiator() -> Agent {
    // Where the system forbids copies between processes, that is to be seen.
    Agent::new("initiator", AgentConfig::default().token("the job's").without(PathKind::Tcp))
        .unwrap()
}

/// Scattered blocks there and back between `ours`, whose bytes are those of `seen`, and private
/// memory of another process: more of them than go through a bounce buffer at a time, none beside
/// its neighbour. Returns the text of `explain`; `None` where the system forbids copies between
/// processes.
fn bounced(agent: &Agent, ours: &Registration, seen: &Region) -> Option<String> {
    let mut target = Target::start();
    agent.fetch_metadata(target.address, SOON).unwrap();
    let remote = agent.remote("target", "private").unwrap();
    let (len, count) = (300, 3400);
    let at: Vec<u64> = (0..count).map(|i| (i * 701 + 1) % count * len).collect();
    let into = ours.blocks(0, len, count as usize).unwrap();
    let from = remote.blocks_at(&at, len).unwrap();
    let write = match agent.transfer(Op::Write, &into, &from) {
        Ok(write) => write,
        Err(refused @ AgentError::NoPath { .. }) => {
            eprintln!("SKIPPED: {refused}");
            return None;
        }
        Err(error) => panic!("{error}"),
    };
    for round in 0..2u32 {
        let byte = |i: u32| ((i + round).wrapping_mul(0x9e37_79b9) >> 24) as u8;
        let bytes: Vec<u8> = (0..LEN as u32).map(byte).collect();
        seen.write(0, &bytes).unwrap();
        assert_eq!(write.post(PostOptions::new()).unwrap(), State::Done);
        assert_eq!(write.telemetry().unwrap().paths, [PathKind::ProcessCopy]);
        let mut expected = vec![3; LEN];
        for (block, &at) in bytes.chunks_exact(len as usize).zip(&at) {
            expected[at as usize..][..len as usize].copy_from_slice(block);
        }
        let found = target.child.ask("sum");
        assert_eq!(found.split(' ').next(), Some(sum(&expected).to_string().as_str()));

        let read = agent.transfer(Op::Read, &into, &from).unwrap();
        for _ in 0..2 {
            seen.fill(0, LEN, 0).unwrap();
            assert_eq!(read.post(PostOptions::new()).unwrap(), State::Done);
            let mut found = vec![0; LEN];
            seen.read(0, &mut found).unwrap();
            let moved = (len * count) as usize;
            assert!(found[..moved] == bytes[..moved]);
            assert!(found[moved..].iter().all(|byte| *byte == 0));
        }
    }
    Some(agent.explain(ours, &remote).unwrap().to_string())
}

/// Memory that only a copy engine reaches, which performs one copy at each look at it.
#[test]
fn memory_of_a_device_goes_through_a_bounce_buffer_to_private_memory() {
    let engine = Arc::new(LazyCopier::default());
    engine.pace(1);
    let (device, seen) = LazyMemory::regions(LEN, 0, &engine).unwrap();
    let agent = initiator();
    let ours = agent.register(device, "ours").unwrap();
    if let Some(explained) = bounced(&agent, &ours, &seen) {
        assert!(explained.contains("a bounce buffer and a copy engine"), "{explained}");
    }
}

#[test]
fn kernels_gather_and_scatter_lists_between_a_bounce_buffer_and_their_memory() {
    let config =
        AgentConfig::default().token("the job's").without(PathKind::Tcp).copy_by(CopyBy::Kernel);
    let agent = Agent::new("initiator", config).unwrap();
    let ours = agent.register(vec![0; LEN], "ours").unwrap();
    let seen = ours.buffer().region().clone();
    if let Some(explained) = bounced(&agent, &ours, &seen) {
        assert!(explained.contains("lists of small blocks by kernels"), "{explained}");
    }
}

#[test]
fn private_memory_is_copied_and_shared_memory_is_mapped() {
    let mut target = Target::start();
    let agent = initiator();
    agent.fetch_metadata(target.address, SOON).unwrap();
    let ours = agent.register(vec![0; LEN], "ours").unwrap();
    for (label, path, value) in
        [("private", PathKind::ProcessCopy, 3), ("shared", PathKind::Mapped, 4)]
    {
        let remote = agent.remote("target", label).unwrap();
        let explained = match agent.explain(&ours, &remote) {
            Ok(explained) => explained,
            Err(refused @ AgentError::NoPath { .. }) if label == "private" => {
                return eprintln!("SKIPPED: {refused}");
            }
            Err(error) => panic!("{error}"),
        };
        assert_eq!(explained.how.route, path, "{explained}");
        assert!(explained.rate.is_some(), "{explained}");
        let (into, from) = (ours.blocks(0, 1000, 1048), remote.blocks(0, 1000, 1048));
        let read = transfer(&agent, Op::Read, into, from);
        assert_eq!(read.post(PostOptions::new()).unwrap(), State::Done);
        assert!(ours.to_vec().unwrap()[..1_048_000].iter().all(|byte| *byte == value));
        // Every other block, in reverse.
        let at: Vec<_> = (0..500).rev().map(|i| i * 2000).collect();
        ours.write(0, &vec![value + 7; LEN]).unwrap();
        let (here, there) = (ours.blocks_at(&at, 1000), remote.blocks_at(&at, 1000));
        let write = transfer(&agent, Op::Write, here, there);
        write.post(PostOptions::new()).unwrap();
    }
    let expected = |value: u8| {
        let byte = |i: usize| if i < 1_000_000 && i % 2000 < 1000 { value + 7 } else { value };
        sum(&(0..LEN).map(byte).collect::<Vec<_>>())
    };
    assert_eq!(target.child.ask("sum"), format!("{} {}", expected(3), expected(4)));
}

/// A system that lets this process read the other one, and not write to it.
#[test]
fn private_memory_that_may_only_be_read_has_no_path_and_the_reason_is_said() {
    let target = Target::start();
    let agent = initiator();
    agent.fetch_metadata(target.address, SOON).unwrap();
    let ours = agent.register(vec![0; LEN], "ours").unwrap();
    let remote = agent.remote("target", "private").unwrap();
    let limited = || {
        if !warpverbs_mem::testing::forbid_process_writes() {
            return eprintln!("SKIPPED: this system takes no filter of calls");
        }
        for op in [Op::Read, Op::Write] {
            let lists = (ours.blocks(0, 64, 1).unwrap(), remote.blocks(0, 64, 1).unwrap());
            let refused = agent.transfer(op, &lists.0, &lists.1).map(drop).unwrap_err();
            let AgentError::NoPath { tried, .. } = &refused else { panic!("{refused}") };
            let copy = PathKind::ProcessCopy.to_string();
            let why = &tried.iter().find(|reason| reason.what == copy).unwrap().why;
            // Where nothing may be read either, that is said instead.
            let said = ["though it reads there: EPERM", "copies nothing from or to process"];
            assert!(said.iter().any(|said| why.contains(said)), "{why}");
        }
    };
    std::thread::scope(|scope| scope.spawn(limited).join().unwrap());
}

#[test]
fn memory_that_the_peer_deregisters_is_not_written_again() {
    let mut target = Target::start();
    let agent = initiator();
    agent.fetch_metadata(target.address, SOON).unwrap();
    let ours = agent.register(vec![9; LEN], "ours").unwrap();
    let remote = agent.remote("target", "private").unwrap();
    let lists = (ours.blocks(0, 64, 1).unwrap(), remote.blocks(0, 64, 1).unwrap());
    let write = match agent.transfer(Op::Write, &lists.0, &lists.1) {
        Ok(write) => write,
        Err(refused @ AgentError::NoPath { .. }) => return eprintln!("SKIPPED: {refused}"),
        Err(error) => panic!("{error}"),
    };
    write.post(PostOptions::new()).unwrap();
    target.child.ask("deregister");
    let refused = loop {
        match write.post(PostOptions::new()) {
            Ok(_) => std::thread::yield_now(),
            Err(refused) => break refused,
        }
    };
    assert!(matches!(refused, AgentError::Deregistered { .. }), "{refused}");
    assert!(refused.to_string().contains("\"private\" of target"), "{refused}");
}

#[test]
fn a_killed_peer_is_missed_by_name_and_replaced_under_it() {
    for path in [PathKind::Mapped, PathKind::Tcp] {
        missed_and_replaced(path);
    }
}

/// Every wait is bounded by what adding it to now allows.
#[test]
fn a_deadline_without_end_is_a_deadline() {
    let mut target = Target::start();
    for path in [PathKind::Mapped, PathKind::ProcessCopy, PathKind::Tcp] {
        let config = AgentConfig::default().token("the job's").require(path);
        let agent = Agent::new("initiator", config.deadline(Duration::MAX)).unwrap();
        assert!(agent.deadline() >= Duration::from_secs(300 * 24 * 3600));
        agent.fetch_metadata(target.address, Duration::MAX).unwrap();
        agent.connect("target", Duration::MAX).unwrap();
        agent.wait_peer("target", Duration::MAX).unwrap();
        let ours = agent.register(vec![5; LEN], "ours").unwrap();
        let label = if path == PathKind::Mapped { "shared" } else { "private" };
        let remote = agent.remote("target", label).unwrap();
        let lists = (ours.blocks(0, 64, 100).unwrap(), remote.blocks(0, 64, 100).unwrap());
        let write = match agent.transfer(Op::Write, &lists.0, &lists.1) {
            Ok(write) => write,
            Err(refused @ AgentError::NoPath { .. }) if path == PathKind::ProcessCopy => {
                eprintln!("SKIPPED: {refused}");
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        for options in [PostOptions::new(), PostOptions::new().deadline(Duration::MAX)] {
            write.post(options.notify(b"done")).unwrap();
            assert_eq!(write.wait(Duration::MAX).unwrap(), State::Done);
        }
        assert_eq!(write.telemetry().unwrap().paths, [path]);
        agent.notify("target", b"done", Duration::MAX).unwrap();
        agent.explain(&ours, &remote).unwrap();
    }
    let sums = target.child.ask("sum");
    let whole = |value| [vec![5; 6400], vec![value; LEN - 6400]].concat();
    let (private, shared) = sums.split_once(' ').unwrap();
    assert_eq!(shared, sum(&whole(4)).to_string());
    assert_eq!(private, sum(&whole(3)).to_string(), "by TCP at least");
}

fn missed_and_replaced(path: PathKind) {
    let agent =
        Agent::new("initiator", AgentConfig::default().token("the job's").require(path)).unwrap();
    let ours = agent.register(vec![9; LEN], "ours").unwrap();
    let mut first = Target::start();
    agent.fetch_metadata(first.address, SOON).unwrap();
    let make = || {
        let remote = agent.remote("target", "shared").unwrap();
        let lists = (ours.blocks(0, 64, 100).unwrap(), remote.blocks(0, 64, 100).unwrap());
        agent.transfer(Op::Read, &lists.0, &lists.1).unwrap()
    };
    let read = make();
    read.post(PostOptions::new().notify(b"1")).unwrap();
    read.wait(SOON).unwrap();
    first.child.kill();
    let lost = loop {
        match read.post(PostOptions::new().notify(b"2")).and_then(|_| read.wait(SOON)) {
            Ok(_) => std::thread::yield_now(),
            Err(lost) => break lost,
        }
    };
    assert!(lost.to_string().contains("target ("), "{lost}");
    let second = Target::start();
    agent.fetch_metadata(second.address, SOON).unwrap();
    let stale = read.post(PostOptions::new()).unwrap_err();
    let said = matches!(stale, AgentError::PeerLost { .. } | AgentError::Stale { .. });
    assert!(said, "{stale}");
    let again = make();
    again.post(PostOptions::new().notify(b"3")).unwrap();
    assert_eq!(again.wait(SOON).unwrap(), State::Done);
}
