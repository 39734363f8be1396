//! 4096 strangers at an agent that may have 256 descriptors, or so few that it runs out of them. Its peers connect and are answered
//! meanwhile. The agent is another process, since the limit is one of the process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use warpverbs_agent::{Agent, AgentConfig, AgentError};
use warpverbs_dev::{Child, is_alone, say};

const SOON: Duration = Duration::from_secs(120);
const CROWDED: &str = "AGENT_CROWDED";
const STRANGERS: usize = 4096;

fn limit(descriptors: u64) {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let current = Some(maximum.map_or(descriptors, |maximum| maximum.min(descriptors)));
    setrlimit(Resource::Nofile, Rlimit { current, maximum }).unwrap();
}

/// The part of the process with few descriptors. It says its metadata, and ends when its input does.
#[test]
fn crowded() {
    let Ok(descriptors) = std::env::var(CROWDED) else { return };
    limit(descriptors.parse().unwrap());
    let agent = Agent::new("crowded", AgentConfig::default()).unwrap();
    let metadata: String =
        agent.metadata().unwrap().iter().map(|byte| format!("{byte:02x}")).collect();
    say(format_args!("{} {metadata}", agent.address()));
    let over = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while !over.load(Ordering::Acquire) {
                let _ = agent.wait_notification(Duration::from_millis(100));
            }
        });
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        over.store(true, Ordering::Release);
    });
}

fn start(descriptors: u32) -> (Child, SocketAddr, Vec<u8>) {
    let mut child = Child::of_test("strangers::crowded", CROWDED, descriptors);
    let said = child.said();
    let (address, metadata) = said.split_once(' ').unwrap();
    let byte = |at| u8::from_str_radix(&metadata[at..at + 2], 16).unwrap();
    let bytes = (0..metadata.len()).step_by(2).map(byte).collect();
    (child, address.parse().unwrap(), bytes)
}

/// A peer with a connection of its own.
fn visit(metadata: &[u8], number: usize) {
    let visitor = Agent::new(&format!("visitor {number}"), AgentConfig::default()).unwrap();
    visitor.load_metadata(metadata).unwrap();
    for tag in 0..10u8 {
        visitor.notify("crowded", &[tag], SOON).unwrap();
    }
}

#[test]
fn strangers_keep_no_peer_out() {
    // Its strangers take the descriptors of this process.
    if !is_alone("strangers::strangers_keep_no_peer_out") {
        return;
    }
    limit(8192);
    crowd(256, STRANGERS);
    crowd(48, STRANGERS / 4);
    fill(48);
}

/// Peers take all descriptors of an agent and keep them: the next one hears of it before its deadline.
fn fill(descriptors: u32) {
    let (_crowded, _, metadata) = start(descriptors);
    let mut kept = Vec::new();
    let refused = loop {
        let visitor =
            Agent::new(&format!("visitor {}", kept.len()), AgentConfig::default()).unwrap();
        visitor.load_metadata(&metadata).unwrap();
        match visitor.notify("crowded", b"in", SOON) {
            Ok(()) => kept.push(visitor),
            Err(refused) => break refused,
        }
        assert!(kept.len() < descriptors as usize);
    };
    println!("{} peers of {descriptors} descriptors", kept.len());
    let is_said = refused.to_string().contains("out of file descriptors");
    assert!(matches!(refused, AgentError::Refused { .. }) && is_said, "{refused}");
}

fn crowd(descriptors: u32, strangers: usize) {
    let (_crowded, address, metadata) = start(descriptors);
    let resident = Agent::new("resident", AgentConfig::default()).unwrap();
    resident.load_metadata(&metadata).unwrap();
    resident.notify("crowded", b"before", SOON).unwrap();
    let (come, over) = (&AtomicUsize::new(0), &AtomicBool::new(false));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                let mut held = Vec::new();
                while !over.load(Ordering::Acquire) {
                    let Ok(mut stranger) = TcpStream::connect_timeout(&address, SOON) else {
                        // This process has no descriptor left.
                        held.clear();
                        continue;
                    };
                    // Some are silent; some say something, which is nothing that an agent says.
                    if thread % 2 == 1 {
                        let _ = stranger.write_all(&[1, 0, 0, 0, 13]);
                    }
                    held.push(stranger);
                    come.fetch_add(1, Ordering::Release);
                    if held.len() > strangers / 4 {
                        held.drain(..strangers / 8);
                    }
                }
            });
        }
        let mut visits = 0;
        // All of them, and peers among them.
        while visits < 20 || come.load(Ordering::Acquire) < strangers {
            visit(&metadata, visits);
            resident.notify("crowded", b"meanwhile", SOON).unwrap();
            visits += 1;
        }
        over.store(true, Ordering::Release);
        println!("{visits} visits among {} strangers", come.load(Ordering::Acquire));
    });
}
