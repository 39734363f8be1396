//! Credits for receives, attributes that change in RTS, reserved opcodes: two NICs over a
//! cable in virtual time.

use std::time::Duration;
use warpverbs_dev::{Net, PortConfig, addresses, bytes, sge};
use warpverbs_mlx5::syndrome::Syndrome;
use warpverbs_mlx5::wqe::WqeBuilder;
use warpverbs_nic::link::{Link, Sent, TrainLimits, cable};
use warpverbs_nic::{AsyncEvent, Mtu, QpAttrs, QpState, rnr_delay};
use warpverbs_wire::{Envelope, Ip, Transport, Udp};

const SECOND: Duration = Duration::from_secs(1);

/// Posts SENDs of 8 bytes, numbered from `first` on.
fn send(net: &mut Net, numbers: std::ops::Range<u64>) {
    for number in numbers {
        net.a.mr.region().write(number * 8, &number.to_le_bytes()).expect("inside");
        let from = sge(&net.a.mr, number * 8, 8);
        net.a.port.post_wqe(|buf, at| WqeBuilder::send(buf, at).sge(from).signaled());
    }
}

fn receive(net: &mut Net, numbers: std::ops::Range<u64>) {
    for number in numbers {
        let place = sge(&net.b.mr, number * 8, 8);
        net.b.port.post_recv(&[place]);
    }
}

fn received(net: &mut Net, numbers: std::ops::Range<u64>) {
    let expected: Vec<_> = numbers.clone().map(|number| (number as u16, None)).collect();
    assert_eq!(net.b.port.received(), expected);
    for number in numbers {
        assert_eq!(bytes(net.b.mr.region(), number * 8, 8), number.to_le_bytes());
    }
}

#[test]
fn a_sender_sends_no_more_than_there_are_receives() {
    let mut net = Net::perfect(QpAttrs::default());
    receive(&mut net, 0..3);
    send(&mut net, 0..1);
    net.run();
    received(&mut net, 0..1);
    // It knows of two receives. Eight messages wait: two go, and one that asks for more.
    let before = net.b.nic.stats().net.received;
    send(&mut net, 1..9);
    net.run();
    received(&mut net, 1..3);
    assert_eq!(net.b.nic.stats().net.received - before, 3);
    receive(&mut net, 3..9);
    let mut done = 0;
    assert!(net.run_until(SECOND, |net| {
        done += net.a.port.sent().len();
        done == 9
    }));
    received(&mut net, 3..9);
    assert_eq!(net.a.port.qp.stats().rnr_naks, 1);
    assert_eq!((net.a.port.qp.state(), net.b.port.qp.state()), (QpState::Rts, QpState::Rts));
}

#[test]
fn news_of_receives_come_unasked() {
    let mut net = Net::perfect(QpAttrs::default());
    receive(&mut net, 0..1);
    send(&mut net, 0..1);
    net.run();
    received(&mut net, 0..1);
    let before = net.a.nic.stats().net.received;
    net.run();
    assert_eq!(net.a.nic.stats().net.received, before);
    receive(&mut net, 1..5);
    net.run();
    assert_eq!(net.a.nic.stats().net.received, before + 1);
    // All four go at once.
    let before = net.b.nic.stats().net.received;
    send(&mut net, 1..5);
    net.run();
    assert_eq!(net.b.nic.stats().net.received - before, 4);
    received(&mut net, 1..5);
    assert_eq!(net.a.port.qp.stats().rnr_naks, 0);
}

#[test]
fn attributes_given_in_rts_hold() {
    let mut net = Net::perfect(QpAttrs { min_rnr_timer: Some(1), ..QpAttrs::default() });
    let slow = QpAttrs { min_rnr_timer: Some(20), ..QpAttrs::default() };
    net.b.port.qp.modify(QpState::Rts, &slow).expect("RTS to RTS");
    send(&mut net, 0..1);
    net.run();
    receive(&mut net, 0..1);
    net.run_for(rnr_delay(20) - Duration::from_nanos(1));
    received(&mut net, 0..0);
    net.run_for(Duration::from_nanos(1));
    received(&mut net, 0..1);
}

#[test]
fn retries_given_in_sqd_hold() {
    let mut net = Net::perfect(QpAttrs::default());
    net.a.port.qp.modify(QpState::Sqd, &QpAttrs::default()).expect("RTS to SQD");
    net.run();
    let hasty = QpAttrs { retry: Some(0), timeout: Some(1), ..QpAttrs::default() };
    net.a.port.qp.modify(QpState::Sqd, &hasty).expect("SQD to SQD");
    net.a.port.qp.modify(QpState::Rts, &QpAttrs::default()).expect("SQD to RTS");
    net.b.port.qp.modify(QpState::Reset, &QpAttrs::default()).expect("RESET");
    send(&mut net, 0..1);
    net.run_for(Duration::from_nanos(8192));
    assert_eq!(net.a.port.qp.state(), QpState::Err);
}

/// Turns the opcode of the first datagram it sends into one that is reserved.
#[derive(Debug)]
struct Reserving<L>(L, bool);

impl<L: Link> Link for Reserving<L> {
    fn local(&self) -> std::net::SocketAddr {
        self.0.local()
    }

    fn max_mtu(&self) -> Mtu {
        self.0.max_mtu()
    }

    fn train_limits(&self) -> TrainLimits {
        TrainLimits { segments: 1, ..self.0.train_limits() }
    }

    fn send(&mut self, now: Duration, to: std::net::SocketAddr, train: &[u8], len: usize) -> Sent {
        let mut datagram = train.to_vec();
        if !std::mem::replace(&mut self.1, true) {
            datagram[0] = 0x1f;
            let ip = Ip::new(self.local().ip(), to.ip()).expect("one family");
            let envelope = Envelope { ip, udp: Udp { src_port: self.local().port() } };
            envelope.seal(&mut datagram).expect("a datagram");
            assert!(Transport::reserved(&datagram, warpverbs_wire::Pkey::DEFAULT).is_some());
        }
        self.0.send(now, to, &datagram, len)
    }

    fn receive(
        &mut self,
        now: Duration,
        sink: &mut dyn FnMut(warpverbs_nic::link::Arrival<'_>),
    ) -> usize {
        self.0.receive(now, sink)
    }
}

#[test]
fn a_reserved_opcode_is_an_invalid_request() {
    let (a, b) = addresses();
    let (a, b) = cable(a, b);
    let (a, attrs) = (Box::new(Reserving(a, false)), QpAttrs::default());
    let mut net = Net::over(a, Box::new(b), &PortConfig::default(), attrs).expect("two NICs");
    receive(&mut net, 0..1);
    send(&mut net, 0..1);
    net.run();
    assert_eq!(net.a.port.sent(), [(0, Some(Syndrome::RemoteInvalReq))]);
    assert_eq!((net.a.port.qp.state(), net.b.port.qp.state()), (QpState::Err, QpState::Err));
    let qpn = net.b.port.qp.qpn();
    assert_eq!(net.b.nic.poll_event(), Some(AsyncEvent::QpRequestError { qpn }));
    assert_eq!(net.b.nic.stats().net.malformed, 0);
}
