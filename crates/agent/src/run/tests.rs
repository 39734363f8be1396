//! Transfers as other threads see them, and their end by force.

use crate::{Agent, AgentConfig, AgentError, Op, PathKind, PostOptions, State};
use std::time::{Duration, Instant};
use warpverbs_transport::Context;

const SOON: Duration = Duration::from_secs(60);

#[test]
fn what_is_asked_of_a_transfer_does_not_wait_for_the_copy_of_its_post() {
    let agent = |name| Agent::new(name, AgentConfig::default()).unwrap();
    let (a, b) = (agent("run-a"), agent("run-b"));
    let (ours, theirs) =
        (a.register(vec![1; 64], "m").unwrap(), b.register(vec![2; 64], "m").unwrap());
    a.load_metadata(&b.metadata().unwrap()).unwrap();
    let lists = (ours.blocks(0, 64, 1).unwrap(), theirs.blocks(0, 64, 1).unwrap());
    let read = a.transfer(Op::Read, &lists.0, &lists.1).unwrap();
    assert_eq!(read.post(PostOptions::new()).unwrap(), State::Done);
    // As `post` holds it while it copies.
    let copying = read.shared().run();
    assert!(read.error().is_none());
    assert!(read.telemetry().is_ok());
    assert_eq!(read.state(), State::Done);
    drop(copying);
}

/// A set of queue pairs that is ended by force is gone at both ends when the transfer is over.
#[test]
fn what_is_ended_by_force_is_over_when_the_peer_has_ended_it_too() {
    let nic = Context::new().unwrap().open("soft").unwrap();
    let config = || AgentConfig::default().nic(&nic).require(PathKind::Network);
    let agent = |name| Agent::new(name, config()).unwrap();
    let (a, b) = (agent("force-a"), agent("force-b"));
    let len = 8 << 20;
    let ours = a.register(vec![1; len], "m").unwrap();
    let theirs = b.register(vec![2; len], "m").unwrap();
    a.load_metadata(&b.metadata().unwrap()).unwrap();
    let blocks = len / 64;
    let lists = (ours.blocks(0, 64, blocks).unwrap(), theirs.blocks(0, 64, blocks).unwrap());
    let write = a.transfer(Op::Write, &lists.0, &lists.1).unwrap();
    let mut forced = 0;
    for round in 3..13 {
        ours.write(0, &vec![round; len]).unwrap();
        write.post(PostOptions::new()).unwrap();
        let mut run = write.shared().run();
        if !run.flights.is_empty() {
            run.end_until(AgentError::Cancelled, Instant::now());
            forced += 1;
        }
        drop(run);
        let over = write.wait(SOON);
        assert!(matches!(over, Ok(State::Done) | Err(AgentError::Cancelled)), "{over:?}");
        // Cancelled: the set is gone there. The bytes are as they are for good.
        assert_eq!(over.is_err(), b.desk().answering.is_empty());
        let look = || {
            let mut bytes = vec![0; len];
            theirs.read(0, &mut bytes).unwrap();
            bytes
        };
        let first = look();
        ours.write(0, &vec![0xee; len]).unwrap();
        assert!(look() == first);
    }
    assert!(forced > 0);
    ours.write(0, &vec![77; len]).unwrap();
    write.post(PostOptions::new()).unwrap();
    assert_eq!(write.wait(SOON).unwrap(), State::Done);
}
