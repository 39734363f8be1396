//! The cost of loss: the time of many large messages over a link of a certain rate, in virtual
//! time, with and without loss. Deterministic: no clock is read.

use crate::common::host::REMOTE;
use crate::common::link::{Faults, Link};
use crate::common::pair::{Node, Pair};
use warpverbs_rc::{Config, Op, Request, WrId};
use warpverbs_wire::{Mtu, Qpn};

const MESSAGE: usize = 1 << 20;
const MESSAGES: u64 = 64;
/// Packets that a link may have in hand before its sender waits.
const BACKLOG: u64 = 16;

fn pair(loss: f64) -> Pair {
    // 4 KiB in 2 µs, 10 µs each way: what a datagram socket of one machine does.
    let faults = Faults { loss, delay: 10_000, occupancy: 2_000, ..Faults::default() };
    let config = Config { mtu: Mtu::B4096, ..Config::new(Qpn::default()) };
    let node = || Node::new(&config, MESSAGE);
    Pair::new([node(), node()], [Link::new(faults, 1), Link::new(faults, 2)])
}

/// Sends as long as the links take packets; returns when the next one is free again.
fn transmit(pair: &mut Pair) -> Option<u64> {
    let mut free = None;
    for (node, link) in pair.nodes.iter_mut().zip(&mut pair.links) {
        let limit = BACKLOG * link.faults.occupancy;
        loop {
            if link.busy_until > pair.now + limit {
                let at = link.busy_until - limit;
                free = Some(free.map_or(at, |free: u64| free.min(at)));
                break;
            }
            let Some(packet) = node.transmit(pair.now) else { break };
            link.send(pair.now, &packet);
        }
    }
    free
}

/// Virtual nanoseconds until all messages are complete, two at a time.
fn run(op: Op, loss: f64) -> u64 {
    let mut pair = pair(loss);
    let mut posted = 0;
    loop {
        let node = &mut pair.nodes[0];
        let done = node.completions.len() as u64;
        assert!(node.completions.iter().all(|completion| {
            matches!(completion, warpverbs_rc::Completion::Request { result: Ok(()), .. })
        }));
        if done == MESSAGES {
            return pair.now;
        }
        while posted < MESSAGES.min(done + 2) {
            let request = Request::new(WrId(posted), op, MESSAGE as u32);
            assert!(node.post(request, vec![0; MESSAGE]));
            posted += 1;
        }
        let free = transmit(&mut pair);
        let event = pair.next_event();
        pair.now = event.into_iter().chain(free).min().expect("something is under way");
        pair.happen();
    }
}

//= [req.early-resend] [req.go-back-n]
#[test]
fn one_percent_of_loss_leaves_half_of_the_rate() {
    for op in [Op::Write(REMOTE), Op::Read(REMOTE)] {
        let (clean, lossy) = (run(op, 0.0), run(op, 0.01));
        let rate = |nanos: u64| (MESSAGES * MESSAGE as u64) as f64 / nanos as f64;
        println!("{op:?}: {:.2} GB/s, with loss {:.2} GB/s", rate(clean), rate(lossy));
        assert!(rate(clean) > 1.8, "the link carries 2 GB/s, used {:.2}", rate(clean));
        assert!(lossy < 2 * clean, "{lossy} ns with loss, {clean} ns without");
    }
}
