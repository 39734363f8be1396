//! All cases on the software NIC: in loopback, under every doorbell policy and way to report, and
//! over RoCEv2 between two sockets of this machine.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;
use warpverbs::gpu::{self, GpuChoice};
use warpverbs::raw::nic::{Config, DoorbellPolicy, SoftNic};
use warpverbs::transport::{Context, CqMode};
use warpverbs_conformance::{CASES, DIFFERENCES, Kind, Peer, Poster, Setup, Side, Verdict, Which};

/// Runs all cases, and names all that are not right.
fn all_right(setup: Setup) {
    let setup = setup.with_gpu(gpu::open(GpuChoice::Simt).expect("host SIMT"));
    let outcomes: Vec<_> = CASES.iter().map(|case| setup.run(case)).collect();
    for outcome in &outcomes {
        println!("{outcome} in {:?}", outcome.took);
    }
    let wrong: Vec<_> = outcomes.iter().filter(|outcome| !outcome.is_right()).collect();
    assert!(wrong.is_empty(), "{}", wrong.iter().map(|o| format!("\n{o}")).collect::<String>());
    let skipped = outcomes.iter().find(|o| matches!(o.verdict, Verdict::NotSupported(_)));
    assert!(skipped.is_none(), "the software NIC supports everything: {skipped:?}");
}

fn loopback(config: Config) -> Setup {
    Setup::loopback(config).expect("a NIC")
}

#[test]
fn loopback_passes() {
    all_right(loopback(Config::default()));
}

#[test]
fn loopback_passes_with_ring_cqs() {
    all_right(loopback(Config::default()).configured(|config| config.send_cq(CqMode::Ring)));
}

#[test]
fn loopback_passes_under_every_doorbell_policy() {
    let others = [
        DoorbellPolicy::RecordFirst,
        DoorbellPolicy::Random,
        DoorbellPolicy::DropThenRecover { polls: 3 },
    ];
    for (policy, seed) in others.into_iter().zip(1..) {
        println!("{policy:?}, seed {seed}");
        all_right(loopback(Config { policy, seed: Some(seed), ..Config::default() }));
    }
}

fn network(config: &Config, address: IpAddr) -> Setup {
    let setup = Setup::network(config, address).expect("two NICs");
    assert_eq!(setup.kind(Which::A), Kind::SoftNetwork);
    assert_eq!(setup.kind(Which::B), Kind::SoftNetwork);
    setup
}

#[test]
fn the_network_passes() {
    all_right(network(&Config::default(), Ipv4Addr::LOCALHOST.into()));
}

#[test]
fn the_network_passes_over_ipv6() {
    all_right(network(&Config::default(), Ipv6Addr::LOCALHOST.into()));
}

#[test]
fn a_bad_network_passes() {
    let faults = "loss=2%,dup=1%,reorder=1%,late=200us,corrupt=0.5%,seed=5".parse();
    let config = Config { faults: faults.expect("faults"), ..Config::default() };
    let setup = network(&config, Ipv4Addr::LOCALHOST.into());
    let setup = setup.with_gpu(gpu::open(GpuChoice::Simt).expect("host SIMT"));
    for case in CASES.iter().filter(|case| !case.fails) {
        let outcome = setup.run(case);
        assert!(outcome.is_right(), "{outcome}");
    }
}

/// A NIC that says "done" to everything and does nothing passes no case.
#[test]
fn no_case_passes_on_a_nic_that_only_says_done() {
    let setup = loopback(Config::default())
        .configured(|config| config.consume_only(true).timeout(Duration::from_millis(30)));
    let setup = setup.with_gpu(gpu::open(GpuChoice::Simt).expect("host SIMT"));
    for case in CASES {
        let outcome = setup.run(case);
        assert!(matches!(outcome.verdict, Verdict::Failed(_)), "{outcome}");
    }
}

/// Nor does one that is never stepped.
#[test]
fn no_case_passes_on_a_nic_that_is_stuck() {
    let nic = SoftNic::new(Config::default()).expect("a NIC");
    let context = Context::builder().soft_nic(nic).build().expect("a context");
    let side = || Side::open(&context, &"soft".into()).expect("a NIC");
    let setup = Setup::new(side(), Peer::here(side()))
        .configured(|config| config.timeout(Duration::from_millis(10)));
    for case in CASES.iter().filter(|case| case.poster == Poster::Host) {
        let outcome = setup.run(case);
        assert!(matches!(outcome.verdict, Verdict::Failed(_)), "{outcome}");
    }
}

#[test]
fn names_are_unique_and_differences_name_cases() {
    for (index, case) in CASES.iter().enumerate() {
        let twin = CASES[..index].iter().find(|other| other.name == case.name);
        assert!(twin.is_none() && !case.about.is_empty(), "{case:?}");
    }
    for known in DIFFERENCES {
        let case = CASES.iter().find(|case| case.name == known.case);
        assert!(case.is_some() && !known.reason.is_empty(), "{known:?}");
    }
    let setup = loopback(Config::default());
    let kernels = CASES.iter().filter(|case| case.poster == Poster::Kernel);
    for case in kernels {
        let outcome = setup.run(case);
        assert_eq!((outcome.word(), outcome.is_right()), ("skipped", true), "{outcome}");
    }
}
