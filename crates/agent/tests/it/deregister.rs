//! Memory that its owner frees once `Registration::deregister` has returned.

use crate::bed::{SOON, by, pair, run, signal, tell};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rustix::process::Signal;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use warpverbs_agent::{
    Agent, AgentConfig, AgentError, BlockList, CopyBy, Op, PathKind, PostOptions, Prepared,
    Registration, State, Transfer,
};
use warpverbs_dev::{Child, say};
use warpverbs_mem::testing::{LazyCopier, LazyMemory};
use warpverbs_mem::{HostBuf, Region};

const LEN: usize = 1 << 20;
/// In which a peer that answers confirms.
const ENOUGH: Duration = Duration::from_secs(60);

fn random(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    StdRng::seed_from_u64(seed).fill_bytes(&mut bytes);
    bytes
}

/// Memory whose owner knows whether anybody else has it.
struct Owned {
    bytes: Region,
    lent: Arc<()>,
}

impl Owned {
    fn new(seed: u64) -> Self {
        let bytes = HostBuf::region(LEN).unwrap();
        bytes.write(0, &random(seed, LEN)).unwrap();
        Self { bytes, lent: Arc::new(()) }
    }

    fn register(&self, agent: &Agent, label: &str) -> Registration {
        agent.register(self.bytes.clone().kept_with(self.lent.clone()), label).unwrap()
    }

    fn is_free(&self) -> bool {
        Arc::strong_count(&self.lent) == 1
    }

    /// Uses it for something else, which nobody changes.
    fn reuse(&self, seed: u64, wait: Duration) {
        assert!(self.is_free());
        self.bytes.write(0, &random(seed, LEN)).unwrap();
        std::thread::sleep(wait);
        let mut found = vec![0; LEN];
        self.bytes.read(0, &mut found).unwrap();
        assert!(found == random(seed, LEN), "somebody has written to memory that was given back");
    }
}

fn blocks(memory: &Registration) -> BlockList {
    memory.strided(3, 1000, 1300, 800).unwrap()
}

fn is_deregistered(transfer: &Transfer, label: &str) {
    let refused = transfer.post(PostOptions::new()).unwrap_err();
    assert!(matches!(&refused, AgentError::Deregistered { label: of, .. } if of == label));
    assert!(matches!(transfer.state(), State::Failed));
}

/// Transfers that are over, prepared lists and known memory hold nothing, of neither agent.
#[test]
fn what_is_not_in_progress_holds_no_memory() {
    let copy_by = |by| move || AgentConfig::default().copy_by(by);
    let over_nic = || crate::bed::by(PathKind::Network);
    let configs: [&dyn Fn() -> AgentConfig; 4] =
        [&copy_by(CopyBy::Auto), &copy_by(CopyBy::Kernel), &over_nic, &|| by(PathKind::Tcp)];
    for config in configs {
        for own_first in [true, false] {
            let (initiator, target) = pair(config);
            let (ours, theirs) = (Owned::new(1), Owned::new(2));
            let here = ours.register(&initiator, "ours");
            let there = theirs.register(&target, "theirs");
            tell(&initiator, &target);
            let lists = (blocks(&here), blocks(&there));
            let write = initiator.transfer(Op::Write, &lists.0, &lists.1).unwrap();
            run(&write);
            let prepared: (Prepared, Prepared) =
                (initiator.prepare(&lists.0).unwrap(), initiator.prepare(&lists.1).unwrap());
            let index: Vec<u32> = (0..800).collect();
            let make =
                || initiator.prepared_transfer(Op::Read, &prepared.0, &index, &prepared.1, &index);
            let read = make().unwrap();
            run(&read);
            let known = initiator.remote("target", "theirs").unwrap();
            let (gone, label) = match own_first {
                true => (&ours, "ours"),
                false => (&theirs, "theirs"),
            };
            let registration = if own_first { here } else { there };
            registration.deregister(ENOUGH).unwrap();
            gone.reuse(3, Duration::ZERO);
            is_deregistered(&write, label);
            is_deregistered(&read, label);
            if let Ok(again) = make() {
                is_deregistered(&again, label);
            }
            drop(known);
            gone.reuse(4, Duration::from_millis(1));
        }
    }
}

#[test]
fn an_agent_as_its_own_peer_gives_memory_back() {
    for copy_by in [CopyBy::Auto, CopyBy::Kernel] {
        let agent = Agent::new("self", AgentConfig::default().copy_by(copy_by)).unwrap();
        let (a, b) = (Owned::new(1), Owned::new(2));
        let (here, there) = (a.register(&agent, "a"), b.register(&agent, "b"));
        let write = agent.transfer(Op::Write, &blocks(&here), &blocks(&there)).unwrap();
        run(&write);
        let known = agent.memories_of("self").unwrap();
        there.deregister(ENOUGH).unwrap();
        b.reuse(3, Duration::ZERO);
        is_deregistered(&write, "b");
        here.deregister(ENOUGH).unwrap();
        a.reuse(4, Duration::ZERO);
        drop(known);
    }
}

/// Dropping gives memory back as well, once posts that were at it have ended.
#[test]
fn memory_that_is_deregistered_beside_posts_is_given_back() {
    for path in [PathKind::SameProcess, PathKind::Tcp, PathKind::Network] {
        for own in [true, false] {
            let (initiator, target) = pair(|| by(path));
            let (ours, theirs) = (Owned::new(1), Owned::new(2));
            let here = ours.register(&initiator, "ours");
            let there = theirs.register(&target, "theirs");
            tell(&initiator, &target);
            let write = initiator.transfer(Op::Write, &blocks(&here), &blocks(&there)).unwrap();
            let posts = AtomicU64::new(0);
            std::thread::scope(|scope| {
                let thread = scope.spawn(|| {
                    loop {
                        let posted = write.post(PostOptions::new());
                        if let Err(why) = posted.and_then(|_| write.wait(SOON)) {
                            break why;
                        }
                        posts.fetch_add(1, Ordering::Relaxed);
                    }
                });
                while posts.load(Ordering::Relaxed) < 20 && !thread.is_finished() {
                    std::thread::yield_now();
                }
                let (registration, gone) = if own { (here, &ours) } else { (there, &theirs) };
                registration.deregister(ENOUGH).unwrap();
                gone.reuse(5, Duration::from_millis(20));
                let why = thread.join().unwrap();
                assert!(
                    matches!(why, AgentError::Deregistered { .. } | AgentError::Path { .. }),
                    "{path}: {why}"
                );
            });
        }
    }
}

#[test]
fn a_clone_of_the_buffer_keeps_it_and_is_said() {
    let agent = Agent::new("a", AgentConfig::default()).unwrap();
    let owned = Owned::new(1);
    let memory = owned.register(&agent, "mine");
    let clone = memory.buffer().clone();
    let start = Instant::now();
    let refused = memory.deregister(Duration::from_millis(50)).unwrap_err();
    assert!(start.elapsed() >= Duration::from_millis(50));
    let said =
        matches!(&refused, AgentError::InUse { by, label, .. } if by.is_empty() && label == "mine");
    assert!(said, "{refused}");
    assert!(refused.to_string().contains("by a clone of its buffer"), "{refused}");
    assert!(!owned.is_free());
    drop(clone);
    owned.reuse(2, Duration::ZERO);
    // Nothing else is registered under its name, and the agent goes on.
    Owned::new(3).register(&agent, "mine").deregister(Duration::ZERO).unwrap();
}

/// The part of another process: an agent whose memory is deregistered when it is told, and used for
/// something else from then on.
#[test]
fn target() {
    let Ok(path) = std::env::var("DEREGISTER_TARGET") else { return };
    let config = if path == "network" { crate::bed::over_udp() } else { AgentConfig::default() };
    let agent = Agent::new("target", config.token("of the test")).unwrap();
    let owned = Owned::new(7);
    let mut mapped = None;
    let memory = match &*path {
        "mapped memory" => {
            let memory = agent.alloc(LEN as u64, "memory").unwrap();
            mapped = Some(());
            memory
        }
        _ => owned.register(&agent, "memory"),
    };
    say(agent.address());
    let mut memory = Some(memory);
    for line in std::io::stdin().lines() {
        assert_eq!(line.unwrap(), "deregister");
        memory.take().unwrap().deregister(ENOUGH).unwrap();
        if mapped.is_none() {
            owned.reuse(8, Duration::from_millis(100));
        }
        say("done");
    }
}

fn target_by(path: PathKind) -> (Child, SocketAddr) {
    let mut child = Child::of_test("deregister::target", "DEREGISTER_TARGET", path);
    let address = child.said().parse().unwrap();
    (child, address)
}

#[test]
fn memory_of_another_process_is_given_back_beside_posts() {
    let paths = [
        (PathKind::Mapped, CopyBy::Auto),
        (PathKind::Mapped, CopyBy::Kernel),
        (PathKind::ProcessCopy, CopyBy::Auto),
        // Through a bounce buffer.
        (PathKind::ProcessCopy, CopyBy::Kernel),
        (PathKind::Network, CopyBy::Auto),
        (PathKind::Tcp, CopyBy::Auto),
    ];
    for (path, copy_by) in paths {
        let (mut child, address) = target_by(path);
        let agent = Agent::new("initiator", by(path).copy_by(copy_by)).unwrap();
        agent.fetch_metadata(address, SOON).unwrap();
        let ours = Owned::new(9);
        let here = ours.register(&agent, "ours");
        let there = agent.remote("target", "memory").unwrap();
        let there = there.strided(3, 1000, 1300, 800).unwrap();
        let write = match agent.transfer(Op::Write, &blocks(&here), &there) {
            Ok(write) => write,
            Err(refused @ AgentError::NoPath { .. }) if path == PathKind::ProcessCopy => {
                eprintln!("SKIPPED: {refused}");
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        let begun = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                loop {
                    let posted = write.post(PostOptions::new());
                    if let Err(why) = posted.and_then(|_| write.wait(SOON)) {
                        break why;
                    }
                    begun.store(true, Ordering::Release);
                }
            });
            while !begun.load(Ordering::Acquire) && !thread.is_finished() {
                std::thread::yield_now();
            }
            assert_eq!(child.ask("deregister"), "done", "{path}");
            let why = thread.join().unwrap();
            let fits = matches!(why, AgentError::Deregistered { .. })
                || path == PathKind::Network && matches!(why, AgentError::Path { .. });
            assert!(fits, "{path}: {why}");
        });
        is_deregistered(&write, "memory");
        here.deregister(ENOUGH).unwrap();
        ours.reuse(10, Duration::ZERO);
    }
}

/// The part of another process: an agent that reads memory of the one that has started it.
#[test]
fn reader() {
    let Ok(path) = std::env::var("DEREGISTER_READER") else { return };
    let path = PathKind::ALL.into_iter().find(|one| one.to_string() == path).unwrap();
    let agent = Agent::new("reader", by(path)).unwrap();
    say("ready");
    let address = std::io::stdin().lines().next().unwrap().unwrap();
    agent.fetch_metadata(address.parse().unwrap(), SOON).unwrap();
    let ours = agent.register(vec![0; LEN], "ours").unwrap();
    let remote = agent.remote("owner", "memory").unwrap();
    let list = remote.strided(3, 1000, 1300, 800).unwrap();
    let read = match agent.transfer(Op::Read, &blocks(&ours), &list) {
        Ok(read) => read,
        Err(error) => return say(format!("SKIPPED: {error}")),
    };
    run(&read);
    say("read");
    let _ = std::io::stdin().lines().next();
    // Of the other end of a pipe that it holds: here it is stopped, or posts again.
    let refused = read.post(PostOptions::new()).and_then(|_| read.wait(SOON)).unwrap_err();
    say(refused);
}

/// A peer that is stopped may still copy when it goes on.
#[test]
fn a_stopped_peer_is_named_and_keeps_the_memory() {
    for path in [PathKind::ProcessCopy, PathKind::Network, PathKind::Tcp] {
        let config =
            if path == PathKind::Network { crate::bed::over_udp() } else { AgentConfig::default() };
        let owner = Agent::new("owner", config.token("of the test")).unwrap();
        let owned = Owned::new(11);
        let memory = owned.register(&owner, "memory");
        let mut child = Child::of_test("deregister::reader", "DEREGISTER_READER", path);
        assert_eq!(child.said(), "ready");
        let said = child.ask(owner.address().to_string());
        if path == PathKind::ProcessCopy && said.starts_with("SKIPPED") {
            eprintln!("{said}");
            continue;
        }
        assert_eq!(said, "read", "{path}");
        signal(&child, Signal::STOP);
        let start = Instant::now();
        let refused = memory.deregister(Duration::from_millis(200)).unwrap_err();
        let took = start.elapsed();
        assert!(took >= Duration::from_millis(200) && took < Duration::from_secs(20), "{took:?}");
        let AgentError::InUse { by, .. } = &refused else { panic!("{refused}") };
        assert!(by.len() == 1 && by[0].starts_with("reader ("), "{refused}");
        assert!(!owned.is_free());
        signal(&child, Signal::CONT);
        while !owned.is_free() {
            assert!(start.elapsed() < SOON, "{path}: it is not given back");
            std::thread::sleep(Duration::from_millis(1));
        }
        let refused = child.ask("again");
        assert!(refused.contains("has been deregistered"), "{path}: {refused}");
    }
}

/// The engine of a device may still be at it.
#[test]
fn copies_of_an_engine_keep_the_memory() {
    let engine = Arc::new(LazyCopier::default());
    let (device, _) = LazyMemory::regions(LEN, 0, &engine).unwrap();
    for own in [true, false] {
        let (initiator, target) = pair(AgentConfig::default);
        let owned = Owned::new(13);
        let lent = device.clone().kept_with(owned.lent.clone());
        let (ours, theirs): (Region, Region) = match own {
            true => (lent, HostBuf::region(LEN).unwrap()),
            false => (HostBuf::region(LEN).unwrap(), lent),
        };
        let here = initiator.register(ours, "ours").unwrap();
        let there = target.register(theirs, "theirs").unwrap();
        tell(&initiator, &target);
        let list = |memory: &Registration| memory.blocks(0, LEN as u64, 1).unwrap();
        let write = initiator.transfer(Op::Write, &list(&here), &list(&there)).unwrap();
        assert_eq!(write.post(PostOptions::new()).unwrap(), State::InProgress);
        let (memory, label) = if own { (here, "ours") } else { (there, "theirs") };
        let refused = memory.deregister(Duration::from_millis(30)).unwrap_err();
        assert!(matches!(refused, AgentError::InUse { .. }), "{refused}");
        assert!(!owned.is_free());
        engine.allow(1);
        assert_eq!(write.wait(SOON).unwrap(), State::Done);
        let start = Instant::now();
        while !owned.is_free() {
            assert!(start.elapsed() < SOON, "it is not given back");
            std::thread::yield_now();
        }
        is_deregistered(&write, label);
    }
}

/// A transfer that cannot end keeps the memory here.
#[test]
fn a_transfer_under_way_keeps_the_memory() {
    let (child, address) = target_by(PathKind::Tcp);
    let agent = Agent::new("initiator", by(PathKind::Tcp)).unwrap();
    agent.fetch_metadata(address, SOON).unwrap();
    let owned = Owned::new(12);
    let memory = owned.register(&agent, "ours");
    let there = agent.remote("target", "memory").unwrap();
    // More than sockets hold.
    let (here, there) = (
        memory.strided(0, LEN as u64, 0, 64).unwrap(),
        there.strided(0, LEN as u64, 0, 64).unwrap(),
    );
    let write = agent.transfer(Op::Write, &here, &there).unwrap();
    run(&write);
    signal(&child, Signal::STOP);
    assert_eq!(write.post(PostOptions::new()).unwrap(), State::InProgress);
    let refused = memory.deregister(Duration::from_millis(100)).unwrap_err();
    assert!(matches!(&refused, AgentError::InUse { by, .. } if by.is_empty()), "{refused}");
    assert!(refused.to_string().contains("a transfer of this process"), "{refused}");
    assert!(!owned.is_free());
    signal(&child, Signal::CONT);
    assert_eq!(write.wait(SOON).unwrap(), State::Done, "its end is not that of the registration");
    let start = Instant::now();
    while !owned.is_free() {
        assert!(start.elapsed() < SOON, "it is not given back");
        std::thread::yield_now();
    }
    is_deregistered(&write, "ours");
}
