//! Lists that a copy engine moves, whose pace the test sets: several pieces at a time, in order.

use crate::bed::{SOON, pair, run, tell, transfer};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use warpverbs_agent::{
    Agent, AgentConfig, CopyBy, Op, PostOptions, Registration, RemoteMemory, State, Transfer,
};
use warpverbs_mem::Region;
use warpverbs_mem::testing::{LazyCopier, LazyMemory};

const LEN: usize = 64;
const COUNT: usize = 1000;

struct Rig {
    engine: Arc<LazyCopier>,
    initiator: Agent,
    /// The same bytes as the test sees them.
    here: Region,
    there: Region,
    ours: Registration,
    remote: RemoteMemory,
    _target: (Agent, Registration),
}

fn agents() -> (Agent, Agent) {
    pair(|| AgentConfig::default().copy_by(CopyBy::Engine).deadline(SOON))
}

fn byte(i: usize) -> u8 {
    (i as u32).wrapping_mul(0x9e37_79b9).to_le_bytes()[3]
}

/// Block `i` of the list lies here in the peer's memory.
fn place(i: usize) -> usize {
    (i * 387 + 5) % COUNT
}

impl Rig {
    fn new() -> Self {
        let engine = Arc::new(LazyCopier::default());
        let memory = || LazyMemory::regions(LEN * COUNT, 0, &engine).unwrap();
        let ((ours, here), (theirs, there)) = (memory(), memory());
        let (initiator, target) = agents();
        let theirs = target.register(theirs, "theirs").unwrap();
        let ours = initiator.register(ours, "ours").unwrap();
        tell(&initiator, &target);
        let remote = initiator.remote("target", "theirs").unwrap();
        let bytes: Vec<u8> = (0..LEN * COUNT).map(byte).collect();
        there.write(0, &bytes).unwrap();
        Self { engine, initiator, here, there, ours, remote, _target: (target, theirs) }
    }

    /// Scattered blocks of the peer's memory, in a row here.
    fn list(&self, op: Op) -> Transfer {
        let at: Vec<_> = (0..COUNT).map(|i| (place(i) * LEN) as u64).collect();
        let len = LEN as u64;
        let there = self.remote.blocks_at(&at, len);
        transfer(&self.initiator, op, self.ours.blocks(0, len, COUNT), there)
    }

    /// A READ of them, posted.
    fn post(&self) -> Transfer {
        let transfer = self.list(Op::Read);
        assert_eq!(transfer.post(PostOptions::new()).unwrap(), State::InProgress);
        transfer
    }

    /// How many blocks of a READ have arrived. They are the first of the list, and whole.
    fn arrived(&self) -> usize {
        let mut found = vec![0; LEN * COUNT];
        self.here.read(0, &mut found).unwrap();
        let expected = |i: usize| (0..LEN).map(move |k| byte(place(i) * LEN + k));
        let whole = |i: &usize| found[i * LEN..][..LEN].iter().copied().eq(expected(*i));
        let count = (0..COUNT).take_while(whole).count();
        assert!(found[count * LEN..].iter().all(|byte| *byte == 0), "after {count} blocks");
        count
    }
}

#[test]
fn many_pieces_are_with_the_engine_at_a_time_and_land_in_order() {
    let rig = Rig::new();
    let read = rig.post();
    let given = rig.engine.waiting();
    assert!((64..COUNT).contains(&given), "{given}");
    for step in [1, 100, 300] {
        let before = rig.arrived();
        rig.engine.allow(step);
        while rig.arrived() < before + step as usize {
            assert_eq!(read.state(), State::InProgress);
        }
        assert_eq!(rig.arrived(), before + step as usize);
        assert!(rig.engine.waiting() <= given);
    }
    rig.engine.allow(u64::MAX);
    assert_eq!(read.wait(SOON).unwrap(), State::Done);
    assert_eq!(rig.arrived(), COUNT);
    // Back, over other bytes.
    rig.there.fill(0, LEN * COUNT, 0xaa).unwrap();
    let at = |i: usize| (0..COUNT).find(|k| place(*k) == i).unwrap();
    let mut found = vec![0; LEN * COUNT];
    run(&rig.list(Op::Write));
    rig.there.read(0, &mut found).unwrap();
    for (i, block) in found.chunks_exact(LEN).enumerate() {
        let expected = (0..LEN).map(|k| byte(place(at(i)) * LEN + k));
        assert!(block.iter().copied().eq(expected), "block {i}");
    }
}

#[test]
fn an_engine_that_fails_in_the_middle_fails_the_transfer_and_moves_no_more() {
    let rig = Rig::new();
    let read = rig.post();
    rig.engine.allow(100);
    while rig.arrived() < 100 {
        let _ = read.state();
    }
    rig.engine.break_down();
    let cause = read.wait(SOON).unwrap_err().to_string();
    assert!(cause.contains("LazyCopier"), "{cause}");
    assert_eq!(read.state(), State::Failed);
    assert_eq!((rig.arrived(), rig.engine.waiting()), (100, 0));
}

#[test]
fn a_cancelled_list_ends_when_what_the_engine_was_given_has_landed() {
    let rig = Rig::new();
    let read = rig.post();
    rig.engine.allow(10);
    read.cancel();
    assert_eq!(read.state(), State::InProgress);
    rig.engine.allow(u64::MAX);
    assert_eq!(read.wait(SOON).unwrap_err().to_string(), "it was cancelled");
    let arrived = rig.arrived();
    assert!((10..COUNT).contains(&arrived) && rig.engine.waiting() == 0, "{arrived}");
}

/// Looks at the transfer, and ends its agent, from inside of the call that wakes it.
struct Inline {
    woken: AtomicUsize,
    transfer: Mutex<Option<Arc<Transfer>>>,
    agent: Mutex<Option<Agent>>,
    end: Mutex<Sender<Result<State, String>>>,
}

impl Wake for Inline {
    fn wake(self: Arc<Self>) {
        self.woken.fetch_add(1, Ordering::SeqCst);
        let Some(transfer) = self.transfer.lock().unwrap().take() else { return };
        let mut completion = std::pin::pin!(transfer.completion());
        let polled = completion.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(polled, Poll::Ready(_)));
        let over = transfer.wait(SOON).map_err(|error| error.to_string());
        assert_eq!(transfer.error().is_some(), over.is_err());
        assert!(transfer.telemetry().is_ok());
        drop(self.agent.lock().unwrap().take());
        self.end.lock().unwrap().send(over).unwrap();
    }
}

#[test]
fn a_waker_may_do_everything_where_it_is_woken_and_is_kept_once() {
    for fails in [false, true] {
        let rig = Rig::new();
        let transfer = Arc::new(rig.post());
        let (end, ended) = channel();
        let inline = Arc::new(Inline {
            woken: AtomicUsize::new(0),
            transfer: Mutex::new(Some(transfer.clone())),
            agent: Mutex::new(None),
            end: Mutex::new(end),
        });
        let Rig { engine, initiator, here: _here, there: _there, ours, remote, _target } = rig;
        let waker = Waker::from(inline.clone());
        let mut completion = std::pin::pin!(transfer.completion());
        for _ in 0..100 {
            assert!(completion.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
        // The last of the agent is what the waker drops, in the thread of the agent.
        *inline.agent.lock().unwrap() = Some(initiator);
        drop((ours, remote));
        match fails {
            true => engine.break_down(),
            false => engine.allow(u64::MAX),
        }
        let over = ended.recv_timeout(SOON).unwrap();
        assert_eq!(over.is_err(), fails, "{over:?}");
        assert_eq!(inline.woken.load(Ordering::SeqCst), 1);
    }
}

/// Says that it was woken, or panics.
struct Telling(Option<Mutex<Sender<()>>>);

impl Wake for Telling {
    fn wake(self: Arc<Self>) {
        let told = self.0.as_ref().expect("a waker of this test panics");
        told.lock().unwrap().send(()).unwrap();
    }
}

/// Nobody but the agent's thread looks at the transfers.
#[test]
fn a_waker_that_panics_keeps_nobody_from_being_woken() {
    let rig = Rig::new();
    let (tell, told) = channel();
    let bad = Waker::from(Arc::new(Telling(None)));
    let good = Waker::from(Arc::new(Telling(Some(Mutex::new(tell)))));
    for _ in 0..3 {
        let read = rig.post();
        let mut ends = [&bad, &good, &bad, &good].map(|waker| (read.completion(), waker));
        for (end, waker) in &mut ends {
            let polled = std::pin::pin!(end).poll(&mut Context::from_waker(waker));
            assert!(polled.is_pending());
        }
        rig.engine.allow(COUNT as u64);
        told.recv_timeout(SOON).unwrap();
        told.recv_timeout(SOON).unwrap();
        drop(ends);
        assert_eq!(read.wait(SOON).unwrap(), State::Done);
    }
}

struct Idle;

impl Wake for Idle {
    fn wake(self: Arc<Self>) {}
}

/// A task that makes its future anew for each look, or has another waker each time.
#[test]
fn a_transfer_keeps_no_waker_that_nobody_waits_by() {
    let rig = Rig::new();
    let read = rig.post();
    let wakers: Vec<_> = (0..100).map(|_| Arc::new(Idle)).collect();
    let held = || wakers.iter().filter(|waker| Arc::strong_count(waker) > 1).count();
    let poll = |completion: std::pin::Pin<&mut warpverbs_agent::Completion<'_>>,
                idle: &Arc<Idle>| {
        let waker = Waker::from(idle.clone());
        assert!(completion.poll(&mut Context::from_waker(&waker)).is_pending());
    };
    wakers.iter().for_each(|idle| poll(std::pin::pin!(read.completion()), idle));
    assert_eq!(held(), 0);
    {
        let mut completion = std::pin::pin!(read.completion());
        wakers.iter().for_each(|idle| poll(completion.as_mut(), idle));
        assert_eq!(held(), 1);
    }
    assert_eq!(held(), 0);
    rig.engine.allow(u64::MAX);
    assert_eq!(read.wait(SOON).unwrap(), State::Done);
}

/// They are waited for when a transfer ends early.
#[test]
fn few_bytes_are_with_the_engine_at_a_time() {
    const LEN: usize = 96 << 20;
    let engine = Arc::new(LazyCopier::default());
    let [(ours, _), (theirs, _)] = [(); 2].map(|()| LazyMemory::regions(LEN, 0, &engine).unwrap());
    let (initiator, target) = agents();
    let _theirs = target.register(theirs, "theirs").unwrap();
    let ours = initiator.register(ours, "ours").unwrap();
    tell(&initiator, &target);
    let remote = initiator.remote("target", "theirs").unwrap();
    let (here, there) = (ours.blocks(0, LEN as u64, 1), remote.blocks(0, LEN as u64, 1));
    let read = transfer(&initiator, Op::Read, here, there);
    assert_eq!(read.post(PostOptions::new()).unwrap(), State::InProgress);
    // Of 4 MiB each.
    let waiting = engine.waiting();
    assert!((2..=8).contains(&waiting), "{waiting}");
    engine.allow(u64::MAX);
    assert_eq!(read.wait(SOON).unwrap(), State::Done);
}
