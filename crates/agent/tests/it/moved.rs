//! Bytes that are done while a transfer is in progress, on every path: they grow, in the steps that the path reports, up
//! to all of them; and errors say them.

use crate::bed::{SOON, by, signal, tell};
use crate::terminal::{LEN, Rig};
use rustix::process::Signal;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use warpverbs_agent::{Agent, AgentConfig, AgentError, Op, PathKind, PostOptions, State, Transfer};
use warpverbs_dev::{Child, say};

/// Posts it again and again until some of its bytes, and not all, were seen to be done.
fn until_a_part_is_seen(transfer: &Transfer) {
    let (total, began, seen) = (transfer.bytes(), Instant::now(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let posts = scope.spawn(|| {
            while !seen.load(Ordering::Relaxed) {
                assert!(began.elapsed() < SOON, "never a part of {transfer:?}");
                transfer.post(PostOptions::new()).unwrap();
                assert_eq!(transfer.wait(SOON).unwrap(), State::Done);
                assert_eq!(transfer.moved(), total);
            }
        });
        while !posts.is_finished() {
            let moved = transfer.moved();
            assert!(moved <= total, "{moved} of {total}");
            if 0 < moved && moved < total {
                seen.store(true, Ordering::Relaxed);
            }
        }
        posts.join().unwrap();
    });
}

#[test]
fn parts_of_a_transfer_are_seen_on_every_path() {
    for path in PathKind::ALL {
        let rig = Rig::with(path, by(path));
        for op in [Op::Read, Op::Write] {
            let transfer = rig.transfer(op, &rig.ours, 256 << 10);
            assert_eq!(transfer.moved(), 0);
            until_a_part_is_seen(&transfer);
            assert_eq!(transfer.moved(), LEN as u64);
        }
    }
}

/// As one thread sees it, which moves it on by looking.
#[test]
fn bytes_done_do_not_fall() {
    for path in [PathKind::Network, PathKind::Tcp] {
        let rig = Rig::with(path, by(path));
        let transfer = rig.transfer(Op::Write, &rig.ours, 64 << 10);
        for _ in 0..8 {
            transfer.post(PostOptions::new()).unwrap();
            let (mut last, began) = (0, Instant::now());
            while transfer.state() == State::InProgress {
                assert!(began.elapsed() < SOON);
                let moved = transfer.moved();
                assert!(moved >= last, "{moved} after {last}");
                last = moved;
            }
            assert_eq!((transfer.state(), transfer.moved()), (State::Done, LEN as u64));
        }
    }
}

/// All blocks are in place, but nobody takes the notification: the bytes are done, the transfer is not.
#[test]
fn a_transfer_whose_notification_is_late_has_moved_all_of_its_bytes() {
    for path in [PathKind::SameProcess, PathKind::Tcp] {
        let config = || AgentConfig::default().require(path).notification_window(1);
        let [agent, target] = ["agent", "target"].map(|name| Agent::new(name, config()).unwrap());
        let theirs = target.register(vec![0; 4096], "theirs").unwrap();
        let ours = agent.register(vec![1; 4096], "ours").unwrap();
        tell(&agent, &target);
        let blocks = (ours.blocks(0, 64, 64).unwrap(), theirs.blocks(0, 64, 64).unwrap());
        let write = agent.transfer(Op::Write, &blocks.0, &blocks.1).unwrap();
        agent.notify("target", b"fills the window", SOON).unwrap();
        let late = PostOptions::new().notify(b"too many").deadline(Duration::from_millis(200));
        // On a slow machine it may end before all is in place: then once more.
        let began = Instant::now();
        loop {
            let error = write.post(late.clone()).and_then(|_| write.wait(SOON)).unwrap_err();
            assert!(matches!(error, AgentError::Timeout { .. }), "{error:?}");
            if write.moved() == write.bytes() {
                assert!(error.to_string().contains(", 4096 of 4096 bytes done: "), "{error}");
                break;
            }
            assert!(began.elapsed() < SOON);
        }
        assert!(theirs.to_vec().unwrap() == [1; 4096]);
    }
}

/// The other process: has memory, and is stopped or killed.
#[test]
fn target() {
    if std::env::var_os("AGENT_MOVED_TARGET").is_some() {
        let agent = Agent::new("target", by(PathKind::Tcp)).unwrap();
        let _memory = agent.register(vec![0; 64 << 20], "memory").unwrap();
        say(agent.address());
        let _ = std::io::stdin().read_line(&mut String::new());
    }
}

/// The text of a failure has the figures that the transfer has.
fn says_how_far(error: &AgentError, transfer: &Transfer) {
    let (moved, total) = (transfer.moved(), transfer.bytes());
    let expected = format!("{moved} of {total} bytes done");
    assert!(moved < total && error.to_string().contains(&expected), "{error}, not {expected}");
}

#[test]
fn a_late_transfer_and_one_whose_peer_is_killed_say_how_far_they_came() {
    let mut child = Child::of_test("moved::target", "AGENT_MOVED_TARGET", 1);
    let address: SocketAddr = child.said().parse().unwrap();
    let agent = Agent::new("initiator", by(PathKind::Tcp)).unwrap();
    agent.fetch_metadata(address, SOON).unwrap();
    let ours = agent.register(vec![1; 64 << 20], "ours").unwrap();
    let remote = agent.remote("target", "memory").unwrap();
    let blocks = |list: &dyn Fn(u64, u64, usize) -> _| list(0, 1 << 20, 64);
    let here: Result<_, AgentError> = blocks(&|at, len, count| ours.blocks(at, len, count));
    let there: Result<_, AgentError> = blocks(&|at, len, count| remote.blocks(at, len, count));
    let write = agent.transfer(Op::Write, &here.unwrap(), &there.unwrap()).unwrap();
    write.post(PostOptions::new()).unwrap();
    assert_eq!(write.wait(SOON).unwrap(), State::Done);

    signal(&child, Signal::STOP);
    // More than sockets take while nobody reads.
    write.post(PostOptions::new()).unwrap();
    let late = write.wait(Duration::from_millis(300)).unwrap_err();
    assert!(matches!(late, AgentError::Timeout { .. }), "{late:?}");
    says_how_far(&late, &write);
    child.kill();
    let lost = write.wait(SOON).unwrap_err();
    assert!(matches!(lost, AgentError::PeerLost { .. }), "{lost:?}");
    says_how_far(&lost, &write);
}
