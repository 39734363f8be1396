//! Two agents of one process: what transfers move, and what they refuse.

use crate::bed::{SOON, pair, run, tell};
use warpverbs_agent::{
    Agent, AgentConfig, AgentError, BlockList, CopyBy, Op, PathKind, PostOptions, State, Transfer,
};
use warpverbs_dev::pattern;

#[test]
fn blocks_are_read_and_written_crossed_and_again() {
    let (initiator, target) = pair(AgentConfig::default);
    let theirs = target.register(pattern(512, 1), "cache").unwrap();
    let ours = initiator.register(vec![0; 512], "ours").unwrap();
    assert_eq!(initiator.load_metadata(&target.metadata().unwrap()).unwrap(), "target");

    let from = BlockList::from_bytes(&theirs.blocks(0, 256, 2).unwrap().to_bytes()).unwrap();
    let into = ours.blocks(0, 256, 2).unwrap();
    let read = initiator.transfer(Op::Read, &into, &from).unwrap();
    assert_eq!(read.state(), State::NotPosted);
    assert!(matches!(read.wait(SOON), Err(AgentError::NotPosted)));
    run(&read);
    assert_eq!(ours.to_vec().unwrap(), pattern(512, 1));

    let (local, remote) = (initiator.prepare(&into).unwrap(), initiator.prepare(&from).unwrap());
    let write = initiator.prepared_transfer(Op::Write, &local, &[0, 1], &remote, &[1, 0]).unwrap();
    run(&write);
    let once = pattern(512, 1);
    let (first, second) = once.split_at(256);
    assert_eq!(theirs.to_vec().unwrap(), [second, first].concat());

    // The same again, with other bytes.
    ours.write(0, &pattern(512, 9)).unwrap();
    run(&write);
    let again = pattern(512, 9);
    assert_eq!(theirs.to_vec().unwrap(), [&again[256..], &again[..256]].concat());
    let telemetry = write.telemetry().unwrap();
    assert_eq!((telemetry.bytes, telemetry.descriptors), (512, 2));
    assert_eq!(telemetry.paths, [PathKind::SameProcess]);
    assert!(telemetry.post <= telemetry.transfer);
    // Neighbours on both sides are one piece.
    assert_eq!(read.telemetry().unwrap().descriptors, 1);
}

#[test]
fn what_does_not_fit_is_refused_and_says_why() {
    let (initiator, target) = pair(AgentConfig::default);
    let theirs = target.register(vec![0; 100], "cache").unwrap();
    let ours = initiator.register(vec![0; 100], "ours").unwrap();
    let (local, remote) = (ours.blocks(0, 10, 4).unwrap(), theirs.blocks(0, 10, 3).unwrap());
    let unknown = initiator.prepare(&remote).unwrap_err();
    assert!(matches!(&unknown, AgentError::UnknownPeer { name } if name == "target"));
    tell(&initiator, &target);

    let refused = |result: Result<Transfer, AgentError>| result.unwrap_err().to_string();
    let say = refused(initiator.transfer(Op::Read, &local, &remote));
    assert_eq!(say, "the remote side: 3 blocks, expected 4");
    let say = refused(initiator.transfer(Op::Read, &remote, &local));
    assert!(say.contains("the local list is memory of target"), "{say}");
    let wide = theirs.blocks(0, 11, 4).unwrap();
    let say = refused(initiator.transfer(Op::Write, &local, &wide));
    assert_eq!(say, "block 0: 10 bytes here, 11 at the peer");
    let (local, remote) = (initiator.prepare(&local).unwrap(), initiator.prepare(&remote).unwrap());
    let say = refused(initiator.prepared_transfer(Op::Read, &local, &[0, 4], &remote, &[0, 1]));
    assert_eq!(say, "local index 1 is 4, the list has 4 blocks");
    assert!(initiator.prepared_transfer(Op::Read, &local, &[], &remote, &[]).is_err());
    assert!(theirs.blocks(91, 10, 1).unwrap_err().to_string().contains("\"cache\""));
    assert!(theirs.blocks(0, 0, 1).is_err() && theirs.blocks(0, 1, 0).is_err());
    assert!(initiator.register(Vec::new(), "none").is_err());
    assert!(initiator.register(vec![1], "").is_err());
    assert!(Agent::new("", AgentConfig::default()).is_err());
    assert!(Agent::new("x", AgentConfig::default().queue_pairs(0)).is_err());
}

#[test]
fn deregistered_memory_is_refused_and_kept_while_in_use() {
    let (initiator, target) = pair(AgentConfig::default);
    let theirs = target.register(pattern(64, 3), "cache").unwrap();
    let ours = initiator.register(vec![0; 64], "ours").unwrap();
    tell(&initiator, &target);
    let list = (ours.blocks(0, 64, 1).unwrap(), theirs.blocks(0, 64, 1).unwrap());
    let transfer = initiator.transfer(Op::Read, &list.0, &list.1).unwrap();
    let other = initiator.transfer(Op::Read, &list.0, &list.1).unwrap();
    run(&transfer);
    drop(theirs);
    let gone = transfer.post(PostOptions::new()).unwrap_err();
    assert!(gone.to_string().contains("\"cache\" of target"), "{gone}");
    assert_eq!(transfer.state(), State::Failed);
    assert!(transfer.wait(SOON).is_err() && transfer.error().is_some());
    // Own memory, and every order of dropping.
    drop(ours);
    assert!(matches!(other.post(PostOptions::new()), Err(AgentError::Deregistered { .. })));
    drop(initiator);
    assert!(matches!(other.post(PostOptions::new()), Err(AgentError::PeerLost { .. })));
    drop((target, transfer, other));
}

#[test]
fn a_restarted_peer_is_another_one() {
    let (initiator, target) = pair(AgentConfig::default);
    let ours = initiator.register(vec![0; 64], "ours").unwrap();
    let theirs = target.register(pattern(64, 3), "cache").unwrap();
    let old = target.metadata().unwrap();
    initiator.load_metadata(&old).unwrap();
    let list = (ours.blocks(0, 64, 1).unwrap(), theirs.blocks(0, 64, 1).unwrap());
    let transfer = initiator.transfer(Op::Read, &list.0, &list.1).unwrap();

    let again = Agent::new("target", AgentConfig::default()).unwrap();
    let newer = again.register(pattern(64, 4), "cache").unwrap();
    initiator.load_metadata(&again.metadata().unwrap()).unwrap();
    assert!(matches!(transfer.post(PostOptions::new()), Err(AgentError::Stale { .. })));
    assert!(matches!(initiator.prepare(&list.1), Err(AgentError::Stale { .. })));
    assert!(matches!(initiator.load_metadata(&old), Err(AgentError::Stale { .. })));
    let from = initiator.remote("target", "cache").unwrap().blocks(0, 64, 1).unwrap();
    run(&initiator.transfer(Op::Read, &list.0, &from).unwrap());
    assert_eq!(ours.to_vec().unwrap(), newer.to_vec().unwrap());

    let gone = again.invalidation().unwrap();
    initiator.load_metadata(&gone).unwrap();
    assert!(!initiator.knows("target"));
    assert!(initiator.prepare(&from).is_err());
}

#[test]
fn partial_metadata_adds_and_full_metadata_replaces() {
    let (initiator, target) = pair(AgentConfig::default);
    let [a, b] = ["a", "b"].map(|label| target.register(vec![0; 8], label).unwrap());
    initiator.load_metadata(&target.partial_metadata(&[&a]).unwrap()).unwrap();
    assert!(initiator.remote("target", "a").is_ok() && initiator.remote("target", "b").is_err());
    initiator.load_metadata(&target.partial_metadata(&[&b]).unwrap()).unwrap();
    assert!(initiator.remote("target", "a").is_ok() && initiator.remote("target", "b").is_ok());
    drop(a);
    tell(&initiator, &target);
    let missing = initiator.remote("target", "a").unwrap_err();
    assert!(matches!(missing, AgentError::UnknownMemory { .. }), "{missing}");
}

#[test]
fn metadata_of_another_job_is_refused() {
    let with = |name, token: &[u8]| Agent::new(name, AgentConfig::default().token(token)).unwrap();
    let (one, same, other) = (with("one", b"job 1"), with("same", b"job 1"), with("x", b"job 2"));
    same.load_metadata(&one.metadata().unwrap()).unwrap();
    let refused = other.load_metadata(&one.metadata().unwrap()).unwrap_err();
    assert!(refused.to_string().contains("another token"), "{refused}");
    assert!(other.load_metadata(&one.invalidation().unwrap()).is_err());
}

/// One launch for a list, on the host SIMT device; between processes the same code runs over memory
/// that is mapped.
#[test]
fn a_kernel_copies_a_whole_list() {
    let (initiator, target) = pair(|| AgentConfig::default().copy_by(CopyBy::Kernel));
    let (ours, theirs) =
        (initiator.alloc(40_000, "ours").unwrap(), target.alloc(40_000, "theirs").unwrap());
    theirs.write(0, &pattern(40_000, 5)).unwrap();
    tell(&initiator, &target);
    let at: Vec<_> = (0..100).rev().map(|i| i * 397).collect();
    let lists = (ours.blocks(3, 333, 100).unwrap(), theirs.blocks_at(&at, 333).unwrap());
    let read = initiator.transfer(Op::Read, &lists.0, &lists.1).unwrap();
    let mut expected = vec![0; 40_000];
    for (i, from) in at.iter().enumerate() {
        let (to, from) = (3 + 333 * i, *from as usize);
        expected[to..to + 333].copy_from_slice(&pattern(40_000, 5)[from..from + 333]);
    }
    for _ in 0..2 {
        ours.write(0, &[0; 40_000]).unwrap();
        run(&read);
        assert!(ours.to_vec().unwrap() == expected);
    }
    // The way back restores what the blocks had.
    theirs.write(0, &[0; 40_000]).unwrap();
    run(&initiator.transfer(Op::Write, &lists.0, &lists.1).unwrap());
    let back = theirs.to_vec().unwrap();
    for from in at.iter().map(|from| *from as usize) {
        assert!(back[from..from + 333] == pattern(40_000, 5)[from..from + 333]);
    }
}
