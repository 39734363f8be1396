//! The counters of an agent, against what was done with it.

use crate::bed::{SOON, by, pair, run, tell, transfer};
use crate::exposition::Page;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use std::time::{Duration, Instant};
use warpverbs_agent::{
    Agent, AgentConfig, AgentError, Cause, Counters, Op, PathKind, PostOptions, State,
};

fn seeded() -> StdRng {
    let seed = std::env::var("WARPVERBS_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(rand::random);
    println!("WARPVERBS_SEED={seed}");
    StdRng::seed_from_u64(seed)
}

/// Transfers that are done, and their bytes.
fn moved(counters: &Counters, path: PathKind, op: Op) -> (u64, u64) {
    let one = counters.moved.iter().find(|one| (one.path, one.op) == (Some(path), op)).unwrap();
    (one.transfers, one.bytes)
}

fn undone(counters: &Counters, cause: Cause) -> u64 {
    counters.undone.iter().filter(|one| one.cause == cause).map(|one| one.transfers).sum()
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + SOON;
    while !is_so() {
        assert!(Instant::now() < end, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn transfers_are_counted_by_path_and_direction_as_a_model_counts_them() {
    let mut rng = seeded();
    for path in [PathKind::SameProcess, PathKind::Network, PathKind::Tcp] {
        let (initiator, target) = pair(|| by(path));
        let _theirs = target.register(vec![1; 1 << 20], "theirs").unwrap();
        let ours = initiator.register(vec![2; 1 << 20], "ours").unwrap();
        tell(&initiator, &target);
        let remote = initiator.remote("target", "theirs").unwrap();
        let mut model = [(0, 0); 2];
        let began = Instant::now();
        for _ in 0..200 {
            let op = if rng.random() { Op::Read } else { Op::Write };
            let len = rng.random_range(1..=4096);
            let count = rng.random_range(1..=16);
            let lists = (ours.blocks(0, len, count), remote.blocks(8, len, count));
            let transfer = transfer(&initiator, op, lists.0, lists.1);
            for _ in 0..rng.random_range(1..=2) {
                run(&transfer);
                model[op as usize].0 += 1;
                model[op as usize].1 += len * count as u64;
            }
        }
        let took = began.elapsed();
        let counters = initiator.counters();
        assert_eq!([Op::Read, Op::Write].map(|op| moved(&counters, path, op)), model, "{path}");
        let all: u64 = counters.moved.iter().map(|one| one.transfers).sum();
        assert_eq!(all, model[0].0 + model[1].0, "no other path");
        let time: Duration = counters.moved.iter().map(|one| one.time).sum();
        assert!(!time.is_zero() && time <= took, "{time:?} of {took:?}");
        assert!(counters.undone.iter().all(|one| one.transfers == 0));
        assert_eq!((counters.in_progress, counters.no_path), (0, 0));
        assert!(counters.chosen.contains(&(path, 1)), "{:?}", counters.chosen);
        assert_eq!((counters.registrations, counters.registered_bytes), (1, 1 << 20));
        assert_eq!((counters.peers, counters.peers_lost), (1, 0));
        let connected = u64::from(path != PathKind::SameProcess);
        assert_eq!(counters.connections_out, connected, "{path}");
        assert_eq!(target.counters().connections_in, connected, "{path}");
        // The text says the same.
        let page = Page::read(&counters.to_prometheus("initiator"));
        let labels = [("agent", "initiator"), ("path", path.word()), ("op", "write")];
        assert_eq!(page.sum("transfers_total", &labels), model[1].0 as f64);
        assert_eq!(page.sum("transfer_bytes_total", &labels), model[1].1 as f64);
        let seconds = page.sum("transfer_seconds_total", &labels[..1]);
        assert!((seconds - time.as_secs_f64()).abs() < 1e-6, "{seconds} and {time:?}");
    }
}

#[test]
fn failures_are_counted_by_their_cause() {
    let (initiator, target) = pair(|| by(PathKind::Tcp));
    let theirs = target.register(vec![1; 64 << 20], "theirs").unwrap();
    let other = target.register(vec![1; 4096], "other").unwrap();
    let ours = initiator.register(vec![2; 64 << 20], "ours").unwrap();
    tell(&initiator, &target);
    let remote = initiator.remote("target", "theirs").unwrap();
    let lists = || (ours.blocks(0, 64 << 20, 1), remote.blocks(0, 64 << 20, 1));
    let (here, there) = lists();
    let large = transfer(&initiator, Op::Write, here, there);
    run(&large);

    large.post(PostOptions::new().deadline(Duration::from_nanos(1))).unwrap();
    assert!(matches!(large.wait(SOON), Err(AgentError::Timeout { .. })));
    large.post(PostOptions::new()).unwrap();
    assert_eq!(initiator.counters().in_progress, 1);
    large.cancel();
    assert!(matches!(large.wait(SOON), Err(AgentError::Cancelled)));

    let small = initiator.remote("target", "other").unwrap();
    let gone = transfer(&initiator, Op::Read, ours.blocks(0, 64, 1), small.blocks(0, 64, 1));
    other.deregister(SOON).unwrap();
    gone.post(PostOptions::new()).unwrap_err();
    let counters = initiator.counters();
    let of = |cause| undone(&counters, cause);
    let found = [Cause::Timeout, Cause::Cancelled, Cause::Deregistered].map(of);
    assert_eq!((found, counters.in_progress), ([1, 1, 1], 0));

    drop((theirs, target));
    until("the loss of the peer", || initiator.counters().peers_lost == 1);
    large.post(PostOptions::new()).unwrap_err();
    let counters = initiator.counters();
    assert_eq!((undone(&counters, Cause::PeerLost), counters.peers), (1, 0));
    let page = Page::read(&counters.to_prometheus("initiator"));
    for cause in ["timeout", "cancelled", "deregistered", "peer_lost"] {
        let labels = [("cause", cause), ("path", "tcp")];
        assert_eq!(page.sum("transfers_failed_total", &labels), 1.0, "{cause}");
    }
    assert_eq!(page.sum("transfers_failed_total", &[]), 4.0);
}

#[test]
fn a_path_that_is_not_allowed_is_counted_and_a_peer_that_is_removed_is_not_lost() {
    let (initiator, target) = pair(|| by(PathKind::Mapped));
    let _theirs = target.register(vec![1; 4096], "theirs").unwrap();
    let ours = initiator.register(vec![2; 4096], "ours").unwrap();
    tell(&initiator, &target);
    let remote = initiator.remote("target", "theirs").unwrap();
    let (here, there) = (ours.blocks(0, 8, 1).unwrap(), remote.blocks(0, 8, 1).unwrap());
    let none = initiator.transfer(Op::Read, &here, &there).unwrap_err();
    assert!(matches!(none, AgentError::NoPath { .. }), "{none}");
    assert_eq!((initiator.counters().no_path, initiator.counters().peers), (1, 1));
    initiator.remove_peer("target").unwrap();
    let counters = initiator.counters();
    assert_eq!((counters.peers, counters.peers_lost), (0, 0));
    drop(ours);
    assert_eq!((initiator.counters().registrations, initiator.counters().registered_bytes), (0, 0));
}

#[test]
fn notifications_are_counted_at_both_ends() {
    let (initiator, target) = pair(|| by(PathKind::Tcp));
    let _theirs = target.register(vec![1; 4096], "theirs").unwrap();
    let ours = initiator.register(vec![2; 4096], "ours").unwrap();
    tell(&initiator, &target);
    let remote = initiator.remote("target", "theirs").unwrap();
    let write = transfer(&initiator, Op::Write, ours.blocks(0, 8, 1), remote.blocks(0, 8, 1));
    for _ in 0..3 {
        write.post(PostOptions::new().notify(b"here")).unwrap();
        assert_eq!(write.wait(SOON).unwrap(), State::Done);
    }
    initiator.notify("target", b"by itself", SOON).unwrap();
    initiator.notify("initiator", b"to myself", SOON).unwrap();
    target.next_notification().unwrap();
    let (here, there) = (initiator.counters(), target.counters());
    assert_eq!((here.notifications_sent, here.notifications_received), (5, 1));
    assert_eq!((there.notifications_sent, there.notifications_received), (0, 4));
    assert_eq!((here.notifications_waiting, there.notifications_waiting), (1, 3));
}

#[test]
fn any_name_of_an_agent_is_a_label() {
    let mut rng = seeded();
    let agent = Agent::new("plain", AgentConfig::default()).unwrap();
    let counters = agent.counters();
    for _ in 0..50 {
        let parts = ["\"", "\\", "\n", "{", "}", ",", "=", "é", "n", " "];
        let count = rng.random_range(0..12);
        let name: String = (0..count).map(|_| parts[rng.random_range(0..parts.len())]).collect();
        let page = Page::read(&counters.to_prometheus(&name));
        assert_eq!(page.sum("peers", &[("agent", &name)]), 0.0);
    }
    // Every family has samples from the start.
    let page = Page::read(&counters.to_prometheus("plain"));
    for name in page.kinds.keys() {
        page.sum(name.strip_prefix("warpverbs_agent_").unwrap(), &[]);
    }
}
