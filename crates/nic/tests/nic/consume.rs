//! A NIC that only consumes for a while, in the midst of traffic: nothing is lost, nothing is
//! completed twice, and what is only consumed is neither read nor moved.

use crate::rng;
use rand::rngs::StdRng;
use rand::{Rng, RngExt};
use warpverbs_dev::{Net, Pair, Port, PortConfig, bytes, connect, local, remote, rest, sge};
use warpverbs_mem::{HostBuf, Region};
use warpverbs_mlx5::syndrome::Syndrome;
use warpverbs_mlx5::wqe::WqeBuilder;
use warpverbs_nic::{
    Announcement, Config, DoorbellOnly, Mr, QpAttrs, QpState, SoftNic, VirtualClock,
};

/// A poster, the memory that it writes to, and all NICs that take part, its own first.
struct World<'w, const N: usize> {
    port: &'w mut Port,
    target: &'w Mr,
    nics: [&'w SoftNic; N],
}

fn loopback(pair: &mut Pair) -> World<'_, 1> {
    World { port: &mut pair.a, target: &pair.mr_b, nics: [&pair.nic] }
}

/// The fate of a WQE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It was announced before the NIC only consumed.
    Executed,
    /// It was announced afterwards, behind work that was under way.
    Either,
    /// It was announced afterwards, to an idle QP. It is no WQE at all.
    Consumed,
}

/// How work is made known.
enum How {
    /// By the record and the QP's doorbell.
    Doorbell,
    /// By the record and any register of the page.
    Registers(Region),
    /// By one register of the page, without a record.
    DoorbellOnly(Region),
}

fn announce(port: &Port, how: &How, register: u64) {
    if !matches!(how, How::DoorbellOnly(_)) {
        port.record();
    }
    match how {
        How::Doorbell => port.ring(),
        How::Registers(page) => port.ring_register(page, register % 4),
        How::DoorbellOnly(page) => port.ring_register(page, 2),
    }
}

/// Posts to `port`: WQE `n` writes `n + 1` to word `n` of the target, unless it is garbage.
fn post(port: &mut Port, target: &Mr, fate: Fate, rng: &mut StdRng) {
    let n = port.posted;
    let to = remote(target, n * 8);
    if fate == Fate::Consumed {
        let mut garbage = [0; 64];
        rng.fill_bytes(&mut garbage);
        // A register is rung with these, and names the QP all the same.
        WqeBuilder::nop(&mut garbage, port.position()).finish().unwrap();
        garbage[3] = 0xee;
        port.put_bytes(&garbage);
        return;
    }
    let value = (n + 1).to_ne_bytes();
    port.put_wqe(|buf, at| WqeBuilder::write(buf, at, to).inline(&value).signaled());
}

/// Completions since the last call. WQEs of which they tell, counted from the first.
fn completed(port: &mut Port, before: u64) -> u64 {
    port.sent().into_iter().fold(before, |before, (counter, error)| {
        assert_eq!(error, None);
        let news = counter.wrapping_add(1).wrapping_sub(before as u16);
        assert!((1..=64).contains(&news), "WQE {counter} after {before} were complete");
        before + u64::from(news)
    })
}

fn switched_at_random<const N: usize>(world: World<'_, N>, how: &How) {
    let World { port, target, nics } = world;
    let (_, mut rng) = rng();
    let (mut on, mut done, mut fates) = (false, 0, Vec::new());
    while fates.len() < 6000 {
        match rng.random_range(0..20) {
            0 => {
                on = !on;
                nics[0].consume_only(on).unwrap();
            }
            1..4 => drop(rest(nics)),
            4..12 => {
                nics[0].step();
            }
            _ if port.posted - done < 64 => {
                let idle = port.posted == done;
                let fate = match (on, idle) {
                    (false, _) => Fate::Executed,
                    (true, false) => Fate::Either,
                    (true, true) => Fate::Consumed,
                };
                post(port, target, fate, &mut rng);
                fates.push(fate);
                announce(port, how, rng.next_u64());
            }
            _ => {}
        }
        done = completed(port, done);
    }
    nics[0].consume_only(false).unwrap();
    rest(nics);
    assert_eq!(completed(port, done), fates.len() as u64);
    for (n, fate) in (0u64..).zip(&fates) {
        let found = bytes(target.region(), n * 8, 8);
        let found = u64::from_ne_bytes(found.try_into().unwrap());
        let fits = match fate {
            Fate::Executed => found == n + 1,
            Fate::Either => found == n + 1 || found == 0,
            Fate::Consumed => found == 0,
        };
        assert!(fits, "WQE {n}, {fate:?}: {found}");
    }
    for fate in [Fate::Executed, Fate::Either, Fate::Consumed] {
        assert!(fates.iter().filter(|found| **found == fate).count() > 20, "{fate:?}");
    }
    assert!(nics[0].take_violations().is_empty());
}

#[test]
fn nothing_is_lost_by_loopback() {
    switched_at_random(loopback(&mut Pair::default()), &How::Doorbell);
}

fn by_a_page(doorbell_only: DoorbellOnly, how: impl FnOnce(Region) -> How) {
    let nic = SoftNic::new(Config::default()).unwrap();
    let page = HostBuf::region(4096).unwrap();
    let announcement = Announcement::Uar { page: nic.add_uar(&page).unwrap(), doorbell_only };
    let a = PortConfig { announcement, ..PortConfig::default() };
    let (b, clock) = (PortConfig::default(), VirtualClock::new());
    let mut pair = Pair::on(nic, clock, &a, &b, QpAttrs::default()).unwrap();
    switched_at_random(loopback(&mut pair), &how(page));
}

#[test]
fn nothing_is_lost_by_registers() {
    by_a_page(DoorbellOnly::Detect, How::Registers);
}

#[test]
fn nothing_is_lost_without_a_record() {
    by_a_page(DoorbellOnly::Always, How::DoorbellOnly);
}

#[test]
fn nothing_is_lost_over_a_network() {
    let Net { a, b, .. } = &mut Net::perfect(QpAttrs::default());
    let world = World { port: &mut a.port, target: &b.mr, nics: [&a.nic, &b.nic] };
    switched_at_random(world, &How::Doorbell);
}

#[test]
fn what_was_announced_before_is_executed_though_nobody_has_looked() {
    let mut pair = Pair::default();
    let (_, mut rng) = rng();
    post(&mut pair.a, &pair.mr_b, Fate::Executed, &mut rng);
    pair.a.announce();
    pair.nic.consume_only(true).unwrap();
    pair.run();
    assert_eq!(bytes(pair.mr_b.region(), 0, 8), 1u64.to_ne_bytes());
    assert_eq!(pair.a.sent(), [(0, None)]);
    // And the other way round: announced while the NIC only consumed.
    post(&mut pair.a, &pair.mr_b, Fate::Consumed, &mut rng);
    pair.a.announce();
    pair.nic.consume_only(false).unwrap();
    post(&mut pair.a, &pair.mr_b, Fate::Executed, &mut rng);
    pair.a.announce();
    pair.run();
    assert_eq!(pair.a.sent(), [(1, None), (2, None)]);
    assert_eq!(bytes(pair.mr_b.region(), 8, 16)[8..], 3u64.to_ne_bytes());
}

#[test]
fn all_that_is_announced_has_one_completion() {
    let mut pair = Pair::default();
    pair.nic.consume_only(true).unwrap();
    for round in 1..=3 {
        pair.a.put_bytes(&[0xa5; 64 * 40]);
        pair.a.announce();
        pair.run();
        assert_eq!(pair.a.sent(), [(40 * round - 1, None)]);
    }
}

#[test]
fn what_arrives_is_executed() {
    let mut net = Net::perfect(QpAttrs::default());
    net.a.nic.consume_only(true).unwrap();
    net.a.port.post_recv(&[sge(&net.a.mr, 0, 8)]);
    net.b.mr.region().write(0, &7u64.to_ne_bytes()).unwrap();
    let from = sge(&net.b.mr, 0, 8);
    net.b.port.post_wqe(|buf, at| WqeBuilder::send(buf, at).sge(from).signaled());
    let (to, from) = (local(&net.b.mr, 8), remote(&net.a.mr, 0));
    net.b.port.post_wqe(|buf, at| WqeBuilder::fetch_add(buf, at, from, 1, to).signaled());
    net.run();
    assert_eq!(net.b.port.sent(), [(0, None), (1, None)]);
    assert_eq!(net.a.port.received(), [(0, None)]);
    assert_eq!(bytes(net.a.mr.region(), 0, 8), 8u64.to_ne_bytes());
}

#[test]
fn a_qp_that_only_consumes_fails_and_is_reset_as_any_other() {
    let mut pair = Pair::default();
    pair.nic.consume_only(true).unwrap();
    let none = QpAttrs::default();
    pair.a.put_bytes(&[0xa5; 64]);
    pair.a.announce();
    pair.run();
    assert_eq!(pair.a.sent(), [(0, None)]);
    pair.a.qp.modify(QpState::Err, &none).unwrap();
    pair.a.put_bytes(&[0xa5; 64 * 3]);
    pair.a.announce();
    pair.run();
    // Each WQEBB is flushed as a WQE, whatever size these WQEs say they have.
    let flushed = Some(Syndrome::WrFlush);
    assert_eq!(pair.a.sent(), [(1, flushed), (2, flushed), (3, flushed)]);
    pair.a.reset();
    connect(&pair.a, pair.b.qp.qpn(), none);
    pair.a.put_bytes(&[0xa5; 64 * 2]);
    pair.a.announce();
    pair.run();
    assert_eq!(pair.a.sent(), [(1, None)]);
}
