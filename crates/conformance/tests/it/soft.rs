//! All cases on the software NIC: in loopback, under every doorbell policy and way to report, and
//! over RoCEv2 between two sockets of this machine.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;
use warpverbs::gpu::{self, GpuChoice};
use warpverbs::raw::nic::{Config, DoorbellPolicy, SoftNic};
use warpverbs::transport::{Context, CqMode, NicChoice, NicFormat};
use warpverbs_conformance::{
    CASES, DIFFERENCES, Kind, Outcome, Peer, Poster, Setup, Side, Verdict, Which,
};

/// The software NIC with mlx5's queues, twice.
fn mlx5() -> [NicChoice; 2] {
    [NicChoice::Soft, NicChoice::Soft]
}

/// Runs all cases, and names all that are not right. The software NIC supports everything.
fn all_right(setup: Setup) {
    let skipped = run_all(setup);
    assert!(skipped.is_empty(), "{skipped:?}");
}

/// Runs all cases, of which none may fail; those that were skipped, and why.
fn run_all(setup: Setup) -> Vec<(&'static str, String)> {
    let setup = setup.with_gpu(gpu::open(GpuChoice::Simt).expect("host SIMT"));
    let outcomes: Vec<_> = CASES.iter().map(|case| setup.run(case)).collect();
    for outcome in &outcomes {
        println!("{outcome} in {:?}", outcome.took);
    }
    let wrong: Vec<_> = outcomes.iter().filter(|outcome| !outcome.is_right()).collect();
    assert!(wrong.is_empty(), "{}", wrong.iter().map(|o| format!("\n{o}")).collect::<String>());
    let skipped = |outcome: Outcome| match outcome.verdict {
        Verdict::NotSupported(why) => Some((outcome.case.name, why)),
        _ => None,
    };
    outcomes.into_iter().filter_map(skipped).collect()
}

/// Queues of other formats do everything but for what these do not have, and say so.
fn without(setup: Setup) {
    let skipped = run_all(setup);
    let names: Vec<_> = skipped.iter().map(|(case, _)| *case).collect();
    assert_eq!(names, LACKING, "{skipped:?}");
    let reasons = ["queues of bnxt_re", "queues of ionic", "the NIC does not have"];
    for (case, why) in &skipped {
        assert!(reasons.iter().any(|reason| why.contains(reason)), "{case}: {why}");
    }
}

/// Lists of more than one or two pieces, shared receive queues, masked atomics, keys taken back.
const LACKING: [&str; 9] = [
    "send_scatter",
    "shared_receives",
    "shared_receives_return",
    "write_gather",
    "read_scatter",
    "masked_atomics",
    "local_invalidate",
    "kernel_masked_atomics",
    "kernel_shared_receives",
];

const OTHERS: [NicFormat; 2] = [NicFormat::Bnxt, NicFormat::Ionic];

#[test]
fn loopback_passes_with_queues_of_other_formats() {
    for format in OTHERS {
        let nics = [NicChoice::SoftAs(format), NicChoice::SoftAs(format)];
        without(Setup::loopback(Config::default(), nics).expect("a NIC"));
    }
}

#[test]
fn the_network_passes_with_queues_of_other_formats() {
    for (format, other) in OTHERS.into_iter().zip([NicFormat::Ionic, NicFormat::Bnxt]) {
        let nics = [NicChoice::SoftAs(format), NicChoice::SoftAs(other)];
        let setup = Setup::network(&Config::default(), Ipv4Addr::LOCALHOST.into(), nics);
        without(setup.expect("two NICs"));
    }
}

fn loopback(config: Config) -> Setup {
    Setup::loopback(config, mlx5()).expect("a NIC")
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
    let setup = Setup::network(config, address, mlx5()).expect("two NICs");
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
