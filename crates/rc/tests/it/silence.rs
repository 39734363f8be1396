//! A peer that dies or goes silent: RETRY_EXC when the configured time is over, not earlier, not
//! later, whatever was under way.

use std::time::Duration;

use crate::common::host::REMOTE;
use crate::common::link::{Faults, Link};
use crate::common::pair::{Node, Pair};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use warpverbs_rc::{AckTimeout, Completion, Config, Op, Request, State, Status, WrId};
use warpverbs_wire::Qpn;

const DELAY: u64 = 2_000;

fn pair(config: &Config) -> Pair {
    let node = || Node::new(config, 65536);
    let link = |seed| Link::new(Faults { delay: DELAY, ..Faults::default() }, seed);
    Pair::new([node(), node()], [link(1), link(2)])
}

fn cut(pair: &mut Pair) {
    for link in &mut pair.links {
        link.faults.loss = 1.0;
    }
}

//= [req.timeout]
#[test]
fn silent_peer_fails_in_time() {
    for (code, retry, early) in
        [(6, 0, None), (6, 3, None), (8, 7, None), (10, 7, Some(Duration::from_micros(50)))]
    {
        let timeout = AckTimeout::from_code(code).unwrap();
        let config = Config { timeout, retry, early_resend: early, ..Config::new(Qpn::default()) };
        let mut rng = StdRng::seed_from_u64(u64::from(code));
        for round in 0..50 {
            let mut pair = pair(&config);
            for id in 0..20 {
                let op = match rng.random_range(0..3) {
                    0 => Op::Read(REMOTE),
                    _ => Op::Write(REMOTE),
                };
                let len = rng.random_range(0..20_000);
                pair.nodes[0].post(Request::new(WrId(id), op, len), vec![0; len as usize]);
            }
            pair.drive(rng.random_range(0..8 * DELAY));
            let before = pair.now;
            cut(&mut pair);
            pair.drive(u64::MAX);

            let node = &pair.nodes[0];
            let errors = node.completions.iter().filter_map(|completion| match completion {
                Completion::Request { result: Err(status), .. } => Some(*status),
                _ => None,
            });
            let errors: Vec<Status> = errors.collect();
            assert_eq!(node.completions.len(), 20, "round {round}");
            if errors.is_empty() {
                continue;
            }
            assert_eq!(node.connection.state(), State::Error);
            assert_eq!(errors[0], Status::RetryExceeded);
            assert!(errors[1..].iter().all(|status| *status == Status::Flushed));
            // The last progress was at most one delay after the cut.
            let allowed = timeout.duration().unwrap().as_nanos() as u64 * (u64::from(retry) + 1);
            let took = pair.now - before;
            assert!(took <= allowed + 2 * DELAY, "round {round}: {took} ns, allowed {allowed}");
            assert!(took + 16 * DELAY >= allowed, "round {round}: {took} ns, allowed {allowed}");
        }
    }
}

/// Without a timeout a peer may stay silent for ever; early resends go on, ever more rarely.
#[test]
fn no_timeout_is_no_failure() {
    let config = Config { timeout: AckTimeout::NEVER, ..Config::new(Qpn::default()) };
    let mut pair = pair(&config);
    cut(&mut pair);
    pair.nodes[0].post(Request::new(WrId(1), Op::Send, 8), vec![0; 8]);
    pair.drive(Duration::from_secs(3600).as_nanos() as u64);
    let node = &pair.nodes[0];
    assert_eq!((node.connection.state(), node.completions.len()), (State::ReadyToSend, 0));
    let resent = node.connection.stats().resent;
    assert!((10..1000).contains(&resent), "{resent}");
}

/// Two ends on one host, a post of each kind under way; `code` and `retry` are the requester's.
fn local(code: u8, retry: u8, early: Option<Duration>) -> Pair {
    let timeout = AckTimeout::from_code(code).unwrap();
    let config = Config { timeout, retry, early_resend: early, ..Config::new(Qpn::default()) };
    let mut pair = pair(&config);
    pair.processors.iter_mut().for_each(|processor| processor.far = false);
    for id in 0..20 {
        let op = match id % 3 {
            0 => Op::Read(REMOTE),
            _ => Op::Write(REMOTE),
        };
        assert!(pair.nodes[0].post(Request::new(WrId(id), op, 5000), vec![7; 5000]));
    }
    pair
}

fn first_error(pair: &Pair) -> Option<Status> {
    pair.nodes[0].completions.iter().find_map(|completion| match completion {
        Completion::Request { result: Err(status), .. } => Some(*status),
        _ => None,
    })
}

const EARLY: [Option<Duration>; 2] = [None, Some(Duration::from_micros(50))];

/// The peer's process gets no processor for many times its timeouts, at any moment: no retry is
/// spent, and nothing is sent again.
//= [req.peer-paused]
#[test]
fn a_peer_without_a_processor_loses_nothing() {
    let mut pauses = 0;
    for (code, early) in [(0, EARLY[1]), (6, EARLY[0]), (6, EARLY[1]), (14, EARLY[0])] {
        let mut rng = StdRng::seed_from_u64(u64::from(code));
        for round in 0..50 {
            let mut pair = local(code, 0, early);
            for _ in 0..4 {
                pair.drive(pair.now + rng.random_range(0..8 * DELAY));
                let away = pair.now + rng.random_range(0..200_000_000);
                pair.processors[rng.random_range(0..2)].from = away;
                pair.drive(away);
            }
            pair.drive(u64::MAX);
            let node = &pair.nodes[0];
            assert_eq!(first_error(&pair), None, "round {round}");
            assert_eq!(node.completions.len(), 20, "round {round}");
            let stats = node.connection.stats();
            assert_eq!((stats.timeouts, stats.resent), (0, 0), "round {round}");
            pauses += stats.pauses;
        }
    }
    assert!(pauses > 0, "no timer ran out");
}

/// A stopped process must not make a call wait for ever.
//= [req.peer-paused]
#[test]
fn a_peer_that_never_runs_again_fails_in_time() {
    for (retry, early) in [(0, EARLY[0]), (3, EARLY[1])] {
        let mut pair = local(14, retry, early);
        pair.drive(0);
        pair.processors[1].from = u64::MAX;
        pair.drive(u64::MAX - 1);
        assert_eq!(first_error(&pair), Some(Status::RetryExceeded));
        let timeouts = AckTimeout::from_code(14).unwrap().duration().unwrap();
        let least = Config::STANDSTILL + timeouts * u32::from(retry);
        let most = Config::STANDSTILL + timeouts * (u32::from(retry) + 2);
        let took = Duration::from_nanos(pair.now);
        assert!((least..most).contains(&took), "{took:?}, not {least:?} to {most:?}");
    }
}

/// Packets lost on one host are lost: they are sent again, and counted.
#[test]
fn a_peer_that_runs_and_hears_nothing_fails_in_time() {
    for (code, early) in [(10, EARLY[0]), (10, EARLY[1]), (14, EARLY[1])] {
        let mut pair = local(code, 7, early);
        cut(&mut pair);
        pair.drive(u64::MAX);
        assert_eq!(first_error(&pair), Some(Status::RetryExceeded));
        let timeouts = AckTimeout::from_code(code).unwrap().duration().unwrap();
        let took = Duration::from_nanos(pair.now);
        assert!((timeouts * 8..timeouts * 9).contains(&took), "{took:?}");
    }
}

//= [req.peer-ended]
#[test]
fn a_peer_that_has_ended_fails_at_the_next_timer() {
    let mut pair = local(20, 7, EARLY[1]);
    pair.drive(0);
    pair.processors[1].ended = true;
    pair.drive(u64::MAX);
    assert_eq!(first_error(&pair), Some(Status::RetryExceeded));
    assert_eq!(pair.nodes[0].completions.len(), 20);
    assert!(Duration::from_nanos(pair.now) < Duration::from_millis(1), "{}", pair.now);
}

/// A message that fills the whole send queue arrives without any loss to help it.
#[test]
fn clean_link_resends_nothing() {
    let mut pair = pair(&Config::new(Qpn::default()));
    for id in 0..64 {
        let len = 1000 * id as u32;
        let op = match id % 3 {
            0 => Op::Read(REMOTE),
            _ => Op::Write(REMOTE),
        };
        assert!(pair.nodes[0].post(Request::new(WrId(id), op, len), vec![7; len as usize]));
    }
    pair.drive(u64::MAX);
    let node = &pair.nodes[0];
    assert_eq!(node.completions.len(), 64);
    assert_eq!(node.connection.stats().resent, 0);
    assert_eq!(node.connection.poll_timeout(), None);
}
