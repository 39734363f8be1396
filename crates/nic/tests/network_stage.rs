//! Memory that only a copy engine reaches, on QPs whose peer is on the network: nothing is reported
//! before its bytes are there, order is kept, and the engine waits for no copy.

use std::sync::Arc;
use std::time::Duration;
use warpverbs_mem::testing::{LazyCopier, LazyMemory};
use warpverbs_mem::{Access, Region};
use warpverbs_mlx5::cqe::Cqe;
use warpverbs_mlx5::syndrome::Syndrome;
use warpverbs_mlx5::wqe::{Position, WqeBuilder};
use warpverbs_nic::link::FaultPlan;
use warpverbs_nic::testing::{Host, Net, PortConfig, bytes, local, remote, sge};
use warpverbs_nic::{AsyncEvent, Mr, Mtu, QpAttrs, QpState, Rule, Step};

/// More than a chunk of a stage.
const LEN: usize = 1 << 20;

/// A buffer of 1 MiB on a device of its own.
struct Device {
    mr: Mr,
    view: Region,
    copier: Arc<LazyCopier>,
}

impl Device {
    fn on(host: &Host, number: u32) -> Self {
        let copier = Arc::new(LazyCopier::default());
        let (region, view) = LazyMemory::regions(LEN, number, &copier).unwrap();
        Self { mr: host.nic.reg_mr(&host.pd, &region, Access::all()).unwrap(), view, copier }
    }
}

/// Two hosts on a perfect cable, a device at either.
struct Rig {
    net: Net,
    near: Device,
    far: Device,
}

fn attrs() -> QpAttrs {
    QpAttrs { timeout: Some(8), retry: Some(2), rnr_retry: Some(1), ..QpAttrs::default() }
}

fn rig() -> Rig {
    rig_with(attrs())
}

fn rig_with(attrs: QpAttrs) -> Rig {
    let net = Net::new(FaultPlan::default(), &PortConfig::default(), attrs).unwrap();
    let (near, far) = (Device::on(&net.a, 0), Device::on(&net.b, 0));
    Rig { net, near, far }
}

fn pattern(len: usize, salt: u8) -> Vec<u8> {
    (0..len).map(|i| (i as u8).wrapping_mul(31).wrapping_add((i >> 8) as u8) ^ salt).collect()
}

impl Rig {
    /// More steps than anything takes that need not wait for a copy. Time stands still.
    fn steps(&self) {
        for _ in 0..200 {
            self.net.a.nic.step();
            self.net.b.nic.step();
        }
    }

    fn post(&mut self, build: impl for<'x> FnOnce(&'x mut [u8], Position) -> WqeBuilder<'x>) {
        self.net.a.port.post_wqe(build);
    }

    /// Copies are carried out without being allowed, but not at once.
    fn go(&self) {
        for device in [&self.near, &self.far] {
            device.copier.pace(3);
        }
    }

    fn sent(&mut self) -> Option<Result<(), Syndrome>> {
        outcome(self.net.a.port.poll_send())
    }

    fn received(&mut self) -> Option<Result<(), Syndrome>> {
        outcome(self.net.b.port.poll_recv())
    }
}

fn outcome(cqe: Option<Cqe>) -> Option<Result<(), Syndrome>> {
    Some(match cqe? {
        Cqe::Error { syndrome, .. } => Err(syndrome),
        _ => Ok(()),
    })
}

const DONE: Option<Result<(), Syndrome>> = Some(Ok(()));

#[test]
fn a_write_is_complete_when_its_bytes_are_there() {
    let mut rig = rig();
    let (from, to) = (sge(&rig.near.mr, 3, 10), remote(&rig.far.mr, 5));
    rig.near.view.write(3, b"0123456789").unwrap();
    rig.post(|b, at| WqeBuilder::write(b, at, to).sge(from).signaled());
    rig.steps();
    assert_eq!((rig.near.copier.waiting(), rig.net.a.nic.stats().net.sent), (1, 0), "no bytes yet");
    rig.near.copier.allow(1);
    rig.steps();
    assert_eq!((rig.far.copier.waiting(), rig.sent()), (1, None), "they are not there");
    assert_eq!(rig.net.b.nic.stats().net.sent, 0, "nor acknowledged");
    rig.far.copier.allow(1);
    rig.net.run();
    assert_eq!(bytes(&rig.far.view, 5, 10), b"0123456789");
    assert_eq!(rig.sent(), DONE);
}

#[test]
fn a_receive_is_complete_when_its_bytes_are_there() {
    let mut rig = rig();
    rig.net.b.port.post_recv(&[
        sge(&rig.far.mr, 0, 4),
        sge(&rig.net.b.mr, 0, 2),
        sge(&rig.far.mr, 9, 9),
    ]);
    rig.post(|b, at| WqeBuilder::send(b, at).inline(b"scattered").signaled());
    rig.steps();
    assert_eq!((rig.received(), rig.sent()), (None, None));
    assert_eq!(bytes(rig.net.b.mr.region(), 0, 2), [0; 2], "the host's part waits for the first");
    rig.far.copier.allow(1);
    rig.steps();
    assert_eq!((rig.received(), rig.sent()), (None, None));
    rig.far.copier.allow(1);
    rig.net.run();
    assert_eq!((rig.received(), rig.sent()), (DONE, DONE));
    let parts = [
        bytes(&rig.far.view, 0, 4),
        bytes(rig.net.b.mr.region(), 0, 2),
        bytes(&rig.far.view, 9, 3),
    ];
    assert_eq!(parts.concat(), b"scattered");
}

#[test]
fn a_read_is_complete_when_its_bytes_are_here_and_sees_what_was_written_before() {
    let mut rig = rig();
    let (there, here) = (remote(&rig.far.mr, 100), sge(&rig.near.mr, 200, 6));
    rig.post(|b, at| WqeBuilder::write(b, at, there).inline(b"before"));
    rig.post(|b, at| WqeBuilder::read(b, at, there).sge(here).signaled());
    rig.steps();
    assert_eq!(rig.far.copier.waiting(), 2, "the WRITE's bytes in, then the READ's out");
    rig.far.copier.allow(2);
    rig.steps();
    assert_eq!((rig.near.copier.waiting(), rig.sent()), (1, None));
    rig.near.copier.allow(1);
    rig.net.run();
    assert_eq!(bytes(&rig.near.view, 200, 6), b"before");
    assert_eq!(rig.sent(), DONE);
}

#[test]
fn a_flag_does_not_overtake_data() {
    let mut rig = rig();
    let host = remote(&rig.net.b.mr, 0);
    let (data, behind) = (remote(&rig.far.mr, 0), remote(&rig.far.mr, 4));
    rig.post(|b, at| WqeBuilder::write(b, at, data).inline(b"data"));
    rig.post(|b, at| WqeBuilder::write(b, at, host).inline(b"flag"));
    rig.post(|b, at| WqeBuilder::write(b, at, behind).inline(b"more").signaled());
    rig.steps();
    assert_eq!(bytes(rig.net.b.mr.region(), 0, 4), [0; 4]);
    assert_eq!(rig.far.copier.waiting(), 1, "what follows a flag waits for it");
    rig.far.copier.allow(1);
    rig.steps();
    assert_eq!(bytes(rig.net.b.mr.region(), 0, 4), b"flag");
    rig.far.copier.allow(1);
    rig.net.run();
    assert_eq!((bytes(&rig.far.view, 0, 8), rig.sent()), (b"datamore".to_vec(), DONE));
    // Data and flag that lie together are two copies all the same.
    for word in [b"DATA", b"MORE"] {
        let to = if word == b"DATA" { data } else { behind };
        rig.post(|b, at| WqeBuilder::write(b, at, to).inline(word).signaled());
    }
    rig.steps();
    assert_eq!(rig.far.copier.waiting(), 2);
    rig.far.copier.allow(1);
    rig.steps();
    assert_eq!(bytes(&rig.far.view, 0, 8), b"DATAmore");
    rig.far.copier.allow(1);
    rig.net.run();
    assert_eq!((rig.sent(), rig.sent()), (DONE, DONE));
}

/// A WRITE may come as several messages of whole packets.
#[test]
fn whole_packets_may_share_a_copy_and_a_flag_behind_them_does_not() {
    let mut rig = rig_with(QpAttrs { mtu: Some(Mtu::B256), ..attrs() });
    let from = sge(&rig.net.a.mr, 0, 256);
    for at in [0, 256, 512] {
        let to = remote(&rig.far.mr, at);
        rig.post(|b, at| WqeBuilder::write(b, at, to).sge(from));
    }
    let to = remote(&rig.far.mr, 768);
    rig.post(|b, at| WqeBuilder::write(b, at, to).inline(b"flag").signaled());
    rig.steps();
    assert_eq!(rig.far.copier.waiting(), 2);
    rig.go();
    rig.net.run();
    assert_eq!((bytes(&rig.far.view, 768, 4), rig.sent()), (b"flag".to_vec(), DONE));
}

#[test]
fn a_fenced_write_takes_what_a_read_brought() {
    let mut rig = rig();
    rig.far.view.write(0, b"read me").unwrap();
    let (there, here, back) =
        (remote(&rig.far.mr, 0), sge(&rig.near.mr, 0, 7), remote(&rig.far.mr, 50));
    rig.post(|b, at| WqeBuilder::read(b, at, there).sge(here));
    rig.post(|b, at| {
        let fence = warpverbs_mlx5::flags::Fence::Fence;
        WqeBuilder::write(b, at, back).sge(here).fence(fence).signaled()
    });
    rig.go();
    rig.net.run();
    assert_eq!((bytes(&rig.far.view, 50, 7), rig.sent()), (b"read me".to_vec(), DONE));
}

#[test]
fn long_messages_go_in_few_copies_and_come_out_whole() {
    let mut rig = rig();
    rig.go();
    let data = pattern(LEN, 1);
    rig.near.view.write(0, &data).unwrap();
    let (from, to) = (sge(&rig.near.mr, 0, LEN as u32), remote(&rig.far.mr, 0));
    rig.post(|b, at| WqeBuilder::write(b, at, to).sge(from).signaled());
    rig.net.run_for(Duration::from_millis(1));
    assert_eq!(rig.sent(), DONE);
    assert!(bytes(&rig.far.view, 0, LEN) == data);
    let [a, b] = [&rig.net.a, &rig.net.b].map(|host| host.nic.stats().net);
    assert_eq!((a.staged_bytes, b.staged_bytes), (LEN as u64, LEN as u64));
    assert!(a.staged_copies <= 16 && b.staged_copies <= 32, "{a:?} {b:?}");
    rig.near.view.fill(0, LEN, 0).unwrap();
    let (back, there) = (sge(&rig.near.mr, 0, LEN as u32), remote(&rig.far.mr, 0));
    rig.post(|b, at| WqeBuilder::read(b, at, there).sge(back).signaled());
    rig.net.run_for(Duration::from_millis(1));
    assert_eq!(rig.sent(), DONE);
    assert!(bytes(&rig.near.view, 0, LEN) == data);
    let [a, b] = [&rig.net.a, &rig.net.b].map(|host| host.nic.stats().net);
    assert_eq!((a.stage_full, b.stage_full), (0, 0));
}

#[test]
fn what_a_stage_cannot_hold_comes_again() {
    let mut rig = rig();
    rig.near.copier.pace(1);
    let (from, to) = (sge(&rig.near.mr, 0, LEN as u32), remote(&rig.far.mr, 0));
    rig.near.view.write(0, &pattern(LEN, 9)).unwrap();
    for _ in 0..16 {
        rig.post(|b, at| WqeBuilder::write(b, at, to).sge(from).signaled());
    }
    // Nothing is acknowledged, and everything is sent again and again.
    for _ in 0..40 {
        rig.net.clock.advance(Duration::from_micros(50));
        rig.steps();
    }
    rig.far.copier.pace(2);
    let all = rig.net.run_until(Duration::from_secs(1), |net| {
        while let Some(cqe) = net.a.port.poll_send() {
            assert_eq!(outcome(Some(cqe)), DONE);
        }
        net.a.port.qp.stats().wqes.total() == 16
    });
    assert!(all, "{:?}", rig.net.b.nic.stats());
    assert!(bytes(&rig.far.view, 0, LEN) == pattern(LEN, 9));
}

#[test]
fn atomics_on_a_device_are_done_once_after_what_came_before_and_before_what_comes_after() {
    let mut rig = rig();
    let word = remote(&rig.far.mr, 16);
    let here = local(&rig.near.mr, 8);
    rig.post(|b, at| WqeBuilder::write(b, at, word).inline(&40u64.to_le_bytes()));
    rig.post(|b, at| WqeBuilder::fetch_add(b, at, word, 2, here).signaled());
    rig.post(|b, at| WqeBuilder::write(b, at, word).inline(&7u64.to_le_bytes()).signaled());
    for left in (0..3).rev() {
        rig.steps();
        assert_eq!(rig.far.copier.waiting(), 1, "WRITE, fetch, store: {left} to come");
        assert_eq!(rig.sent(), None);
        rig.far.copier.allow(1);
    }
    rig.steps();
    assert_eq!(bytes(&rig.far.view, 16, 8), 42u64.to_le_bytes());
    rig.go();
    rig.net.run();
    assert_eq!((rig.sent(), rig.sent()), (DONE, DONE));
    assert_eq!(bytes(&rig.far.view, 16, 8), 7u64.to_le_bytes());
    assert_eq!(bytes(&rig.near.view, 8, 8), 40u64.to_le_bytes());
    rig.post(|b, at| WqeBuilder::compare_swap(b, at, word, 7, 8, here).signaled());
    rig.net.run();
    assert_eq!(rig.sent(), DONE);
    assert_eq!(bytes(&rig.far.view, 16, 8), 8u64.to_le_bytes());
    // On the host, behind a copy: also after what came before.
    let (word, data) = (remote(&rig.net.b.mr, 8), remote(&rig.far.mr, 0));
    rig.post(|b, at| WqeBuilder::write(b, at, data).inline(b"first"));
    rig.post(|b, at| WqeBuilder::fetch_add(b, at, word, 1, here).signaled());
    rig.net.run();
    assert_eq!((rig.sent(), bytes(rig.net.b.mr.region(), 8, 1)), (DONE, vec![1]));
}

#[test]
fn a_key_taken_back_is_refused_as_ever() {
    let mut rig = rig();
    let to = remote(&rig.far.mr, LEN as u64 - 3);
    rig.post(|b, at| WqeBuilder::write(b, at, to).inline(b"four").signaled());
    rig.net.run();
    assert_eq!(rig.sent(), Some(Err(Syndrome::RemoteAccess)));
    assert!(matches!(rig.net.b.nic.take_violations()[0].rule, Rule::Key { .. }));

    let mut rig = self::rig();
    rig.near.copier.pace(1);
    let (from, to) = (sge(&rig.near.mr, 0, LEN as u32), remote(&rig.far.mr, 0));
    rig.post(|b, at| WqeBuilder::write(b, at, to).sge(from).signaled());
    rig.steps();
    let Device { mr, view, copier } = rig.far;
    drop(mr);
    copier.allow(u64::MAX);
    rig.net.run_for(Duration::from_millis(20));
    assert_eq!(outcome(rig.net.a.port.poll_send()), Some(Err(Syndrome::RemoteAccess)));
    drop(view);
}

/// How a WRITE and a READ end if an engine fails at one point, with the state of both QPs.
type Ends = (Option<Result<(), Syndrome>>, QpState, QpState);

fn ends(rig: &mut Rig) -> Ends {
    rig.net.run_for(Duration::from_millis(20));
    (rig.sent(), rig.net.a.port.qp.state(), rig.net.b.port.qp.state())
}

#[test]
fn an_engine_that_fails_is_an_error_of_whose_memory_it_is() {
    let failed = |syndrome| Some(Err(syndrome));
    // Our own source: the peer hears nothing of it.
    let mut rig = self::rig();
    let (from, to) = (sge(&rig.near.mr, 0, 10_000), remote(&rig.far.mr, 0));
    rig.post(|b, at| WqeBuilder::write(b, at, to).sge(from).signaled());
    rig.steps();
    rig.near.copier.break_down();
    assert_eq!(ends(&mut rig), (failed(Syndrome::LocalProt), QpState::Err, QpState::Rts));
    assert!(
        matches!(rig.net.a.nic.take_violations()[..], [v] if matches!(v.rule, Rule::CopyFailed { .. }))
    );

    // The target of a WRITE, and of what follows it.
    let mut rig = self::rig();
    let to = remote(&rig.far.mr, 0);
    rig.post(|b, at| WqeBuilder::write(b, at, to).inline(b"lost").signaled());
    rig.post(|b, at| WqeBuilder::write(b, at, to).inline(b"lost too").signaled());
    rig.steps();
    rig.far.copier.break_down();
    assert_eq!(ends(&mut rig), (failed(Syndrome::RemoteOp), QpState::Err, QpState::Err));
    assert_eq!(rig.sent(), failed(Syndrome::WrFlush));
    let (qpn, syndrome) = (rig.net.b.port.qp.qpn(), Syndrome::LocalQpOp.value());
    assert_eq!(rig.net.b.nic.poll_event(), Some(AsyncEvent::QpFatal { qpn, syndrome }));

    // A receive: every one is completed once.
    let mut rig = self::rig();
    for _ in 0..2 {
        rig.net.b.port.post_recv(&[sge(&rig.far.mr, 0, 8)]);
    }
    rig.post(|b, at| WqeBuilder::send(b, at).inline(b"lost").signaled());
    rig.steps();
    rig.far.copier.break_down();
    assert_eq!(ends(&mut rig), (failed(Syndrome::RemoteOp), QpState::Err, QpState::Err));
    let flushed = failed(Syndrome::WrFlush);
    assert_eq!([(); 3].map(|()| rig.received()), [flushed, flushed, None]);

    // The source of a READ.
    let mut rig = self::rig();
    let (from, to) = (remote(&rig.far.mr, 0), sge(&rig.near.mr, 0, 9000));
    rig.post(|b, at| WqeBuilder::read(b, at, from).sge(to).signaled());
    rig.steps();
    rig.far.copier.break_down();
    assert_eq!(ends(&mut rig), (failed(Syndrome::RemoteOp), QpState::Err, QpState::Err));

    // Its target, when the peer has answered.
    let mut rig = self::rig();
    rig.far.copier.pace(1);
    let (from, to) = (remote(&rig.far.mr, 0), sge(&rig.near.mr, 0, 9000));
    rig.post(|b, at| WqeBuilder::read(b, at, from).sge(to).signaled());
    rig.steps();
    rig.near.copier.break_down();
    assert_eq!(ends(&mut rig), (failed(Syndrome::LocalProt), QpState::Err, QpState::Rts));

    // The word of an atomic.
    let mut rig = self::rig();
    let (word, here) = (remote(&rig.far.mr, 0), local(&rig.net.a.mr, 0));
    rig.post(|b, at| WqeBuilder::fetch_add(b, at, word, 2, here).signaled());
    rig.steps();
    rig.far.copier.break_down();
    assert_eq!(ends(&mut rig), (failed(Syndrome::RemoteOp), QpState::Err, QpState::Err));
}

#[test]
fn what_was_complete_before_an_engine_failed_stays_complete() {
    let mut rig = rig();
    let to = remote(&rig.far.mr, 0);
    for _ in 0..2 {
        rig.post(|b, at| WqeBuilder::write(b, at, to).inline(b"x").signaled());
    }
    rig.steps();
    rig.far.copier.allow(1);
    rig.far.copier.break_down();
    let (first, ..) = ends(&mut rig);
    // The engine has lost count of what it did: either is right, but only for the first.
    assert!(matches!(first, Some(Ok(()) | Err(Syndrome::RemoteOp))), "{first:?}");
    assert!(matches!(rig.sent(), Some(Err(_))));
    assert_eq!(rig.sent(), None);
}

#[test]
fn an_engine_that_hangs_is_given_up() {
    let mut rig = rig();
    let to = remote(&rig.far.mr, 0);
    rig.post(|b, at| WqeBuilder::write(b, at, to).inline(b"never").signaled());
    rig.steps();
    // Retries of the requester end sooner.
    rig.net.clock.advance(Duration::from_secs(11));
    rig.steps();
    let (qpn, syndrome) = (rig.net.b.port.qp.qpn(), Syndrome::LocalQpOp.value());
    assert_eq!(rig.net.b.nic.poll_event(), Some(AsyncEvent::QpFatal { qpn, syndrome }));
    assert_eq!(rig.net.b.port.qp.state(), QpState::Err);
    assert!(matches!(rig.sent(), Some(Err(Syndrome::RemoteOp | Syndrome::TransportRetryExc))));
    assert_eq!(rig.net.b.nic.step(), Step::Idle, "it is waited for no longer");
    // The memory that it may still touch is kept.
    let Rig { net, far: Device { mr, view, copier }, .. } = rig;
    drop((net, mr));
    copier.allow(u64::MAX);
    assert_eq!(bytes(&view, 0, 5), b"never");
}

#[test]
fn err_and_reset_wait_for_no_copy_and_lose_no_completion() {
    let flushed = Some(Err(Syndrome::WrFlush));
    let mut rig = rig();
    rig.net.b.port.post_recv(&[sge(&rig.far.mr, 0, 8)]);
    rig.post(|b, at| WqeBuilder::send(b, at).inline(b"message").signaled());
    rig.steps();
    rig.net.b.port.qp.modify(QpState::Err, &QpAttrs::default()).unwrap();
    rig.steps();
    assert_eq!((rig.far.copier.waiting(), rig.received()), (1, flushed));
    rig.go();
    rig.net.run_for(Duration::from_millis(20));
    assert_eq!((rig.received(), bytes(&rig.far.view, 0, 7)), (None, b"message".to_vec()));

    let mut rig = self::rig();
    let (from, to) = (remote(&rig.far.mr, 0), sge(&rig.near.mr, 64, 8));
    rig.post(|b, at| WqeBuilder::read(b, at, from).sge(to).signaled());
    rig.far.copier.allow(1);
    rig.steps();
    rig.net.a.port.qp.modify(QpState::Err, &QpAttrs::default()).unwrap();
    rig.steps();
    assert_eq!((rig.near.copier.waiting(), rig.sent()), (1, None), "the buffer is written to");
    rig.near.copier.allow(1);
    rig.net.run();
    assert_eq!([rig.sent(), rig.sent()], [flushed, None]);

    // RESET in the middle of one, and a new life.
    let mut rig = self::rig();
    let (from, to) = (remote(&rig.far.mr, 0), sge(&rig.near.mr, 64, 8));
    rig.post(|b, at| WqeBuilder::read(b, at, from).sge(to).signaled());
    rig.far.copier.allow(1);
    rig.steps();
    rig.near.copier.allow(1);
    for port in [&rig.net.a.port, &rig.net.b.port] {
        port.qp.modify(QpState::Reset, &QpAttrs::default()).unwrap();
    }
    rig.net.a.port.posted = 0;
    rig.net.b.port.receives_posted = 0;
    rig.net.a.connect(&rig.net.b, attrs());
    rig.net.b.connect(&rig.net.a, attrs());
    let there = remote(&rig.far.mr, 300);
    rig.post(|b, at| WqeBuilder::write(b, at, there).inline(b"anew").signaled());
    rig.go();
    rig.net.run();
    assert_eq!((rig.sent(), bytes(&rig.far.view, 300, 4)), (DONE, b"anew".to_vec()));
}

#[test]
fn everything_may_be_dropped_while_copies_are_under_way() {
    let mut rig = rig();
    let (from, to) = (sge(&rig.near.mr, 0, 4), remote(&rig.far.mr, 0));
    rig.near.view.write(0, b"last").unwrap();
    rig.near.copier.allow(1);
    rig.post(|b, at| WqeBuilder::write(b, at, to).sge(from).signaled());
    rig.post(|b, at| WqeBuilder::write(b, at, to).sge(from).signaled());
    rig.steps();
    let Rig { net, near, far } = rig;
    let Device { mr, view, copier } = far;
    drop((mr, near));
    let allow = std::thread::spawn({
        let copier = copier.clone();
        move || copier.allow(u64::MAX)
    });
    // The QP waits for its copies, not the other way round.
    drop(net);
    allow.join().unwrap();
    assert_eq!(bytes(&view, 0, 4), b"last");
}

#[test]
fn a_drained_queue_has_its_bytes() {
    let mut rig = rig();
    let (from, to) = (remote(&rig.far.mr, 0), sge(&rig.near.mr, 0, 8));
    rig.far.copier.pace(1);
    rig.post(|b, at| WqeBuilder::read(b, at, from).sge(to).signaled());
    rig.steps();
    rig.net.a.port.qp.modify(QpState::Sqd, &QpAttrs::default()).unwrap();
    rig.steps();
    assert_eq!((rig.sent(), rig.net.a.nic.poll_event()), (None, None));
    rig.near.copier.allow(1);
    rig.net.run();
    let qpn = rig.net.a.port.qp.qpn();
    assert_eq!(rig.sent(), DONE);
    assert_eq!(rig.net.a.nic.poll_event(), Some(AsyncEvent::SqDrained { qpn }));
}
