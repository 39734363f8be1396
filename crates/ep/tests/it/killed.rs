//! Ranks that are processes, of which one is killed with SIGKILL in the middle of its calls, again and again: the
//! others name it, go on without it, and with the process that takes its place. Every call that ends well is
//! right bit for bit.

use crate::launches::{EXPERTS, HIDDEN, Layer, Memory, TOP_K};
use crate::threads::{PATIENCE, Rank, serve, simt, world_config};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rustix::process::{Signal, getpid, kill_process};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use warpverbs::transport::{Context, LinkKind};
use warpverbs_dev::seed;
use warpverbs_ep::{Combine, Ep, EpConfig, EpError, Layout};
use warpverbs_gpu::Dim;
use warpverbs_rendezvous::{Host, World, WorldError};
use warpverbs_shmem::{Heap, HeapConfig, ROUTE_ENV};

/// Rank, number of ranks, loopback address and port of the store, whether rank 0 runs it, the rank that is killed,
/// its life from 0, and the seed.
const PART: &str = "EP_TEST_PART";
/// How often it is killed.
const LIVES: u64 = 3;
/// Calls without it and, after its last return, with it.
const CALLS: u32 = 3;

struct Part {
    rank: u32,
    count: u32,
    store: SocketAddrV4,
    own: bool,
    victim: u32,
    life: u64,
    seed: u64,
}

impl Part {
    fn of_env() -> Option<Self> {
        let part = std::env::var(PART).ok()?;
        let numbers: Vec<u64> = part.split(' ').map(|n| n.parse().unwrap()).collect();
        let [rank, count, ip, port, own, victim, life, seed] = numbers[..] else {
            panic!("{part}")
        };
        let [rank, count, ip, victim] = [rank, count, ip, victim].map(|n| n as u32);
        let store = SocketAddrV4::new(ip.into(), port as u16);
        Some(Self { rank, count, store, own: own != 0, victim, life, seed })
    }

    fn start(&self, route: &str) -> Child {
        let Self { rank, count, store, own, victim, life, seed } = self;
        let (ip, port, own) = (u32::from(*store.ip()), store.port(), u32::from(*own));
        let part = format!("{rank} {count} {ip} {port} {own} {victim} {life} {seed}");
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "killed::part", "--nocapture"]);
        command.env(PART, part).env(ROUTE_ENV, route).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    fn is_victim(&self) -> bool {
        self.rank == self.victim
    }
}

/// The part of one process.
#[test]
fn part() {
    if let Some(part) = Part::of_env() {
        live(&part);
    }
}

/// A rank at work.
struct Worker {
    rank: Rank,
    heap: Heap,
    ep: Ep,
    config: EpConfig,
    seed: u64,
}

fn live(part: &Part) {
    let mut world = world_config(part.rank, part.count, part.store.port());
    if part.own {
        world.master_addr = part.store.ip().to_string();
        world.host = Host::RankZero;
    }
    let world = match part.is_victim() && part.life > 0 {
        true => World::rejoin(&world).unwrap(),
        false => World::join(&world).unwrap(),
    };
    let bind = "127.0.0.1:0".parse().unwrap();
    let context = Context::builder().soft_link(LinkKind::Udp, bind).build().unwrap();
    let mut rank = Rank { world, gpu: simt(), nic: Some(context.open("soft").unwrap()) };
    let config = EpConfig::new(6, HIDDEN, TOP_K, EXPERTS);
    let config = config.layout(Layout::ExpertMajor).combine(Combine::Exact);
    let heap = HeapConfig::new(1 << 20).deadline(PATIENCE).timeout(Duration::from_secs(60));
    let mut heap = rank.heap(&heap).unwrap();
    let mut ep = Ep::new(&mut heap, &mut rank.world, &config).unwrap();
    ep.set_dim(Dim::new(2, 32));
    ep.set_deadline(PATIENCE);
    let call = ep.last_regroup().map_or(0, |regrouped| regrouped.done[0]);
    let mut worker = Worker { rank, heap, ep, config, seed: part.seed };
    if part.is_victim() && part.life < LIVES {
        worker.until_killed(call, part.life);
    }
    let call = if part.is_victim() { call } else { worker.survive(part.victim) };
    for call in call + 1..=call + CALLS {
        worker.call(call, &[]).unwrap();
    }
    let waited = worker.ep.waited(0).unwrap();
    assert_eq!(waited.len(), part.count as usize);
    // The NIC of a process ends with it: all have what was posted for them.
    worker.rank.meet();
    worker.rank.world.leave().unwrap();
}

impl Worker {
    /// A call and its results, without the ranks that are away.
    fn call(&mut self, call: u32, away: &[u32]) -> Result<(), EpError> {
        let mut rng = SmallRng::seed_from_u64(self.seed ^ u64::from(call) << 32);
        let layer = Layer::random(&self.config, self.ep.ways(), &mut rng);
        let memory = Memory::new(&self.rank, &self.ep, &layer);
        let routed = self.ep.dispatch(&self.heap, 0, &memory.tokens(), &memory.packed)?;
        assert!(routed.missing().is_empty());
        self.ep.combine(&self.heap, routed, &memory.outputs, &memory.sums)?;
        let left = layer.without(&self.config, self.ep.ways(), away);
        memory.check(&self.rank, &left, Layout::ExpertMajor);
        Ok(())
    }

    fn until_killed(&mut self, call: u32, life: u64) {
        let mut rng = SmallRng::seed_from_u64(self.seed ^ life);
        let end = Duration::from_micros(rng.random_range(0..30_000));
        self.call(call + 1, &[]).unwrap();
        std::thread::spawn(move || {
            std::thread::sleep(end);
            kill_process(getpid(), Signal::KILL).unwrap();
        });
        for call in call + 2.. {
            self.call(call, &[]).unwrap();
        }
    }

    /// Lives on through the other's lives. The last call with all ranks.
    fn survive(&mut self, victim: u32) -> u32 {
        let (mut call, mut held) = (0, Vec::new());
        for _ in 0..LIVES {
            let error = loop {
                match self.call(call + 1, &[]) {
                    Ok(()) => call += 1,
                    Err(error) => break error,
                }
            };
            println!("\n> {error}");
            let EpError::Kernel { missing, health, .. } = &error else { panic!("{error}") };
            // Another that has gone on to regroup may be missed as well.
            assert!(missing.contains(&victim) || health.aborted, "{error}");
            let lost = self.rank.world.loss_within(PATIENCE).unwrap();
            assert!(matches!(lost, WorldError::Lost { rank, .. } if rank == victim), "{lost}");
            let world = &mut self.rank.world;
            let without = self.ep.exclude(&mut self.heap, world, &[victim]).unwrap();
            assert!(!without.members.contains(&victim));
            assert!(self.heap.health().unwrap().fault.is_none());
            call = without.done[0];
            for _ in 0..CALLS {
                call += 1;
                self.call(call, &[victim]).unwrap();
            }
            self.rank.meet();
            let world = &mut self.rank.world;
            let with = self.ep.admit(&mut self.heap, world, &[victim]).unwrap();
            assert_eq!((with.done[0], with.members.len()), (call, 1 + without.members.len()));
            held.push(open_files_and_mappings());
        }
        println!("\n> descriptors and mappings after each return: {held:?}");
        // Threads of other parts may hold one more for a moment: a leak grows with each life.
        assert!(!held.is_sorted_by(|before, after| before.0 < after.0), "descriptors");
        assert!(!held.is_sorted_by(|before, after| before.1 < after.1), "mappings");
        call
    }
}

/// Descriptors of this process, and mappings of shared memory.
fn open_files_and_mappings() -> (usize, usize) {
    let files = std::fs::read_dir("/proc/self/fd").unwrap().count();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    (files, maps.lines().filter(|line| line.contains("memfd:")).count())
}

/// One trial: three processes, and one more for each life of the one that is killed.
fn trial(seed: u64, route: &str, own: bool) {
    let server = (!own).then(serve);
    let victim = if own { 0 } else { (seed % 3) as u32 };
    println!("seed {seed}, {route}, rank {victim}");
    let store = match &server {
        Some(server) => SocketAddrV4::new(Ipv4Addr::LOCALHOST, server.local_addr().port()),
        None => free_address(),
    };
    let part = |rank, life| Part { rank, count: 3, store, own, victim, life, seed };
    let mut others: Vec<_> =
        (0..3).filter(|rank| *rank != victim).map(|rank| part(rank, 0).start(route)).collect();
    for life in 0..LIVES {
        let status = part(victim, life).start(route).wait().unwrap();
        assert!(!status.success(), "{status}");
    }
    others.push(part(victim, LIVES).start(route));
    let mut failed = 0;
    for child in others {
        let output = child.wait_with_output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        match output.status.success() {
            true => {
                text.lines().filter(|line| line.starts_with("> ")).for_each(|l| println!("{l}"))
            }
            false => println!("{}: {text}", output.status),
        }
        failed += u32::from(!output.status.success());
    }
    assert_eq!(failed, 0, "processes that failed");
}

/// More of them with `WARPVERBS_KILLS`.
#[test]
fn others_go_on_without_a_killed_rank_and_with_the_one_that_takes_its_place() {
    let trials = std::env::var("WARPVERBS_KILLS").map_or(3, |n| n.parse().unwrap());
    let seed = seed();
    for n in 0..trials {
        trial(seed.wrapping_add(n), ["direct", "rdma", "rdma:1"][n as usize % 3], false);
    }
}

/// The store goes with it, and another rank runs the next one.
#[test]
fn others_go_on_without_the_rank_that_runs_the_store() {
    trial(seed(), "direct", true);
}

/// A loopback address that no other test has, and a port that the system gives to nobody.
fn free_address() -> SocketAddrV4 {
    let [a, b, c] = rand::random::<[u8; 3]>();
    let port = rand::random_range(20_000..30_000);
    SocketAddrV4::new(Ipv4Addr::new(127, a.max(1), b, c.clamp(1, 254)), port)
}
