//! Random sequences of work on both sides against a model. Memory and completions must agree after
//! every batch, whichever backend executes the work: loopback, network or proxy.

use crate::model::{Ends, SIZE, Side, Work, check, native_work, work};
use proptest::prelude::*;
use std::cell::RefCell;
use std::sync::Arc;
use warpverbs_dev::{
    FakePlan, Net, Pair, PairConfig, Port, PortConfig, ProxiedConfig, ProxiedPair, QueueMemory,
    Receives, bytes, remote,
};
use warpverbs_mem::testing::LazyCopier;
use warpverbs_mem::{Access, SmallBuf};
use warpverbs_mlx5::num::Rkey;
use warpverbs_nic::link::FaultPlan;
use warpverbs_nic::{Config, DoorbellPolicy, Mr, Pd, ProxyLimits, QpAttrs, SoftNic};

fn policies() -> impl Strategy<Value = DoorbellPolicy> {
    prop::sample::select(vec![
        DoorbellPolicy::DoorbellFirst,
        DoorbellPolicy::RecordFirst,
        DoorbellPolicy::Random,
        DoorbellPolicy::DropThenRecover { polls: 1 },
    ])
}

type Batches = Vec<(bool, Vec<(Work, bool)>)>;

fn batches(work: impl Strategy<Value = Work>) -> impl Strategy<Value = Batches> {
    let batch = prop::collection::vec((work, any::<bool>()), 1..6);
    prop::collection::vec((any::<bool>(), batch), 1..30)
}

/// A key of memory that nothing else uses, among those that were `made`.
fn fresh_key(nic: &SoftNic, pd: &Pd, made: &RefCell<Vec<Mr>>) -> Rkey {
    let mr = nic.reg_mr(pd, &SmallBuf::region(64), Access::INVALIDATE).unwrap();
    let key = Rkey(mr.rkey());
    made.borrow_mut().push(mr);
    key
}

/// The model of both ends, whose memory is written to theirs.
fn sides(ends: [&Mr; 2]) -> [Side; 2] {
    let sides = [0x11, 0xee].map(Side::new);
    for (mr, side) in ends.iter().zip(&sides) {
        mr.region().write(0, &side.memory).unwrap();
    }
    sides
}

/// Both ends have the completions and the bytes of the model.
fn agree(ends: [(&mut Port, &Mr); 2], sides: &mut [Side; 2]) -> Result<(), TestCaseError> {
    for ((port, mr), side) in ends.into_iter().zip(sides) {
        check(port, side)?;
        prop_assert_eq!(bytes(mr.region(), 0, SIZE), side.memory.clone());
    }
    Ok(())
}

/// Five WQEs of up to three WQEBBs fit; ring ends are crossed at every offset.
fn ports() -> PortConfig {
    PortConfig { log_sq: 5, receives: Receives::Own { log: 3 }, ..PortConfig::default() }
}

/// Where queues, CQs and records lie: in host memory, or where only a copy engine reaches them that
/// ends a copy after this many looks at it.
fn paces() -> impl Strategy<Value = Option<u64>> {
    prop::sample::select(vec![None, Some(1), Some(3)])
}

/// Ports with such memory, and what is to be called before their CQs are looked at: nobody waits for
/// CQEs to land.
fn ports_in(pace: Option<u64>) -> (PortConfig, impl Fn()) {
    let copier = Arc::new(LazyCopier::default());
    let memory = match pace {
        None => QueueMemory::Host,
        Some(pace) => {
            copier.pace(pace);
            QueueMemory::Device(copier.clone())
        }
    };
    (PortConfig { memory, ..ports() }, move || copier.allow(copier.waiting() as u64))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn the_nic_does_what_the_model_does(
        batches in batches(native_work()),
        slice in prop::sample::select(vec![4096u64, 1 << 20]),
        policy in policies(),
        pace in paces(),
    ) {
        let nic = Config { seed: Some(9), slice_bytes: slice, policy, ..Config::default() };
        let (port, land) = ports_in(pace);
        let mut pair =
            Pair::new(PairConfig { nic, a: port.clone(), b: port, ..PairConfig::default() }).unwrap();
        let mut sides = sides([&pair.mr_a, &pair.mr_b]);
        let made = RefCell::default();
        for (from_a, mut batch) in batches {
            let Pair { nic, pd, a, b, mr_a, mr_b, .. } = &mut pair;
            let (port, peer, mr, far) = if from_a { (a, b, mr_a, mr_b) } else { (b, a, mr_b, mr_a) };
            let (target, fresh_key) = (remote(far, 0), &|| fresh_key(nic, pd, &made));
            Ends { port, peer, mr, far, target, fresh_key }.post(&mut sides, from_a, &mut batch);
            pair.run();
            land();
            agree([(&mut pair.a, &pair.mr_a), (&mut pair.b, &pair.mr_b)], &mut sides)?;
        }
        prop_assert_eq!(pair.nic.take_violations(), vec![]);
        prop_assert_eq!(pair.nic.stats().qps.errors, 0);
    }

    /// All WQEs of a batch are announced together, so that one acknowledgement ends several.
    #[test]
    fn two_nics_on_a_network_do_what_the_model_does(
        batches in batches(native_work()),
        pace in paces(),
    ) {
        let (port, land) = ports_in(pace);
        let mut net = Net::new(FaultPlan::default(), &port, QpAttrs::default()).unwrap();
        let mut sides = sides([&net.a.mr, &net.b.mr]);
        let made = RefCell::default();
        for (from_a, mut batch) in batches {
            let Net { a, b, .. } = &mut net;
            let (near, far) = if from_a { (a, b) } else { (b, a) };
            let (port, peer, target) = (&mut near.port, &mut far.port, remote(&far.mr, 0));
            let fresh_key = &|| fresh_key(&near.nic, &near.pd, &made);
            Ends { port, peer, mr: &near.mr, far: &far.mr, target, fresh_key }
                .post(&mut sides, from_a, &mut batch);
            net.run();
            land();
            let Net { a, b, .. } = &mut net;
            agree([(&mut a.port, &a.mr), (&mut b.port, &b.mr)], &mut sides)?;
        }
        for host in [&net.a, &net.b] {
            prop_assert_eq!(host.nic.take_violations(), vec![]);
            prop_assert_eq!(host.nic.stats().qps.errors, 0);
        }
    }

    #[test]
    fn a_proxied_nic_does_what_the_model_does(
        batches in batches(work()),
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
        let mut sides = sides([&pair.a.mr, &pair.b.mr]);
        for (from_a, mut batch) in batches {
            let ProxiedPair { a, b, .. } = &mut pair;
            let (near, far) = if from_a { (a, b) } else { (b, a) };
            let (target, port, peer) = (far.remote(0), &mut near.port, &mut far.port);
            let fresh_key = &|| unreachable!("a proxied QP takes no LOCAL_INVAL");
            Ends { port, peer, mr: &near.mr, far: &far.mr, target, fresh_key }
                .post(&mut sides, from_a, &mut batch);
            pair.run();
            let ProxiedPair { a, b, .. } = &mut pair;
            agree([(&mut a.port, &a.mr), (&mut b.port, &b.mr)], &mut sides)?;
        }
        prop_assert_eq!(pair.nic.take_violations(), vec![]);
        prop_assert_eq!(pair.nic.stats().qps.errors, 0);
    }
}
