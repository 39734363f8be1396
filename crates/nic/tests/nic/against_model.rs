//! Random sequences of work on both sides against a model. Memory and completions must agree after
//! every batch, whichever backend executes the work: loopback, network or proxy.

use crate::model::{Ends, SIZE, Side, Work, check, native_work, work};
use proptest::prelude::*;
use std::cell::RefCell;
use std::sync::Arc;
use warpverbs_dev::{
    FakePlan, Net, Pair, PairConfig, PortConfig, ProxiedConfig, ProxiedPair, QueueMemory, Receives,
    bytes, remote,
};
use warpverbs_mem::testing::LazyCopier;
use warpverbs_mem::{Access, HostBuf, Region};
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

/// Keys of memory that nothing else uses.
struct Keys<'n> {
    nic: &'n SoftNic,
    pd: &'n Pd,
    memory: Region,
    made: RefCell<Vec<Mr>>,
}

impl<'n> Keys<'n> {
    fn new(nic: &'n SoftNic, pd: &'n Pd) -> Self {
        Self { nic, pd, memory: HostBuf::region(64).unwrap(), made: RefCell::default() }
    }

    fn fresh(&self) -> Rkey {
        let mr = self.nic.reg_mr(self.pd, &self.memory, Access::INVALIDATE).unwrap();
        let key = Rkey(mr.rkey());
        self.made.borrow_mut().push(mr);
        key
    }
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
        let (mut a, mut b) = (Side::new(0x11), Side::new(0xee));
        pair.mr_a.region().write(0, &a.memory).unwrap();
        pair.mr_b.region().write(0, &b.memory).unwrap();
        let keys = Keys::new(&pair.nic, &pair.pd);
        let fresh_key = &|| keys.fresh();
        for (from_a, mut batch) in batches {
            let (target_b, target_a) = (remote(&pair.mr_b, 0), remote(&pair.mr_a, 0));
            let (port, peer) = (&mut pair.a, &mut pair.b);
            let (mr, far) = (&pair.mr_a, &pair.mr_b);
            if from_a {
                Ends { port, peer, mr, far, target: target_b, fresh_key }.post(&mut a, &mut b, &mut batch);
            } else {
                Ends { port: peer, peer: port, mr: far, far: mr, target: target_a, fresh_key }
                    .post(&mut b, &mut a, &mut batch);
            }
            pair.run();
            land();
            check(&mut pair.a, &mut a)?;
            check(&mut pair.b, &mut b)?;
            prop_assert_eq!(bytes(pair.mr_a.region(), 0, SIZE), a.memory.clone());
            prop_assert_eq!(bytes(pair.mr_b.region(), 0, SIZE), b.memory.clone());
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
        let (mut a, mut b) = (Side::new(0x11), Side::new(0xee));
        net.a.mr.region().write(0, &a.memory).unwrap();
        net.b.mr.region().write(0, &b.memory).unwrap();
        let (mut keys_a, mut keys_b) = (vec![], vec![]);
        for (from_a, mut batch) in batches {
            let (near, far, me, other, keys) = match from_a {
                true => (&mut net.a, &mut net.b, &mut a, &mut b, &mut keys_a),
                false => (&mut net.b, &mut net.a, &mut b, &mut a, &mut keys_b),
            };
            let made = Keys::new(&near.nic, &near.pd);
            let (port, peer, target) = (&mut near.port, &mut far.port, remote(&far.mr, 0));
            let fresh_key = &|| made.fresh();
            Ends { port, peer, mr: &near.mr, far: &far.mr, target, fresh_key }
                .post(me, other, &mut batch);
            keys.extend(made.made.into_inner());
            net.run();
            land();
            check(&mut net.a.port, &mut a)?;
            check(&mut net.b.port, &mut b)?;
            prop_assert_eq!(bytes(net.a.mr.region(), 0, SIZE), a.memory.clone());
            prop_assert_eq!(bytes(net.b.mr.region(), 0, SIZE), b.memory.clone());
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
        let (mut a, mut b) = (Side::new(0x11), Side::new(0xee));
        pair.a.mr.region().write(0, &a.memory).unwrap();
        pair.b.mr.region().write(0, &b.memory).unwrap();
        for (from_a, mut batch) in batches {
            let (near, far) = if from_a { (&mut pair.a, &mut pair.b) } else { (&mut pair.b, &mut pair.a) };
            let (me, other) = if from_a { (&mut a, &mut b) } else { (&mut b, &mut a) };
            let target = far.remote(0);
            let (port, peer) = (&mut near.port, &mut far.port);
            let fresh_key = &|| unreachable!("a proxied QP takes no LOCAL_INVAL");
            Ends { port, peer, mr: &near.mr, far: &far.mr, target, fresh_key }.post(me, other, &mut batch);
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
