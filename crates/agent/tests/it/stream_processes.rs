//! Streams between two processes of which one is killed, or stopped: the other misses it by name.

use crate::bed::{SOON, signal, transfer};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rustix::process::Signal;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::Duration;
use warpverbs_agent::{
    Agent, AgentConfig, AgentError, Op, PathKind, PostOptions, StreamConfig, StreamReceiver,
    StreamSender,
};
use warpverbs_dev::Child;

const PARENT: &str = "STREAM_PARENT";
const ROLE: &str = "STREAM_ROLE";
const PATH: &str = "STREAM_PATH";
const BYTES: u64 = 5000;

const PATHS: [PathKind; 3] = [PathKind::Mapped, PathKind::ProcessCopy, PathKind::Tcp];

fn config(path: PathKind) -> AgentConfig {
    AgentConfig::default().token("the job's").require(path)
}

fn ring() -> StreamConfig {
    StreamConfig::default().slots(6).slot_bytes(BYTES)
}

/// Message `number`, by bytes that no other has.
fn message(number: u64) -> Vec<u8> {
    let len = (number * 997 % BYTES + 1) as usize;
    (0..len).map(|at| (at as u64 * 31 + number * 7 + at as u64 / 251) as u8).collect()
}

/// The other process: sends, or receives, for ever.
#[test]
fn child() {
    let Ok(parent) = std::env::var(PARENT) else { return };
    let parent: SocketAddr = parent.parse().unwrap();
    let path = std::env::var(PATH).unwrap();
    let path = PATHS.into_iter().find(|known| known.to_string() == path).unwrap();
    let agent = Agent::new("child", config(path)).unwrap();
    let _memory = agent.register(vec![0; 4096], "memory").unwrap();
    agent.fetch_metadata(parent, SOON).unwrap();
    match std::env::var(ROLE).unwrap().as_str() {
        "source" => {
            let mut sender = agent.stream_to("parent", "s", SOON).unwrap();
            for number in 0.. {
                sender.send(&message(number), SOON).unwrap();
            }
        }
        "sink" => {
            let mut receiver = agent.stream("s", ring()).unwrap();
            agent.send_metadata(parent, &agent.metadata().unwrap(), SOON).unwrap();
            check(&mut receiver, u64::MAX).unwrap();
        }
        other => panic!("{other}"),
    }
}

/// Takes up to `count` messages, which must be those of the model, in order; how many came, and what
/// came after them.
fn check(receiver: &mut StreamReceiver, count: u64) -> Result<(), (u64, AgentError)> {
    for number in 0..count {
        let got = receiver.recv(SOON).map_err(|error| (number, error))?.unwrap();
        assert_eq!(got.number(), number);
        assert!(got.to_vec().unwrap() == message(number), "message {number}");
    }
    Ok(())
}

/// Another process, which is killed when it is dropped.
fn start(agent: &Agent, role: &str, path: PathKind) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "stream_processes::child", "--nocapture"]).stderr(Stdio::null());
    command.env(PARENT, agent.address().to_string()).env(ROLE, role);
    Child::start(command.env(PATH, path.to_string()))
}

/// The loss names the peer.
fn assert_lost(error: &AgentError) {
    let lost = matches!(
        error,
        AgentError::PeerLost { .. } | AgentError::Path { .. } | AgentError::System { .. }
    );
    assert!(lost && error.to_string().contains("child ("), "{error:?}");
}

/// A sender to the child, once that offers its stream; nothing where the system forbids the path.
fn sender(agent: &Agent) -> Result<Option<StreamSender>, AgentError> {
    agent.wait_peer("child", SOON)?;
    match agent.stream_to("child", "s", SOON) {
        Err(AgentError::NoPath { tried, .. }) => {
            println!("SKIPPED: {tried:?}");
            Ok(None)
        }
        made => made.map(Some),
    }
}

#[test]
fn a_killed_end_is_missed_by_name_after_what_it_has_sent() {
    let mut random = SmallRng::seed_from_u64(warpverbs_dev::seed());
    for path in PATHS {
        for trial in 0..4 {
            let agent = Agent::new("parent", config(path)).unwrap();
            let life = Duration::from_micros(random.random_range(0..20_000));

            let mut receiver = agent.stream("s", ring()).unwrap();
            let other = start(&agent, "source", path);
            // It sends, so it is killed among transfers.
            match check(&mut receiver, 1 + trial * 20) {
                Ok(()) => {}
                // Where the kernel does not copy between processes, the child panics at once.
                Err((0, error)) if path == PathKind::ProcessCopy => {
                    println!("SKIPPED: {error}");
                    break;
                }
                Err((number, error)) => panic!("{path}: after {number} messages: {error}"),
            }
            let killer = std::thread::spawn(move || {
                // Any moment will do: it is drawn.
                std::thread::sleep(life);
                drop(other);
            });
            let lost = loop {
                match receiver.recv(SOON) {
                    Ok(Some(got)) => {
                        assert!(got.to_vec().unwrap() == message(got.number()), "{path}");
                    }
                    Ok(None) => panic!("{path}: an end that nobody said"),
                    Err(lost) => break lost,
                }
            };
            assert_lost(&lost);
            killer.join().unwrap();

            let other = start(&agent, "sink", path);
            let Some(mut sender) = sender(&agent).unwrap() else { break };
            let killer = std::thread::spawn(move || {
                // Any moment will do: it is drawn.
                std::thread::sleep(life);
                drop(other);
            });
            let lost = (0..).find_map(|number| sender.send(&message(number), SOON).err()).unwrap();
            assert_lost(&lost);
            // The first cause stays.
            assert_eq!(sender.finish(SOON).unwrap_err().to_string(), lost.to_string());
            killer.join().unwrap();
        }
    }
}

/// Its sockets are open and its system answers for it, but the process does nothing.
#[test]
fn a_stopped_process_is_missed_by_name_within_the_silence_that_is_allowed() {
    // The time is what is tried. A child that gets no processor for three quarters of it is missed too, so
    // it is longer than a busy machine lets one wait.
    let silence = Duration::from_secs(12);
    let path = PathKind::Tcp;
    let agent = Agent::new("parent", config(path).silence(silence)).unwrap();

    // One that this agent has connected to, in the middle of a stream, a transfer and a notification.
    let other = start(&agent, "sink", path);
    let mut sender = sender(&agent).unwrap().unwrap();
    (0..20).for_each(|number| sender.send(&message(number), SOON).unwrap());
    let ours = agent.register(vec![1; 4096], "ours").unwrap();
    let theirs = agent.remote("child", "memory").unwrap();
    let write = transfer(&agent, Op::Write, ours.blocks(0, 4096, 1), theirs.blocks(0, 4096, 1));
    write.post(PostOptions::new().deadline(SOON)).unwrap();
    write.wait(SOON).unwrap();
    // A peer that has nothing to say is asked, and lives. That this time passes is what is tried.
    std::thread::sleep(silence + silence / 2);
    write.post(PostOptions::new().deadline(SOON)).unwrap();
    write.wait(SOON).unwrap();
    signal(&other, Signal::STOP);
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| {
            let lost = (20..).find_map(|number| sender.send(&message(number), SOON).err());
            lost.unwrap()
        });
        let writing = scope.spawn(|| {
            let posted = write.post(PostOptions::new().deadline(SOON).notify(b"n"));
            posted.and_then(|_| write.wait(SOON)).unwrap_err()
        });
        // By its silence, and not by a deadline.
        for lost in [sending.join().unwrap(), writing.join().unwrap()] {
            assert!(lost.to_string().contains("child ("), "{lost}");
            assert!(lost.to_string().contains("no sign of life for 12s"), "{lost}");
        }
    });
    assert!(!agent.knows("child"));
    drop(other);

    // One that has connected to this agent.
    let mut receiver = agent.stream("s", ring()).unwrap();
    let other = start(&agent, "source", path);
    check(&mut receiver, 20).unwrap();
    signal(&other, Signal::STOP);
    let lost = loop {
        if let Err(lost) = receiver.recv(SOON) {
            break lost;
        }
    };
    assert!(lost.to_string().contains("child ("), "{lost}");
    assert!(lost.to_string().contains("no sign of life for 12s"), "{lost}");
}
