//! How datagrams share calls of a link that takes trains: two NICs over a cable in virtual time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use warpverbs_dev::{Net, PortConfig, addresses, bytes, pattern, remote, sge};
use warpverbs_mlx5::cqe::Cqe;
use warpverbs_mlx5::syndrome::Syndrome;
use warpverbs_mlx5::wqe::WqeBuilder;
use warpverbs_nic::link::{Arrival, Cable, Link, Seal, Sent, TrainLimits, cable};
use warpverbs_nic::{Mtu, QpAttrs};

/// Takes trains of eight datagrams, as UDP does, and counts calls.
#[derive(Debug)]
struct Trains(Cable, Arc<AtomicUsize>);

impl Link for Trains {
    fn local(&self) -> SocketAddr {
        self.0.local()
    }

    fn max_mtu(&self) -> Mtu {
        self.0.max_mtu()
    }

    fn train_limits(&self) -> TrainLimits {
        TrainLimits { segments: 8, ..self.0.train_limits() }
    }

    fn send(&mut self, now: Duration, to: SocketAddr, train: &[u8], len: usize) -> Sent {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.send(now, to, train, len)
    }

    fn receive(&mut self, now: Duration, sink: &mut dyn FnMut(Arrival<'_>)) -> usize {
        self.0.receive(now, &mut |arrival| sink(Arrival { seal: Seal::HiddenId, ..arrival }))
    }
}

/// Two NICs, and the calls of the first one's link.
fn net() -> (Net, Arc<AtomicUsize>) {
    let (a, b) = addresses();
    let (a, b) = cable(a, b);
    let calls = Arc::new(AtomicUsize::new(0));
    let (a, b) = (Trains(a, calls.clone()), Trains(b, Arc::default()));
    let attrs = QpAttrs { mtu: Some(Mtu::B1024), ..QpAttrs::default() };
    let net = Net::over(Box::new(a), Box::new(b), &PortConfig::default(), attrs);
    (net.expect("two NICs"), calls)
}

/// Calls for this many WRITEs of this many bytes, posted together.
fn calls(writes: u64, len: u32) -> (usize, u64) {
    let (mut net, calls) = net();
    let pattern = pattern((writes * u64::from(len)) as usize, 1);
    net.a.mr.region().write(0, &pattern).expect("inside");
    // Shows that the key reaches all of it.
    let (from, to) = (sge(&net.a.mr, 0, 64 << 10), remote(&net.b.mr, 0));
    net.a.port.post_wqe(|buf, at| WqeBuilder::write(buf, at, to).sge(from).signaled());
    net.run();
    assert!(matches!(net.a.port.poll_send(), Some(Cqe::Requester { .. })));
    let before = (calls.load(Ordering::Relaxed), net.a.nic.stats().net.sent);
    net.b.mr.region().fill(0, 64 << 10, 0).expect("inside");
    for number in 0..writes {
        let at = number * u64::from(len);
        let (from, to) = (sge(&net.a.mr, at, len), remote(&net.b.mr, at));
        net.a.port.put_wqe(|buf, at| {
            let wqe = WqeBuilder::write(buf, at, to).sge(from);
            if number + 1 == writes { wqe.signaled() } else { wqe }
        });
    }
    net.a.port.announce();
    net.run();
    assert!(matches!(net.a.port.poll_send(), Some(Cqe::Requester { .. })));
    assert_eq!(bytes(net.b.mr.region(), 0, pattern.len()), pattern);
    (calls.load(Ordering::Relaxed) - before.0, net.a.nic.stats().net.sent - before.1)
}

#[test]
fn short_writes_share_trains() {
    assert_eq!(calls(16, 2048), (4, 32), "two packets each, all of one length");
    assert_eq!(calls(16, 1024), (2, 16));
    // The last packet of each ends a train.
    assert_eq!(calls(4, 1500), (4, 8));
}

#[test]
fn a_refused_write_writes_nothing() {
    let (mut net, _) = net();
    let len = net.b.mr.region().len() as u64;
    net.a.mr.region().write(0, &[7; 3000]).expect("inside");
    // One that fits, so that something is known of the key; then one that reaches beyond its
    // region.
    for at in [len - 8000, len - 2500] {
        let (from, to) = (sge(&net.a.mr, 0, 3000), remote(&net.b.mr, at));
        net.a.port.post_wqe(|buf, at| WqeBuilder::write(buf, at, to).sge(from).signaled());
        net.run();
    }
    assert_eq!(net.a.port.sent(), [(0, None), (1, Some(Syndrome::RemoteAccess))]);
    assert_eq!(bytes(net.b.mr.region(), len - 2500, 2500), [0; 2500]);
}

#[test]
fn an_answer_leaves_with_the_acknowledgement() {
    let (mut net, calls) = net();
    let (at_a, at_b) = (sge(&net.a.mr, 0, 8), sge(&net.b.mr, 0, 8));
    net.a.port.post_recv(&[at_a]);
    net.b.port.post_recv(&[at_b]);
    net.b.port.post_wqe(|buf, at| WqeBuilder::send(buf, at).sge(at_b).signaled());
    net.b.nic.step();
    // The step that receives it completes it, so that an answer may be posted before the next.
    net.a.nic.step();
    assert!(matches!(net.a.port.poll_recv(), Some(Cqe::Receive { .. })));
    assert_eq!(calls.load(Ordering::Relaxed), 0);
    net.a.port.post_wqe(|buf, at| WqeBuilder::send(buf, at).sge(at_a).signaled());
    net.a.nic.step();
    assert_eq!((calls.load(Ordering::Relaxed), net.a.nic.stats().net.sent), (1, 2));
    net.run();
    assert!(matches!(net.b.port.poll_recv(), Some(Cqe::Receive { .. })));
}
