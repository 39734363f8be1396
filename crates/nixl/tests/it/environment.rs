//! Settings by the environment, for an unchanged program's agents.

use crate::bed::{Bed, SOON, done, seeded};
use std::fmt::Debug;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use tracing::field::Field;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use warpverbs_nixl::{Config, Op, Status};

/// A configuration as these variables make it.
fn of(vars: &[(&str, &str)]) -> Config {
    let found = |name: &str| {
        vars.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
    };
    let config = Config::from_vars(&found).unwrap();
    Config { address: Ipv4Addr::LOCALHOST.into(), deadline: SOON, ..config }
}

/// Two agents, of which the second knows the first.
fn pair(make: impl Fn() -> Config) -> (Bed, Bed) {
    let mut rng = seeded();
    let [target, initiator] = ["target", "initiator"].map(|name| {
        let bed = Bed::new(name, make(), 4096, &mut rng);
        bed.register(&bed.reg(&[(0, 4096)]));
        bed
    });
    initiator.agent.load(&target.agent.metadata().unwrap()).unwrap();
    (target, initiator)
}

/// As between two hosts, where nothing but TCP leads.
fn far_apart(mut config: Config) -> Config {
    use warpverbs_agent::PathKind;
    for near in [PathKind::SameProcess, PathKind::Mapped, PathKind::ProcessCopy] {
        config.agent = config.agent.without(near);
    }
    config
}

/// An unchanged program fails, and says why, instead of running over TCP.
#[test]
fn a_program_that_must_not_use_tcp_fails_loudly() {
    let read = |target: &Bed, initiator: &Bed| {
        let (into, from) = (initiator.list(&[(0, 4096)]), target.list(&[(0, 4096)]));
        initiator.agent.create(Op::Read, &into, &from, "target", None)
    };
    // Without the variable it runs over TCP.
    let (target, initiator) = pair(|| far_apart(of(&[])));
    done(&read(&target, &initiator).unwrap());
    assert_eq!(initiator.bytes(), target.bytes());

    let (target, initiator) = pair(|| far_apart(of(&[("WARPVERBS_REQUIRE", "direct")])));
    let before = initiator.bytes();
    let refused = read(&target, &initiator).map(|_| ()).unwrap_err();
    assert_ne!(refused.status, Status::Success);
    let text = refused.to_string();
    for part in ["TCP", "excluded by the configuration", "target"] {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(initiator.bytes(), before, "nothing was moved");
    let counters = initiator.agent.agent().unwrap().counters();
    assert!(counters.no_path >= 1 && counters.moved.iter().all(|one| one.transfers == 0));

    // Where a better path leads, it runs.
    let (target, initiator) = pair(|| of(&[("WARPVERBS_REQUIRE", "direct")]));
    done(&read(&target, &initiator).unwrap());
    assert_eq!(initiator.bytes(), target.bytes());
}

#[test]
fn a_variable_with_a_wrong_value_says_what_is_expected() {
    let wrong = [
        ("WARPVERBS_REQUIRE", "rdma", "same-process, mapped-memory, process-copy, network, tcp"),
        ("WARPVERBS_METRICS", "9400", "ADDRESS:PORT"),
        ("WARPVERBS_METRICS", "localhost:9400", "ADDRESS:PORT"),
        ("WARPVERBS_EXPLAIN", "perhaps", "expected 1"),
    ];
    for (name, value, expected) in wrong {
        let var = |asked: &str| (asked == name).then(|| value.to_owned());
        let error = Config::from_vars(&var).unwrap_err();
        assert_eq!(error.status, Status::InvalidParam);
        let text = error.to_string();
        assert!(text.contains(name) && text.contains(expected), "{text}");
    }
}

fn ask(address: SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn metrics_are_served_where_the_environment_says() {
    let (target, initiator) = pair(|| of(&[("WARPVERBS_METRICS", "127.0.0.1:0")]));
    let (into, from) = (initiator.list(&[(0, 512)]), target.list(&[(0, 512)]));
    done(&initiator.agent.create(Op::Read, &into, &from, "target", None).unwrap());
    let text = ask(initiator.agent.agent().unwrap().metrics_address().unwrap());
    assert!(text.starts_with("HTTP/1.1 200 OK"), "{text}");
    let line = r#"warpverbs_agent_transfer_bytes_total{agent="initiator",path="same-process",op="read"} 512"#;
    assert!(text.lines().any(|one| one == line), "{text}");
    assert!(
        ask(target.agent.agent().unwrap().metrics_address().unwrap())
            .contains(r#"{agent="target"}"#)
    );
}

/// Workers that an engine starts have the same variables, and so have all agents of a process.
#[test]
fn agents_for_which_there_is_no_port_or_file_go_without() {
    let held = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = held.local_addr().unwrap().to_string();
    let (target, initiator) = pair(|| of(&[("WARPVERBS_METRICS", &taken)]));
    for bed in [&target, &initiator] {
        assert_eq!(bed.agent.agent().unwrap().metrics_address(), None);
    }
    let (into, from) = (initiator.list(&[(0, 64)]), target.list(&[(0, 64)]));
    done(&initiator.agent.create(Op::Read, &into, &from, "target", None).unwrap());

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("all.prom");
    let (target, initiator) = pair(|| of(&[("WARPVERBS_METRICS", path.to_str().unwrap())]));
    assert_eq!(target.agent.agent().unwrap().metrics_file(), Some(&*path));
    assert_eq!(initiator.agent.agent().unwrap().metrics_file(), None);
    drop((target, initiator));
    let each = folder.path().join("{agent}.{pid}.prom");
    let (target, initiator) = pair(|| of(&[("WARPVERBS_METRICS", each.to_str().unwrap())]));
    for (bed, name) in [(&target, "target"), (&initiator, "initiator")] {
        let text =
            std::fs::read_to_string(bed.agent.agent().unwrap().metrics_file().unwrap()).unwrap();
        assert!(text.contains(&format!("warpverbs_agent_peers{{agent=\"{name}\"}} ")), "{text}");
    }
}

/// The log of all threads of the tests, with levels. One for the process: tracing remembers for each line
/// whether anybody wants it, which changes too late for a thread that others run beside.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<(Level, String)>>>);

impl Subscriber for Lines {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = String::new();
        event
            .record(&mut |field: &Field, value: &dyn Debug| line += &format!(" {field}={value:?}"));
        self.0.lock().unwrap().push((*event.metadata().level(), line));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn the_first_choice_of_a_path_is_logged_with_its_reasons_and_further_ones_are_not_news() {
    let log = Lines::default();
    tracing::subscriber::set_global_default(log.clone()).unwrap();
    for (wish, name, level) in [("0", "quiet", Level::INFO), ("1", "loud", Level::WARN)] {
        let mut rng = seeded();
        let [target, initiator] = [name, "initiator"].map(|name| {
            let config = far_apart(of(&[("WARPVERBS_EXPLAIN", wish)]));
            let bed = Bed::new(name, config, 4096, &mut rng);
            // Each is a memory with a path of its own.
            bed.register(&bed.reg(&[(0, 512), (1024, 512), (2048, 512)]));
            bed
        });
        initiator.agent.load(&target.agent.metadata().unwrap()).unwrap();
        let ranges = [(0, 512), (1024, 512), (2048, 512)];
        let (into, from) = (initiator.list(&ranges), target.list(&ranges));
        done(&initiator.agent.create(Op::Read, &into, &from, name, None).unwrap());
        let lines = log.0.lock().unwrap().clone();
        let to_it = format!("peer={name} ");
        let chosen =
            lines.iter().filter(|(_, line)| line.contains("path chosen") && line.contains(&to_it));
        let levels: Vec<Level> = chosen.clone().map(|(level, _)| *level).collect();
        assert_eq!(levels, [level, Level::DEBUG, Level::DEBUG], "{lines:?}");
        let (_, first) = chosen.clone().next().unwrap();
        for part in ["TCP", "process copy: excluded by the configuration"] {
            assert!(first.contains(part), "{first}");
        }
    }
}
