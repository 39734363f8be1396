//! Random sequences of work on both sides against a model. Memory and completions must agree after
//! every batch, whoever executes the work: the NIC, or a device that carries its QPs.

use proptest::prelude::*;
use warpverbs_nic::testing::{
    FakePlan, Pair, PairConfig, PortConfig, ProxiedConfig, ProxiedPair, Receives, bytes, remote,
};
use warpverbs_nic::{Config, DoorbellPolicy, ProxyLimits};

#[path = "common/model.rs"]
mod model;

use model::{Ends, SIZE, Side, Work, check, work};

fn policies() -> impl Strategy<Value = DoorbellPolicy> {
    prop::sample::select(vec![
        DoorbellPolicy::DoorbellFirst,
        DoorbellPolicy::RecordFirst,
        DoorbellPolicy::Random,
        DoorbellPolicy::DropThenRecover { polls: 1 },
    ])
}

type Batches = Vec<(bool, Vec<(Work, bool)>)>;

fn batches() -> impl Strategy<Value = Batches> {
    let batch = prop::collection::vec((work(), any::<bool>()), 1..6);
    prop::collection::vec((any::<bool>(), batch), 1..30)
}

/// Five WQEs of up to three WQEBBs fit; ring ends are crossed at every offset.
fn ports() -> PortConfig {
    PortConfig { log_sq: 5, receives: Receives::Own { log: 3 }, ..PortConfig::default() }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn the_nic_does_what_the_model_does(
        batches in batches(),
        slice in prop::sample::select(vec![4096u64, 1 << 20]),
        policy in policies(),
    ) {
        let nic = Config { seed: Some(9), slice_bytes: slice, policy, ..Config::default() };
        let port = ports();
        let mut pair =
            Pair::new(PairConfig { nic, a: port.clone(), b: port, ..PairConfig::default() }).unwrap();
        let (mut a, mut b) = (Side::new(0x11), Side::new(0xee));
        pair.mr_a.region().write(0, &a.memory).unwrap();
        pair.mr_b.region().write(0, &b.memory).unwrap();
        for (from_a, mut batch) in batches {
            let (target_b, target_a) = (remote(&pair.mr_b, 0), remote(&pair.mr_a, 0));
            let (port, peer) = (&mut pair.a, &mut pair.b);
            let (mr, far) = (&pair.mr_a, &pair.mr_b);
            if from_a {
                Ends { port, peer, mr, far, target: target_b }.post(&mut a, &mut b, &mut batch);
            } else {
                Ends { port: peer, peer: port, mr: far, far: mr, target: target_a }
                    .post(&mut b, &mut a, &mut batch);
            }
            pair.run();
            check(&mut pair.a, &mut a)?;
            check(&mut pair.b, &mut b)?;
            prop_assert_eq!(bytes(pair.mr_a.region(), 0, SIZE), a.memory.clone());
            prop_assert_eq!(bytes(pair.mr_b.region(), 0, SIZE), b.memory.clone());
        }
        prop_assert_eq!(pair.nic.take_violations(), vec![]);
        prop_assert_eq!(pair.nic.stats().qps.errors, 0);
    }

    #[test]
    fn a_proxied_nic_does_what_the_model_does(
        batches in batches(),
        policy in policies(),
        seed: u64,
        takes_at_most in prop::option::of(1usize..4),
        polls_at_most in prop::option::of(1usize..4),
        depth in 1u32..8,
    ) {
        let limits = ProxyLimits {
            send_depth: depth,
            recv_depth: depth,
            ..FakePlan::default().limits
        };
        let plan = FakePlan { seed, limits, staging: None, takes_at_most, polls_at_most };
        let nic = Config { seed: Some(9), policy, ..Config::default() };
        let mut pair =
            ProxiedPair::new(ProxiedConfig { nic, plan, a: ports(), b: ports() }).unwrap();
        let (mut a, mut b) = (Side::new(0x11), Side::new(0xee));
        pair.a.mr.region().write(0, &a.memory).unwrap();
        pair.b.mr.region().write(0, &b.memory).unwrap();
        for (from_a, mut batch) in batches {
            let (near, far) = if from_a { (&mut pair.a, &mut pair.b) } else { (&mut pair.b, &mut pair.a) };
            let (me, other) = if from_a { (&mut a, &mut b) } else { (&mut b, &mut a) };
            let target = far.remote(0);
            let (port, peer) = (&mut near.port, &mut far.port);
            Ends { port, peer, mr: &near.mr, far: &far.mr, target }.post(me, other, &mut batch);
            pair.run();
            check(&mut pair.a.port, &mut a)?;
            check(&mut pair.b.port, &mut b)?;
            prop_assert_eq!(bytes(pair.a.mr.region(), 0, SIZE), a.memory.clone());
            prop_assert_eq!(bytes(pair.b.mr.region(), 0, SIZE), b.memory.clone());
        }
        prop_assert_eq!(pair.nic.take_violations(), vec![]);
        prop_assert_eq!(pair.nic.stats().qps.errors, 0);
    }
}
