//! QPs whose doorbells are registers of pages, which they share.

use crate::rng;
use rand::seq::IndexedRandom;
use rand::{Rng, RngExt};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use warpverbs_dev::{Pair, PortConfig, QueueMemory, bytes, connect, remote};
use warpverbs_mem::testing::LazyCopier;
use warpverbs_mem::{HostBuf, Region};
use warpverbs_mlx5::doorbell::Doorbell;
use warpverbs_mlx5::wqe::WqeBuilder;
use warpverbs_nic::{
    Announcement, Clock, Config, DoorbellOnly, NicError, QpAttrs, QpState, Rule, SoftNic, Step,
    VirtualClock,
};

struct Rig {
    nic: SoftNic,
    clock: VirtualClock,
    page: Region,
    announcement: Announcement,
    /// Where the queues of the first QP of each pair lie.
    memory: QueueMemory,
}

impl Rig {
    fn new(doorbell_only: DoorbellOnly) -> Self {
        let clock = VirtualClock::new();
        let config = Config { clock: Clock::Virtual(clock.clone()), ..Config::default() };
        let nic = SoftNic::new(Config { record_polls: 50, max_qps: 2048, ..config }).unwrap();
        let page = HostBuf::region(4096).unwrap();
        let announcement = Announcement::Uar { page: nic.add_uar(&page).unwrap(), doorbell_only };
        Self { nic, clock, page, announcement, memory: QueueMemory::Host }
    }

    /// The first QP of the pair rings by the page.
    fn pair(&self) -> Pair {
        let (announcement, memory) = (self.announcement.clone(), self.memory.clone());
        let a = PortConfig { announcement, memory, log_sq: 4, ..PortConfig::default() };
        let (b, clock) = (PortConfig::default(), self.clock.clone());
        Pair::on(self.nic.clone(), clock, &a, &b, QpAttrs::default()).unwrap()
    }

    /// Slices until the NIC is idle, twice: it is once it has seen all registers, the first of
    /// them perhaps before this call.
    fn run(&self) -> u32 {
        let slices = || (0..100_000).take_while(|_| matches!(self.nic.step(), Step::Busy(_)));
        (slices().count() + slices().count()) as u32
    }

    /// Puts a value into a register, as another QP or anything else may.
    fn overwrite(&self, register: u64, value: u64) {
        self.page.atomic_u64(0x800 + register * 0x100).unwrap().store(value, Ordering::Release);
    }
}

/// Puts a signalled inline WRITE of `value` to the start of the peer's memory.
fn put(pair: &mut Pair, value: u64) {
    let to = remote(&pair.mr_b, 0);
    let data = value.to_ne_bytes();
    pair.a.put_wqe(|buf, at| WqeBuilder::write(buf, at, to).inline(&data).signaled());
}

fn value(pair: &Pair) -> u64 {
    u64::from_ne_bytes(bytes(pair.mr_b.region(), 0, 8).try_into().unwrap())
}

fn done(pair: &mut Pair) -> usize {
    pair.a.sent().into_iter().filter(|(_, error)| error.is_none()).count()
}

#[test]
fn every_register_is_a_doorbell_and_indexes_wrap() {
    let rig = Rig::new(DoorbellOnly::Never);
    let mut pair = rig.pair();
    for round in 1..70_000u64 {
        put(&mut pair, round);
        pair.a.record();
        pair.a.ring_register(&rig.page, round % 4);
        rig.run();
        assert_eq!((value(&pair), done(&mut pair)), (round, 1), "round {round}");
    }
    assert!(rig.nic.take_violations().is_empty());
}

#[test]
fn a_doorbell_that_was_overwritten_is_found_by_its_record() {
    let rig = Rig::new(DoorbellOnly::Detect);
    let mut pairs: Vec<Pair> = (0..600).map(|_| rig.pair()).collect();
    for round in 1..4 {
        for pair in &mut pairs {
            put(pair, round);
            pair.a.record();
            pair.a.ring_register(&rig.page, 1);
        }
        // A register names one QP; the others follow, 16 of them in a slice.
        let slices = rig.run();
        assert!((600 / 16..60).contains(&slices), "{slices} slices");
        for pair in &mut pairs {
            assert_eq!((value(pair), done(pair)), (round, 1));
        }
    }
    // Any new value of a register is a reason to look, even if it names no QP.
    put(&mut pairs[17], 9);
    pairs[17].a.record();
    rig.overwrite(3, u64::MAX);
    rig.run();
    assert_eq!(value(&pairs[17]), 9);
    assert!(rig.nic.take_violations().is_empty());
}

#[test]
fn nothing_is_lost_whoever_overwrites_whom() {
    overwrite_each_other(&Rig::new(DoorbellOnly::Detect), 40, 3000);
}

#[test]
fn nothing_is_lost_of_records_that_are_looked_at_now_and_then() {
    let copier = Arc::new(LazyCopier::default());
    copier.allow(u64::MAX);
    let memory = QueueMemory::Device(copier);
    overwrite_each_other(&Rig { memory, ..Rig::new(DoorbellOnly::Detect) }, 5, 300);
}

fn overwrite_each_other(rig: &Rig, count: usize, rounds: u64) {
    let (seed, mut rng) = rng();
    let mut pairs: Vec<Pair> = (0..count).map(|_| rig.pair()).collect();
    let (mut posted, mut reported) = (vec![0u64; pairs.len()], vec![0; pairs.len()]);
    for round in 0..rounds {
        for _ in 0..rng.random_range(0..6) {
            let i = rng.random_range(0..pairs.len());
            let free = 16 - (posted[i] - reported[i]);
            let count = rng.random_range(0..=free.min(3));
            for _ in 0..count {
                posted[i] += 1;
                put(&mut pairs[i], posted[i]);
            }
            // A doorbell's value comes once only, as its index does.
            if count > 0 {
                pairs[i].a.record();
                pairs[i].a.ring_register(&rig.page, rng.random_range(0..4));
            }
            (0..rng.random_range(0..3)).for_each(|_| _ = rig.nic.step());
        }
        if rng.random_ratio(1, 8) {
            rig.overwrite(rng.random_range(0..4), rng.next_u64());
        }
        if rng.random_ratio(1, 4) {
            rig.run();
            for (i, pair) in pairs.iter_mut().enumerate() {
                assert_eq!(value(pair), posted[i], "QP {i}, round {round}, seed {seed}");
            }
        }
        for (pair, reported) in pairs.iter_mut().zip(&mut reported) {
            *reported += done(pair) as u64;
        }
    }
    assert!(rig.nic.take_violations().is_empty(), "seed {seed}");
}

#[test]
fn a_record_that_announces_the_impossible_is_reported_once() {
    let rig = Rig::new(DoorbellOnly::Never);
    let mut pair = rig.pair();
    pair.a.posted += 17;
    pair.a.record();
    // The QP's own doorbell makes its record one of those that every slice looks at.
    rig.overwrite(1, u64::from(pair.a.qp.qpn() << 8).to_be());
    rig.run();
    (0..100).for_each(|_| _ = rig.nic.step());
    let found: Vec<Rule> = rig.nic.take_violations().iter().map(|v| v.rule).collect();
    assert_eq!(found, [Rule::BeyondRing { posted: 17, outstanding: 17, depth: 16 }]);
    assert_eq!(pair.a.qp.state(), QpState::Err);
    // After RESET it works again.
    pair.restart();
    pair.a.sent();
    put(&mut pair, 2);
    pair.a.record();
    pair.a.ring_register(&rig.page, 1);
    rig.run();
    assert_eq!((value(&pair), done(&mut pair)), (2, 1));
}

#[test]
fn a_poster_without_records_is_recognised() {
    let rig = Rig::new(DoorbellOnly::Detect);
    let (mut bare, mut usual) = (rig.pair(), rig.pair());
    put(&mut bare, 1);
    bare.a.ring_register(&rig.page, 0);
    (0..40).for_each(|_| _ = rig.nic.step());
    assert_eq!(value(&bare), 0, "the record may still come");
    rig.run();
    assert_eq!((value(&bare), done(&mut bare)), (1, 1));
    for round in 2..100 {
        put(&mut bare, round);
        bare.a.ring_register(&rig.page, 0);
        (0..5).for_each(|_| _ = rig.nic.step());
        assert_eq!((value(&bare), done(&mut bare)), (round, 1), "without delay");
    }
    // One whose record has moved once goes by its record.
    put(&mut usual, 1);
    usual.a.record();
    usual.a.ring_register(&rig.page, 0);
    rig.run();
    put(&mut usual, 2);
    usual.a.ring_register(&rig.page, 0);
    (0..1000).for_each(|_| _ = rig.nic.step());
    assert_eq!(value(&usual), 1);
    usual.a.record();
    rig.run();
    assert_eq!(value(&usual), 2);
    // After RESET it is not known any more.
    bare.restart();
    put(&mut bare, 7);
    bare.a.record();
    bare.a.ring_register(&rig.page, 2);
    rig.run();
    assert_eq!(value(&bare), 7);
    assert!(rig.nic.take_violations().is_empty());
}

#[test]
fn the_first_doorbell_after_reset_may_be_the_one_before_it() {
    let rig = Rig::new(DoorbellOnly::Never);
    let mut pair = rig.pair();
    let mut others: Vec<Pair> = (0..20).map(|_| rig.pair()).collect();
    for round in 1..4 {
        put(&mut pair, round);
        pair.a.record();
        pair.a.ring_register(&rig.page, 2);
        rig.run();
        assert_eq!((value(&pair), done(&mut pair)), (round, 1));
        // Its record is not among those that are looked at all the time.
        for other in &mut others {
            put(other, round);
            other.a.record();
            other.a.ring_register(&rig.page, 0);
            rig.run();
        }
        // A doorbell that the QP has overwritten is not forgotten with its own.
        put(&mut others[0], 100 + round);
        others[0].a.record();
        pair.a.ring_register(&rig.page, 3);
        for qp in [&pair.a.qp, &pair.b.qp] {
            qp.modify(QpState::Reset, &QpAttrs::default()).unwrap();
        }
        rig.run();
        assert_eq!(value(&others[0]), 100 + round);
        connect(&pair.a, pair.b.qp.qpn(), QpAttrs::default());
        connect(&pair.b, pair.a.qp.qpn(), QpAttrs::default());
        pair.a.posted = 0;
        pair.a.record();
    }
    assert!(rig.nic.take_violations().is_empty());
}

#[test]
fn a_poster_without_records_may_say_so() {
    let rig = Rig::new(DoorbellOnly::Always);
    let mut pair = rig.pair();
    put(&mut pair, 1);
    // The record lies: NVSHMEM's writes the half of the receive queue.
    pair.a.dbr.write(4, &[0xff; 4]).unwrap();
    pair.a.ring_register(&rig.page, 3);
    (0..5).for_each(|_| _ = rig.nic.step());
    assert_eq!((value(&pair), done(&mut pair)), (1, 1));
    let rig = Rig::new(DoorbellOnly::Never);
    let mut pair = rig.pair();
    put(&mut pair, 1);
    pair.a.ring_register(&rig.page, 3);
    (0..1000).for_each(|_| _ = rig.nic.step());
    assert_eq!(value(&pair), 0);
}

#[test]
fn random_values_announce_nothing() {
    let (seed, mut rng) = rng();
    let rig = Rig::new(DoorbellOnly::Detect);
    let pairs: Vec<Pair> = (0..3).map(|_| rig.pair()).collect();
    for _ in 0..10_000 {
        let pair = pairs.choose(&mut rng).unwrap();
        let value = match rng.random_range(0..4) {
            // A doorbell of the QP at the other end, which does not ring by this page.
            0 => u64::from(pair.b.qp.qpn()).to_be() | rng.random_range(0..0xff_ffff),
            _ => rng.next_u64(),
        };
        // One random value in 2^22 names a QP that rings by this page.
        let named = Doorbell::from_ne(value).qpn().get();
        if pairs.iter().any(|pair| pair.a.qp.qpn() == named) {
            continue;
        }
        rig.overwrite(rng.random_range(0..4), value);
        rig.nic.step();
    }
    for pair in &pairs {
        assert_eq!((pair.a.qp.state(), value(pair)), (QpState::Rts, 0), "seed {seed}");
    }
}

#[test]
fn pages_are_checked_and_go_with_their_last_qp() {
    let rig = Rig::new(DoorbellOnly::Detect);
    let short = rig.nic.add_uar(&HostBuf::region(2048).unwrap());
    assert!(matches!(short, Err(NicError::Memory { what: "page of doorbell registers", .. })));
    let other = Rig::new(DoorbellOnly::Detect);
    let config = PortConfig { announcement: other.announcement, ..PortConfig::default() };
    let foreign =
        Pair::on(rig.nic.clone(), rig.clock.clone(), &config, &config, QpAttrs::default());
    assert!(matches!(foreign, Err(NicError::Foreign { .. })), "{foreign:?}");
    let mut pair = rig.pair();
    let Rig { nic, page, announcement, .. } = rig;
    drop(announcement);
    put(&mut pair, 3);
    pair.a.record();
    pair.a.ring_register(&page, 0);
    pair.run();
    assert_eq!(value(&pair), 3);
    drop(pair);
    // The next page has the slot; what its registers hold already is nothing new.
    page.write(0x800, &[1; 8]).unwrap();
    let again = nic.add_uar(&page).unwrap();
    let slices = (0..9).take_while(|_| nic.step() == Step::Busy(0)).count();
    assert!(slices < 4, "each sees one of four registers");
    drop(again);
    assert_eq!(nic.stats().stale_slots, 0);
}
