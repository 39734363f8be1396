//! Agents that are dropped by control threads, as wakers may do, or whose control threads panic.

use super::hostile::{agent, hostile};
use super::*;
use crate::control::Watched;
use crate::{Agent, lock};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Barrier, Mutex, Weak};
use std::time::{Duration, Instant};

/// Ends a hang, on a slow machine too.
const SOON: Duration = Duration::from_secs(600);
/// An agent that ends waits so long for its peers' copies.
const FAREWELL: Duration = Duration::from_secs(5);

/// Has a control thread run code where it looks after a transfer, and where it ends one by force.
struct Hooked {
    /// Is given what says that it is over.
    progress: Box<dyn Fn(&AtomicBool) + Send + Sync>,
    abort: Box<dyn Fn() + Send + Sync>,
    watched: AtomicBool,
    over: AtomicBool,
}

impl Hooked {
    fn new(
        progress: impl Fn(&AtomicBool) + Send + Sync + 'static,
        abort: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        let (progress, abort) = (Box::new(progress), Box::new(abort));
        Self { progress, abort, watched: AtomicBool::default(), over: AtomicBool::default() }
    }
}

impl Watched for Hooked {
    fn progress(&self) {
        (self.progress)(&self.over);
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    fn is_waited_for(&self) -> bool {
        false
    }

    fn end(&self, _: AgentError) {}

    fn abort(&self, _: AgentError) {
        (self.abort)();
    }

    fn watched(&self) -> &AtomicBool {
        &self.watched
    }
}

/// Has the control thread of one agent drop another, or itself. Threads that do this meet before.
fn drop_by(thread: &Arc<Control>, agent: Agent, meeting: &Arc<Barrier>) -> Receiver<()> {
    let (sender, dropped) = channel();
    let (agent, meeting) = (Mutex::new(Some(agent)), meeting.clone());
    let drop_it = move |over: &AtomicBool| {
        let agent = lock(&agent).take();
        if agent.is_some() {
            meeting.wait();
            drop(agent);
            over.store(true, Ordering::Release);
            sender.send(()).unwrap();
        }
    };
    assert!(thread.watch(&Arc::new(Hooked::new(drop_it, || ()))));
    dropped
}

#[test]
fn memory_stays_under_a_peer_whichever_thread_drops_the_agent() {
    let peer = agent("peer");
    for by_itself in [true, false] {
        let target = agent("target");
        // Confirms nothing: as a peer does that copies.
        let (mut copying, _) = hostile(&peer, &target, true);
        let memory = target.register(vec![7; 4096], "memory").unwrap();
        let kept = Arc::downgrade(&memory.memory().hold().unwrap());
        let control = Arc::downgrade(&target.desk().control);
        let thread = if by_itself { &target } else { &peer };
        let thread = thread.desk().control.clone();
        let dropped = drop_by(&thread, target, &Arc::new(Barrier::new(1)));
        drop(thread);
        dropped.recv_timeout(SOON).unwrap();
        drop(memory);
        // Until the target says that it has ended.
        while copying.receive().is_ok() {}
        assert!(kept.strong_count() > 0, "by itself: {by_itself}");
        let closed = Instant::now();
        drop(copying);
        while control.strong_count() > 0 {
            assert!(closed.elapsed() < SOON, "it does not end");
            std::thread::yield_now();
        }
        // Had it not heard of the end in time, it would have left the memory for ever.
        assert!(kept.strong_count() == 0 || closed.elapsed() > FAREWELL);
    }
}

#[test]
fn agents_that_drop_each_other_do_not_wait_for_each_other() {
    let (a, b) = (agent("a"), agent("b"));
    let [its, other] = [&a, &b].map(|agent| agent.desk().control.clone());
    let ends = [Arc::downgrade(&its), Arc::downgrade(&other)];
    let meeting = Arc::new(Barrier::new(2));
    let dropped = [drop_by(&its, b, &meeting), drop_by(&other, a, &meeting)];
    drop((its, other));
    for dropped in dropped {
        dropped.recv_timeout(SOON).unwrap();
    }
    let start = Instant::now();
    while ends.iter().any(|control| control.strong_count() > 0) {
        assert!(start.elapsed() < SOON, "an agent does not end");
        std::thread::yield_now();
    }
}

#[test]
fn a_panic_in_the_control_thread_ends_the_agent_as_its_drop_does() {
    let (peer, target) = (agent("peer"), agent("target"));
    let memory = target.register(vec![7; 64], "memory").unwrap();
    let ours = peer.register(vec![0; 64], "ours").unwrap();
    peer.load_metadata(&target.metadata().unwrap()).unwrap();
    target.load_metadata(&peer.metadata().unwrap()).unwrap();
    peer.connect("target", SOON).unwrap();
    let lists = (memory.blocks(0, 64, 1).unwrap(), ours.blocks(0, 64, 1).unwrap());
    let write = target.transfer(crate::Op::Write, &lists.0, &lists.1).unwrap();
    let kept = Arc::downgrade(&memory.memory().hold().unwrap());
    // As an owner of memory may that is dropped there.
    let panic = |over: &AtomicBool| {
        assert!(over.swap(true, Ordering::AcqRel), "a transfer of this test panics");
    };
    assert!(target.desk().control.watch(&Arc::new(Hooked::new(panic, || ()))));
    let start = Instant::now();
    while peer.knows("target") {
        assert!(start.elapsed() < SOON, "the peer does not hear of the end");
        std::thread::yield_now();
    }
    let refused = write.post(crate::PostOptions::new()).unwrap_err();
    assert!(refused.to_string().ends_with("this agent has ended"), "{refused}");
    drop((memory, write, target));
    assert_eq!(kept.strong_count(), 0, "the peer has confirmed that it does not touch it");
}

#[test]
fn a_transfer_that_is_ended_by_force_may_wake_what_posts_another() {
    let target = agent("target");
    let (sender, refused) = channel();
    let control = &target.desk().control;
    // Has its agent look after it again from inside of its end, as a waker may that posts.
    let clinging = Arc::new_cyclic(|itself: &Weak<Hooked>| {
        let (agent, itself) = (Arc::downgrade(control), itself.clone());
        let cling = move || {
            let (agent, itself) = (agent.upgrade().unwrap(), itself.upgrade().unwrap());
            sender.send(!agent.watch(&itself)).unwrap();
        };
        Hooked::new(|_| (), cling)
    });
    assert!(control.watch(&clinging));
    let ends = std::thread::spawn(move || drop(target));
    assert!(refused.recv_timeout(SOON).unwrap());
    ends.join().unwrap();
}
