//! The end of transfers over TCP: after a terminal state no byte of them lands at either end, whatever
//! the target does, and what goes on beside them is not disturbed.

use crate::bed::{SOON, run, signal, transfer};
use rustix::process::Signal;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use warpverbs_agent::{
    Agent, AgentConfig, AgentError, Op, PathKind, PostOptions, Registration, State, Transfer,
};
use warpverbs_dev::{Child, say};

/// Longer than blocks under way are waited for after a deadline.
const AFTER_GRACE: Duration = Duration::from_secs(7);
/// More than the sockets of a connection take while nobody reads.
const LEN: usize = 32 << 20;

/// No deadline but those that transfers are given.
fn config() -> AgentConfig {
    let hour = Duration::from_secs(3600);
    AgentConfig::default().token("tests").require(PathKind::Tcp).deadline(hour).silence(hour)
}

fn random(seed: u64) -> Vec<u8> {
    warpverbs_dev::pattern(LEN, seed)
}

fn first_seed() -> u64 {
    let seed = rand::random::<u64>() >> 1;
    println!("seed {seed}");
    seed
}

/// The other process: says whether its memory has the bytes of a seed, and keeps them.
#[test]
fn target() {
    if std::env::var_os("AGENT_TCP_TARGET").is_none() {
        return;
    }
    let agent = Agent::new("target", config()).unwrap();
    let memory = agent.register(vec![0; LEN], "memory").unwrap();
    say(agent.address());
    for line in std::io::stdin().lines() {
        let expected = random(line.unwrap().parse().unwrap());
        let began = Instant::now();
        let mut same = true;
        // Bytes of a late write come in this time, mostly; they are never reported by mistake.
        while same && began.elapsed() < Duration::from_millis(300) {
            same = memory.to_vec().unwrap() == expected;
        }
        say(same);
    }
}

struct Target {
    child: Child,
    address: SocketAddr,
}

impl Target {
    fn start() -> Self {
        let mut child = Child::of_test("tcp::target", "AGENT_TCP_TARGET", 1);
        let address = child.said().parse().unwrap();
        Self { child, address }
    }

    /// Whether it has the bytes of a seed, and goes on having them.
    fn has(&mut self, seed: u64) -> bool {
        self.child.ask(seed) == "true"
    }
}

fn whole(agent: &Agent, op: Op, ours: &Registration) -> Transfer {
    let remote = agent.remote("target", "memory").unwrap();
    let len = LEN as u64;
    transfer(agent, op, ours.blocks(0, len, 1), remote.blocks(0, len, 1))
}

/// A write that fails by its deadline, and one to the same place that is done after it.
#[test]
fn a_failed_write_overwrites_no_later_one() {
    let mut target = Target::start();
    let agent = Agent::new("initiator", config()).unwrap();
    agent.fetch_metadata(target.address, SOON).unwrap();
    let ours = agent.register(vec![0; LEN], "ours").unwrap();
    let write = whole(&agent, Op::Write, &ours);
    run(&write);
    let seed = first_seed();
    for turn in 0..6 {
        ours.write(0, &random(seed + 2 * turn)).unwrap();
        let short = PostOptions::new().deadline(Duration::from_millis(turn));
        let failed = write.post(short).and_then(|_| write.wait(SOON));
        assert!(matches!(failed, Ok(State::Done) | Err(AgentError::Timeout { .. })), "{failed:?}");
        ours.write(0, &random(seed + 2 * turn + 1)).unwrap();
        run(&write);
        assert!(target.has(seed + 2 * turn + 1), "turn {turn}");
    }
}

/// While the target is stopped nobody knows what it will do: no transfer with it is over.
#[test]
fn transfers_with_a_stopped_target_end_when_it_goes_on() {
    let mut target = Target::start();
    let agent = Agent::new("initiator", config()).unwrap();
    agent.fetch_metadata(target.address, SOON).unwrap();
    let seed = first_seed();
    let [ours, into] = [1, 2].map(|n| agent.register(random(seed + n), "ours").unwrap());
    let write = whole(&agent, Op::Write, &ours);
    let read = whole(&agent, Op::Read, &into);
    run(&write);
    signal(&target.child, Signal::STOP);
    ours.write(0, &random(seed + 3)).unwrap();
    let short = || PostOptions::new().deadline(Duration::from_millis(100));
    let began = Instant::now();
    for transfer in [&write, &read] {
        assert_eq!(transfer.post(short()).unwrap(), State::InProgress);
    }
    let mut past = false;
    while !past {
        past = began.elapsed() > AFTER_GRACE;
        for transfer in [&write, &read] {
            assert_eq!(transfer.state(), State::InProgress, "after {:?}", began.elapsed());
        }
        // Leaves the processor to the agent. The transfers must not end, however long this takes.
        std::thread::sleep(Duration::from_millis(10));
    }
    // The connection has been given up. Another one is not made within the deadline of a transfer that
    // needs it; there is no other deadline.
    let third = agent.register(vec![0; LEN], "third").unwrap();
    let third = whole(&agent, Op::Write, &third);
    let late = third.post(short());
    assert!(matches!(late, Err(AgentError::Timeout { .. })), "{late:?}");
    signal(&target.child, Signal::CONT);
    for transfer in [&write, &read] {
        let failed = transfer.wait(SOON);
        assert!(matches!(failed, Err(AgentError::Timeout { .. })), "{failed:?}");
    }
    into.write(0, &random(seed + 4)).unwrap();
    ours.write(0, &random(seed + 5)).unwrap();
    run(&write);
    assert!(target.has(seed + 5));
    assert!(into.to_vec().unwrap() == random(seed + 4), "a failed read fills memory");
    run(&read);
    assert!(into.to_vec().unwrap() == random(seed + 5));
}

/// A target that was given up while it was stopped: what it has received by then is not placed once it is
/// used again. (`stream_processes` has a peer that is stopped for longer than an agent waits: no time ends
/// here, so a target that runs is never lost, however late it gets a processor.)
#[test]
fn a_lost_target_places_nothing_once_it_is_used_again() {
    let mut target = Target::start();
    let agent = Agent::new("initiator", config()).unwrap();
    let ours = agent.register(vec![0; LEN], "ours").unwrap();
    let seed = first_seed();
    for turn in 0..3 {
        agent.fetch_metadata(target.address, SOON).unwrap();
        let write = whole(&agent, Op::Write, &ours);
        run(&write);
        signal(&target.child, Signal::STOP);
        ours.write(0, &random(seed + 2 * turn)).unwrap();
        write.post(PostOptions::new()).unwrap();
        agent.remove_peer("target").unwrap();
        let failed = write.wait(SOON);
        assert!(matches!(failed, Err(AgentError::PeerLost { .. })), "{failed:?}");
        signal(&target.child, Signal::CONT);
        agent.fetch_metadata(target.address, SOON).unwrap();
        ours.write(0, &random(seed + 2 * turn + 1)).unwrap();
        run(&whole(&agent, Op::Write, &ours));
        assert!(target.has(seed + 2 * turn + 1), "turn {turn}");
    }
}

/// Deadlines and cancelling of some transfers do not fail those beside them.
#[test]
fn a_late_transfer_fails_no_other() {
    let target = Target::start();
    let agent = Agent::new("initiator", config()).unwrap();
    agent.fetch_metadata(target.address, SOON).unwrap();
    let seed = first_seed();
    let [ours, other] = [0, 1].map(|n| agent.register(random(seed + n), "ours").unwrap());
    let (long, short) = (whole(&agent, Op::Write, &ours), whole(&agent, Op::Read, &other));
    let began = Instant::now();
    let (mut late, mut cancelled) = (0, 0);
    while late < 3 || cancelled < 3 {
        assert!(began.elapsed() < SOON, "{late} were late, {cancelled} cancelled");
        long.post(PostOptions::new()).unwrap();
        short.post(PostOptions::new().deadline(Duration::from_micros(1))).unwrap();
        match short.wait(SOON) {
            Err(AgentError::Timeout { .. }) => late += 1,
            outcome => assert_eq!(outcome.unwrap(), State::Done),
        }
        let _ = short.post(PostOptions::new()).unwrap();
        short.cancel();
        match short.wait(SOON) {
            Err(AgentError::Cancelled) => cancelled += 1,
            outcome => assert_eq!(outcome.unwrap(), State::Done),
        }
        assert_eq!(long.wait(SOON).unwrap(), State::Done);
    }
}
