//! Threads that must not wait: calls that take what is at hand, and waits for notifications that sleep.

use crate::bed::{SOON, by, pair, run, tell};
use std::time::Duration;
use warpverbs_agent::{AgentConfig, AgentError, Op, PathKind, PostOptions, State, at_hand};

/// Paths and connections are not looked for, and nothing changes; once another thread has found them they are taken.
#[test]
fn a_call_takes_what_is_at_hand_or_has_no_result() {
    for path in [PathKind::SameProcess, PathKind::Tcp, PathKind::Network] {
        let (initiator, target) = pair(|| by(path));
        let theirs = target.register(vec![7; 4096], "theirs").unwrap();
        let ours = initiator.register(vec![0; 4096], "ours").unwrap();
        tell(&initiator, &target);
        let (here, there) = (ours.blocks(0, 64, 64).unwrap(), theirs.blocks(0, 64, 64).unwrap());
        let make = || initiator.transfer(Op::Read, &here, &there);
        let send = || initiator.send_notification("target", b"hello", SOON);
        let nothing = initiator.counters();
        assert!(at_hand(make).is_none() && at_hand(send).is_none(), "{path}");
        assert_eq!(initiator.counters(), nothing);
        assert!(target.next_notification().is_none());
        let made = std::thread::scope(|scope| scope.spawn(make).join().unwrap()).unwrap();
        assert_eq!(made.holds_up(true), path == PathKind::SameProcess, "{path}");
        assert!(!made.holds_up(false) && made.is_brief() == (path == PathKind::SameProcess));
        run(&at_hand(make).unwrap().unwrap());
        assert_eq!(ours.to_vec().unwrap(), [7; 4096]);
        // A connection is there as soon as one was needed.
        initiator.connect("target", SOON).unwrap();
        assert!(!made.holds_up(true));
        let sent = at_hand(send).unwrap().unwrap();
        while !sent.wait(SOON).unwrap() {}
        assert_eq!(&target.next_notification().unwrap().bytes, b"hello");
        // Waiting is for the call alone.
        initiator.notify("target", b"again", SOON).unwrap();
    }
}

/// A refusal for which no peer is needed is a result.
#[test]
fn an_error_that_needs_no_waiting_is_a_result() {
    let (initiator, target) = pair(AgentConfig::default);
    let theirs = target.register(vec![7; 64], "theirs").unwrap();
    let ours = initiator.register(vec![0; 64], "ours").unwrap();
    tell(&initiator, &target);
    let (here, there) = (ours.blocks(0, 64, 1).unwrap(), theirs.blocks(0, 32, 1).unwrap());
    let refused = at_hand(|| initiator.transfer(Op::Read, &here, &there)).unwrap();
    assert!(matches!(refused, Err(AgentError::Lengths { .. })), "{refused:?}");
    let nobody = at_hand(|| initiator.send_notification("nobody", b"", SOON)).unwrap();
    assert!(matches!(nobody, Err(AgentError::UnknownPeer { .. })), "{nobody:?}");
}

/// How much a copy of the CPU is decides whether it is brief, or holds a thread up.
#[test]
fn short_copies_are_brief_and_long_ones_hold_up() {
    let (initiator, target) = pair(AgentConfig::default);
    let len = 64 << 20;
    let theirs = target.register(vec![7; len], "theirs").unwrap();
    let ours = initiator.register(vec![0; len], "ours").unwrap();
    tell(&initiator, &target);
    for (bytes, brief, long) in
        [(8, true, false), (1 << 20, false, false), (len as u64, false, true)]
    {
        let (here, there) =
            (ours.blocks(0, bytes, 1).unwrap(), theirs.blocks(0, bytes, 1).unwrap());
        let made = initiator.transfer(Op::Write, &here, &there).unwrap();
        assert_eq!((made.is_brief(), made.holds_up(false)), (brief, long), "{bytes} bytes");
        assert_eq!(made.post(PostOptions::new()).unwrap(), State::Done);
    }
}

/// How often this thread has given its processor up.
fn sleeps() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.unwrap().trim().parse().unwrap()
}

/// A notification for which the peer has no room: its sender sleeps until its time is over, and does not look again and
/// again.
#[test]
fn the_sender_of_a_notification_sleeps() {
    let (initiator, target) = pair(|| AgentConfig::default().notification_window(1));
    tell(&initiator, &target);
    initiator.notify("target", b"fills the window", SOON).unwrap();
    let before = sleeps();
    let late = initiator.notify("target", b"one too many", Duration::from_millis(500));
    let slept = sleeps() - before;
    assert!(matches!(late, Err(AgentError::Timeout { .. })), "{late:?}");
    assert!(slept < 50, "{slept} times awake in half a second");
    // It was withdrawn: the next one that arrives is another.
    target.next_notification().unwrap();
    initiator.notify("target", b"the next", SOON).unwrap();
    assert_eq!(&target.next_notification().unwrap().bytes, b"the next");
}
