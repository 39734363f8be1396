//! Ranks as processes: kernels of each write into the memory of the others, by every route.

use crate::calls::{AT_LEAST, Move, Wait};
use crate::heap::ranks::{PATIENCE, Rank, SIZE, serve, world_config};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;
use warpverbs_gpu::{Gpu, Place};
use warpverbs_rendezvous::World;
pub(crate) use warpverbs_shmem::ROUTE_ENV;
use warpverbs_shmem::{Heap, HeapConfig, Route, Signal, Sym};
use warpverbs_test_kernels::shm as k;
use warpverbs_transport::{Context, LinkKind};

/// Rank, number of ranks and port of the store, for a process that is a rank.
pub(crate) const PART: &str = "SHMEM_TEST_PART";
/// `caller::block`.
pub(crate) const BLOCK: u32 = 2;

/// `simt`, or `gpu` for the GPU of the rank's number.
pub(crate) const GPU: &str = "SHMEM_TEST_GPU";
/// Bytes of the heap.
const BYTES: &str = "SHMEM_TEST_BYTES";

fn gpu(rank: u32) -> Arc<dyn Gpu> {
    let is_gpu = std::env::var(GPU).is_ok_and(|kind| kind == "gpu");
    let name = if is_gpu { warpverbs_dev::gpu(rank) } else { "simt".to_owned() };
    warpverbs_gpu::open(name.parse().unwrap()).unwrap()
}

/// This process as a rank, with a NIC that reaches others by UDP.
pub(crate) fn rank_of_env() -> Rank {
    let part = std::env::var(PART).unwrap();
    let numbers: Vec<u32> = part.split(' ').map(|n| n.parse().unwrap()).collect();
    let [number, count, port] = numbers[..] else { panic!("{part}") };
    let config = world_config(number, count, port as u16);
    let bind = "127.0.0.1:0".parse().unwrap();
    let context = Context::builder().soft_link(LinkKind::Udp, bind).build().unwrap();
    let (world, nic) = (World::join(&config).unwrap(), Some(context.open("soft").unwrap()));
    Rank { world, gpu: gpu(number), nic }
}

/// The part of one process.
#[test]
fn part() {
    if std::env::var(PART).is_err() {
        return;
    }
    let mut rank = rank_of_env();
    rank.gpu.load(&k::IMAGE).unwrap();
    ring(&mut rank);
    rank.world.leave().unwrap();
}

fn pattern(from: u32, round: u32, len: u64) -> Vec<u8> {
    (0..len).map(|i| (i as u32 * 31 + from * 7 + round * 13 + (i >> 8) as u32) as u8).collect()
}

/// Everybody puts to the next rank and waits for the last one; then the heap grows, and again.
fn ring(rank: &mut Rank) {
    let bytes = std::env::var(BYTES).map_or(SIZE, |bytes| bytes.parse().unwrap());
    let config = HeapConfig::new(bytes).deadline(PATIENCE).qps_per_peer(2);
    let mut heap = rank.heap(&config).unwrap();
    let policy = std::env::var(ROUTE_ENV).unwrap();
    let report = heap.report().to_string();
    assert!(report.contains(&format!("from the environment: {ROUTE_ENV}={policy}")), "{report}");
    println!("\n{report}\n> {}", routes(&heap));
    let signals = heap.alloc_zeroed::<Signal>(&mut rank.world, 4).unwrap();
    for (round, len) in [(0, 4099), (1, SIZE + 77)] {
        if round == 1 {
            grow_beside_a_kernel(rank, &mut heap, &signals.slice(2, 1).unwrap());
            heap.grow(&mut rank.world).unwrap();
        }
        let (from, to) = (heap.alloc::<u8>(len).unwrap(), heap.alloc::<u8>(len).unwrap());
        let me = heap.rank();
        heap.write(&from, &pattern(me, round, len)).unwrap();
        rank.meet();
        let last = (me + heap.world() - 1) % heap.world();
        let signal = signals.slice(round.into(), 1).unwrap();
        put_to_next(rank, &heap, (&from, &to), &signal, last);
        let mut arrived = vec![0; len as usize];
        heap.read(&to, &mut arrived).unwrap();
        assert!(arrived == pattern(last, round, len), "round {round}");
        assert!(heap.health().unwrap().is_ok(), "{}", heap.health().unwrap());
        rank.meet();
    }
    println!("\n{}", heap.report());
    // Everybody counts in one word of rank 0, by whatever way all of them must take.
    let word = heap.alloc::<u64>(1).unwrap();
    rank.meet();
    let olds = rank.gpu.alloc(8 * 64, Place::Device).unwrap();
    let count = |heap, status| k::ShmAtomic {
        heap,
        group: 0,
        what: 0,
        width: 8,
        at: word.offset(),
        first: 1,
        second: 0,
        pe: 0,
        olds: (&olds).into(),
        status,
    };
    rank.run(&heap, count).unwrap();
    rank.meet();
    let mut value = [0; 8];
    heap.read(&word, &mut value).unwrap();
    let expected = if heap.rank() == 0 { 64 * u64::from(heap.world()) } else { 0 };
    assert_eq!(u64::from_ne_bytes(value), expected);
    heap.agree(&mut rank.world).unwrap();
}

/// Puts to the next rank by a kernel, and waits for what the rank `last` puts here.
pub(crate) fn put_to_next(
    rank: &Rank,
    heap: &Heap,
    (from, to): (&Sym<u8>, &Sym<u8>),
    signal: &Sym<Signal>,
    last: u32,
) {
    let pe = (heap.rank() + 1) % heap.world();
    let put = Move { group: BLOCK, to: to.offset(), from: from.offset(), bytes: from.len(), pe };
    let put = rank.start(heap, put.put_signal(signal.offset(), false, 1));
    rank.run(heap, raised(signal, last, PATIENCE).kernel()).unwrap();
    put.end().unwrap();
}

/// Until the signal is 1, as long as `limit`.
pub(crate) fn raised(signal: &Sym<Signal>, from: u32, limit: Duration) -> Wait {
    let (signal, ns) = (signal.offset(), limit.as_nanos() as u64);
    Wait { group: BLOCK, signal, how: AT_LEAST, value: 1, ns, from }
}

/// The kernel neither ends by it nor keeps it waiting.
fn grow_beside_a_kernel(rank: &mut Rank, heap: &mut Heap, signal: &Sym<Signal>) {
    let mut kernel = rank.start(heap, raised(signal, heap.rank(), PATIENCE).kernel());
    heap.grow(&mut rank.world).unwrap();
    assert!(!kernel.launch.is_done().unwrap());
    heap.write(signal, &1u64.to_ne_bytes()).unwrap();
    kernel.end().unwrap();
}

fn routes(heap: &Heap) -> String {
    let letter = |route: &Route| match route {
        Route::Own => 'o',
        Route::Direct => 'd',
        Route::Rdma => 'r',
        Route::None => 'n',
    };
    heap.routes().iter().map(letter).collect()
}

fn processes(count: u32, policy: &str) -> Vec<String> {
    processes_on("simt", SIZE, count, policy)
}

/// Starts `test` of this program as a process that is a rank: its number, how many there are, and
/// the store's port.
pub(crate) fn start(
    test: &str,
    (rank, count, port): (u32, u32, u16),
    env: &[(&str, &str)],
) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env(PART, format!("{rank} {count} {port}"));
    command.envs(env.iter().copied()).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// How it ended, and all that it printed.
pub(crate) fn output(child: Child) -> (ExitStatus, String) {
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    let text = [stdout, stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    (status, text.concat())
}

/// The line that a process which succeeded began with `> `.
pub(crate) fn said(child: Child) -> String {
    let (status, text) = output(child);
    assert!(status.success(), "{status}: {text}");
    println!("{text}");
    let line = text.lines().find_map(|line| line.strip_prefix("> "));
    line.unwrap_or_else(|| panic!("{text}")).to_owned()
}

/// Runs `count` processes, and gives what each printed of its routes.
fn processes_on(gpu: &str, bytes: u64, count: u32, policy: &str) -> Vec<String> {
    let (server, bytes) = (serve(), bytes.to_string());
    let port = server.local_addr().port();
    let env = [(ROUTE_ENV, policy), (GPU, gpu), (BYTES, &*bytes)];
    let children = (0..count).map(|rank| start("heap::processes::part", (rank, count, port), &env));
    let children: Vec<_> = children.collect();
    children.into_iter().map(said).collect()
}

#[test]
fn kernels_of_several_processes_reach_each_other_directly_by_rdma_and_mixed() {
    assert_eq!(processes(2, "direct"), ["od", "do"]);
    assert_eq!(processes(2, "rdma"), ["or", "ro"]);
    assert_eq!(processes(3, "rdma:1"), ["ord", "ror", "dro"]);
    assert_eq!(processes(4, "auto"), ["oddd", "dodd", "ddod", "dddo"]);
}

/// Whether there are two; says so if there is one. Without a driver the test fails.
pub(crate) fn two_gpus() -> bool {
    let found: Vec<_> =
        warpverbs_gpu::list().into_iter().filter(|gpu| gpu.info.is_some()).collect();
    let [first, second] = [0, 1].map(|ordinal| {
        let name = warpverbs_dev::gpu(ordinal);
        found.iter().any(|gpu| gpu.name == name)
    });
    assert!(first, "no {} here", warpverbs_dev::gpu(0));
    if !second {
        eprintln!("SKIPPED: no {} here", warpverbs_dev::gpu(1));
    }
    second
}

#[test]
#[ignore = "needs two GPUs with peer access"]
fn kernels_of_two_gpus_reach_each_other_directly_and_by_rdma() {
    if !two_gpus() {
        return;
    }
    assert_eq!(processes_on("gpu", SIZE, 2, "direct"), ["od", "do"]);
    assert_eq!(processes_on("gpu", SIZE, 2, "rdma"), ["or", "ro"]);
}

/// The times of each step are in the reports that it prints.
#[test]
#[ignore = "needs two GPUs with peer access"]
fn a_heap_of_two_gpus_grows_by_a_gibibyte_beside_a_kernel() {
    if !two_gpus() {
        return;
    }
    assert_eq!(processes_on("gpu", 1 << 30, 2, "direct"), ["od", "do"]);
}
