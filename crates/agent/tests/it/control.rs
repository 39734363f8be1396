//! Notifications and the metadata server.

use crate::bed::{SOON, tell, transfer};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use warpverbs_agent::{Agent, AgentConfig, AgentError, Op, PostOptions, State};

const AT_ONCE: Duration = Duration::from_millis(20);

fn agent(name: &str) -> Agent {
    Agent::new(name, AgentConfig::default().token("the job's")).unwrap()
}

fn agent_without_token(name: &str) -> Agent {
    Agent::new(name, AgentConfig::default()).unwrap()
}

/// Has room for three notifications.
fn receiver_of_three() -> Agent {
    let config = AgentConfig::default().token("the job's").notification_window(3);
    Agent::new("receiver", config).unwrap()
}

#[test]
fn notifications_come_once_in_order_and_after_the_data() {
    let (sender, receiver) = (agent("sender"), agent("receiver"));
    let (ours, theirs) = (sender.alloc(64, "ours").unwrap(), receiver.alloc(64, "theirs").unwrap());
    sender.fetch_metadata(receiver.address(), SOON).unwrap();
    let to = sender.remote("receiver", "theirs").unwrap().blocks(0, 64, 1);
    let write = transfer(&sender, Op::Write, ours.blocks(0, 64, 1), to);
    for round in 0..100u8 {
        ours.write(0, &[round; 64]).unwrap();
        write.post(PostOptions::new().notify([round])).unwrap();
        // The receiver finds the bytes though nobody looks at the transfer.
        let seen = receiver.wait_notification(SOON).unwrap();
        assert_eq!((&*seen.from.name, &seen.bytes[..]), ("sender", &[round][..]));
        assert_eq!(theirs.to_vec().unwrap(), [round; 64]);
        assert_eq!(write.wait(SOON).unwrap(), State::Done);
    }
    assert_eq!(receiver.next_notification(), None);
    for tag in [b"a", b"b", b"c"] {
        sender.notify("receiver", tag, SOON).unwrap();
    }
    assert!(!receiver.check_remote_done("sender", b"d"));
    assert!(receiver.check_remote_done("sender", b"b"));
    assert!(!receiver.check_remote_done("sender", b"b"));
    assert!(!receiver.check_remote_done("receiver", b"a"));
    assert_eq!(receiver.next_notification().unwrap().bytes, b"a");
    assert_eq!(receiver.next_notification().unwrap().bytes, b"c");
}

#[test]
fn a_sender_waits_for_room_and_a_late_notification_is_not_sent() {
    let (sender, receiver) = (agent("sender"), receiver_of_three());
    tell(&sender, &receiver);
    for tag in [b"1", b"2", b"3"] {
        sender.notify("receiver", tag, SOON).unwrap();
    }
    let late = sender.notify("receiver", b"4", AT_ONCE).unwrap_err();
    assert!(matches!(late, AgentError::Timeout { .. }), "{late}");
    assert_eq!(receiver.wait_notification(SOON).unwrap().bytes, b"1");
    sender.notify("receiver", b"5", SOON).unwrap();
    let rest: Vec<_> = (0..3).map(|_| receiver.wait_notification(SOON).unwrap().bytes).collect();
    assert_eq!(rest, [b"2", b"3", b"5"]);
    assert_eq!(receiver.next_notification(), None);
    let long = vec![0; AgentConfig::MAX_NOTIFICATION + 1];
    let refused = sender.notify("receiver", &long, SOON).unwrap_err();
    assert!(matches!(refused, AgentError::Notification { .. }), "{refused}");
}

#[test]
fn room_is_told_by_the_connection_that_notifications_come_by() {
    let (sender, receiver) = (agent("sender"), receiver_of_three());
    sender.fetch_metadata(receiver.address(), SOON).unwrap();
    for number in 0..20u8 {
        sender.notify("receiver", &[number], SOON).unwrap();
        // By a connection that is made for this and ends.
        sender.fetch_metadata(receiver.address(), SOON).unwrap();
        assert_eq!(receiver.wait_notification(SOON).unwrap().bytes, [number]);
    }
}

#[test]
fn agents_learn_of_each_other_by_the_metadata_server() {
    let [a, b] = ["a", "b"].map(agent);
    let _memory = a.register(vec![0; 8], "memory").unwrap();
    b.send_metadata(a.address(), &b.metadata().unwrap(), SOON).unwrap();
    a.wait_peer("b", SOON).unwrap();
    assert_eq!(b.fetch_metadata(a.address(), SOON).unwrap(), "a");
    assert!(b.remote("a", "memory").is_ok());
    assert!(matches!(a.wait_peer("c", AT_ONCE), Err(AgentError::Timeout { .. })));

    // One without the token gets nothing and changes nothing.
    let stranger = Agent::new("b", AgentConfig::default().token("another's")).unwrap();
    let refused = stranger.fetch_metadata(a.address(), SOON).unwrap_err();
    assert!(refused.to_string().contains("tokens differ"), "{refused}");
    let gone = stranger.invalidation().unwrap();
    assert!(stranger.send_metadata(a.address(), &gone, SOON).is_err());
    assert!(a.knows("b"));
    // One that has it speaks for itself alone.
    let other = agent("other");
    let refused = other.send_metadata(a.address(), &b.invalidation().unwrap(), SOON).unwrap_err();
    assert!(refused.to_string().contains("is memory of b"), "{refused}");
    assert!(a.knows("b"));
    b.send_metadata(a.address(), &b.invalidation().unwrap(), SOON).unwrap();
    assert!(!a.knows("b"));
}

#[test]
fn the_server_listens_on_ipv6_and_on_every_interface() {
    let client = agent("client");
    for (name, listen) in [("six", "[::1]:0"), ("all", "0.0.0.0:0")] {
        let config = AgentConfig::default()
            .token("the job's")
            .listen(listen.parse::<std::net::SocketAddr>().unwrap());
        let Ok(server) = Agent::new(name, config) else {
            eprintln!("SKIPPED: no IPv6 here");
            continue;
        };
        let mut address = server.address();
        if address.ip().is_unspecified() {
            address.set_ip([127, 0, 0, 1].into());
        }
        assert_eq!(client.fetch_metadata(address, SOON).unwrap(), name);
        client.notify(name, b"hello", SOON).unwrap();
        server.wait_remote_done("client", b"hello", SOON).unwrap();
    }
}

#[test]
fn a_peer_that_ends_is_missed_by_name() {
    let (a, b) = (agent("a"), agent("b"));
    let (ours, theirs) = (a.alloc(8, "m").unwrap(), b.alloc(8, "m").unwrap());
    tell(&a, &b);
    let write = transfer(&a, Op::Write, ours.blocks(0, 8, 1), theirs.blocks(0, 8, 1));
    write.post(PostOptions::new().notify(b"x")).unwrap();
    write.wait(SOON).unwrap();
    drop(b);
    let lost = loop {
        match a.notify("b", b"x", SOON) {
            Ok(()) => std::thread::yield_now(),
            Err(lost) => break lost,
        }
    };
    assert!(lost.to_string().starts_with("b ("), "{lost}");
    assert!(matches!(write.post(PostOptions::new()), Err(AgentError::PeerLost { .. })));
    assert!(!a.knows("b"));
    // Another of the same name takes its place.
    let again = agent("b");
    let newer = again.alloc(8, "m").unwrap();
    a.fetch_metadata(again.address(), SOON).unwrap();
    let to = a.remote("b", "m").unwrap().blocks(0, 8, 1);
    ours.write(0, &[5; 8]).unwrap();
    transfer(&a, Op::Write, ours.blocks(0, 8, 1), to).post(PostOptions::new()).unwrap();
    assert_eq!(newer.to_vec().unwrap(), [5; 8]);
}

#[test]
fn a_connection_that_breaks_the_rules_ends_and_others_go_on() {
    let (a, b) = (agent("a"), agent("b"));
    a.fetch_metadata(b.address(), SOON).unwrap();
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 64], &[1, 0, 0, 0, 9], &[0; 8]] {
        let mut stream = TcpStream::connect(b.address()).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        stream.write_all(bytes).unwrap();
        // The refusal, then the end.
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.len() < 4096);
    }
    a.notify("b", b"still here", SOON).unwrap();
    b.wait_remote_done("a", b"still here", SOON).unwrap();
}

/// The token gets an answer, as long as the agent wants that.
#[test]
fn metadata_is_served_to_strangers_or_not() {
    let config = AgentConfig::default().token("the job's").serve_metadata(false);
    let (quiet, other) = (Agent::new("quiet", config).unwrap(), agent("other"));
    let calls = [
        other.fetch_metadata(quiet.address(), SOON).unwrap_err(),
        other.send_metadata(quiet.address(), &other.metadata().unwrap(), SOON).unwrap_err(),
    ];
    for refused in calls {
        assert!(matches!(refused, AgentError::Refused { .. }), "{refused}");
        assert!(refused.to_string().contains("AgentConfig::serve_metadata"), "{refused}");
    }
    assert!(!quiet.knows("other") && !other.knows("quiet"));
    // Without the token nothing is said of it.
    let stranger = Agent::new("stranger", AgentConfig::default().token("another's")).unwrap();
    let refused = stranger.fetch_metadata(quiet.address(), SOON).unwrap_err();
    assert!(refused.to_string().contains("tokens differ"), "{refused}");
    // Its own calls, and peers that have its metadata, are served.
    assert_eq!(quiet.fetch_metadata(other.address(), SOON).unwrap(), "other");
    tell(&other, &quiet);
    other.notify("quiet", b"hello", SOON).unwrap();
    quiet.wait_remote_done("other", b"hello", SOON).unwrap();
}

/// A program that takes no notifications delays nobody.
#[test]
fn without_a_window_notifications_wait_at_the_receiver_alone() {
    const ALL: u32 = 100_000;
    let config = AgentConfig::default().notification_window(AgentConfig::NO_WINDOW);
    let receiver = Agent::new("receiver", config).unwrap();
    let sender = agent_without_token("sender");
    tell(&sender, &receiver);
    let (ours, theirs) = (sender.alloc(64, "ours").unwrap(), receiver.alloc(64, "theirs").unwrap());
    tell(&sender, &receiver);
    let to = sender.remote("receiver", "theirs").unwrap();
    let writes: Vec<_> = (0..500)
        .map(|_| transfer(&sender, Op::Write, ours.blocks(0, 64, 1), to.blocks(0, 64, 1)))
        .collect();
    for number in 0..ALL {
        let write = &writes[number as usize % writes.len()];
        if number as usize >= writes.len() {
            assert_eq!(write.wait(SOON).unwrap(), State::Done);
        }
        write.post(PostOptions::new().notify(number.to_le_bytes())).unwrap();
    }
    writes.iter().for_each(|write| assert_eq!(write.wait(SOON).unwrap(), State::Done));
    // All are there before the first is taken.
    for number in 0..ALL {
        assert_eq!(receiver.next_notification().unwrap().bytes, number.to_le_bytes());
    }
    assert_eq!(receiver.next_notification(), None);
    sender.notify("receiver", b"after all", SOON).unwrap();
    assert!(receiver.check_remote_done("sender", b"after all"));
    drop(theirs);
    for wrong in [0, AgentConfig::NO_WINDOW + 1] {
        let config = AgentConfig::default().notification_window(wrong);
        let refused = Agent::new("x", config).unwrap_err().to_string();
        assert!(refused.contains(&format!("notification_window is {wrong}, expected 1 to 2^30")));
    }
}
