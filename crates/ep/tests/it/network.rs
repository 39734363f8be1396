//! Ranks between whose NICs packets are lost, doubled, late and out of order, and ranks that are late themselves.

use crate::case::Case;
use crate::cases::{Layers, at_pace, under_seed};
use crate::ranks::{Pace, Routes, faults};
use rand::RngExt;
use rand::rngs::SmallRng;
use warpverbs::raw::nic::NetStats;
use warpverbs_dev::simt_seeds;

fn networked(seed: u64, case: impl FnOnce(&mut SmallRng) -> Case) -> Layers {
    at_pace(Pace::Networked(seed, faults(seed)), seed, |rng| {
        let mut case = case(rng);
        if case.routes == Routes::Direct {
            case.routes = Routes::Rdma;
        }
        case
    })
}

/// Packets of all NICs, sent and received.
fn packets(layers: &Layers) -> [u64; 2] {
    let ranks = &layers.ranks;
    let others = ranks.others.iter().map(|(nic, _)| nic.stats().net);
    let all: Vec<NetStats> = others.chain([ranks.nic.stats().net]).collect();
    [all.iter().map(|net| net.sent).sum(), all.iter().map(|net| net.received).sum()]
}

/// Any layer, whose calls go on over the end of the epoch's bits now and then.
#[test]
fn any_layer_over_a_bad_network_is_that_of_the_reference() {
    let mut changed = 0;
    for seed in simt_seeds(0x800, 16) {
        let layers = networked(seed, |rng| {
            let mut case = Case::random(rng);
            case.calls += 1;
            if rng.random() {
                case.epoch = (1 << 24) - 2;
            }
            case
        });
        layers.check(&layers.run());
        let [sent, received] = packets(&layers);
        changed += u32::from(sent != received);
    }
    assert!(changed > 0, "no packet was lost or doubled");
}

/// A rank is late for each step of each call: the others, which are a call ahead, overwrite nothing.
#[test]
fn ranks_that_are_ahead_of_a_late_one_overwrite_nothing() {
    for seed in simt_seeds(0x900, 16) {
        let late = |rng: &mut SmallRng| {
            let mut case = Case::random(rng);
            (case.calls, case.epoch) = (4, (1 << 24) - 3);
            case.lags = (rng.random_range(0..case.ranks), rng.random_range(1..4_000_000));
            case
        };
        let layers = if seed % 2 == 0 { under_seed(seed, late) } else { networked(seed, late) };
        layers.check(&layers.run());
    }
}
