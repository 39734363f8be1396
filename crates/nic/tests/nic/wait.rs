//! WAIT: a send queue stands still until a CQ has a CQE, and nothing else does.

use std::time::Duration;
use warpverbs_dev::{
    Net, Pair, PairConfig, Port, PortConfig, QueueMemory, bytes, connect, local, remote, sge, until,
};
use warpverbs_mem::HostBuf;
use warpverbs_mem::testing::LazyCopier;
use warpverbs_mlx5::export::CqMode;
use warpverbs_mlx5::syndrome::Syndrome;
use warpverbs_mlx5::wqe::WqeBuilder;
use warpverbs_nic::{
    Announcement, AsyncEvent, Config, Delay, DoorbellOnly, Pd, QpAttrs, QpState, Rule, SoftNic,
    Step,
};

/// A QP that is connected to itself, as those are that count for GIN.
fn companion(nic: &SoftNic, pd: &Pd, config: &PortConfig) -> Port {
    let port = Port::new(nic, pd, config).unwrap();
    connect(&port, port.qp.qpn(), QpAttrs::default());
    port
}

/// A pair and such a QP, which counts in the first word of `mr_b`.
struct Rig {
    pair: Pair,
    counts: Port,
}

impl Default for Rig {
    fn default() -> Self {
        Self::new(PortConfig::default())
    }
}

impl Rig {
    fn new(a: PortConfig) -> Self {
        let pair = Pair::new(PairConfig { a, ..PairConfig::default() }).unwrap();
        let counts = companion(&pair.nic, &pair.pd, &PortConfig::default());
        Self { pair, counts }
    }

    /// Another port that is connected to itself.
    fn companion(&self) -> Port {
        companion(&self.pair.nic, &self.pair.pd, &PortConfig::default())
    }

    fn cqn(&self) -> u32 {
        self.pair.a.send_cq().cqn()
    }

    /// A CQE of the first port.
    fn complete(&mut self) {
        self.pair.a.post_wqe(|b, at| WqeBuilder::nop(b, at).signaled());
    }

    /// The WQEs of GIN: one more is counted when the CQ has the CQE of `index`.
    fn count_at(&mut self, cqn: u32, index: u32) {
        let (to, back) = (remote(&self.pair.mr_b, 0), local(&self.pair.mr_b, 64));
        self.counts.post_wqe(|b, at| WqeBuilder::wait(b, at, cqn, index).signaled());
        self.counts.post_wqe(|b, at| WqeBuilder::fetch_add(b, at, to, 1, back).signaled());
    }

    fn counted(&self) -> u64 {
        let word = bytes(self.pair.mr_b.region(), 0, 8);
        u64::from_le_bytes(word.try_into().unwrap())
    }

    /// The queue that waits fails, for the CQ of this number.
    fn expect_lost(&mut self, cqn: u32) {
        self.pair.run();
        let (failed, flushed) = (Some(Syndrome::LocalQpOp), Some(Syndrome::WrFlush));
        assert_eq!(self.counts.sent(), [(0, failed), (1, flushed)]);
        let rules: Vec<_> = self.pair.nic.take_violations().iter().map(|v| v.rule).collect();
        assert_eq!(rules, [Rule::AwaitedCq { cqn }]);
        assert_eq!((self.counts.qp.state(), self.counted()), (QpState::Err, 0));
    }
}

const DONE: [(u16, Option<Syndrome>); 2] = [(0, None), (1, None)];

#[test]
fn a_cqe_that_is_there_holds_nothing_up() {
    let mut rig = Rig::default();
    rig.complete();
    rig.pair.run();
    rig.count_at(rig.cqn(), 0);
    rig.pair.run();
    assert_eq!((rig.counts.sent(), rig.counted()), (DONE.to_vec(), 1));
    assert_eq!(rig.pair.nic.take_violations(), []);
}

/// In a ring, in one entry, and in memory that the NIC copies to: it counts for itself.
#[test]
fn the_queue_goes_on_with_the_cqe_of_the_index_and_no_sooner() {
    let copier = std::sync::Arc::new(LazyCopier::default());
    copier.allow(u64::MAX);
    let collapsed = PortConfig { cq_mode: CqMode::Collapsed, ..PortConfig::default() };
    for port in [PortConfig::default(), collapsed.clone()] {
        let mut rig = Rig::new(port);
        rig.count_at(rig.cqn(), 2);
        for expected in [0, 0, 1] {
            // It does not run while it waits.
            rig.pair.run();
            assert_eq!(rig.pair.nic.step(), Step::Idle);
            assert_eq!(rig.counts.sent(), []);
            rig.complete();
            rig.pair.run();
            assert_eq!(rig.counted(), expected);
        }
        assert_eq!(rig.counts.sent(), DONE);
    }
    let memory = QueueMemory::Device(copier);
    let mut rig = Rig::default();
    let page = HostBuf::region(4096).unwrap();
    let uar = rig.pair.nic.add_uar(&page).unwrap();
    let announcement = Announcement::Uar { page: uar, doorbell_only: DoorbellOnly::Detect };
    let config = PortConfig { memory, announcement, ..collapsed };
    rig.pair.a = companion(&rig.pair.nic, &rig.pair.pd, &config);
    rig.count_at(rig.cqn(), 0);
    rig.pair.run();
    assert_eq!(rig.counted(), 0);
    rig.pair.a.put_wqe(|b, at| WqeBuilder::nop(b, at).signaled());
    rig.pair.a.record();
    rig.pair.a.ring_register(&page, 0);
    for _ in 0..4 {
        rig.pair.run();
    }
    assert_eq!((rig.counts.sent(), rig.counted()), (DONE.to_vec(), 1));
}

#[test]
fn counters_follow_round_the_rings() {
    let mut rig = Rig::default();
    for index in 0..1000 {
        rig.count_at(rig.cqn(), index);
        if index % 3 > 0 {
            rig.pair.run();
        }
        assert_eq!(rig.counted(), index.into());
        rig.complete();
        rig.pair.run();
        assert_eq!(rig.counted(), u64::from(index) + 1);
        assert_eq!((rig.counts.sent().len(), rig.pair.a.sent().len()), (2, 1));
    }
}

#[test]
fn several_queues_wait_for_one_cq_each_for_its_index() {
    let mut rig = Rig::default();
    let cqn = rig.cqn();
    let indexes = [3, 0, 2, 0, 5];
    let mut ports = indexes.map(|index| {
        let mut port = rig.companion();
        port.post_wqe(|b, at| WqeBuilder::wait(b, at, cqn, index).signaled());
        port
    });
    for produced in 1..=6 {
        rig.complete();
        rig.pair.run();
        for (port, index) in ports.iter_mut().zip(indexes) {
            assert_eq!(port.sent().len(), usize::from(index + 1 == produced), "{index} {produced}");
        }
    }
}

#[test]
fn others_go_on_and_so_do_receives_of_the_queue_that_waits() {
    let mut rig = Rig::default();
    let cqn = rig.counts.send_cq().cqn();
    rig.pair.b.post_recv(&[sge(&rig.pair.mr_b, 8, 8)]);
    rig.pair.b.post_wqe(|b, at| WqeBuilder::wait(b, at, cqn, 0).signaled());
    rig.pair.run();
    // Doorbells that bring more do not bring it past the WAIT.
    rig.pair.b.post_wqe(|b, at| WqeBuilder::nop(b, at).signaled());
    rig.pair.a.post_wqe(|b, at| WqeBuilder::send(b, at).inline(b"received").signaled());
    let (from, to) = (remote(&rig.pair.mr_b, 8), sge(&rig.pair.mr_a, 0, 8));
    rig.pair.a.post_wqe(|b, at| WqeBuilder::read(b, at, from).sge(to).signaled());
    rig.pair.run();
    assert_eq!((rig.pair.a.sent(), rig.pair.b.received()), (DONE.to_vec(), vec![(0, None)]));
    assert_eq!(bytes(rig.pair.mr_a.region(), 0, 8), b"received");
    assert_eq!(rig.pair.b.sent(), []);
    rig.counts.post_wqe(|b, at| WqeBuilder::nop(b, at).signaled());
    rig.pair.run();
    assert_eq!(rig.pair.b.sent(), DONE);
}

#[test]
fn error_reset_and_destruction_end_the_wait() {
    let mut rig = Rig::default();
    let cqn = rig.cqn();
    rig.count_at(cqn, 0);
    rig.pair.run();
    rig.counts.qp.modify(QpState::Err, &QpAttrs::default()).unwrap();
    rig.pair.run();
    let flushed = Some(Syndrome::WrFlush);
    assert_eq!(rig.counts.sent(), [(0, flushed), (1, flushed)]);

    // A CQE that comes later is not for what the queue does now.
    let reconnect = |port: &mut Port| {
        port.reset();
        connect(port, port.qp.qpn(), QpAttrs::default());
    };
    reconnect(&mut rig.counts);
    rig.count_at(cqn, 1);
    rig.pair.run();
    reconnect(&mut rig.counts);
    rig.counts.post_wqe(|b, at| WqeBuilder::nop(b, at).signaled());
    rig.count_at(cqn, 2);
    rig.complete();
    rig.complete();
    rig.pair.run();
    assert_eq!((rig.counts.sent(), rig.counted()), (vec![(0, None)], 0));

    // Its slot is another's.
    drop(rig.counts);
    rig.counts = companion(&rig.pair.nic, &rig.pair.pd, &PortConfig::default());
    rig.complete();
    rig.pair.run();
    assert_eq!((rig.counts.sent(), rig.counted()), (vec![], 0));
    rig.count_at(cqn, 2);
    rig.pair.run();
    assert_eq!((rig.counts.sent(), rig.counted()), (DONE.to_vec(), 1));
    assert_eq!(rig.pair.nic.stats().stale_slots, 0);
}

#[test]
fn a_drained_queue_waits_on_when_it_runs_again() {
    let mut rig = Rig::default();
    rig.count_at(rig.cqn(), 0);
    rig.pair.run();
    rig.counts.qp.modify(QpState::Sqd, &QpAttrs::default()).unwrap();
    rig.pair.run();
    let qpn = rig.counts.qp.qpn();
    assert_eq!(rig.pair.nic.poll_event(), Some(AsyncEvent::SqDrained { qpn }));
    rig.complete();
    rig.pair.run();
    assert_eq!(rig.counted(), 0);
    rig.counts.qp.modify(QpState::Rts, &QpAttrs::default()).unwrap();
    rig.pair.run();
    assert_eq!((rig.counts.sent(), rig.counted()), (DONE.to_vec(), 1));
}

#[test]
fn a_cq_that_does_not_exist_is_an_error() {
    for cqn in [0, 99, 0x0100_0001, u32::MAX] {
        let mut rig = Rig::default();
        rig.count_at(cqn, 0);
        rig.expect_lost(cqn);
    }
    // Of another NIC, whose numbers are its own.
    let other = Rig::default();
    let more = other.companion();
    let cqn = more.send_cq().cqn();
    let mut rig = Rig::default();
    rig.count_at(cqn, 0);
    rig.expect_lost(cqn);
}

#[test]
fn a_cq_that_is_destroyed_or_fails_ends_the_wait() {
    let mut rig = Rig::default();
    let gone = rig.companion();
    let cqn = gone.send_cq().cqn();
    rig.count_at(cqn, 0);
    rig.pair.run();
    drop(gone);
    // Another that has its number at once is not the one that was waited for.
    let mut same = rig.companion();
    assert_eq!(same.send_cq().cqn(), cqn);
    same.post_wqe(|b, at| WqeBuilder::nop(b, at).signaled());
    rig.expect_lost(cqn);

    let mut rig = Rig::new(PortConfig { log_cq: 1, ..PortConfig::default() });
    let cqn = rig.cqn();
    rig.count_at(cqn, 5);
    for _ in 0..3 {
        rig.complete();
        rig.pair.run();
    }
    rig.expect_lost(cqn);
    // And for one that has failed.
    let mut late = rig.companion();
    for index in [1, 2] {
        late.post_wqe(|b, at| WqeBuilder::wait(b, at, cqn, index).signaled());
    }
    rig.pair.run();
    assert_eq!(late.sent(), [(0, None), (1, Some(Syndrome::LocalQpOp))]);
}

#[test]
fn an_index_out_of_the_blue_hangs_that_queue_alone() {
    let mut rig = Rig::default();
    let cqn = rig.cqn();
    rig.count_at(cqn, (1 << 23) - 1);
    let mut other = rig.companion();
    // Half the indexes are past ones.
    other.post_wqe(|b, at| WqeBuilder::wait(b, at, cqn, u32::MAX).signaled());
    // Its own CQ: of what is done, and of what can never be.
    let own = other.send_cq().cqn();
    other.post_wqe(|b, at| WqeBuilder::wait(b, at, own, 0).signaled());
    other.post_wqe(|b, at| WqeBuilder::wait(b, at, own, 2).signaled());
    for _ in 0..100 {
        rig.complete();
        rig.pair.run();
        rig.pair.a.sent();
    }
    assert_eq!((other.sent(), rig.counts.sent(), rig.counted()), (DONE.to_vec(), vec![], 0));
    assert_eq!(rig.pair.nic.step(), Step::Idle);
}

#[test]
fn a_cqe_counts_when_it_is_written() {
    let mut rig = Rig::default();
    rig.count_at(rig.cqn(), 0);
    let delay = Delay::Time(Duration::from_millis(1));
    rig.pair.nic.faults().delay_cqes(rig.pair.a.send_cq(), Some(delay));
    rig.complete();
    rig.pair.run();
    assert_eq!(rig.counted(), 0);
    rig.pair.run_for(Duration::from_millis(2));
    assert_eq!((rig.counts.sent(), rig.counted()), (DONE.to_vec(), 1));
    // And that of a CQ that is resized, which takes an index.
    rig.pair.nic.faults().delay_cqes(rig.pair.a.send_cq(), None);
    rig.count_at(rig.cqn(), 1);
    rig.pair.run();
    rig.pair.a.resize_send_cq(9).unwrap();
    rig.pair.run();
    assert_eq!(rig.counted(), 2);
}

/// The CQE comes once the peer has answered; meanwhile the queue has work of its own under way.
#[test]
fn work_on_the_network_is_waited_for() {
    let mut net = Net::perfect(QpAttrs::default());
    let [mut near, far] = [&net.a, &net.b].map(|host| host.another());
    let addr = |nic: &SoftNic| nic.local_addr().unwrap();
    let connect_over = warpverbs_dev::connect_over;
    connect_over(&near, addr(&net.b.nic), far.qp.qpn(), QpAttrs::default());
    connect_over(&far, addr(&net.a.nic), near.qp.qpn(), QpAttrs::default());
    let mut counts = companion(&net.a.nic, &net.a.pd, &PortConfig::default());
    let cqn = net.a.port.send_cq().cqn();

    let to = [0, 1].map(|at| remote(&net.b.mr, at));
    near.post_wqe(|b, at| WqeBuilder::write(b, at, to[0]).inline(b"1"));
    near.post_wqe(|b, at| WqeBuilder::wait(b, at, cqn, 0).signaled());
    near.post_wqe(|b, at| WqeBuilder::write(b, at, to[1]).inline(b"3").signaled());
    counts.post_wqe(|b, at| WqeBuilder::wait(b, at, cqn, 0).signaled());
    net.run();
    assert_eq!((near.sent(), counts.sent()), (vec![], vec![]));
    assert_eq!(bytes(net.b.mr.region(), 0, 2), b"1\0");
    net.a.port.post_wqe(|b, at| WqeBuilder::write(b, at, to[0]).inline(b"2").signaled());
    // Sent, and not answered.
    net.a.nic.step();
    net.a.nic.step();
    assert_eq!((near.sent(), counts.sent()), (vec![], vec![]));
    net.run();
    assert_eq!((near.sent(), counts.sent()), (vec![(1, None), (2, None)], vec![(0, None)]));
    assert_eq!(bytes(net.b.mr.region(), 0, 2), b"23");
}

#[test]
fn a_queue_that_only_consumes_does_not_wait() {
    let port = PortConfig { consume_only: true, ..PortConfig::default() };
    let mut rig = Rig::default();
    rig.counts = companion(&rig.pair.nic, &rig.pair.pd, &port);
    rig.count_at(rig.cqn(), 0);
    rig.pair.run();
    assert_eq!((rig.counts.sent().last(), rig.counted()), (Some(&(1, None)), 0));
    // One that waits goes on waiting, until the CQE comes.
    rig.counts = rig.companion();
    rig.count_at(rig.cqn(), 0);
    rig.pair.run();
    rig.pair.nic.consume_only(true).unwrap();
    rig.pair.run();
    assert_eq!(rig.counts.sent(), []);
    rig.complete();
    rig.pair.run();
    assert_eq!((rig.counts.sent(), rig.counted()), (DONE.to_vec(), 1));
}

/// Driven by its own thread, which has gone to rest.
#[test]
fn another_thread_ends_the_wait() {
    let nic = SoftNic::new(Config::default()).unwrap();
    let pd = nic.alloc_pd();
    let [mut counts, mut works] = [(); 2].map(|()| companion(&nic, &pd, &PortConfig::default()));
    let _engine = nic.spawn().unwrap();
    let cqn = works.send_cq().cqn();
    for index in [0, 1] {
        counts.post_wqe(|b, at| WqeBuilder::wait(b, at, cqn, index).signaled());
    }
    // The engine is likely to be at rest then, here and below; nothing fails if it is not.
    std::thread::sleep(Duration::from_millis(20));
    works.post_wqe(|b, at| WqeBuilder::nop(b, at).signaled());
    assert_eq!(until(|| counts.only_sent()), None);
    std::thread::sleep(Duration::from_millis(20));
    drop(works);
    assert_eq!(until(|| counts.only_sent()), Some(Syndrome::LocalQpOp));
}
