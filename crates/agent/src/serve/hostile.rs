//! Ends of connections that flood, that read nothing, that are not what they say, and honest peers that
//! go on meanwhile. Progress is what is looked at, not time.

use super::*;
use crate::control::{Asked, Blocking, Frame, Identity, Key, MOST_WAITING, Wanted, ask, establish};
use crate::deadline::Deadline;
use crate::metadata::Metadata;
use crate::{Agent, AgentConfig};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);
pub(super) const TOKEN: &str = "the job's";
/// Rounds of an honest peer.
const ROUNDS: u32 = 100;

pub(super) fn agent(name: &str) -> Agent {
    Agent::new(name, AgentConfig::default().token(TOKEN)).unwrap()
}

/// A connection whose handshake is done, to do with as a test likes. `from` owns nothing else of it.
pub(super) fn hostile(from: &Agent, to: &Agent, named: bool) -> (Blocking, u32) {
    let secret = to.desk().control.own.secret.clone();
    let key = match named {
        true => Key::of_agent(TOKEN.as_bytes(), &secret),
        false => Key::of_job(TOKEN.as_bytes()).unwrap(),
    };
    let wanted = Wanted { key, to: named.then_some(&to.desk().control.own.owner) };
    let limit = ("target", Deadline::after(SOON), SOON);
    let (stream, (_, credits)) =
        establish(&from.desk().control.own, to.address(), limit, &wanted).unwrap();
    (stream, credits)
}

/// Writes whole copies of `bytes` for as long as it may, and counts them; returns when the other end
/// reads no more or `over` says so.
fn flood(stream: &TcpStream, bytes: &[u8], over: &AtomicBool) {
    let mut stream = stream;
    while !over.load(Ordering::Acquire) && stream.write_all(bytes).is_ok() {}
}

/// New connections and notifications on them, each confirmed.
fn honest_rounds(target: &Agent, name: &str) {
    for round in 0..ROUNDS {
        if round % 10 == 0 {
            let visitor = agent(&format!("{name} {round}"));
            visitor.fetch_metadata(target.address(), SOON).unwrap();
            visitor.notify("target", b"visit", SOON).unwrap();
            target.wait_remote_done(&format!("{name} {round}"), b"visit", SOON).unwrap();
        }
    }
    let honest = agent(name);
    honest.fetch_metadata(target.address(), SOON).unwrap();
    for round in 0..ROUNDS {
        honest.notify("target", &round.to_le_bytes(), SOON).unwrap();
        target.wait_remote_done(name, &round.to_le_bytes(), SOON).unwrap();
    }
}

#[test]
fn floods_of_frames_stop_nobody_else() {
    let target = agent("target");
    let (pings, pongs) = (Frame::Ping.encode().repeat(8192), Frame::Pong.encode().repeat(8192));
    let fetch = Frame::Call { number: 7, service: Service::Fetch, bytes: b""[..].into() };
    let fetches = fetch.encode().repeat(4096);
    let revoked = Frame::Revoked { id: 9 }.encode().repeat(8192);
    let _memories: Vec<_> =
        (0..500).map(|i| target.register(vec![0; 64], &format!("memory {i}")).unwrap()).collect();
    let floods = [(&pings, true), (&pongs, true), (&pongs, false), (&fetches, false)];
    let floods = floods.into_iter().chain([(&revoked, true), (&pings, false)]).enumerate();
    let floods: Vec<_> = floods
        .map(|(number, (bytes, named))| {
            let from = agent(&format!("flood {number}"));
            let (stream, _) = hostile(&from, &target, named);
            (from, stream.stream, bytes)
        })
        .collect();
    let over = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (_, stream, bytes) in &floods {
            scope.spawn(move || flood(stream, bytes, over));
            // Answers are read, so that the flood goes on.
            scope.spawn(move || {
                let (mut stream, mut answers) = (stream, vec![0; 1 << 16]);
                while !over.load(Ordering::Acquire)
                    && stream.read(&mut answers).is_ok_and(|count| count > 0)
                {}
            });
        }
        honest_rounds(&target, "honest");
        over.store(true, Ordering::Release);
        for (_, stream, _) in &floods {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    });
}

#[test]
fn answers_that_nobody_reads_stop_the_reading() {
    let target = agent("target");
    let _memories: Vec<_> =
        (0..2000).map(|i| target.register(vec![0; 64], &format!("memory {i}")).unwrap()).collect();
    let fetch = Frame::Call { number: 7, service: Service::Fetch, bytes: b""[..].into() };
    let key = Frame::Call { number: 7, service: Service::TcpKey, bytes: b"wrong"[..].into() };
    let ends = [(fetch.encode().repeat(4096), false), (key.encode().repeat(4096), true)];
    let from = agent("reads nothing");
    for (bytes, named) in &ends {
        let stream = hostile(&from, &target, *named).0.stream;
        stream.set_nonblocking(true).unwrap();
        let written = AtomicUsize::new(0);
        let write = || {
            loop {
                match (&stream).write(bytes) {
                    Ok(count) => drop(written.fetch_add(count, Ordering::Relaxed)),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                    Err(error) => panic!("{error}"),
                }
            }
        };
        // Until other peers have made so much progress twice and it has read nothing more.
        let mut before = usize::MAX;
        while before != written.load(Ordering::Relaxed) {
            before = written.load(Ordering::Relaxed);
            honest_rounds(&target, "honest");
            write();
            // The buffers of both sockets, and what the agent reads before it stops.
            assert!(written.load(Ordering::Relaxed) < 64 << 20);
        }
        let held = target.desk().control.held();
        assert!(held < 8 << 20, "{held} bytes");
    }
}

#[test]
fn nobody_takes_the_room_of_another_agent() {
    let config = || AgentConfig::default().token(TOKEN).notification_window(4);
    let target = Agent::new("target", config()).unwrap();
    let (honest, thief) = (agent("honest"), agent("thief"));
    honest.fetch_metadata(target.address(), SOON).unwrap();
    target.load_metadata(&honest.metadata().unwrap()).unwrap();
    // The thief has the target's metadata, and says that it is the honest one.
    thief.fetch_metadata(target.address(), SOON).unwrap();
    let owner = honest.desk().control.own.owner.clone();
    let disguised = Identity { owner, ..thief.desk().control.own.clone() };
    let key = Key::of_agent(TOKEN.as_bytes(), &target.desk().control.own.secret);
    let wanted = Wanted { key, to: Some(&target.desk().control.own.owner) };
    let limit = ("target", Deadline::after(SOON), SOON);
    let refused = establish(&disguised, target.address(), limit, &wanted).err().unwrap();
    assert!(refused.to_string().contains("it is not honest"), "{refused}");
    for round in 0..4u8 {
        honest.notify("target", &[round], SOON).unwrap();
    }
}

/// Notifications that may still arrive by an earlier connection take room until that ends.
#[test]
fn all_connections_of_a_sender_share_its_window() {
    let config = AgentConfig::default().token(TOKEN).notification_window(4);
    let (target, sender) = (Agent::new("target", config).unwrap(), agent("sender"));
    let notify = |stream: &mut Blocking, number| {
        stream.send(&Frame::Notify { number, bytes: b"n"[..].into() }).unwrap();
    };
    let accepted = |stream: &mut Blocking, number| {
        assert_eq!(stream.receive().unwrap(), Frame::Accepted { number });
    };
    let (mut first, credits) = hostile(&sender, &target, true);
    assert_eq!(credits, 4);
    notify(&mut first, 0);
    accepted(&mut first, 0);
    let (mut second, credits) = hostile(&sender, &target, true);
    assert_eq!(credits, 0);
    // These were under way.
    notify(&mut first, 1);
    accepted(&mut first, 1);
    target.wait_notification(SOON).unwrap();
    assert_eq!(second.receive().unwrap(), Frame::Credit { count: 1 });
    drop(first);
    assert_eq!(second.receive().unwrap(), Frame::Credit { count: 2 });
    for number in 0..3 {
        notify(&mut second, number);
        accepted(&mut second, number);
    }
    notify(&mut second, 3);
    let refused = second.receive().unwrap_err().to_string();
    assert!(refused.contains("beyond the credits"), "{refused}");
}

/// A sender that has room is told of more only now and then, and one that has none at once.
#[test]
fn room_is_told_in_halves_of_the_window_and_at_once_to_a_sender_that_has_none() {
    let config = AgentConfig::default().token(TOKEN).notification_window(8);
    let (target, sender) = (Agent::new("target", config).unwrap(), agent("sender"));
    let (mut stream, mut credits) = hostile(&sender, &target, true);
    let (mut frames, mut number) = (0, 0);
    // Sends one, and waits until it is accepted; what it is granted meanwhile counts.
    let mut send = |credits: &mut u32, frames: &mut u32| {
        *credits -= 1;
        stream.send(&Frame::Notify { number, bytes: b"n"[..].into() }).unwrap();
        loop {
            match stream.receive().unwrap() {
                Frame::Credit { count } => (*credits, *frames) = (*credits + count, *frames + 1),
                Frame::Accepted { number: accepted } => break assert_eq!(accepted, number),
                other => panic!("{other:?}"),
            }
        }
        number += 1;
    };
    for _ in 0..100 {
        assert!(credits > 0);
        send(&mut credits, &mut frames);
        target.wait_notification(SOON).unwrap();
    }
    assert!((15..=30).contains(&frames), "{frames} messages for 100 notifications");
    // All but what it has not been told of.
    while credits > 0 {
        send(&mut credits, &mut frames);
    }
    target.wait_notification(SOON).unwrap();
    assert!(matches!(stream.receive().unwrap(), Frame::Credit { count: 1.. }));
}

/// A sender of which nothing waits finds room when those whose notifications nobody takes have filled
/// theirs, and connects when there is none at all.
#[test]
fn notifications_of_all_senders_have_one_bound() {
    let (target, first, second) = (agent("target"), agent("first"), agent("second"));
    let inbox = &target.desk().control.inbox;
    let declined = |sender: &Agent| {
        let declined = sender.notify("target", b"n", SOON).unwrap_err();
        assert!(matches!(declined, AgentError::Notification { len: 1, .. }), "{declined}");
        assert!(declined.to_string().contains("its inbox is full"), "{declined}");
    };
    inbox.pretend(MOST_WAITING / 2);
    for sender in [&first, &second] {
        sender.fetch_metadata(target.address(), SOON).unwrap();
        sender.notify("target", b"1", SOON).unwrap();
        // More often than it has credits: it keeps them.
        (0..100).for_each(|_| declined(sender));
        target.wait_remote_done(sender.name(), b"1", SOON).unwrap();
        sender.notify("target", b"2", SOON).unwrap();
    }
    inbox.pretend(MOST_WAITING);
    let third = agent("third");
    third.fetch_metadata(target.address(), SOON).unwrap();
    declined(&third);
    inbox.pretend(MOST_WAITING / 4);
    third.notify("target", b"1", SOON).unwrap();
    third.notify("target", b"2", SOON).unwrap();
    for (sender, tag) in [("first", b"2"), ("second", b"2"), ("third", b"1"), ("third", b"2")] {
        target.wait_remote_done(sender, tag, SOON).unwrap();
    }
}

/// Metadata under made-up names. The program's own is not counted.
#[test]
fn metadata_that_all_peers_bring_has_one_bound() {
    let (target, member) = (agent("target"), agent("member"));
    let _memory = member.register(vec![0; 64], "memory").unwrap();
    let _others = target.shared.peers.take_all_but(1 << 20);
    let own = member.desk().control.own.clone();
    let metadata = member.metadata().unwrap();
    let named = |name: &str| {
        let mut told = Metadata::from_bytes(&metadata, TOKEN.as_bytes()).unwrap();
        told.name = name.into();
        told.to_bytes(TOKEN.as_bytes()).unwrap()
    };
    let bring = |name: &str| {
        let owner = Owner { name: name.into(), ..own.owner.clone() };
        let made_up = Identity { owner, ..own.clone() };
        ask(&made_up, target.address(), SOON, Service::Load, &named(name)).map(drop)
    };
    // Each takes 4 KiB at least, and all as much: their names are of one length.
    let refused = (0..256).find_map(|number| bring(&format!("made up {number:03}")).err());
    let refused = refused.expect("a bound");
    assert!(matches!(&refused, AgentError::Refused { why, .. } if why.contains("at its bound")));
    // One that is known says the same again, as often as it likes.
    (0..256).for_each(|_| bring("made up 000").unwrap());
    for number in 0..256 {
        target.load_metadata(&named(&format!("loaded {number}"))).unwrap();
    }
    // Those that are known to be lost make room.
    assert!(bring("another one").is_err());
    let lost = target.shared.peers.peer("made up 000").unwrap();
    lost.lose(AgentError::Cancelled);
    drop(lost);
    bring("another one").unwrap();
    assert!(!target.knows("made up 000") && target.knows("made up 001"));
    assert!(bring("and one yet").is_err());
    target.remove_peer("made up 001").unwrap();
    bring("and one yet").unwrap();
}
