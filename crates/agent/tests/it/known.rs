//! An agent's knowledge of its peers' memory, for programs that name memory by addresses.

use crate::bed::{SOON, pair, run, tell};
use std::collections::HashSet;
use std::time::Duration;
use warpverbs_agent::{
    Agent, AgentConfig, AgentError, BlockList, Op, PostOptions, Registration, Run, State,
};
use warpverbs_mem::HostBuf;

fn seen(agent: &Agent) -> Vec<(u32, String, u64, u64)> {
    let all = agent.memories_of("target").unwrap().all().unwrap();
    assert!(all.iter().all(|one| one.is_host() && one.device().is_none()));
    all.iter().map(|one| (one.id(), one.label().to_owned(), one.addr(), one.len())).collect()
}

fn own(memories: &[&Registration]) -> Vec<(u32, String, u64, u64)> {
    let one = |memory: &&Registration| {
        let addr = memory.buffer().region().addr();
        (memory.id(), memory.label().to_owned(), addr, memory.len())
    };
    memories.iter().map(one).collect()
}

/// The version, which must be one that was not seen before if it is to be news.
struct Versions(HashSet<u64>, u64);

impl Versions {
    fn is_news(&mut self, agent: &Agent) -> bool {
        let version = agent.memories_of("target").unwrap().version().unwrap();
        let changed = version != self.1;
        assert_eq!(changed, self.0.insert(version), "a number that was there before");
        self.1 = version;
        changed
    }
}

#[test]
fn memory_of_a_peer_is_listed_and_a_change_shows() {
    let (initiator, target) = pair(AgentConfig::default);
    assert_eq!(*target.owner().name, *"target");
    assert_eq!(&*target.owner().name, target.name());
    let unknown = initiator.memories_of("target").unwrap_err();
    assert!(matches!(&unknown, AgentError::UnknownPeer { name } if name == "target"), "{unknown}");
    assert!(initiator.memories_of("target").is_err());

    let region = HostBuf::region(4096).unwrap();
    let first = target.register(region.slice(1, 100).unwrap(), "same").unwrap();
    let second = target.register(region.slice(2000, 77).unwrap(), "same").unwrap();
    tell(&initiator, &target);
    let mut versions = Versions(HashSet::new(), 0);
    assert!(versions.is_news(&initiator));
    assert_eq!(seen(&initiator), own(&[&first, &second]));
    // The same again is no news, and no more is what another agent registers.
    tell(&initiator, &target);
    initiator.load_metadata(&target.partial_metadata(&[&first]).unwrap()).unwrap();
    assert!(!versions.is_news(&initiator));

    let third = target.register(region.slice(1, 1).unwrap(), "third").unwrap();
    initiator.load_metadata(&target.partial_metadata(&[&third]).unwrap()).unwrap();
    assert!(versions.is_news(&initiator));
    assert_eq!(seen(&initiator), own(&[&first, &second, &third]));
    // Full metadata without it.
    drop(second);
    tell(&initiator, &target);
    assert!(versions.is_news(&initiator));
    assert_eq!(seen(&initiator), own(&[&first, &third]));
    // The peer itself takes memory back.
    initiator.connect("target", SOON).unwrap();
    drop(first);
    while seen(&initiator).len() == 2 {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(versions.is_news(&initiator));
    assert_eq!(seen(&initiator), own(&[&third]));
    assert!(!versions.is_news(&initiator));

    // Another start under this name, with a memory of the same number.
    drop((third, target));
    let target = Agent::new("target", AgentConfig::default()).unwrap();
    let only = target.register(region.slice(1, 100).unwrap(), "same").unwrap();
    tell(&initiator, &target);
    assert!(versions.is_news(&initiator));
    assert_eq!(seen(&initiator), own(&[&only]));
    initiator.remove_peer("target").unwrap();
    assert!(initiator.memories_of("target").is_err());
    tell(&initiator, &target);
    assert!(versions.is_news(&initiator), "known anew");
}

#[test]
fn lists_of_ready_runs_are_checked_as_all_lists_are() {
    let (initiator, target) = pair(AgentConfig::default);
    let theirs = target.register((0..=255).collect::<Vec<u8>>(), "theirs").unwrap();
    let ours = initiator.register(vec![0; 256], "ours").unwrap();
    tell(&initiator, &target);
    let run_of = |memory, count, offset, len, stride| Run { memory, count, offset, len, stride };
    let there = [run_of(theirs.id(), 3, 200, 10, 20), run_of(theirs.id(), 1, 0, 10, 10)];
    let there = BlockList::of_runs(target.owner(), there.to_vec()).unwrap();
    let here =
        BlockList::of_runs(initiator.owner(), vec![run_of(ours.id(), 4, 0, 10, 10)]).unwrap();
    run(&initiator.transfer(Op::Read, &here, &there).unwrap());
    let block = |at: u8| (at..at + 10).collect::<Vec<u8>>();
    let expected = [block(200), block(220), block(240), block(0), vec![0; 216]].concat();
    assert_eq!(ours.to_vec().unwrap(), expected);

    for wrong in [run_of(0, 0, 1, 1, 1), run_of(0, 1, 1, 0, 1), run_of(0, 2, 1, 1, u64::MAX)] {
        let refused = BlockList::of_runs(initiator.owner(), vec![wrong]).unwrap_err();
        assert!(matches!(refused, AgentError::Range { .. }), "{refused}");
        assert!(refused.to_string().contains("initiator"), "{refused}");
    }
    let refused = BlockList::of_runs(initiator.owner(), Vec::new()).unwrap_err();
    assert!(matches!(refused, AgentError::Count { found: 0, .. }), "{refused}");
    // Beyond the memory: found when it is used.
    let far =
        BlockList::of_runs(target.owner(), vec![run_of(theirs.id(), 4, 200, 10, 20)]).unwrap();
    let refused = initiator.transfer(Op::Read, &here, &far).unwrap_err();
    assert!(matches!(refused, AgentError::Range { .. }), "{refused}");
}

#[test]
fn a_deadline_without_end_in_one_process() {
    let (initiator, target) = pair(|| AgentConfig::default().deadline(Duration::MAX));
    let ours = initiator.register(vec![3; 64], "ours").unwrap();
    let theirs = target.register(vec![0; 64], "theirs").unwrap();
    tell(&initiator, &target);
    let lists = (ours.blocks(0, 64, 1).unwrap(), theirs.blocks(0, 64, 1).unwrap());
    let write = initiator.transfer(Op::Write, &lists.0, &lists.1).unwrap();
    for options in [PostOptions::new(), PostOptions::new().deadline(Duration::MAX)] {
        write.post(options.notify(b"done")).unwrap();
        assert_eq!(write.wait(Duration::MAX).unwrap(), State::Done);
        target.wait_remote_done("initiator", b"done", Duration::MAX).unwrap();
    }
    assert_eq!(theirs.to_vec().unwrap(), [3; 64]);
}
