//! Processes that are killed at random moments: the survivor misses them by name, takes another
//! process of the same name, and keeps nothing of the dead.

use crate::bed::{SOON, by};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use warpverbs_agent::{
    Agent, AgentConfig, AgentError, Op, PathKind, PostOptions, Registration, Transfer,
};
use warpverbs_dev::{Child, is_alone};

const LEN: u64 = 64 << 10;
const SURVIVOR: &str = "AGENT_SURVIVOR";
/// The path by which everything goes, if it is one.
const PATH: &str = "AGENT_PATH";

fn config(path: Option<PathKind>) -> AgentConfig {
    match path {
        Some(path) => by(path).deadline(Duration::from_secs(30)),
        None => AgentConfig::default().token("of the test").without(PathKind::Tcp),
    }
}

/// Lists of many blocks in reverse, so that a transfer takes a while.
fn blocks(len: u64) -> Vec<u64> {
    (0..len / 64).rev().map(|i| i * 64).collect()
}

fn make(
    agent: &Agent,
    ours: &Registration,
    peer: &str,
    label: &str,
) -> Result<Transfer, AgentError> {
    let from = agent.remote(peer, label)?.blocks_at(&blocks(LEN), 64)?;
    agent.transfer(Op::Write, &ours.blocks(0, 64, (LEN / 64) as usize)?, &from)
}

/// Memory of a `Vec` is reached only where the kernel lets processes copy from each other.
fn reachable(
    all: impl Iterator<Item = Result<Transfer, AgentError>>,
) -> Result<Vec<Transfer>, AgentError> {
    all.filter(
        |made| !matches!(made, Err(AgentError::NoPath { local, .. }) if local.contains("private")),
    )
    .collect()
}

/// The part of the process that is killed: it and the survivor write to each other for ever.
#[test]
fn victim() {
    let Ok(address) = std::env::var(SURVIVOR) else { return };
    let address: SocketAddr = address.parse().unwrap();
    let path = std::env::var(PATH).ok();
    let path = PathKind::ALL.into_iter().find(|kind| path.as_deref() == Some(kind.word()));
    let agent = Agent::new("victim", config(path)).unwrap();
    let memory = [
        agent.register(vec![1; LEN as usize], "private").unwrap(),
        agent.alloc(LEN, "shared").unwrap(),
    ];
    agent.fetch_metadata(address, SOON).unwrap();
    agent.send_metadata(address, &agent.metadata().unwrap(), SOON).unwrap();
    let writes = ["private", "shared"].iter().zip(&memory);
    let writes = writes.map(|(label, ours)| make(&agent, ours, "survivor", label));
    let writes: Vec<_> = reachable(writes).unwrap();
    loop {
        for write in &writes {
            write.post(PostOptions::new().notify(b"victim's")).unwrap();
            write.wait(SOON).unwrap();
        }
        while agent.next_notification().is_some() {}
    }
}

fn start(survivor: SocketAddr, path: Option<PathKind>) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "kills::victim", "--nocapture"]).stderr(Stdio::null());
    if let Some(path) = path {
        command.env(PATH, path.word());
    }
    Child::start(command.env(SURVIVOR, survivor.to_string()))
}

/// Open descriptors, and mappings of memory that processes share.
fn kept() -> (usize, usize) {
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().count();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    (descriptors, maps.lines().filter(|line| line.contains("memfd")).count())
}

/// Writes to the victim until that fails; why it did.
fn write_until_lost(agent: &Agent, ours: &[Registration]) -> Option<String> {
    let writes = ["private", "shared"].iter().zip(ours);
    let writes = writes.map(|(label, ours)| make(agent, ours, "victim", label));
    let failed = |error: AgentError| Some(error.to_string());
    let writes = match reachable(writes) {
        Ok(writes) => writes,
        // A path is found, or not, with the victim's help.
        Err(error) => return failed(error),
    };
    loop {
        for write in &writes {
            let options = PostOptions::new().notify(b"survivor's");
            if let Err(error) = write.post(options).and_then(|_| write.wait(SOON)) {
                assert!(matches!(error, AgentError::PeerLost { .. }), "{error:?}");
                assert!(!agent.knows("victim"), "known after {error}");
                return failed(error);
            }
        }
        while agent.next_notification().is_some() {}
    }
}

/// Alone in its process, since it counts descriptors and mappings.
#[test]
fn whoever_is_killed_is_missed_and_replaced_and_leaves_nothing() {
    if !is_alone("kills::whoever_is_killed_is_missed_and_replaced_and_leaves_nothing") {
        return;
    }
    let trials = warpverbs_dev::runs(200);
    let mut random = SmallRng::seed_from_u64(warpverbs_dev::seed());
    campaign(&mut random, trials, None);
    campaign(&mut random, trials / 4, Some(PathKind::Tcp));
    campaign(&mut random, trials / 8, Some(PathKind::Network));
}

fn campaign(random: &mut SmallRng, trials: u64, path: Option<PathKind>) {
    let agent = Agent::new("survivor", config(path)).unwrap();
    let memory = [
        agent.register(vec![2; LEN as usize], "private").unwrap(),
        agent.alloc(LEN, "shared").unwrap(),
    ];
    let (descriptors, mappings) = kept();
    // The listener, its spare descriptor, and the one that closes it stay open for peers.
    let before = (descriptors + if path == Some(PathKind::Tcp) { 3 } else { 0 }, mappings);
    let mut reached = 0;
    for trial in 0..trials {
        let mut victim = start(agent.address(), path);
        // From before it has an agent until long after the first transfers.
        let life = Duration::from_micros(random.random_range(0..40_000));
        let start = Instant::now();
        let lost = std::thread::scope(|scope| {
            let writes = scope.spawn(|| {
                while !agent.knows("victim") {
                    // It was killed before it was known here: such a trial tries nothing, and fails nothing.
                    if start.elapsed() > 2 * life {
                        return None;
                    }
                    std::thread::yield_now();
                }
                write_until_lost(&agent, &memory)
            });
            // Any moment will do: it is drawn.
            std::thread::sleep(life.saturating_sub(start.elapsed()));
            victim.kill();
            writes.join().unwrap()
        });
        if let Some(why) = lost {
            reached += 1;
            assert!(why.contains("victim"), "trial {trial}: {why}");
        }
        while agent.next_notification().is_some() {}
    }
    println!("{reached} of {trials} were killed among transfers");

    // One more lives, and all is well.
    let victim = start(agent.address(), path);
    let start = Instant::now();
    let done = loop {
        let write = make(&agent, &memory[1], "victim", "shared");
        let done = write.and_then(|write| {
            write.post(PostOptions::new().notify(b"survivor's"))?;
            write.wait(SOON)
        });
        if done.is_ok() || start.elapsed() > SOON {
            break done;
        }
        std::thread::yield_now();
    };
    assert!(done.is_ok(), "{done:?}");
    drop(victim);
    let _ = agent.remove_peer("victim");
    let start = Instant::now();
    while kept() != before {
        assert!(start.elapsed() < SOON, "kept {:?}, before {before:?}", kept());
        std::thread::yield_now();
    }
}
