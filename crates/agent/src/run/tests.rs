//! Transfers as other threads see them, and their end by force.

use crate::{
    Agent, AgentConfig, AgentError, Op, PathKind, PostOptions, Registration, State, Transfer,
};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::task::{Context as Task, Wake, Waker};
use std::time::{Duration, Instant};
use warpverbs_transport::Context;

const SOON: Duration = Duration::from_secs(60);

/// Two agents of this process, the second with room for one notification, and a transfer between them.
struct Rig {
    a: Agent,
    b: Agent,
    read: Transfer,
    _memories: [Registration; 2],
}

impl Rig {
    fn new(name: &str) -> Self {
        let agent = |end| {
            let config = AgentConfig::default().notification_window(1).deadline(2 * SOON);
            Agent::new(&format!("{name}-{end}"), config).unwrap()
        };
        let (a, b) = (agent("a"), agent("b"));
        let memories = [&a, &b].map(|agent| agent.register(vec![1; 64], "m").unwrap());
        a.load_metadata(&b.metadata().unwrap()).unwrap();
        let [here, there] = memories.each_ref().map(|memory| memory.blocks(0, 64, 1).unwrap());
        let read = a.transfer(Op::Read, &here, &there).unwrap();
        Self { a, b, read, _memories: memories }
    }
}

/// Says that it was woken.
struct Telling(Sender<()>);

impl Wake for Telling {
    fn wake(self: Arc<Self>) {
        self.0.send(()).unwrap();
    }
}

#[test]
fn a_task_that_waits_while_a_post_begins_is_woken() {
    let Rig { read, .. } = &Rig::new("begins");
    let (tell, told) = channel();
    let waker = Waker::from(Arc::new(Telling(tell)));
    // The post is in progress, and has not come further.
    let held = read.shared().run();
    std::thread::scope(|scope| {
        let posted = scope.spawn(|| read.post(PostOptions::new()).unwrap());
        while read.state() != State::InProgress {
            std::thread::yield_now();
        }
        let mut end = std::pin::pin!(read.completion());
        assert!(end.as_mut().poll(&mut Task::from_waker(&waker)).is_pending());
        drop(held);
        assert_eq!(posted.join().unwrap(), State::Done);
        told.recv_timeout(SOON).unwrap();
    });
}

#[test]
fn a_cancellation_is_not_lost_while_another_thread_looks() {
    let Rig { a, b, read, .. } = &Rig::new("looks");
    // There is no room for another one at the peer.
    a.notify(b.name(), b"first", SOON).unwrap();
    assert_eq!(read.post(PostOptions::new().notify(b"second")).unwrap(), State::InProgress);
    let looking = read.shared().run();
    read.cancel();
    drop(looking);
    let over = read.wait(SOON);
    assert!(matches!(over, Err(AgentError::Cancelled)), "{over:?}");
    assert_eq!(b.wait_notification(SOON).unwrap().bytes, b"first");
    // The second was not sent, and the room is there for others.
    a.notify(b.name(), b"third", SOON).unwrap();
    assert_eq!(b.wait_notification(SOON).unwrap().bytes, b"third");
}

/// Its thread does not look after transfers any more: nobody would end this one.
#[test]
fn a_post_that_comes_as_the_agent_ends_fails_at_once() {
    let Rig { a, b, read, .. } = &Rig::new("late");
    a.notify(b.name(), b"first", SOON).unwrap();
    a.desk().control.watch_no_more();
    let late = read.post(PostOptions::new().notify(b"second"));
    assert!(matches!(late, Err(AgentError::PeerLost { .. })), "{late:?}");
    assert_eq!(read.state(), State::Failed);
    a.desk().control.stop();
    let late = read.post(PostOptions::new());
    let Err(AgentError::PeerLost { peer, why }) = late else { panic!("{late:?}") };
    assert!(peer.starts_with("late-a") && why == "this agent has ended", "{peer}: {why}");
}

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
        assert_eq!(over.is_err(), b.desk().answering.count() == 0);
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
