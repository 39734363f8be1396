//! Memory that the device of a proxied QP does not reach: the engine copies it, waits for nothing,
//! and keeps the order of the queues.

use std::sync::Arc;
use std::time::Duration;
use warpverbs_dev::{
    Device, FakePlan, Port, PortConfig, ProxiedConfig, ProxiedPair, Receives, bytes,
    connect_proxied, local, sge,
};
use warpverbs_mem::testing::{LazyCopier, LazyMemory};
use warpverbs_mem::{Access, HostBuf, Region};
use warpverbs_mlx5::cqe::Cqe;
use warpverbs_mlx5::flags::Fence;
use warpverbs_mlx5::syndrome::Syndrome;
use warpverbs_mlx5::wqe::WqeBuilder;
use warpverbs_nic::{
    Mr, NicError, OwnMemory, QpAttrs, QpState, Rule, SrqConfig, SrqOrder, Status, Step,
};

/// A pair, and 4 KiB of a GPU: its key, its bytes, its engine and its bounce buffer.
struct Rig {
    pair: ProxiedPair,
    mr: Mr,
    view: Region,
    copier: Arc<LazyCopier>,
    bounce_buffer: Region,
}

fn rig() -> Rig {
    Rig::new(FakePlan::default())
}

impl Rig {
    fn new(plan: FakePlan) -> Self {
        let pair = ProxiedPair::new(ProxiedConfig { plan, ..ProxiedConfig::default() }).unwrap();
        let (Device { mr, view, copier }, bounce_buffer) = pair.bounced();
        Self { pair, mr, view, copier, bounce_buffer }
    }

    /// Everything goes on that can without copies; the engine does not rest meanwhile.
    fn steps(&self) {
        for _ in 0..20 {
            assert_ne!(self.pair.nic.step(), Step::Idle, "copies are under way");
            self.pair.device.progress(5);
        }
    }

    fn requests(&self) -> u64 {
        self.pair.device.stats(self.pair.a.port.qp.qpn()).requests
    }

    /// From the GPU's memory to the peer's, at the same offset.
    fn write(&mut self, offset: u64, len: u32) -> u64 {
        let (from, to) = (sge(&self.mr, offset, len), self.pair.b.remote(offset));
        self.pair.a.port.post_wqe(|b, at| WqeBuilder::write(b, at, to).sge(from).signaled())
    }

    /// From the peer's memory to the GPU's.
    fn read(&mut self, offset: u64, len: u32) -> u64 {
        let (to, from) = (sge(&self.mr, offset, len), self.pair.b.remote(offset));
        self.pair.a.port.post_wqe(|b, at| WqeBuilder::read(b, at, from).sge(to).signaled())
    }

    /// A flag for the peer, from host memory.
    fn flag(&mut self, offset: u64) -> u64 {
        let to = self.pair.b.remote(offset);
        let port = &mut self.pair.a.port;
        port.post_wqe(|b, at| WqeBuilder::write(b, at, to).inline(b"flag").signaled())
    }

    fn at_peer(&self, offset: u64, len: usize) -> Vec<u8> {
        bytes(self.pair.b.mr.region(), offset, len)
    }
}

const FLUSH: Option<Syndrome> = Some(Syndrome::WrFlush);

#[test]
fn what_is_sent_is_copied_before_it_is_posted_and_nothing_overtakes_it() {
    let mut rig = rig();
    rig.view.write(0, b"payload").unwrap();
    rig.view.write(100, b"second").unwrap();
    rig.flag(300);
    rig.write(0, 7);
    let (from, to) = (sge(&rig.pair.a.mr, 0, 4), rig.pair.b.remote(200));
    rig.pair.a.mr.region().write(0, b"flag").unwrap();
    rig.pair.a.port.post_wqe(|b, at| WqeBuilder::write(b, at, to).sge(from).signaled());
    rig.write(100, 6);
    rig.steps();
    assert_eq!((rig.requests(), rig.copier.waiting()), (1, 2), "both copies are under way");
    assert_eq!(rig.pair.a.port.sent(), [(0, None)]);
    assert_eq!(rig.at_peer(200, 4), [0; 4]);
    rig.copier.allow(1);
    rig.steps();
    assert_eq!(rig.requests(), 3);
    assert_eq!(rig.pair.a.port.sent(), [(1, None), (2, None)]);
    assert_eq!((rig.at_peer(0, 7), rig.at_peer(200, 4)), (b"payload".to_vec(), b"flag".to_vec()));
    rig.copier.allow(1);
    rig.pair.run();
    assert_eq!(rig.pair.a.port.sent(), [(3, None)]);
    assert_eq!(rig.at_peer(100, 6), b"second");
}

#[test]
fn what_a_read_or_an_atomic_brings_is_copied_before_its_cqe() {
    let mut rig = rig();
    rig.pair.b.mr.region().write(8, &7u64.to_ne_bytes()).unwrap();
    rig.read(8, 8);
    let (result, word) = (local(&rig.mr, 64), rig.pair.b.remote(8));
    rig.pair.a.port.post_wqe(|b, at| WqeBuilder::fetch_add(b, at, word, 5, result).signaled());
    rig.flag(200);
    rig.steps();
    assert_eq!((rig.requests(), rig.pair.a.port.sent()), (3, vec![]), "the device is done");
    assert_eq!((bytes(&rig.view, 8, 8), bytes(&rig.view, 64, 8)), (vec![0; 8], vec![0; 8]));
    assert_eq!(rig.copier.waiting(), 2, "copies do not wait for one another");
    rig.copier.allow(1);
    rig.steps();
    assert_eq!(rig.pair.a.port.sent(), [(0, None)]);
    assert_eq!(bytes(&rig.view, 8, 8), 7u64.to_ne_bytes());
    rig.copier.allow(1);
    rig.pair.run();
    assert_eq!(rig.pair.a.port.sent(), [(1, None), (2, None)]);
    assert_eq!(bytes(&rig.view, 64, 8), 7u64.to_ne_bytes());
    assert_eq!(rig.at_peer(8, 8), 12u64.to_ne_bytes());
    assert_eq!(bytes(&rig.view, 72, 8), [0; 8], "and not a byte more");
}

#[test]
fn a_fenced_write_sends_what_the_read_before_it_has_brought() {
    let mut rig = rig();
    rig.copier.allow(u64::MAX);
    rig.pair.b.mr.region().write(0, b"from the peer").unwrap();
    rig.read(0, 13);
    let (from, to) = (sge(&rig.mr, 0, 13), rig.pair.b.remote(1000));
    rig.pair
        .a
        .port
        .post_wqe(|b, at| WqeBuilder::write(b, at, to).sge(from).fence(Fence::Fence).signaled());
    rig.pair.run();
    assert_eq!(rig.pair.a.port.sent(), [(0, None), (1, None)]);
    assert_eq!(rig.at_peer(1000, 13), b"from the peer");
}

/// Sends `data` from the other end.
fn send_from_b(rig: &mut Rig, data: &[u8]) {
    rig.pair.b.port.post_wqe(|b, at| WqeBuilder::send(b, at).inline(data).signaled());
}

#[test]
fn a_receive_completes_with_its_bytes_in_place_and_in_order() {
    let mut rig = rig();
    rig.view.fill(0, 64, 0xee).unwrap();
    // Host memory between two pieces of the GPU's.
    let parts = [sge(&rig.mr, 0, 4), sge(&rig.pair.a.mr, 0, 4), sge(&rig.mr, 8, 8)];
    rig.pair.a.port.post_recv(&parts);
    rig.pair.a.port.post_recv(&[sge(&rig.pair.a.mr, 100, 8)]);
    rig.pair.run();
    send_from_b(&mut rig, b"gpu.host.g");
    send_from_b(&mut rig, b"plain");
    rig.steps();
    assert_eq!(rig.pair.a.port.received(), [], "the second waits for the first");
    assert_eq!(bytes(&rig.view, 0, 16), [0xee; 16]);
    assert_eq!(rig.copier.waiting(), 2);
    rig.copier.allow(2);
    rig.pair.run();
    assert_eq!(rig.pair.a.port.received(), [(0, None), (1, None)]);
    assert_eq!(bytes(&rig.view, 0, 4), b"gpu.");
    assert_eq!(bytes(rig.pair.a.mr.region(), 0, 4), b"host");
    let mut rest = b".g".to_vec();
    rest.extend([0xee; 6]);
    assert_eq!(bytes(&rig.view, 8, 8), rest, "no more than the message had");
}

#[test]
fn a_write_with_immediate_leaves_the_receives_memory_alone() {
    let mut rig = rig();
    rig.copier.allow(u64::MAX);
    rig.view.fill(0, 64, 0xee).unwrap();
    rig.pair.a.port.post_recv(&[sge(&rig.mr, 0, 64)]);
    rig.pair.run();
    let (to, from) = (rig.pair.a.remote(0), sge(&rig.pair.b.mr, 0, 64));
    rig.pair.b.port.post_wqe(|b, at| WqeBuilder::write_imm(b, at, to, 5).sge(from));
    rig.pair.run();
    assert!(matches!(rig.pair.a.port.poll_recv(), Some(Cqe::Receive { .. })));
    assert_eq!(bytes(&rig.view, 0, 64), [0xee; 64]);
}

#[test]
fn receives_of_an_srq_are_copied_too() {
    let mut rig = rig();
    let host = || HostBuf::region(4096).unwrap();
    let (buf, dbr) = (host(), host());
    let config = SrqConfig {
        dialect: warpverbs_nic::Dialect::Mlx5,
        order: SrqOrder::Linked,
        buf: buf.clone(),
        log_size: 2,
        log_stride: 5,
        dbr: dbr.clone(),
    };
    let device_srq = rig.pair.device.srq();
    let nic = &rig.pair.nic;
    let srq = nic.create_proxied_srq(&rig.pair.pd, &config, Box::new(device_srq.clone())).unwrap();
    let config = PortConfig { receives: Receives::Shared(srq), ..PortConfig::default() };
    let proxy_device = Box::new(rig.pair.device.qp(Some(&device_srq)));
    let mut port = Port::proxied(nic, &rig.pair.pd, &config, proxy_device).unwrap();
    let (b, c) = (rig.pair.b.port.qp.qpn(), port.qp.qpn());
    rig.pair.device.connect(c, b);
    rig.pair.device.connect(b, c);
    connect_proxied(&port, b, QpAttrs::default());
    for number in 0..2u64 {
        let mut wqe = [0; 32];
        wqe[2..4].copy_from_slice(&(number as u16 + 1).to_be_bytes());
        let at = sge(&rig.mr, number * 16, 16);
        wqe[16..20].copy_from_slice(&at.len.to_be_bytes());
        wqe[20..24].copy_from_slice(&at.lkey.0.to_be_bytes());
        wqe[24..].copy_from_slice(&at.addr.to_be_bytes());
        buf.write(number * 32, &wqe).unwrap();
    }
    dbr.write(0, &2u32.to_be_bytes()).unwrap();
    rig.pair.run();
    send_from_b(&mut rig, b"first");
    send_from_b(&mut rig, b"second");
    rig.steps();
    assert_eq!((port.received(), rig.copier.waiting()), (vec![], 2));
    rig.copier.allow(2);
    rig.pair.run();
    assert_eq!(port.received(), [(0, None), (1, None)]);
    assert_eq!(
        (bytes(&rig.view, 0, 5), bytes(&rig.view, 16, 6)),
        (b"first".to_vec(), b"second".to_vec())
    );
}

#[test]
fn a_copy_engine_that_fails_ends_the_queue_in_order() {
    let mut rig = rig();
    rig.flag(0);
    rig.write(8, 8);
    rig.flag(16);
    rig.steps();
    rig.copier.break_down();
    rig.pair.run();
    let failed = Some(Syndrome::LocalProt);
    assert_eq!(rig.pair.a.port.sent(), [(0, None), (1, failed), (2, FLUSH)]);
    assert_eq!(rig.pair.a.port.qp.state(), QpState::Err);
    assert_eq!((rig.at_peer(0, 4), rig.at_peer(8, 16)), (b"flag".to_vec(), vec![0; 16]));

    let mut rig = self::rig();
    rig.pair.a.port.post_recv(&[sge(&rig.mr, 0, 8)]);
    rig.pair.a.port.post_recv(&[sge(&rig.pair.a.mr, 0, 8)]);
    rig.read(8, 8);
    rig.flag(16);
    rig.steps();
    send_from_b(&mut rig, b"message");
    rig.steps();
    rig.copier.break_down();
    rig.pair.run();
    assert_eq!(rig.pair.a.port.sent(), [(0, failed), (1, FLUSH)]);
    assert_eq!(rig.pair.a.port.received(), [(0, failed), (1, FLUSH)]);
}

#[test]
fn a_queue_that_ends_waits_for_copies_and_flushes_the_rest() {
    let mut rig = rig();
    rig.pair.a.port.post_recv(&[sge(&rig.mr, 0, 8)]);
    rig.pair.a.port.post_recv(&[sge(&rig.mr, 16, 8)]);
    rig.pair.run();
    send_from_b(&mut rig, b"message");
    rig.write(32, 8);
    rig.write(48, 8);
    rig.steps();
    rig.pair.a.port.qp.modify(QpState::Err, &QpAttrs::default()).unwrap();
    rig.steps();
    rig.pair.clock.advance(Duration::from_secs(5));
    rig.steps();
    assert_eq!((rig.pair.a.port.sent(), rig.pair.a.port.received()), (vec![], vec![]));
    rig.copier.allow(u64::MAX);
    rig.pair.run();
    assert_eq!(rig.pair.a.port.sent(), [(0, FLUSH), (1, FLUSH)]);
    assert_eq!(rig.pair.a.port.received(), [(0, None), (1, FLUSH)]);
    assert_eq!((bytes(&rig.view, 0, 7), rig.requests()), (b"message".to_vec(), 0));
}

#[test]
fn a_reset_and_a_drop_with_copies_under_way_lose_nothing_and_wait_for_nobody() {
    let mut rig = rig();
    rig.pair.a.port.post_recv(&[sge(&rig.mr, 0, 8)]);
    rig.pair.run();
    rig.write(32, 8);
    rig.read(64, 8);
    send_from_b(&mut rig, b"message");
    rig.steps();
    assert!(rig.copier.waiting() > 0);
    // An engine that hangs is given up after the fake's timeout, outside of the NIC's lock.
    rig.pair.reset();
    assert_eq!(rig.pair.nic.step(), Step::Idle, "nothing is left of it");
    rig.copier.allow(u64::MAX);
    rig.pair.a.port.posted = 0;
    rig.pair.a.port.receives_posted = 0;
    rig.pair.connect();
    rig.view.write(0, b"new life").unwrap();
    rig.write(0, 8);
    rig.pair.run();
    assert_eq!(rig.pair.a.port.sent(), [(0, None)]);
    assert_eq!(rig.at_peer(0, 8), b"new life");

    let mut rig = self::rig();
    rig.write(32, 8);
    rig.steps();
    let Rig { pair, mr, copier, .. } = rig;
    drop(mr);
    drop(pair);
    copier.allow(u64::MAX);
}

#[test]
fn memory_of_a_key_that_goes_is_touched_no_more_but_by_copies_under_way() {
    let mut rig = rig();
    rig.view.write(0, b"payload").unwrap();
    rig.write(0, 7);
    rig.steps();
    let Rig { mut pair, mr, copier, bounce_buffer, .. } = rig;
    drop(mr);
    copier.allow(u64::MAX);
    pair.run();
    // Its bytes were on their way, and the device still has its own key.
    assert_eq!(pair.a.port.sent(), [(0, None)]);
    assert_eq!(bytes(&bounce_buffer, 0, 7), b"payload");
}

#[test]
fn peers_get_no_rights_and_who_passes_the_engine_by_is_refused() {
    let rig = rig();
    let nic = &rig.pair.nic;
    let register = |region: &Region, access, bounce_buffer: &Region| {
        nic.reg_bounced_mr(&rig.pair.pd, region, access, bounce_buffer, 5).map(drop)
    };
    let rights = Access::REMOTE_WRITE | Access::REMOTE_READ;
    assert_eq!(
        register(rig.mr.region(), rights | Access::LOCAL_WRITE, &rig.bounce_buffer),
        Err(NicError::BouncedRights { rights })
    );
    let short = rig.bounce_buffer.slice(0, 64).unwrap();
    for (region, bounce_buffer) in [
        (rig.mr.region(), &short),
        (rig.mr.region(), rig.mr.region()),
        (&rig.bounce_buffer, &rig.bounce_buffer),
    ] {
        assert_eq!(
            register(region, Access::empty(), bounce_buffer),
            Err(NicError::UnfitBounceBuffer)
        );
    }
    let mut keys = rig.pair.pd.proxy_keys();
    let side = warpverbs_nic::KeySide::Local;
    let refused = keys.at_device(side, 0, sge(&rig.mr, 0, 8), Access::empty());
    assert_eq!(refused, Err(Box::new(Rule::Bounced { key: rig.mr.lkey() })));
    let (other, _) = LazyMemory::regions(64, 0, &rig.copier).unwrap();
    let other = nic.reg_mr(&rig.pair.pd, &other, Access::empty()).unwrap();
    let refused = keys.at_device(side, 0, sge(&other, 0, 8), Access::empty());
    assert_eq!(refused, Err(Box::new(Rule::KeyNotProxied { key: other.lkey() })));
}

#[test]
fn inline_data_beyond_the_devices_limit_goes_by_slots() {
    for (limit, takes_at_most) in [(0, None), (8, None), (0, Some(2))] {
        let mut plan = FakePlan { staging: Some((4, 64)), takes_at_most, ..FakePlan::default() };
        plan.limits.inline_bytes = limit;
        let mut rig = Rig::new(plan);
        for i in 0..20u8 {
            let (to, data) = (rig.pair.b.remote(u64::from(i) * 64), [i + 1; 64]);
            // The last one alone says that all are done.
            let data = &data[..usize::from(i) * 3];
            rig.pair.a.port.post_wqe(|b, at| {
                let wqe = WqeBuilder::write(b, at, to).inline(data);
                if i == 19 { wqe.signaled() } else { wqe }
            });
        }
        rig.pair.run();
        assert_eq!(rig.pair.a.port.sent().last().map(|sent| sent.1), Some(None));
        for i in 0..20u8 {
            let mut expected = vec![i + 1; usize::from(i) * 3];
            expected.resize(64, 0);
            assert_eq!(rig.at_peer(u64::from(i) * 64, 64), expected, "{i} at limit {limit}");
        }
    }
}

#[test]
fn inline_data_beyond_a_slot_is_refused() {
    let mut plan = FakePlan { staging: Some((4, 64)), ..FakePlan::default() };
    plan.limits.inline_bytes = 0;
    let mut rig = Rig::new(plan);
    let to = rig.pair.b.remote(0);
    rig.pair.a.port.post_wqe(|b, at| WqeBuilder::write(b, at, to).inline(&[1; 65]).signaled());
    rig.pair.run();
    assert_eq!(rig.pair.a.port.sent(), [(0, Some(Syndrome::LocalQpOp))]);
    let first = rig.pair.a.port.qp.first_error().unwrap();
    let rule = Rule::DeviceLimit { what: "inline bytes", found: 65, max: 64 };
    assert_eq!(first.rule, Some(rule));
}

#[test]
fn a_device_that_fails_or_refuses_parked_requests_is_reported_once() {
    for refuse in [true, false] {
        let mut rig = rig();
        rig.write(0, 8);
        rig.write(8, 8);
        rig.steps();
        let qpn = rig.pair.a.port.qp.qpn();
        if refuse {
            rig.pair.device.refuse_next(qpn, 22);
        } else {
            rig.pair.device.fail_next(qpn, Status::RemoteAccess);
        }
        rig.copier.allow(u64::MAX);
        rig.pair.run();
        let first = rig.pair.a.port.qp.first_error().unwrap();
        match refuse {
            true => {
                assert_eq!(rig.pair.a.port.sent(), [(0, FLUSH), (1, FLUSH)]);
                assert_eq!(first.rule, Some(Rule::DeviceRefused { errno: 22 }));
            }
            false => {
                let failed = Some(Syndrome::RemoteAccess);
                assert_eq!(rig.pair.a.port.sent(), [(0, failed), (1, FLUSH)]);
            }
        }
        assert_eq!(first.index, 0);
    }
}
