//! Transfers through queue pairs of the software NIC and over TCP, between two agents of one process
//! that are denied every other path.

use crate::bed::{SOON, nic_over_udp, over_udp, pair, run, tell, transfer};
use std::time::{Duration, Instant};
use warpverbs_agent::{
    Agent, AgentConfig, AgentError, Op, PathKind, PostOptions, Registration, State, Transfer,
};
use warpverbs_dev::pattern;
use warpverbs_mem::Region;
use warpverbs_mem::testing::{LazyCopier, LazyMemory};
use warpverbs_transport::{Access, Context, MemoryRegion};

fn agents() -> (Agent, Agent) {
    let nic = Context::new().unwrap().open("soft").unwrap();
    pair(|| AgentConfig::default().token("the job's").nic(&nic).require(PathKind::Network))
}

/// Each with a NIC of its own, which the other reaches by UDP.
fn apart() -> (Agent, Agent) {
    pair(|| over_udp().token("the job's").require(PathKind::Network).queue_pairs(3))
}

/// An agent with several NICs, which the other's reach by UDP. No two of them know the same memory by
/// the same key.
fn on_rails(name: &str, count: usize) -> (Agent, Vec<MemoryRegion>) {
    let mut others = Vec::new();
    let mut config =
        AgentConfig::default().token("the job's").require(PathKind::Network).queue_pairs(4);
    for shift in 0..count {
        let nic = nic_over_udp();
        others.extend((0..shift).map(|_| nic.alloc_host(4096, Access::empty()).unwrap()));
        config = config.nic(&nic);
    }
    (Agent::new(name, config).unwrap(), others)
}

#[test]
fn queue_pairs_take_the_nics_of_both_ends_in_turns() {
    for (here, there) in [(2, 2), (3, 2), (1, 3), (2, 1)] {
        let (initiator, _other_regions) = on_rails("initiator", here);
        let (target, _their_other_regions) = on_rails("target", there);
        let len = (1 << 20) + 300;
        let theirs = target.register(pattern(len, 8), "theirs").unwrap();
        let ours = initiator.register(vec![0; len], "ours").unwrap();
        tell(&initiator, &target);
        let remote = initiator.remote("target", "theirs").unwrap();
        let said = initiator.explain(&ours, &remote).unwrap().to_string();
        let expected = format!("4 queue pairs, NICs: {here} here, {there} there");
        assert!(said.contains(&expected), "{said}");
        // Long and short pieces: every queue pair has some of each.
        let places = [(0u64, 1 << 20)].into_iter().chain((0..30).map(|i| ((1 << 20) + 10 * i, 7)));
        let lists: Vec<_> = places
            .map(|(at, len)| (ours.blocks(at, len, 1).unwrap(), theirs.blocks(at, len, 1).unwrap()))
            .collect();
        let both = |op| {
            let mut joined = lists[0].clone();
            for (local, remote) in &lists[1..] {
                joined.0.append(local).unwrap();
                joined.1.append(remote).unwrap();
            }
            run(&initiator.transfer(op, &joined.0, &joined.1).unwrap());
        };
        both(Op::Read);
        let moved = |bytes: &[u8], seed| {
            let other = pattern(len, seed);
            (0..len).all(|i| i >= 1 << 20 && (i - (1 << 20)) % 10 >= 7 || bytes[i] == other[i])
        };
        assert!(moved(&ours.to_vec().unwrap(), 8));
        ours.write(0, &pattern(len, 9)).unwrap();
        both(Op::Write);
        assert!(moved(&theirs.to_vec().unwrap(), 9));
    }
}

fn over_tcp() -> (Agent, Agent) {
    pair(|| AgentConfig::default().token("the job's").require(PathKind::Tcp).tcp_sockets(3))
}

#[test]
fn more_blocks_than_a_queue_takes_go_both_ways() {
    for (path, (initiator, target)) in
        [(PathKind::Network, agents()), (PathKind::Network, apart()), (PathKind::Tcp, over_tcp())]
    {
        blocks_go_both_ways(&initiator, &target, path);
    }
}

fn blocks_go_both_ways(initiator: &Agent, target: &Agent, path: PathKind) {
    const BLOCK: u64 = 48;
    const COUNT: u64 = 5000;
    let len = (BLOCK * COUNT) as usize;
    let theirs = target.register(pattern(len, 1), "cache").unwrap();
    let ours = initiator.register(vec![0; len], "ours").unwrap();
    tell(initiator, target);
    // Backwards, so that nothing is merged.
    let at: Vec<_> = (0..COUNT).rev().map(|i| i * BLOCK).collect();
    let from = theirs.blocks_at(&at, BLOCK).unwrap();
    let into = ours.blocks(0, BLOCK, COUNT as usize).unwrap();
    let read = initiator.transfer(Op::Read, &into, &from).unwrap();
    run(&read);
    let telemetry = read.telemetry().unwrap();
    assert_eq!(telemetry.descriptors as u64, COUNT);
    assert_eq!(telemetry.paths, [path]);
    let expected: Vec<u8> =
        pattern(len, 1).chunks(BLOCK as usize).rev().flatten().copied().collect();
    assert!(ours.to_vec().unwrap() == expected);

    ours.write(0, &pattern(len, 2)).unwrap();
    let write = initiator.transfer(Op::Write, &into, &from).unwrap();
    write.post(PostOptions::new().notify(b"written")).unwrap();
    target.wait_remote_done("initiator", b"written", SOON).unwrap();
    let expected: Vec<u8> =
        pattern(len, 2).chunks(BLOCK as usize).rev().flatten().copied().collect();
    assert!(theirs.to_vec().unwrap() == expected);
    assert_eq!(write.wait(SOON).unwrap(), State::Done);
}

/// Metadata travels by connections of their own. Their end is seen by the target sooner or later: what
/// serves the initiator's transfers stays.
#[test]
fn transfers_go_on_after_metadata_was_fetched_and_brought() {
    for (initiator, target) in [agents(), apart(), over_tcp()] {
        let theirs = target.register(vec![0; 64], "theirs").unwrap();
        let ours = initiator.register(pattern(64, 5), "ours").unwrap();
        initiator.fetch_metadata(target.address(), SOON).unwrap();
        let write = transfer(&initiator, Op::Write, ours.blocks(0, 64, 1), theirs.blocks(0, 64, 1));
        for turn in 0..10 {
            ours.write(0, &pattern(64, turn)).unwrap();
            run(&write);
            assert!(theirs.to_vec().unwrap() == pattern(64, turn));
            initiator.fetch_metadata(target.address(), SOON).unwrap();
            let own = initiator.metadata().unwrap();
            initiator.send_metadata(target.address(), &own, SOON).unwrap();
            // The target's thread has been through its connections.
            initiator.notify("target", b"", SOON).unwrap();
            assert!(target.wait_notification(SOON).is_ok());
        }
    }
}

#[test]
fn a_long_piece_is_spread_and_measured() {
    let (initiator, target) = agents();
    let len = (3 << 20) + 5;
    let _theirs = target.register(pattern(len, 3), "cache").unwrap();
    let ours = initiator.register(vec![0; len], "ours").unwrap();
    tell(&initiator, &target);
    let remote = initiator.remote("target", "cache").unwrap();
    let explained = initiator.explain(&ours, &remote).unwrap();
    assert_eq!(explained.how.route, PathKind::Network);
    assert!(explained.rate.is_some_and(|rate| rate > 0.0), "{explained}");
    assert_eq!(explained.how.by, "2 queue pairs");
    assert!(explained.to_string().contains("same process: excluded"), "{explained}");
    let (into, from) = (ours.blocks(0, len as u64, 1), remote.blocks(0, len as u64, 1));
    let read = transfer(&initiator, Op::Read, into, from);
    assert!(read.estimate().measured);
    run(&read);
    assert!(ours.to_vec().unwrap() == pattern(len, 3));
}

#[test]
fn deregistered_memory_fails_one_transfer_and_the_next_works() {
    for (initiator, target) in [agents(), over_tcp()] {
        let (gone, stays) = (
            target.register(vec![1; 4096], "gone").unwrap(),
            target.register(vec![2; 4096], "stays").unwrap(),
        );
        let ours = initiator.register(vec![0; 4096], "ours").unwrap();
        tell(&initiator, &target);
        let into = ours.blocks(0, 4096, 1).unwrap();
        let read = |memory: &Registration| {
            initiator.transfer(Op::Read, &into, &memory.blocks(0, 4096, 1).unwrap()).unwrap()
        };
        let (first, second) = (read(&gone), read(&stays));
        run(&first);
        run(&second);
        drop(gone);
        // Until the initiator has heard of it, the target keeps memory that TCP leads to.
        let failed = loop {
            match first.post(PostOptions::new()).and_then(|_| first.wait(SOON)) {
                Ok(_) => std::thread::yield_now(),
                Err(failed) => break failed,
            }
        };
        let why = failed.to_string();
        assert!(
            matches!(failed, AgentError::Deregistered { .. } | AgentError::Path { .. }),
            "{why}"
        );
        run(&second);
        assert_eq!(ours.to_vec().unwrap(), [2; 4096]);
    }
}

const LONG: usize = 8 << 20;

/// A READ of [`LONG`] bytes, blocks of 64 in reverse order, which takes a while; the memory that it
/// fills, and that it reads.
fn long_read(initiator: &Agent, target: &Agent) -> (Transfer, Registration, Registration) {
    let theirs = target.register(pattern(LONG, 4), "cache").unwrap();
    let ours = initiator.register(vec![0; LONG], "ours").unwrap();
    tell(initiator, target);
    let reversed: Vec<u64> = (0..(LONG / 64) as u64).rev().map(|block| block * 64).collect();
    let (into, from) = (ours.blocks(0, 64, LONG / 64), theirs.blocks_at(&reversed, 64));
    (transfer(initiator, Op::Read, into, from), ours, theirs)
}

/// Tries until it comes off: a transfer may be done before its poster's thread runs again.
fn in_time<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = attempt() {
            return found;
        }
        assert!(start.elapsed() < SOON, "the transfer was done first each time");
    }
}

#[test]
fn a_cancelled_transfer_ends_and_can_be_posted_again() {
    for (initiator, target) in [agents(), over_tcp()] {
        let (read, ours, _theirs) = long_read(&initiator, &target);
        in_time(|| {
            read.post(PostOptions::new()).unwrap();
            read.cancel();
            let start = Instant::now();
            while !read.state().is_terminal() {
                assert!(start.elapsed() < SOON);
                std::thread::yield_now();
            }
            (read.state() != State::Done).then_some(())
        });
        assert_eq!(read.state(), State::Cancelled);
        assert!(matches!(read.wait(SOON), Err(AgentError::Cancelled)));
        // Nothing is touched any more.
        ours.write(0, &vec![0xee; LONG]).unwrap();
        read.cancel();
        assert_eq!(read.state(), State::Cancelled);
        assert!(ours.to_vec().unwrap().iter().all(|byte| *byte == 0xee));
        run(&read);
        let expected: Vec<u8> = pattern(LONG, 4).chunks(64).rev().flatten().copied().collect();
        assert!(ours.to_vec().unwrap() == expected);
    }
}

#[test]
fn a_deadline_ends_a_transfer_and_keeps_its_cause() {
    for (initiator, target) in [agents(), over_tcp()] {
        let (read, _ours, _theirs) = long_read(&initiator, &target);
        let late = in_time(|| {
            read.post(PostOptions::new().deadline(Duration::from_micros(1))).unwrap();
            read.wait(SOON).err()
        });
        assert!(late.to_string().contains("target ("), "{late}");
        assert!(matches!(read.error(), Some(AgentError::Timeout { .. })));
        assert_eq!(read.state(), State::Failed);
        run(&read);
        assert!(read.error().is_none());
    }
}

#[test]
fn without_a_nic_tcp_is_left_and_without_that_all_reasons_are_given() {
    let config = || AgentConfig::default().token("the job's").without(PathKind::SameProcess);
    let target = Agent::new("b", config()).unwrap();
    let initiator = Agent::new("a", config()).unwrap();
    let _theirs = target.register(vec![0; 1 << 20], "theirs").unwrap();
    let ours = initiator.register(vec![0; 1 << 20], "ours").unwrap();
    tell(&initiator, &target);
    let remote = initiator.remote("b", "theirs").unwrap();
    let tcp = initiator.explain(&ours, &remote).unwrap();
    assert_eq!(tcp.how.route, PathKind::Tcp, "{tcp}");
    assert!(tcp.how.by.contains("2 sockets") && tcp.how.by.contains("the fallback"), "{tcp}");
    assert!(tcp.rate.is_some(), "{tcp}");
    assert!(tcp.to_string().contains("network: no NIC"), "{tcp}");

    let reasons = ["same process: excluded", "mapped memory: ", "is this one", "network: no NIC"];
    // Either end may not want TCP.
    for (own, others, why) in [
        (config().without(PathKind::Tcp), config(), "TCP: excluded by the configuration"),
        (config(), config().without(PathKind::Tcp), "refuses: excluded by the configuration"),
    ] {
        let target = Agent::new("b", others).unwrap();
        let initiator = Agent::new("c", own).unwrap();
        let theirs = target.register(vec![0; 8], "theirs").unwrap();
        let ours = initiator.register(vec![0; 8], "ours").unwrap();
        tell(&initiator, &target);
        let lists = (ours.blocks(0, 8, 1).unwrap(), theirs.blocks(0, 8, 1).unwrap());
        let none = initiator.transfer(Op::Read, &lists.0, &lists.1).unwrap_err().to_string();
        for why in reasons.into_iter().chain([why]) {
            assert!(none.contains(why), "{why} in {none}");
        }
    }
}

/// Memory of a GPU, as far as a path can tell: only its copy engine reaches the bytes.
#[test]
fn memory_that_only_a_copy_engine_reaches_goes_over_tcp() {
    let (initiator, target) = over_tcp();
    let copier = std::sync::Arc::new(LazyCopier::default());
    copier.pace(3);
    let len = (3 << 20) + 5;
    let device = || LazyMemory::regions(len, 0, &copier).unwrap();
    let ((ours, here), (theirs, there)) = (device(), device());
    let _theirs = target.register(theirs, "theirs").unwrap();
    let ours = initiator.register(ours, "ours").unwrap();
    tell(&initiator, &target);
    let seen = |region: &Region| {
        let mut bytes = vec![0; len];
        region.read(0, &mut bytes).unwrap();
        bytes
    };
    // In two pieces, of which one goes in chunks by several sockets.
    let at = [(0, 5), (5, len as u64 - 5)];
    let remote = initiator.remote("target", "theirs").unwrap();
    let lists =
        at.map(|(at, len)| (ours.blocks(at, len, 1).unwrap(), remote.blocks(at, len, 1).unwrap()));
    let both = |op| {
        for (local, remote) in &lists {
            run(&initiator.transfer(op, local, remote).unwrap());
        }
    };
    here.write(0, &pattern(len, 6)).unwrap();
    both(Op::Write);
    assert!(seen(&there) == pattern(len, 6));
    there.write(0, &pattern(len, 7)).unwrap();
    both(Op::Read);
    assert!(seen(&here) == pattern(len, 7));
    // One that the engine is in the middle of is waited for when it is ended.
    let read = initiator.transfer(Op::Read, &lists[1].0, &lists[1].1).unwrap();
    read.post(PostOptions::new().deadline(Duration::from_micros(1))).unwrap();
    assert!(read.wait(SOON).is_err());
    assert!(seen(&here) == pattern(len, 7));
    both(Op::Write);
}

/// Wakes the thread that waits.
struct Unpark(std::thread::Thread);

impl std::task::Wake for Unpark {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.unpark();
    }
}

#[test]
fn a_transfer_is_awaited_without_a_runtime() {
    use std::task::{Context, Poll, Waker};
    for (initiator, target) in [agents(), over_tcp()] {
        let theirs = target.register(pattern(1 << 20, 4), "cache").unwrap();
        let ours = initiator.register(vec![0; 1 << 20], "ours").unwrap();
        tell(&initiator, &target);
        let (into, from) = (ours.blocks(0, 64, 16384), theirs.blocks(0, 64, 16384));
        let read = transfer(&initiator, Op::Read, into, from);
        let waker = Waker::from(std::sync::Arc::new(Unpark(std::thread::current())));
        let await_it = || {
            let mut context = Context::from_waker(&waker);
            let mut completion = std::pin::pin!(read.completion());
            loop {
                match completion.as_mut().poll(&mut context) {
                    Poll::Ready(over) => return over,
                    // Nobody but the control thread looks at the transfer meanwhile.
                    Poll::Pending => std::thread::park_timeout(SOON),
                }
            }
        };
        assert!(matches!(await_it(), Err(AgentError::NotPosted)));
        for _ in 0..20 {
            read.post(PostOptions::new()).unwrap();
            assert_eq!(await_it().unwrap(), State::Done);
        }
        assert!(ours.to_vec().unwrap() == pattern(1 << 20, 4));
    }
}

#[test]
fn kernels_get_addresses_or_queue_pairs() {
    use warpverbs_agent::KernelAccess;
    let (initiator, target) = agents();
    let theirs = target.alloc(4096, "theirs").unwrap();
    tell(&initiator, &target);
    let remote = initiator.remote("target", "theirs").unwrap();
    match initiator.kernel_access(&remote).unwrap() {
        KernelAccess::Rdma { region, pairs } => {
            assert_eq!(region, theirs.nic().unwrap().remote());
            assert_eq!(pairs.len(), 2);
        }
        other => panic!("{other:?}"),
    }
    let plain = Agent::new("plain", AgentConfig::default().token("the job's")).unwrap();
    let ours = plain.register(vec![5; 16], "ours").unwrap();
    let mapping = AgentConfig::default().token("the job's").without(PathKind::SameProcess);
    for (config, reached) in [(AgentConfig::default().token("the job's"), true), (mapping, false)] {
        let agent = Agent::new("reader", config).unwrap();
        agent.load_metadata(&plain.metadata().unwrap()).unwrap();
        let access = agent.kernel_access(&agent.remote("plain", "ours").unwrap());
        match (access, reached) {
            (Ok(KernelAccess::Direct(buffer)), true) => {
                assert_eq!(buffer.kernel_addr(), ours.buffer().kernel_addr());
            }
            (Err(AgentError::NoPath { tried, .. }), false) => assert!(!tried.is_empty()),
            (access, _) => panic!("{access:?}"),
        }
        // Of an arena it is mapped, within one process too.
        let shared = plain.alloc(4096, "shared").unwrap();
        shared.write(0, &[9; 8]).unwrap();
        agent.load_metadata(&plain.metadata().unwrap()).unwrap();
        let access = agent.kernel_access(&agent.remote("plain", "shared").unwrap()).unwrap();
        let KernelAccess::Direct(buffer) = access else { panic!("{access:?}") };
        let mut seen = [0; 8];
        buffer.region().read(0, &mut seen).unwrap();
        assert_eq!(seen, [9; 8]);
    }
}

/// Nobody looks at the transfer: the control thread ends it and sends its notification, whether it was
/// at rest when the transfer was posted, or busy with the one before, or about to rest.
#[test]
fn a_transfer_ends_without_a_look_whatever_the_control_thread_does() {
    let (initiator, target) = apart();
    let theirs = target.register(vec![0; 64], "cache").unwrap();
    let ours = initiator.register(vec![1; 64], "ours").unwrap();
    tell(&initiator, &target);
    let write = transfer(&initiator, Op::Write, ours.blocks(0, 64, 1), theirs.blocks(0, 64, 1));
    for turn in 0..60u64 {
        let tag = turn.to_le_bytes();
        write.post(PostOptions::new().notify(tag)).unwrap();
        target.wait_remote_done("initiator", &tag, SOON).unwrap();
        assert_eq!(write.wait(SOON).unwrap(), State::Done);
        // Of all lengths around the time after which the thread rests; nothing fails whether it does or not.
        std::thread::sleep(Duration::from_micros(100 * (turn % 20)));
    }
}
