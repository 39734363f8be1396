//! Ranks as processes: kernels of each write into the memory of the others, by every route.

use crate::ranks::{PATIENCE, Rank, SIZE, config, serve, simt, world_config};
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use warpverbs::kernels::shm as k;
use warpverbs::raw::nic::{Config, LinkConfig, UdpConfig};
use warpverbs_gpu::Dim;
use warpverbs_rendezvous::World;
use warpverbs_shmem::{Heap, ROUTE_ENV, Route, Signal, Sym};
use warpverbs_transport::{Context, KernelStatus};

/// Rank, number of ranks and port of the store, for a process that is a rank.
const PART: &str = "SHMEM_TEST_PART";
const DIM: Dim = Dim::new(1, 64);
/// `wv::compare::ge`.
const AT_LEAST: u32 = 2;
/// `caller::block`.
const BLOCK: u32 = 2;

/// The part of one process.
#[test]
fn part() {
    let Ok(part) = std::env::var(PART) else { return };
    let numbers: Vec<u32> = part.split(' ').map(|n| n.parse().unwrap()).collect();
    let [number, count, port] = numbers[..] else { panic!("{part}") };
    let mut config = world_config(number, count, &serve());
    config.master_port = port as u16;
    let bind = "127.0.0.1:0".parse().unwrap();
    let nic =
        Config { link: LinkConfig::Udp(UdpConfig { bind, max_mtu: None }), ..Config::default() };
    let context = Context::builder().soft_config(nic).build().unwrap();
    let (world, nic) = (World::join(&config).unwrap(), Some(context.open("soft").unwrap()));
    let mut rank = Rank { world, gpu: simt(), nic };
    rank.gpu.load(&k::IMAGE).unwrap();
    ring(&mut rank);
    rank.world.leave().unwrap();
}

fn pattern(from: u32, round: u32, len: u64) -> Vec<u8> {
    (0..len).map(|i| (i as u32 * 31 + from * 7 + round * 13 + (i >> 8) as u32) as u8).collect()
}

/// Everybody puts to the next rank and waits for the last one; then the heap grows, and again.
fn ring(rank: &mut Rank) {
    let mut heap = rank.heap(&config().qps_per_peer(2)).unwrap();
    println!("\n{}\n> {}", heap.report(), routes(&heap));
    let signals = heap.alloc_zeroed::<Signal>(&mut rank.world, 4).unwrap();
    for (round, len) in [(0, 4099), (1, SIZE + 77)] {
        if round == 1 {
            heap.grow(&mut rank.world).unwrap();
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
    // Everybody counts in one word of rank 0, by whatever way all of them must take.
    let word = heap.alloc::<u64>(1).unwrap();
    rank.meet();
    let (status, olds) = (KernelStatus::new(&rank.gpu).unwrap(), buffer(rank, 8 * 64));
    let count = k::ShmAtomic {
        heap: heap.device(),
        group: 0,
        what: 0,
        width: 8,
        at: word.offset(),
        first: 1,
        second: 0,
        pe: 0,
        olds: (&olds).into(),
        status: status.pointer(),
    };
    rank.gpu.launch(&count, DIM, PATIENCE).unwrap().wait().unwrap();
    status.check(&[]).unwrap();
    rank.meet();
    let mut value = [0; 8];
    heap.read(&word, &mut value).unwrap();
    let expected = if heap.rank() == 0 { 64 * u64::from(heap.world()) } else { 0 };
    assert_eq!(u64::from_ne_bytes(value), expected);
    heap.agree(&mut rank.world).unwrap();
}

fn buffer(rank: &Rank, len: usize) -> warpverbs_gpu::Buffer {
    rank.gpu.alloc(len, warpverbs_gpu::Place::Device).unwrap()
}

fn put_to_next(
    rank: &Rank,
    heap: &Heap,
    (from, to): (&Sym<u8>, &Sym<u8>),
    signal: &Sym<Signal>,
    last: u32,
) {
    let status = KernelStatus::new(&rank.gpu).unwrap();
    let put = k::ShmPutSignal {
        heap: heap.device(),
        group: BLOCK,
        to: to.offset(),
        from: from.offset(),
        bytes: from.len(),
        signal: signal.offset(),
        set: 0,
        value: 1,
        pe: (heap.rank() + 1) % heap.world(),
        status: status.pointer(),
    };
    let put = rank.gpu.launch(&put, DIM, PATIENCE).unwrap();
    let wait = k::ShmWait {
        heap: heap.device(),
        group: BLOCK,
        signal: signal.offset(),
        how: AT_LEAST,
        value: 1,
        ns: PATIENCE.as_nanos() as u64,
        from: last,
        status: status.pointer(),
    };
    rank.gpu.launch(&wait, DIM, PATIENCE).unwrap().wait().unwrap();
    put.wait().unwrap();
    status.check(&[]).unwrap();
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

/// Runs `count` processes, and gives what each printed of its routes.
fn processes(count: u32, policy: &str) -> Vec<String> {
    let server = serve();
    let port = server.local_addr().port();
    let start = |rank: u32| {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "processes::part", "--nocapture"])
            .env(PART, format!("{rank} {count} {port}"))
            .env(ROUTE_ENV, policy)
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap()
    };
    let children: Vec<_> = (0..count).map(start).collect();
    let end = |mut child: Child| {
        let mut text = String::new();
        child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        let status = child.wait().unwrap();
        assert!(status.success(), "{status}: {text}");
        assert!(text.contains(&format!("from the environment: {ROUTE_ENV}={policy}")), "{text}");
        let line = text.lines().find_map(|line| line.strip_prefix("> "));
        line.unwrap_or_else(|| panic!("{text}")).to_owned()
    };
    children.into_iter().map(end).collect()
}

#[test]
fn kernels_of_several_processes_reach_each_other_directly_by_rdma_and_mixed() {
    let begun = Instant::now();
    assert_eq!(processes(2, "direct"), ["od", "do"]);
    assert_eq!(processes(2, "rdma"), ["or", "ro"]);
    assert_eq!(processes(3, "rdma:1"), ["ord", "ror", "dro"]);
    assert_eq!(processes(4, "auto"), ["oddd", "dodd", "ddod", "dddo"]);
    assert!(begun.elapsed() < Duration::from_secs(600));
}
