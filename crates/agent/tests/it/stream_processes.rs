//! Streams between two processes of which one is killed, or stopped: the other misses it by name.

use crate::bed::{SOON, signal, transfer};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rustix::process::Signal;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::Duration;
use warpverbs_agent::{
    Agent, AgentConfig, AgentError, Op, PathKind, PostOptions, Registration, StreamConfig,
    StreamReceiver, StreamSender, Transfer,
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

/// The time is what is tried. A child that gets no processor for three quarters of it is missed too, so it is
/// longer than a busy machine lets one wait.
const SILENCE: Duration = Duration::from_secs(12);

fn patient() -> Agent {
    Agent::new("parent", config(PathKind::Tcp).silence(SILENCE)).unwrap()
}

/// A transfer of 4096 bytes to the child, and its memory here.
fn write(agent: &Agent) -> (Registration, Transfer) {
    let ours = agent.register(vec![1; 4096], "ours").unwrap();
    let theirs = agent.remote("child", "memory").unwrap();
    let write = transfer(agent, Op::Write, ours.blocks(0, 4096, 1), theirs.blocks(0, 4096, 1));
    (ours, write)
}

fn assert_silent(lost: &AgentError) {
    let lost = lost.to_string();
    assert!(lost.contains("child (") && lost.contains("no sign of life for 12s"), "{lost}");
}

/// Its sockets are open and its system answers for it, but the process does nothing.
#[test]
fn a_stopped_process_is_missed_by_name_within_the_silence_that_is_allowed() {
    // Each waits longer than it computes.
    std::thread::scope(|scope| {
        scope.spawn(a_peer_with_nothing_to_say_lives);
        scope.spawn(a_stopped_sink_is_missed);
        scope.spawn(a_stopped_source_is_missed);
    });
}

fn a_peer_with_nothing_to_say_lives() {
    let agent = patient();
    let _other = start(&agent, "sink", PathKind::Tcp);
    agent.wait_peer("child", SOON).unwrap();
    let (_memory, write) = write(&agent);
    for pause in [SILENCE + SILENCE / 2, Duration::ZERO] {
        write.post(PostOptions::new().deadline(SOON)).unwrap();
        write.wait(SOON).unwrap();
        // It is asked meanwhile. That this time passes is what is tried.
        std::thread::sleep(pause);
    }
}

/// This agent has connected to it, and it is in the middle of a stream, a transfer and a notification.
fn a_stopped_sink_is_missed() {
    let agent = patient();
    let other = start(&agent, "sink", PathKind::Tcp);
    let mut sender = sender(&agent).unwrap().unwrap();
    (0..20).for_each(|number| sender.send(&message(number), SOON).unwrap());
    let (_memory, write) = write(&agent);
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
        assert_silent(&sending.join().unwrap());
        assert_silent(&writing.join().unwrap());
    });
    assert!(!agent.knows("child"));
}

/// It has connected to this agent.
fn a_stopped_source_is_missed() {
    let agent = patient();
    let mut receiver = agent.stream("s", ring()).unwrap();
    let other = start(&agent, "source", PathKind::Tcp);
    check(&mut receiver, 20).unwrap();
    signal(&other, Signal::STOP);
    let lost = std::iter::repeat_with(|| receiver.recv(SOON)).find_map(Result::err);
    assert_silent(&lost.unwrap());
}
