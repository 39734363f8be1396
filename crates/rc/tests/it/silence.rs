//! A peer that dies or goes silent: RETRY_EXC when the configured time is over, not earlier, not
//! later, whatever was under way.

use std::time::Duration;

use crate::common::host::{BASE, RKEY};
use crate::common::link::{Faults, Link};
use crate::common::pair::{Node, Pair};
use crate::common::rng::Rng;
use warpverbs_rc::{AckTimeout, Completion, Config, Op, Remote, Request, State, Status, WrId};
use warpverbs_wire::Qpn;

const DELAY: u64 = 2_000;

fn pair(config: &Config) -> Pair {
    let node = || Node::new(config, 65536);
    let link = |seed| Link::new(Faults { delay: DELAY, ..Faults::default() }, seed);
    Pair { now: 0, nodes: [node(), node()], links: [link(1), link(2)] }
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
        let mut rng = Rng::new(u64::from(code));
        for round in 0..50 {
            let mut pair = pair(&config);
            for id in 0..20 {
                let op = match rng.below(3) {
                    0 => Op::Read(Remote { addr: BASE, rkey: RKEY }),
                    _ => Op::Write(Remote { addr: BASE, rkey: RKEY }),
                };
                let len = rng.below(20_000) as u32;
                pair.nodes[0].post(Request::new(WrId(id), op, len), vec![0; len as usize]);
            }
            pair.drive(rng.below(8 * DELAY));
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

/// A message that fills the whole send queue arrives without any loss to help it.
#[test]
fn clean_link_resends_nothing() {
    let mut pair = pair(&Config::new(Qpn::default()));
    for id in 0..64 {
        let len = 1000 * id as u32;
        let op = match id % 3 {
            0 => Op::Read(Remote { addr: BASE, rkey: RKEY }),
            _ => Op::Write(Remote { addr: BASE, rkey: RKEY }),
        };
        assert!(pair.nodes[0].post(Request::new(WrId(id), op, len), vec![7; len as usize]));
    }
    pair.drive(u64::MAX);
    let node = &pair.nodes[0];
    assert_eq!(node.completions.len(), 64);
    assert_eq!(node.connection.stats().resent, 0);
    assert_eq!(node.connection.poll_timeout(), None);
}
