//! Connections of agents in one process.

use super::hostile::{TOKEN, hostile};
use super::*;
use crate::control::{Frame, Remote, ask, make};
use crate::deadline::Deadline;
use crate::metadata::{Contact, Metadata};
use crate::{Agent, AgentConfig, EncodingError, Generation, Op, PathKind, PostOptions, State};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use warpverbs_transport::Context;

const SOON: Duration = Duration::from_secs(30);

/// Over TCP, or through queue pairs between two NICs in loopback: of which there is one.
fn agents(path: PathKind) -> (Agent, Agent) {
    let nic = Context::new().unwrap().open("soft").unwrap();
    let config = || AgentConfig::default().token("t").nic(&nic).require(path);
    (Agent::new("a", config()).unwrap(), Agent::new("b", config()).unwrap())
}

/// A peer that was lost and is used again has a new connection, perhaps before its agent has seen
/// the end of the one before.
#[test]
fn what_was_asked_for_by_a_connection_outlives_others_of_the_same_peer() {
    for path in [PathKind::Network, PathKind::Tcp] {
        let (a, b) = agents(path);
        let (ours, theirs) =
            (a.register(vec![7; 8], "m").unwrap(), b.register(vec![0; 8], "m").unwrap());
        a.load_metadata(&b.metadata().unwrap()).unwrap();
        let lists = (ours.blocks(0, 8, 1).unwrap(), theirs.blocks(0, 8, 1).unwrap());
        let write = a.transfer(Op::Write, &lists.0, &lists.1).unwrap();
        let peer = a.shared.peers.peer("b").unwrap();
        for _ in 0..10 {
            write.post(PostOptions::new()).unwrap();
            assert_eq!(write.wait(SOON).unwrap(), State::Done);
            let remote: Arc<dyn Remote> = peer.clone();
            drop(make(&a.desk().control, &remote, Deadline::after(SOON)).unwrap());
            a.notify("b", b"", SOON).unwrap();
            assert!(b.wait_notification(SOON).is_ok());
        }
    }
}

/// A target that was stopped, and was given up as lost, has not seen the end of the first connection.
#[test]
fn queue_pairs_of_a_connection_end_before_the_next_one_of_the_agent_is_answered() {
    let nic = Context::new().unwrap().open("soft").unwrap();
    let config = || AgentConfig::default().token(TOKEN).nic(&nic).require(PathKind::Network);
    let agent = |name| Agent::new(name, config()).unwrap();
    let (a, b, other) = (agent("a"), agent("b"), agent("other"));
    let theirs = b.register(vec![0; 8], "m").unwrap();
    let _memories = [&a, &other].map(|agent| {
        let ours = agent.register(vec![7; 8], "m").unwrap();
        agent.load_metadata(&b.metadata().unwrap()).unwrap();
        let lists = (ours.blocks(0, 8, 1).unwrap(), theirs.blocks(0, 8, 1).unwrap());
        let write = agent.transfer(Op::Write, &lists.0, &lists.1).unwrap();
        write.post(PostOptions::new()).unwrap();
        assert_eq!(write.wait(SOON).unwrap(), State::Done);
        ours
    });
    assert_eq!(b.desk().answering.count(), 2);
    let (mut second, _) = hostile(&a, &b, true);
    let id = theirs.id().to_le_bytes();
    second
        .send(&Frame::Call { number: 0, service: Service::TcpKey, bytes: id[..].into() })
        .unwrap();
    assert!(matches!(second.receive().unwrap(), Frame::Reply { .. }));
    // The other agent's are its own.
    assert_eq!(b.desk().answering.count(), 1);
}

/// A cache that registers per request, whose peers ask for each key.
#[test]
fn tcp_keys_of_deregistered_memory_are_given_up() {
    let (a, b) = agents(PathKind::Tcp);
    let ours = a.register(vec![7; 8], "ours").unwrap();
    let into = ours.blocks(0, 8, 1).unwrap();
    for _ in 0..100 {
        let theirs = b.register(vec![0; 8], "theirs").unwrap();
        a.load_metadata(&b.metadata().unwrap()).unwrap();
        let write = a.transfer(Op::Write, &into, &theirs.blocks(0, 8, 1).unwrap()).unwrap();
        write.post(PostOptions::new()).unwrap();
        assert_eq!(write.wait(SOON).unwrap(), State::Done);
        assert_eq!(b.desk().serving.registered(), 1);
        drop(theirs);
        // The key lives until the peer has said that it uses it no more.
        while b.desk().serving.registered() > 0 {
            std::thread::yield_now();
        }
        let refused = write.post(PostOptions::new()).and_then(|_| write.wait(SOON)).unwrap_err();
        assert!(matches!(refused, AgentError::Deregistered { .. }), "{refused}");
    }
}

#[test]
fn a_connection_to_whoever_is_there_is_for_metadata_alone() {
    let (a, b) = agents(PathKind::Network);
    let own = &a.desk().control.own;
    let asked = |service| ask(own, b.address(), SOON, service, &[]);
    assert!(asked(Service::Fetch).is_ok());
    let others = [Service::Pairs, Service::Tcp, Service::TcpKey, Service::Stream];
    for service in others.into_iter().chain([Service::Prove, Service::EndPairs]) {
        let refused = asked(service).unwrap_err().to_string();
        assert!(refused.contains("whose Hello names this agent"), "{refused}");
    }
}

/// Metadata of an agent, changed.
fn changed(agent: &Agent, change: impl FnOnce(&mut Metadata)) -> Vec<u8> {
    let token = &agent.desk().control.own.token;
    let mut metadata = Metadata::from_bytes(&agent.metadata().unwrap(), token).unwrap();
    change(&mut metadata);
    metadata.to_bytes(token).unwrap()
}

fn plain(name: &str) -> Agent {
    Agent::new(name, AgentConfig::default()).unwrap()
}

/// Addresses at which connections are taken and nobody speaks.
fn silent() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

#[test]
fn metadata_by_address_needs_a_token() {
    let (a, b) = (plain("a"), plain("b"));
    let refused = a.fetch_metadata(b.address(), SOON).unwrap_err();
    assert!(matches!(refused, AgentError::Config { field: "token", .. }), "{refused}");
    let refused = a.send_metadata(b.address(), &a.metadata().unwrap(), SOON).unwrap_err();
    assert!(matches!(refused, AgentError::Config { field: "token", .. }), "{refused}");
    // The end that is asked says how it would answer.
    let c = Agent::new("c", AgentConfig::default().token("t")).unwrap();
    let refused = c.fetch_metadata(b.address(), SOON).unwrap_err().to_string();
    assert!(refused.contains("AgentConfig::token"), "{refused}");
}

#[test]
fn a_connection_needs_the_metadata_of_the_agent_it_leads_to() {
    let (a, b) = (plain("a"), plain("b"));
    let guessed = changed(&b, |metadata| metadata.contact.secret = Secret::new().unwrap());
    a.load_metadata(&guessed).unwrap();
    let refused = a.connect("b", SOON).unwrap_err();
    assert!(refused.to_string().contains("authentication failed"), "{refused}");
    a.remove_peer("b").unwrap();
    a.load_metadata(&b.metadata().unwrap()).unwrap();
    a.notify("b", b"hello", SOON).unwrap();
    assert!(b.wait_remote_done("a", b"hello", SOON).is_ok());
}

#[test]
fn a_start_from_the_future_keeps_nobody_out() {
    let (a, b) = (plain("a"), plain("b"));
    // The year 2554, the last that 64 bits of nanoseconds hold.
    let future = changed(&a, |metadata| metadata.generation = Generation::of(u64::MAX, 1));
    b.load_metadata(&future).unwrap();
    assert_eq!(b.load_metadata(&a.metadata().unwrap()).unwrap(), "a");
    b.notify("a", b"hello", SOON).unwrap();
    assert!(a.wait_remote_done("b", b"hello", SOON).is_ok());
    // Metadata that is older by its clock replaces nothing that answers.
    let past = changed(&a, |metadata| metadata.generation = Generation::of(1, 1));
    let stale = b.load_metadata(&past).unwrap_err();
    assert!(matches!(stale, AgentError::Stale { .. }), "{stale}");
    b.notify("a", b"still here", SOON).unwrap();
    // Whose start runs is not replaced by what comes by a connection, whatever its clock says.
    let from = Owner { name: "a".into(), generation: Generation::of(u64::MAX, 1) };
    let stale = b.shared.peers.load_brought(&future, &from).unwrap_err();
    assert!(matches!(stale, AgentError::Stale { .. }), "{stale}");
    b.notify("a", b"still here", SOON).unwrap();
    // One that has ended is replaced, although its clock was ahead.
    drop(a);
    b.shared
        .peers
        .load_brought(&past, &Owner { generation: Generation::of(1, 1), ..from })
        .unwrap();
}

#[test]
fn agents_of_this_process_are_known_by_all_of_their_generation() {
    let (a, b) = (plain("a"), plain("b"));
    let mut shown = Vec::new();
    let other = changed(&b, |metadata| {
        shown.push(metadata.generation.to_string());
        let bytes = metadata.generation.to_bytes();
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        metadata.generation = Generation::of(word(0), word(8) ^ 1 << 40);
        shown.push(metadata.generation.to_string());
    });
    assert_eq!(shown[0], shown[1]);
    a.load_metadata(&other).unwrap();
    assert!(a.shared.peers.peer("b").unwrap().here.is_none());
}

#[test]
fn more_addresses_than_an_agent_has_are_refused() {
    let (a, b) = (plain("a"), plain("b"));
    let with = |count: u16| {
        let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let addresses = (1..=count).map(address).collect();
        changed(&b, |metadata| {
            let contact = metadata.contact.clone();
            metadata.contact = Contact { addresses, ..contact };
        })
    };
    let refused = a.load_metadata(&with(65)).unwrap_err();
    assert!(
        matches!(&refused, AgentError::Encoding(EncodingError::Content { why, .. })
            if why == "65 addresses, expected at most 64"),
        "{refused}"
    );
    a.load_metadata(&with(64)).unwrap();
}

/// One deadline for the whole call, and none of another thread's.
#[test]
fn a_thread_that_connects_keeps_no_other_waiting() {
    let (a, b) = (plain("a"), plain("b"));
    let (listener, address) = silent();
    let silent = changed(&b, |metadata| {
        let contact = metadata.contact.clone();
        metadata.contact = Contact { addresses: vec![address; 64], ..contact };
    });
    a.load_metadata(&silent).unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert!(a.connect("b", 20 * SOON).is_err());
            over.store(true, Ordering::Release);
        });
        // It connects.
        let held = listener.accept().unwrap();
        let late = a.connect("b", Duration::from_millis(50)).unwrap_err();
        assert!(matches!(late, AgentError::Timeout { .. }), "{late}");
        // Others do not wait for the peer's locks either.
        assert!(a.knows("b"));
        a.remove_peer("b").unwrap();
        assert!(!over.load(Ordering::Acquire), "the first thread waits still");
        drop((held, listener));
    });
    // Nobody speaks at any of the addresses: all share the time.
    let (_listener, address) = self::silent();
    let silent = changed(&b, |metadata| metadata.contact.addresses = vec![address; 64]);
    a.load_metadata(&silent).unwrap();
    let late = a.connect("b", Duration::from_millis(64)).unwrap_err();
    assert!(matches!(late, AgentError::Timeout { .. }), "{late}");
}

/// Also where a start that is known has to be asked first, which neither answers nor refuses.
#[test]
fn metadata_is_had_within_the_time_of_the_caller() {
    // Without that bound each call takes this long, and then replaces what is known.
    let config = || AgentConfig::default().token("t").deadline(SOON);
    let (a, b) = (Agent::new("a", config()).unwrap(), Agent::new("b", config()).unwrap());
    let (_listener, address) = silent();
    let future = changed(&b, |metadata| {
        metadata.generation = Generation::of(u64::MAX, 1);
        metadata.contact.addresses = vec![address];
    });
    a.load_metadata(&future).unwrap();
    let short = Duration::from_secs(1);
    let mut exchange = crate::LocalExchange::default();
    b.publish_metadata(&mut exchange, "b").unwrap();
    let fetched = a.fetch_metadata(b.address(), short).unwrap_err();
    let retrieved = a.retrieve_metadata(&mut exchange, "b", short).unwrap_err();
    for late in [fetched, retrieved] {
        assert!(matches!(late, AgentError::Timeout { .. }), "{late}");
    }
    // Nothing has changed.
    let known = Owner { name: "b".into(), generation: Generation::of(u64::MAX, 1) };
    assert!(a.shared.peers.peer_of(&known).is_ok());
}
