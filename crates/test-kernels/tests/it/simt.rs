//! The host SIMT device: replay, faults, deadlines, residency, concurrency.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use warpverbs::gpu::simt::{Collective, Counts, SimtConfig, SimtDevice, SimtFault};
use warpverbs::gpu::{
    Buffer, Dim, Gpu, GpuError, KernelPtr, Launch, LaunchError, Local, Place, SafeKernel,
};
use warpverbs::kernels::loopback as l;
use warpverbs_test_kernels::{faults as f, perf as p, selftest as k};

const DEADLINE: Duration = Duration::from_secs(60);

fn device(config: SimtConfig) -> SimtDevice {
    SimtDevice::new(config).expect("device")
}

fn words(gpu: &SimtDevice, count: usize) -> Buffer {
    gpu.alloc(count * 8, Place::Device).expect("memory")
}

fn word(buffer: &Buffer, index: u64) -> u64 {
    buffer.region().atomic_u64(index * 8).expect("in bounds").load(Ordering::Acquire)
}

fn start(gpu: &SimtDevice, kernel: &dyn SafeKernel, dim: Dim) -> Launch {
    gpu.launch(kernel, dim, DEADLINE).expect("launch")
}

/// Of a kernel that is given a few words of memory.
fn fault<K: SafeKernel>(config: SimtConfig, kernel: impl Fn(&Buffer) -> K, dim: Dim) -> SimtFault {
    let gpu = device(config);
    let memory = words(&gpu, 64);
    match start(&gpu, &kernel(&memory), dim).wait() {
        Err(LaunchError::Simt(fault)) => fault,
        other => panic!("expected a fault, got {other:?}"),
    }
}

/// Result and counts of a kernel whose outcome depends on the schedule.
fn race(seed: u64) -> (u64, Counts) {
    let gpu = device(SimtConfig::seeded(seed));
    let count = words(&gpu, 1);
    let kernel = k::LoseUpdates { count: (&count).into(), rounds: 30 };
    start(&gpu, &kernel, Dim::new(2, 64)).wait().expect("kernel");
    (word(&count, 0), gpu.finished()[0].counts)
}

#[test]
fn a_seed_replays_and_seeds_differ() {
    let runs: Vec<_> = (0..16).map(race).collect();
    for (seed, run) in runs.iter().enumerate() {
        assert_eq!(*run, race(seed as u64), "seed {seed}");
    }
    let mut traces: Vec<_> = runs.iter().map(|(_, counts)| counts.trace).collect();
    traces.sort_unstable();
    traces.dedup();
    assert_eq!(traces.len(), runs.len(), "two seeds with one interleaving");
    assert!(runs.iter().any(|(count, _)| *count < 2 * 64 * 30), "no seed lost an update: {runs:?}");
}

#[test]
fn a_stepper_is_part_of_the_replay() {
    let run = |seed| {
        // Answers what the kernel asks, a few steps later.
        let gate = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
        let steps = gate.clone();
        let stepper = Arc::new(move || steps.0.fetch_add(1, Ordering::Relaxed) < 100);
        let gpu = SimtDevice::with_stepper(SimtConfig::seeded(seed), stepper).expect("device");
        let count = words(&gpu, 1);
        let kernel = k::LoseUpdates { count: (&count).into(), rounds: 50 };
        start(&gpu, &kernel, Dim::new(1, 32)).wait().expect("kernel");
        (word(&count, 0), gpu.finished()[0].counts)
    };
    for seed in 0..8 {
        assert_eq!(run(seed), run(seed), "seed {seed}");
    }
    assert!((0..8).any(|seed| run(seed).1.steps > 0));
}

#[test]
fn sixteen_byte_accesses_can_be_seen_torn() {
    let torn = |seed| {
        let gpu = device(SimtConfig::seeded(seed));
        let (pair, torn) = (words(&gpu, 2), words(&gpu, 1));
        let kernel = k::Tear { pair: (&pair).into(), torn: (&torn).into(), rounds: 200 };
        start(&gpu, &kernel, Dim::new(1, 64)).wait().expect("kernel");
        word(&torn, 0)
    };
    assert!((0..8).map(torn).sum::<u64>() > 0);
}

#[test]
fn lanes_come_together_if_nothing_speaks_against_it() {
    let gpu = device(SimtConfig::default());
    let (counts, groups) = (words(&gpu, 2), words(&gpu, 1));
    let kernel = k::Diverge { counts: (&counts).into(), groups: (&groups).into(), rounds: 10 };
    start(&gpu, &kernel, Dim::new(1, 32)).wait().expect("kernel");
    // A round has one group of even lanes and two of odd ones; rounds may run into one another.
    let groups = word(&groups, 0);
    assert!((3..=30).contains(&groups), "{groups} groups of 320 visits");
}

#[test]
fn wrong_collectives_are_named() {
    for config in [SimtConfig::default(), SimtConfig::seeded(3)] {
        let left = fault(config.clone(), |_| f::LeaveCollective {}, Dim::new(1, 32));
        let SimtFault::AbsentLanes { what: Collective::Sync, absent: 8, site, .. } = left else {
            panic!("{left}");
        };
        assert!(site.file.ends_with("faults.cu"), "{site}");

        let kernel = |m: &Buffer| f::NameMissingLanes { out: m.into() };
        let missing = fault(config.clone(), kernel, Dim::new(1, 8));
        assert!(matches!(missing, SimtFault::AbsentLanes { absent: 0xffff_ff00, .. }), "{missing}");

        let kernel = |m: &Buffer| f::CrossMasks { out: m.into() };
        let crossed = fault(config.clone(), kernel, Dim::new(1, 32));
        let SimtFault::Mismatch { lane, other, site, other_site, .. } = &crossed else {
            panic!("{crossed}");
        };
        assert_eq!(lane.lane + other, 1);
        assert_ne!(site.line, other_site.line);

        let outside = fault(config.clone(), |_| f::CallFromOutside {}, Dim::new(1, 32));
        assert!(matches!(outside, SimtFault::OutsideMask { mask: 3, .. }), "{outside}");

        let kernel = |m: &Buffer| f::ShuffleFromNobody { out: m.into() };
        let nobody = fault(config, kernel, Dim::new(1, 32));
        assert!(matches!(nobody, SimtFault::ShuffleSource { source_lane: 7, .. }), "{nobody}");
    }
}

#[test]
fn what_cannot_complete_is_a_deadlock_and_not_a_hang() {
    let circle = fault(SimtConfig::default(), |_| f::WaitInCircle {}, Dim::new(1, 3));
    let SimtFault::Deadlock { report } = &circle else { panic!("{circle}") };
    assert_eq!(report.lines().count(), 3, "{report}");
    let mixed = fault(SimtConfig::seeded(1), |_| f::MixBarriers {}, Dim::new(1, 32));
    let SimtFault::Deadlock { report } = &mixed else { panic!("{mixed}") };
    assert!(report.contains("sync_block") && report.contains("sync_warp"), "{report}");
}

#[test]
fn traps_and_shared_memory_limits_are_named() {
    let trap = fault(SimtConfig::default(), |_| f::GiveUp {}, Dim::new(2, 64));
    let SimtFault::Trap { lane, .. } = &trap else { panic!("{trap}") };
    assert_eq!((lane.block, lane.warp, lane.lane), (1, 0, 6));
    let small = SimtConfig::default().shared_bytes(16 << 10);
    let kernel = |m: &Buffer| f::ShareTooMuch { out: m.into() };
    let shared = fault(small, kernel, Dim::new(1, 1));
    assert!(
        matches!(shared, SimtFault::SharedMemory { size: 40_000, used: 0, limit: 16_384, .. }),
        "{shared}"
    );
}

#[test]
fn a_kernel_that_never_ends_is_stopped_with_a_report() {
    for config in [SimtConfig::default(), SimtConfig::seeded(9)] {
        for way in 0..3 {
            let gpu = device(config.clone());
            let flag = words(&gpu, 1);
            let kernel = f::NeverEnd { flag: (&flag).into(), way };
            let deadline = Duration::from_millis(500);
            let ended = gpu.launch(&kernel, Dim::new(2, 40), deadline).expect("launch").wait();
            let Err(LaunchError::Deadline { report, .. }) = ended else { panic!("{ended:?}") };
            assert!(report.contains("block 1 warp 1 lanes"), "way {way}: {report}");
            if way == 0 {
                let address = format!("{:#x}", flag.kernel_addr());
                assert!(report.contains(&address) && report.contains("paused"), "{report}");
            }
            drop(kernel);
            // The kernel is gone: nobody but this test holds its memory.
            assert_eq!(gpu.finished().len(), 1);
        }
    }
}

#[test]
fn a_running_launch_can_be_dropped_and_keeps_its_memory_until_then() {
    let gpu = device(SimtConfig::default());
    let flag = words(&gpu, 1);
    let kernel = f::NeverEnd { flag: (&flag).into(), way: 0 };
    let launch = gpu.launch(&kernel, Dim::new(1, 64), Duration::from_millis(40)).expect("launch");
    drop((kernel, flag));
    drop(launch);
    assert_eq!(gpu.finished().len(), 1);
}

#[test]
fn blocks_beyond_the_limit_wait_for_room() {
    let config = SimtConfig::default().resident_lanes(1024);
    let gpu = device(config);
    let cells = words(&gpu, 1 << 16);
    let kernel = k::Churn { cell: (&cells).into(), rounds: 3, pause_every: 2 };
    start(&gpu, &kernel, Dim::new(128, 512)).wait().expect("kernel");
    assert!((0..1 << 16).all(|i| word(&cells, i) == 3));
}

#[test]
fn launches_run_at_the_same_time() {
    let gpu = device(SimtConfig::default());
    let (ping, pong) = (words(&gpu, 1), words(&gpu, 1));
    let first = k::Answer { flag: (&ping).into(), reply: (&pong).into(), value: 1 };
    let second = k::Answer { flag: (&pong).into(), reply: (&ping).into(), value: 2 };
    let first = start(&gpu, &first, Dim::new(1, 1));
    let mut second = start(&gpu, &second, Dim::new(1, 1));
    assert!(!second.is_done().expect("running"));
    gpu.write(&ping, 0, &1u64.to_le_bytes()).expect("write");
    first.wait().expect("first");
    second.wait().expect("second");
    assert_eq!((word(&ping, 0), word(&pong, 0)), (3, 2));
}

#[test]
fn bad_launches_are_refused() {
    let gpu = device(SimtConfig::default());
    let cells = words(&gpu, 1);
    let kernel = k::LoseUpdates { count: (&cells).into(), rounds: 1 };
    for dim in [Dim::new(0, 1), Dim::new(1, 0), Dim::new(1, 1025), Dim::new(u32::MAX, 1)] {
        let refused = gpu.launch(&kernel, dim, DEADLINE).map(|_| ());
        assert!(matches!(refused, Err(GpuError::BadLaunch { .. })), "{dim:?}: {refused:?}");
    }
}

#[test]
fn a_kernel_gets_no_less_memory_than_it_touches() {
    let gpu = device(SimtConfig::default());
    let cells = words(&gpu, 64);
    let churn = |cell| k::Churn { cell, rounds: 1, pause_every: 0 };
    let launch = |cell, dim| gpu.launch(&churn(cell), dim, DEADLINE).map(drop);
    launch((&cells).into(), Dim::new(2, 32)).expect("as many cells as threads");
    let short = launch((&cells).into(), Dim::new(5, 13)).expect_err("one cell too few");
    let expected = "launch of churn: it touches 65 elements of `cell`, which has 64";
    assert_eq!(short.to_string(), expected);
    let part = KernelPtr::at(&cells, 8, 24).expect("a part");
    launch(part.clone(), Dim::new(1, 3)).expect("a part is as long as it was said to be");
    assert!(matches!(launch(part, Dim::new(1, 4)), Err(GpuError::TooShort { len: 3, .. })));
    let askew = KernelPtr::at(&cells, 4, 8).expect("a part");
    let refused = launch(askew, Dim::new(1, 1)).expect_err("not aligned");
    assert!(matches!(refused, GpuError::BadArgument { parameter: "cell", .. }), "{refused}");
    // The count of elements does not overflow.
    let fill = l::Fill { data: (&cells).into(), bytes: u64::MAX, seed: 0 };
    let refused = gpu.launch(&fill, Dim::new(1, 1), DEADLINE).map(drop);
    assert!(matches!(refused, Err(GpuError::TooShort { touched: u64::MAX, .. })), "{refused:?}");
}

#[test]
fn structures_for_kernels_hold_pointers_to_something() {
    let gpu = device(SimtConfig::default());
    let cells = words(&gpu, 1);
    let answers = |len| p::Answers {
        out: (&cells).into(),
        r#in: KernelPtr::at(&cells, 8 - len as u64, len).expect("a part"),
        at: Local::default(),
        bytes: 8,
    };
    assert_eq!(KernelPtr::upload(&gpu, &[answers(1), answers(8)]).expect("upload").len(), 2);
    let refused = KernelPtr::upload(&gpu, &[answers(1), answers(0)]).map(drop);
    assert!(matches!(refused, Err(GpuError::BadElement { index: 1, .. })), "{refused:?}");
}

/// Set for a process that is to die.
const DIE: &str = "WARPVERBS_TEST_OVERFLOW";

/// Not a test: the other side of `an_overflowing_stack_stops_the_program`.
#[test]
#[ignore = "kills its process"]
fn overflow() {
    // A run of all ignored tests does not mean this one.
    if std::env::var_os(DIE).is_none() {
        return;
    }
    let gpu = device(SimtConfig::default().stack_bytes(16 << 10));
    let out = words(&gpu, 2);
    let kernel = f::Recurse { out: (&out).into(), depth: 1 << 20 };
    let _ = start(&gpu, &kernel, Dim::new(4, 32)).wait();
}

#[test]
fn an_overflowing_stack_stops_the_program() {
    use std::os::unix::process::ExitStatusExt;
    let this = std::env::current_exe().expect("path of this test");
    let mut child = std::process::Command::new(this);
    child.env(DIE, "1").args(["--exact", "simt::overflow", "--ignored"]);
    let out = child.output().expect("start");
    let signal = out.status.signal();
    assert!(matches!(signal, Some(libc_signal::SEGV | libc_signal::ABRT)), "{:?}", out.status);

    // The depth that a stack of the default size is good for.
    let gpu = device(SimtConfig::default());
    let out = words(&gpu, 2);
    let kernel = f::Recurse { out: (&out).into(), depth: 64 };
    start(&gpu, &kernel, Dim::new(4, 32)).wait().expect("kernel");
}

/// Signal numbers, the same on every Linux.
mod libc_signal {
    pub(crate) const ABRT: i32 = 6;
    pub(crate) const SEGV: i32 = 11;
}

/// Prints what the scheduler costs, in CPU time. Run with `--ignored --nocapture` in release.
#[test]
#[ignore = "a measurement"]
fn costs() {
    let run = |config: SimtConfig, dim: Dim, rounds: u32, pause_every: u32| {
        let gpu = device(config);
        let cells = words(&gpu, 8192);
        let kernel = k::Churn { cell: (&cells).into(), rounds, pause_every };
        // The first launch maps stacks.
        for _ in 0..2 {
            start(&gpu, &kernel, dim).wait().expect("kernel");
        }
        let last = gpu.finished()[1].clone();
        (last.cpu.as_nanos() as f64, last.counts)
    };
    let free = SimtConfig::default;
    let (ns, counts) = run(free(), Dim::new(1, 1), 50_000_000, 0);
    println!("point and relaxed fetch_add: {:.2} ns", ns / counts.operations as f64);
    for lanes in [1u32, 32, 1024, 4096, 8192] {
        let dim = Dim::new(lanes.div_ceil(128), lanes.min(128));
        let (ns, counts) = run(free(), dim, 200_000 / lanes + 100, 1);
        println!("{lanes} lanes that pause: {:.1} ns a turn", ns / counts.turns as f64);
        let (ns, _) = run(free(), dim, 1, 0);
        println!("{lanes} lanes that begin and end: {:.1} ns a lane", ns / f64::from(lanes));
    }
    for seed in 0..4 {
        let (ns, counts) = run(SimtConfig::seeded(seed), Dim::new(32, 128), 500, 0);
        println!(
            "seed {seed}, 4096 lanes: {:.1} ns a turn of {:.1} operations",
            ns / counts.turns as f64,
            counts.operations as f64 / counts.turns as f64
        );
    }
}
