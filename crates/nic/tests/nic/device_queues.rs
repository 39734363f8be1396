//! Queues, CQs and doorbell records in memory that only a copy engine reaches: when the engine is
//! used, and what happens when it fails. The queues' behaviour is compared in `against_model`.

use std::sync::{Arc, Mutex};
use warpverbs_dev::{
    Pair, Port, PortConfig, ProxiedConfig, ProxiedPair, QueueMemory, Receives, bytes, connect,
    remote, sge,
};
use warpverbs_mem::testing::{LazyCopier, LazyMemory};
use warpverbs_mem::{HostBuf, Kind, MemError, Region};
use warpverbs_mlx5::cqe::Cqe;
use warpverbs_mlx5::doorbell::record_word;
use warpverbs_mlx5::export::CqMode;
use warpverbs_mlx5::recv::build_srq;
use warpverbs_mlx5::wqe::WqeBuilder;
use warpverbs_nic::{
    Announcement, AsyncEvent, CompletionNotice, CqConfig, CqeSize, DoorbellOnly, NicError, QpAttrs,
    QpState, Rule, SrqConfig, SrqOrder,
};

/// A pair whose first QP has its queues on a device, and rings by a register of a page of its own.
struct Rig {
    pair: Pair,
    page: Region,
    copier: Arc<LazyCopier>,
    events: Arc<Mutex<Vec<AsyncEvent>>>,
}

impl Rig {
    /// The engine copies at once.
    fn new(port: PortConfig) -> Self {
        let copier = Arc::new(LazyCopier::default());
        copier.allow(u64::MAX);
        let mut pair = Pair::default();
        let (page, events) = (HostBuf::region(4096).unwrap(), Arc::default());
        let kept = Arc::<Mutex<Vec<_>>>::clone(&events);
        pair.nic.on_event(move |event| kept.lock().unwrap().push(event));
        let uar = pair.nic.add_uar(&page).unwrap();
        let announcement = Announcement::Uar { page: uar, doorbell_only: DoorbellOnly::Detect };
        let memory = QueueMemory::Device(copier.clone());
        let port = PortConfig { memory, announcement, ..port };
        pair.a = Port::new(&pair.nic, &pair.pd, &port).unwrap();
        pair.restart();
        Self { pair, page, copier, events }
    }

    /// Puts a signalled WRITE of `value` to the start of the peer's memory.
    fn put(&mut self, value: u8) {
        let to = remote(&self.pair.mr_b, 0);
        self.pair.a.put_wqe(|b, at| WqeBuilder::write(b, at, to).inline(&[value; 8]).signaled());
    }

    fn ring(&self) {
        self.pair.a.record();
        self.pair.a.ring_register(&self.page, 0);
    }

    /// Runs until the NIC has seen every register.
    fn run(&self) {
        for _ in 0..4 {
            self.pair.run();
        }
    }

    fn value(&self) -> u8 {
        bytes(self.pair.mr_b.region(), 0, 1)[0]
    }
}

#[test]
fn a_doorbell_costs_two_copies_a_cqe_two_and_waiting_none() {
    let mut rig = Rig::new(PortConfig::default());
    rig.run();
    let idle = rig.copier.started();
    (0..100).for_each(|_| rig.run());
    assert_eq!(rig.copier.started(), idle, "an idle NIC copies nothing");
    (1..=5).for_each(|value| rig.put(value));
    rig.ring();
    rig.run();
    // The record, all WQEBBs, then body and owner of each CQE.
    assert_eq!(rig.copier.started() - idle, 2 + 5 * 2);
    assert_eq!((rig.pair.a.sent().len(), rig.value()), (5, 5));
    // An empty receive queue is looked at when a message comes.
    let before = rig.copier.started();
    (0..100).for_each(|_| rig.run());
    assert_eq!(rig.copier.started(), before);
}

#[test]
fn a_ring_that_ends_in_between_is_read_in_two_parts() {
    let mut rig = Rig::new(PortConfig { log_sq: 2, ..PortConfig::default() });
    for round in 0..8 {
        (0..3).for_each(|i| rig.put(3 * round + i));
        rig.ring();
        rig.run();
        assert_eq!((rig.pair.a.sent().len(), rig.value()), (3, 3 * round + 2));
    }
    assert_eq!(rig.pair.nic.take_violations(), vec![]);
}

#[test]
fn a_failing_engine_ends_the_qp_and_is_not_asked_again() {
    let mut rig = Rig::new(PortConfig::default());
    rig.put(1);
    rig.copier.break_down();
    rig.ring();
    rig.run();
    let found = rig.pair.nic.take_violations();
    let rules: Vec<_> = found.iter().map(|violation| violation.rule).collect();
    // Of the send queue, then of the receive queue.
    assert_eq!(rules, [Rule::CopyFailed { kind: Kind::Cuda(0) }; 2]);
    let error = rig.pair.a.qp.first_error().unwrap();
    assert_eq!(error.rule, Some(Rule::CopyFailed { kind: Kind::Cuda(0) }));
    // Nor does the CQE of the error arrive.
    let cqn = rig.pair.a.send_cq().cqn();
    let events = rig.events.lock().unwrap().clone();
    assert!(events.contains(&AsyncEvent::CqError { cqn }), "{events:?}");
    assert_eq!((rig.pair.a.qp.state(), rig.value()), (QpState::Err, 0));
    assert_eq!(rig.pair.a.poll_send(), None);
    let before = rig.copier.started();
    rig.ring();
    (0..100).for_each(|_| rig.run());
    assert_eq!(rig.copier.started(), before);
}

#[test]
fn a_qp_begins_anew_after_reset() {
    let mut rig = Rig::new(PortConfig::default());
    for round in 1..=3 {
        for _ in 0..4 {
            rig.put(round);
        }
        rig.ring();
        rig.run();
        assert_eq!((rig.pair.a.sent().len(), rig.value()), (4, round));
        rig.pair.a.reset();
        rig.run();
        rig.pair.restart();
        rig.run();
    }
    assert_eq!(rig.pair.nic.take_violations(), vec![]);
}

#[test]
fn other_qps_of_a_page_are_looked_at_if_they_share_a_register() {
    let rig = Rig::new(PortConfig::default());
    let page = HostBuf::region(4096).unwrap();
    let uar = rig.pair.nic.add_uar(&page).unwrap();
    let announcement = Announcement::Uar { page: uar, doorbell_only: DoorbellOnly::Never };
    let memory = QueueMemory::Device(rig.copier.clone());
    let port = PortConfig { memory, announcement, ..PortConfig::default() };
    let mut ports = [0; 4].map(|_| {
        let port = Port::new(&rig.pair.nic, &rig.pair.pd, &port).unwrap();
        connect(&port, port.qp.qpn(), QpAttrs::default());
        port
    });
    let mut post = |rig: &Rig, i: usize, register: u64| {
        ports[i].put_wqe(|b, at| WqeBuilder::nop(b, at).signaled());
        ports[i].record();
        ports[i].ring_register(&page, register);
        let before = rig.copier.started();
        for _ in 0..400 {
            rig.pair.nic.step();
        }
        (rig.copier.started() - before, ports[i].sent().len())
    };
    // Each has a register of its own: record, WQE and CQE of the one that rings, and now and then, in
    // fewer slices than these, another record.
    for i in (0..4).cycle().take(40) {
        let (copies, done) = post(&rig, i, i as u64);
        assert!(done == 1 && (4..=5).contains(&copies), "{copies} copies");
    }
    // Those that were rung by the last one are looked at whenever it changes.
    for (round, i) in (0..2).cycle().take(10).enumerate() {
        let (copies, done) = post(&rig, i, 3);
        let others = if round < 2 { 0 } else { 2 };
        assert!(done == 1 && (4 + others..=7).contains(&copies), "{copies} copies");
    }
    rig.run();
}

#[test]
fn a_poster_without_records_is_recognised_after_some_copies() {
    let mut rig = Rig::new(PortConfig::default());
    for value in 1..=3 {
        let before = rig.copier.started();
        rig.put(value);
        rig.pair.a.ring_register(&rig.page, 0);
        rig.run();
        assert_eq!((rig.pair.a.sent().len(), rig.value()), (1, value));
        // The record again and again at first, then no more; WQE and CQE.
        let copies = rig.copier.started() - before;
        let expected = if value == 1 { 100..=110 } else { 3..=3 };
        assert!(expected.contains(&copies), "{copies} copies for doorbell {value}");
    }
}

#[test]
fn an_srq_on_a_device_gives_its_receives() {
    for order in [SrqOrder::Linked, SrqOrder::Ring] {
        let copier = Arc::new(LazyCopier::default());
        copier.pace(2);
        let (buf, view) = LazyMemory::regions(64 << 2, 0, &copier).unwrap();
        let (dbr, record) = LazyMemory::regions(4, 0, &copier).unwrap();
        let mut pair = Pair::default();
        let config = SrqConfig {
            dialect: warpverbs_nic::Dialect::Mlx5,
            order,
            buf,
            log_size: 2,
            log_stride: 6,
            dbr,
        };
        let srq = pair.nic.create_srq(&pair.pd, &config).unwrap();
        let port = PortConfig { receives: Receives::Shared(srq), ..PortConfig::default() };
        pair.b = Port::new(&pair.nic, &pair.pd, &port).unwrap();
        pair.restart();
        for round in 0..10u16 {
            let place = u64::from(round % 4);
            let mut wqe = [0; 64];
            // WQEs 0 to 3, over and over.
            let next = (round + 1) % 4;
            build_srq(&mut wqe, next, &[sge(&pair.mr_b, place * 8, 8)]).unwrap();
            view.write(place * 64, &wqe).unwrap();
            record.write(0, &record_word(u64::from(round) + 1).to_ne_bytes()).unwrap();
            let message = [round as u8; 8];
            pair.a.post_wqe(|b, at| WqeBuilder::send(b, at).inline(&message).signaled());
            pair.run();
            assert!(matches!(pair.b.poll_recv(), Some(Cqe::Receive { byte_cnt: 8, .. })));
            assert_eq!(bytes(pair.mr_b.region(), place * 8, 8), message);
        }
    }
}

#[test]
fn what_would_have_to_be_polled_is_refused() {
    let rig = Rig::new(PortConfig::default());
    // Another device is handed work and receives as soon as they are posted.
    let memory = QueueMemory::Device(rig.copier.clone());
    let port = PortConfig { memory, ..PortConfig::default() };
    let refused = ProxiedPair::new(ProxiedConfig { a: port, ..ProxiedConfig::default() });
    let what = "a queue in a GPU's memory";
    assert_eq!(refused.unwrap_err(), NicError::NotProxied { what });
    let (dbr, _) = LazyMemory::regions(8, 0, &rig.copier).unwrap();
    let addr = dbr.addr();
    let config = CqConfig {
        dialect: warpverbs_nic::Dialect::Mlx5,
        mode: CqMode::Ring,
        log_size: 2,
        cqe_size: CqeSize::B64,
        buf: HostBuf::region(256).unwrap(),
        dbr,
        ignore_overrun: true,
        notice: Some(CompletionNotice::new(|| true)),
    };
    let refused = rig.pair.nic.create_cq(&config).unwrap_err();
    let what = "doorbell record of a CQ that raises events";
    assert_eq!(refused, NicError::Memory { what, cause: MemError::NotHost { addr } });
    assert!(rig.pair.nic.create_cq(&CqConfig { notice: None, ..config }).is_ok());
}

#[test]
fn what_is_only_consumed_is_not_copied() {
    let mut rig = Rig::new(PortConfig::default());
    // Announced, and not yet seen.
    rig.put(1);
    rig.ring();
    rig.pair.nic.consume_only(true).unwrap();
    rig.run();
    assert_eq!((rig.pair.a.sent().len(), rig.value()), (1, 1));
    let before = rig.copier.started();
    (2..=4).for_each(|value| rig.put(value));
    rig.ring();
    rig.run();
    // The record, then body and owner of the CQE.
    assert_eq!(rig.copier.started() - before, 1 + 2);
    assert_eq!((rig.pair.a.sent(), rig.value()), (vec![(3, None)], 1));
    rig.pair.nic.consume_only(false).unwrap();
    rig.put(5);
    rig.ring();
    rig.run();
    assert_eq!((rig.pair.a.sent().len(), rig.value()), (1, 5));
}
