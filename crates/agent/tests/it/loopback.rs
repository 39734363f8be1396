//! An agent as its own peer.

use crate::bed::{SOON, run, tell};
use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use warpverbs_agent::{
    Agent, AgentConfig, AgentError, CopyBy, Op, PathKind, PostOptions, Registration, State,
};

fn agent() -> Agent {
    Agent::new("self", AgentConfig::default().token("the job's")).unwrap()
}

fn random(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    StdRng::seed_from_u64(seed).fill_bytes(&mut bytes);
    bytes
}

fn memory(agent: &Agent, seed: u64, label: &str) -> Registration {
    agent.register(random(seed, 1 << 16), label).unwrap()
}

#[test]
fn memory_of_one_agent_is_read_and_written_by_itself() {
    let seed: u64 = rand::random();
    eprintln!("seed {seed}");
    let agent = agent();
    let (a, b) = (memory(&agent, seed, "a"), memory(&agent, seed + 1, "b"));
    let (old_a, old_b) = (a.to_vec().unwrap(), b.to_vec().unwrap());
    let lists = (a.blocks(0, 100, 50).unwrap(), b.strided(7, 100, 333, 50).unwrap());
    let write = agent.transfer(Op::Write, &lists.0, &lists.1).unwrap();
    run(&write);
    assert_eq!(write.telemetry().unwrap().paths, [PathKind::SameProcess]);
    let mut expected = old_b;
    for at in 0..50 {
        expected[7 + at * 333..][..100].copy_from_slice(&old_a[at * 100..][..100]);
    }
    assert!(b.to_vec().unwrap() == expected && a.to_vec().unwrap() == old_a);
    // One prepared list on both sides, and back.
    let list = agent.prepare(&a.blocks(0, 1 << 12, 16).unwrap()).unwrap();
    run(&agent.prepared_transfer(Op::Read, &list, &[0, 1], &list, &[8, 9]).unwrap());
    let mut expected = old_a.clone();
    expected.copy_within(8 << 12..10 << 12, 0);
    assert!(a.to_vec().unwrap() == expected);
    // By the memory that it knows of itself.
    let known = agent.remote("self", "b").unwrap();
    assert_eq!((known.owner(), known.id()), (agent.owner(), b.id()));
    let explained = agent.explain(&a, &known).unwrap().to_string();
    assert!(explained.starts_with("same process"), "{explained}");
    run(&agent
        .transfer(Op::Read, &a.blocks(0, 9, 1).unwrap(), &known.blocks(3, 9, 1).unwrap())
        .unwrap());
    assert_eq!(a.to_vec().unwrap()[..9], b.to_vec().unwrap()[3..12]);
}

/// The outcome of a block that is moved onto itself: nothing else changes, and each byte of it
/// is one of the block's.
#[test]
fn blocks_may_overlap_their_targets() {
    let seed: u64 = rand::random();
    eprintln!("seed {seed}");
    let mut random_numbers = StdRng::seed_from_u64(seed);
    for copy_by in [CopyBy::Auto, CopyBy::Kernel] {
        let agent = Agent::new("self", AgentConfig::default().copy_by(copy_by)).unwrap();
        let memory = memory(&agent, seed, "m");
        for _ in 0..200 {
            let before = memory.to_vec().unwrap();
            let len = random_numbers.random_range(1..5000u64);
            let mut place = || random_numbers.random_range(0..=(1 << 16) - len);
            let from = place();
            let to = place().clamp(from.saturating_sub(len), (from + len).min((1 << 16) - len));
            let block = |at| memory.blocks(at, len, 1).unwrap();
            run(&agent.transfer(Op::Write, &block(from), &block(to)).unwrap());
            let after = memory.to_vec().unwrap();
            let mut expected = before.clone();
            expected.copy_within(from as usize..(from + len) as usize, to as usize);
            if copy_by == CopyBy::Auto {
                assert!(after == expected, "{from} to {to}, {len} bytes");
            }
            let outside = |at: &usize| !(to..to + len).contains(&(*at as u64));
            assert!((0..1 << 16).filter(outside).all(|at| after[at] == before[at]));
        }
    }
}

#[test]
fn notifications_to_itself_arrive_in_order() {
    let agent = agent();
    let (a, b) = (memory(&agent, 1, "a"), memory(&agent, 2, "b"));
    let lists = (a.blocks(0, 64, 4).unwrap(), b.blocks(0, 64, 4).unwrap());
    let write = agent.transfer(Op::Write, &lists.0, &lists.1).unwrap();
    // More than the window of a peer: it would wait for itself.
    for number in 0..1000u32 {
        let state = match number % 3 {
            0 => agent.notify("self", &number.to_le_bytes(), SOON).map(|()| State::Done),
            _ => write.post(PostOptions::new().notify(number.to_le_bytes())),
        };
        assert_eq!(state.unwrap(), State::Done);
    }
    for number in 0..1000u32 {
        let next = agent.wait_notification(SOON).unwrap();
        assert_eq!((&next.from, &next.bytes[..]), (agent.owner(), &number.to_le_bytes()[..]));
    }
    assert_eq!(agent.next_notification(), None);
    agent.notify("self", b"tag", SOON).unwrap();
    assert!(!agent.check_remote_done("self", b"other") && agent.check_remote_done("self", b"tag"));
    let long = vec![0; AgentConfig::MAX_NOTIFICATION + 1];
    for refused in [
        agent.notify("self", &long, SOON).unwrap_err(),
        write.post(PostOptions::new().notify(long.clone())).unwrap_err(),
    ] {
        assert!(matches!(refused, AgentError::Notification { .. }), "{refused}");
    }
    // Memory is the bound, and half of it is for others.
    let full = vec![7; AgentConfig::MAX_NOTIFICATION];
    let refused = loop {
        match agent.notify("self", &full, SOON) {
            Ok(()) => {}
            Err(refused) => break refused,
        }
    };
    assert!(matches!(refused, AgentError::Notification { .. }), "{refused}");
    let peer = Agent::new("peer", AgentConfig::default().token("the job's")).unwrap();
    tell(&peer, &agent);
    peer.notify("self", b"of a peer", SOON).unwrap();
    agent.wait_remote_done("peer", b"of a peer", SOON).unwrap();
    let mut taken = 0;
    while agent.next_notification().is_some() {
        taken += 1;
    }
    assert!((3000..5000).contains(&taken), "{taken} of 64 KiB");
    agent.notify("self", b"again", SOON).unwrap();
}

#[test]
fn an_agent_knows_itself_and_no_other_of_its_name() {
    let agent = agent();
    assert!(agent.knows("self"));
    agent.connect("self", SOON).unwrap();
    agent.wait_peer("self", Duration::ZERO).unwrap();
    let a = memory(&agent, 1, "a");
    let version = agent.memories_of("self").unwrap().version().unwrap();
    let metadata = agent.metadata().unwrap();
    assert_eq!(agent.load_metadata(&metadata).unwrap(), "self");
    assert_eq!(agent.memories_of("self").unwrap().version().unwrap(), version);
    let ids = || -> Vec<u32> {
        agent.memories_of("self").unwrap().all().unwrap().iter().map(|one| one.id()).collect()
    };
    assert_eq!(ids(), [a.id()]);
    let b = memory(&agent, 2, "b");
    // Old metadata do not take away what is there.
    agent.load_metadata(&metadata).unwrap();
    assert_eq!(ids(), [a.id(), b.id()]);
    let addr = agent.memories_of("self").unwrap().all().unwrap()[1].addr();
    assert_eq!(addr, b.buffer().region().addr());
    assert_ne!(agent.memories_of("self").unwrap().version().unwrap(), version);
    let version = agent.memories_of("self").unwrap().version().unwrap();
    assert_eq!(agent.memories_of("self").unwrap().version().unwrap(), version);
    let (gone, list) = (a.id(), a.blocks(0, 8, 1).unwrap());
    drop(a);
    assert_ne!(agent.memories_of("self").unwrap().version().unwrap(), version);
    assert_eq!(ids(), [b.id()]);
    assert!(agent.remote("self", "a").is_err());
    let refused = agent.transfer(Op::Read, &b.blocks(0, 8, 1).unwrap(), &list).unwrap_err();
    assert!(matches!(refused, AgentError::Deregistered { .. }), "{gone}: {refused}");

    let other = self::agent();
    let refused = agent.load_metadata(&other.metadata().unwrap()).unwrap_err();
    assert!(matches!(refused, AgentError::Foreign { .. }), "{refused}");
    let theirs = memory(&other, 3, "a");
    let list = theirs.blocks(0, 8, 1).unwrap();
    let refused = agent.transfer(Op::Read, &b.blocks(0, 8, 1).unwrap(), &list).unwrap_err();
    assert!(matches!(refused, AgentError::Stale { .. }), "{refused}");
    let refused = agent.remove_peer("self").unwrap_err();
    assert!(matches!(refused, AgentError::Config { field: "peer", .. }), "{refused}");
    let refused = agent.stream_to("self", "tokens", SOON).unwrap_err();
    assert!(refused.to_string().contains("no connection to itself"), "{refused}");

    let only = AgentConfig::default().require(PathKind::Tcp);
    let only = Agent::new("tcp", only).unwrap();
    let m = memory(&only, 4, "m");
    let list = m.blocks(0, 8, 1).unwrap();
    let refused = only.transfer(Op::Read, &list, &list).unwrap_err();
    assert!(refused.to_string().contains("the peer is this agent itself"), "{refused}");
}

/// Memory that is deregistered, transfers that are cancelled or late, and the agent's end, beside posts.
#[test]
fn transfers_to_itself_end_as_others_do() {
    let agent = agent();
    let big = 64 << 20;
    let (a, b) = (agent.register(vec![1; big], "a").unwrap(), agent.register(vec![2; big], "b"));
    let mut b = Some(b.unwrap());
    let list = |memory: &Registration| memory.blocks(0, big as u64, 1).unwrap();
    let write = agent.transfer(Op::Write, &list(&a), &list(b.as_ref().unwrap())).unwrap();
    let late = write.post(PostOptions::new().deadline(Duration::from_micros(1))).unwrap_err();
    assert!(matches!(late, AgentError::Timeout { .. }), "{late}");
    let posting = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            loop {
                posting.store(true, Ordering::Release);
                match write.post(PostOptions::new()) {
                    Ok(State::Done) => {}
                    other => break other,
                }
            }
        });
        while !posting.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        while !thread.is_finished() {
            write.cancel();
        }
        assert_eq!(thread.join().unwrap().unwrap(), State::Cancelled);
        let thread = scope.spawn(|| {
            loop {
                if let Err(why) = write.post(PostOptions::new()) {
                    break why;
                }
            }
        });
        drop(b.take());
        let refused = thread.join().unwrap();
        assert!(matches!(refused, AgentError::Deregistered { .. }), "{refused}");
    });
    let other = agent.register(vec![2; big], "b").unwrap();
    let write = agent.transfer(Op::Write, &list(&a), &list(&other)).unwrap();
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            loop {
                if let Err(why) = write.post(PostOptions::new().notify(b"x")) {
                    break why;
                }
            }
        });
        drop(agent);
        let refused = thread.join().unwrap();
        assert!(matches!(refused, AgentError::PeerLost { .. }), "{refused}");
    });
}
