//! The engine's thread, and dropping anything in any order while it works.

use proptest::prelude::*;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use warpverbs_dev::{Host, Pair, Port, PortConfig, connect, connect_over, remote, sge, until};
use warpverbs_mem::{Access, HostBuf};
use warpverbs_mlx5::syndrome::Syndrome;
use warpverbs_mlx5::wqe::WqeBuilder;
use warpverbs_nic::link::{Arrival, Link, Sent};
use warpverbs_nic::{
    AsyncEvent, Config, Idle, ModifyError, Mtu, NicError, QpAttrs, QpState, SoftNic, Step,
    StopWatcher, VirtualClock,
};

/// A link that fails its NIC when it is asked for datagrams.
#[derive(Debug)]
struct Broken;

impl Link for Broken {
    fn local(&self) -> SocketAddr {
        ([10, 0, 0, 1], 4791).into()
    }

    fn max_mtu(&self) -> Mtu {
        Mtu::B1024
    }

    fn send(&mut self, _: Duration, _: SocketAddr, _: &[u8], _: usize) -> Sent {
        Sent::Taken
    }

    fn receive(&mut self, _: Duration, _: &mut dyn FnMut(Arrival<'_>)) -> usize {
        panic!("a broken link")
    }
}

#[derive(Default)]
struct Causes(Mutex<Vec<NicError>>);

impl StopWatcher for Causes {
    fn nic_stopped(&self, cause: &NicError) {
        self.0.lock().unwrap().push(cause.clone());
    }
}

/// By a panic of the engine's thread, and by one of a caller that steps the NIC.
#[test]
fn a_nic_that_panicked_says_so_and_changes_nothing_more() {
    for by_thread in [true, false] {
        let nic = SoftNic::with_link(Config::default(), Box::new(Broken)).unwrap();
        let host = Host::on(nic.clone(), &PortConfig::default()).unwrap();
        let (early, late) = (Arc::new(Causes::default()), Arc::new(Causes::default()));
        let watcher: Weak<Causes> = Arc::downgrade(&early);
        nic.watch(watcher);
        assert_eq!((nic.stopped(), nic.poll_event()), (None, None));
        connect_over(&host.port, ([10, 0, 0, 2], 4791).into(), 9, QpAttrs::default());
        if by_thread {
            let _engine = nic.spawn().unwrap();
            until(|| nic.stopped());
        } else {
            std::panic::catch_unwind(AssertUnwindSafe(|| nic.step())).unwrap_err();
        }
        let cause = nic.stopped().unwrap();
        let text = cause.to_string();
        assert!(text.contains(if by_thread { "a broken link" } else { "during a call" }), "{text}");
        let watcher: Weak<Causes> = Arc::downgrade(&late);
        nic.watch(watcher);
        for causes in [early, late] {
            assert_eq!(*causes.0.lock().unwrap(), std::slice::from_ref(&cause));
        }
        assert_eq!((nic.step(), nic.poll_event()), (Step::Idle, Some(AsyncEvent::DeviceFatal)));
        assert_eq!(host.port.qp.state(), QpState::Err);
        let refused = host.port.qp.modify(QpState::Reset, &QpAttrs::default());
        assert_eq!(refused, Err(ModifyError::Stopped));
        let more = HostBuf::region(64).unwrap();
        assert_eq!(nic.reg_mr(&host.pd, &more, Access::all()).unwrap_err(), cause);
        assert_eq!(Port::new(&nic, &host.pd, &PortConfig::default()).unwrap_err(), cause);
    }
}

fn nic() -> SoftNic {
    let idle = Idle { spin: 100, yields: 100, sleep: Duration::from_micros(20) };
    SoftNic::new(Config { idle, ..Config::default() }).unwrap()
}

fn pair(nic: &SoftNic) -> Pair {
    let port = PortConfig::default();
    let clock = VirtualClock::new();
    Pair::on(nic.clone(), clock, &port, &port, QpAttrs::default()).unwrap()
}

/// Waits for a completion of `port`; its error.
fn wait(port: &mut Port) -> Option<Syndrome> {
    until(|| port.only_sent())
}

#[test]
fn a_thread_drives_the_nic() {
    let nic = nic();
    let mut pair = pair(&nic);
    let engine = nic.spawn().unwrap();
    let to = remote(&pair.mr_b, 0);
    for i in 0..1000u64 {
        let wqe = i.to_le_bytes();
        pair.a.post_wqe(|b, at| WqeBuilder::write(b, at, to).inline(&wqe).signaled());
        assert_eq!(wait(&mut pair.a), None);
        let word = pair.mr_b.region().atomic_u64(0).unwrap();
        assert_eq!(word.load(std::sync::atomic::Ordering::Relaxed), i);
    }
    drop(engine);
    pair.a.post_wqe(|b, at| WqeBuilder::nop(b, at));
    assert_eq!(pair.run(), 1, "the thread is gone, the NIC is not");
}

#[test]
fn control_calls_get_through_to_a_busy_engine() {
    let nic = nic();
    let mut pair = pair(&nic);
    let _engine = nic.spawn().unwrap();
    let (from, to) = (sge(&pair.mr_a, 0, 8), remote(&pair.mr_b, 0));
    for _ in 0..200 {
        for _ in 0..8 {
            pair.a.post_wqe(|b, at| WqeBuilder::write(b, at, to).sge(from).signaled());
        }
        let port = Port::new(&nic, &pair.pd, &PortConfig::default()).unwrap();
        connect(&port, port.qp.qpn(), QpAttrs::default());
        assert_eq!(port.qp.stats().errors, 0);
        drop(port);
        let mut sent = vec![];
        until(|| {
            sent.extend(pair.a.sent());
            (sent.len() == 8).then_some(())
        });
        assert!(sent.iter().all(|(_, error)| error.is_none()), "{sent:?}");
    }
    assert_eq!(nic.take_violations(), []);
}

#[test]
fn the_peer_vanishes_in_the_middle() {
    let nic = nic();
    let mut pair = pair(&nic);
    let attrs = QpAttrs { timeout: Some(4), retry: Some(1), ..QpAttrs::default() };
    let lonely = Port::new(&nic, &pair.pd, &PortConfig::default()).unwrap();
    pair.a.qp.modify(warpverbs_nic::QpState::Reset, &QpAttrs::default()).unwrap();
    connect(&lonely, pair.a.qp.qpn(), attrs);
    connect(&pair.a, lonely.qp.qpn(), attrs);
    let _engine = nic.spawn().unwrap();
    let to = remote(&pair.mr_b, 0);
    pair.a.post_wqe(|b, at| WqeBuilder::write(b, at, to).inline(b"x").signaled());
    assert_eq!(wait(&mut pair.a), None);
    drop(lonely);
    pair.a.post_wqe(|b, at| WqeBuilder::write(b, at, to).inline(b"y").signaled());
    assert_eq!(wait(&mut pair.a), Some(Syndrome::TransportRetryExc));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Everything a user can hold, dropped in any order, the engine at work or not.
    #[test]
    fn anything_may_be_dropped_first(order in Just((0..9usize).collect::<Vec<_>>()).prop_shuffle(), threaded: bool, posts in 1u64..60) {
        let nic = nic();
        let Pair { a: mut first, b: second, mr_a, mr_b, pd, nic: own, .. } = pair(&nic);
        let big = HostBuf::region(4 << 20).unwrap();
        let big_mr = nic.reg_mr(&pd, &big, Access::all()).unwrap();
        let engine = threaded.then(|| nic.spawn().unwrap());
        let (from, to) = (sge(&big_mr, 0, 4 << 20), remote(&big_mr, 0));
        for i in 0..posts {
            let long = i % 7 == 0;
            first.post_wqe(|b, at| if long {
                WqeBuilder::write(b, at, to).sge(from).signaled()
            } else {
                WqeBuilder::nop(b, at).signaled()
            });
        }
        if !threaded {
            nic.step();
        }
        let (mut first, mut second, mut nic) = (Some(first), Some(second), Some(nic));
        let (mut mr_a, mut mr_b, mut big_mr) = (Some(mr_a), Some(mr_b), Some(big_mr));
        let (mut pd, mut engine, mut own) = (Some(pd), engine, Some(own));
        for which in order {
            match which {
                0 => drop(first.take()),
                1 => drop(second.take()),
                2 => drop(mr_a.take()),
                3 => drop(mr_b.take()),
                4 => drop(big_mr.take()),
                5 => drop(pd.take()),
                6 => drop(engine.take()),
                7 => drop(own.take()),
                _ => drop(nic.take()),
            }
            if let Some(nic) = &nic {
                nic.step();
            }
        }
    }
}

#[test]
fn control_calls_without_end_do_not_stop_the_engine() {
    let nic = nic();
    let mut pair = pair(&nic);
    let engine = nic.spawn().unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    nic.stats();
                }
            });
        }
        let done = std::panic::catch_unwind(AssertUnwindSafe(|| {
            // Beside many busy processes each takes seconds.
            for _ in 0..25 {
                pair.a.post_wqe(|b, at| WqeBuilder::nop(b, at).signaled());
                assert_eq!(wait(&mut pair.a), None);
            }
            drop(engine);
        }));
        stop.store(true, Ordering::Relaxed);
        done.unwrap();
    });
}
