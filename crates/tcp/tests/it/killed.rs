//! A process that is killed at a random moment: the other one gets a typed error in time, and keeps
//! nothing.

use crate::sockets::{LOCAL, LONG};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use warpverbs_dev::{Child, is_alone, say, seeds};
use warpverbs_mem::{Access, HostBuf, Region};
use warpverbs_tcp::{Config, Domain, Link, RemoteKey, Request, TcpError};

const PEER: &str = "WARPVERBS_TEST_PEER";
const SEEDS: u64 = 50;
const MEMORY: usize = 2 << 20;
/// Operations of each kind under way.
const DEPTH: usize = 3;

/// Memory of a test, of which it can tell whether anybody else still has it.
struct Watched {
    backing: Arc<HostBuf>,
    region: Region,
}

impl Watched {
    fn new() -> Self {
        let backing = Arc::new(HostBuf::new(MEMORY).unwrap());
        Self { region: Region::from_arc(backing.clone()), backing }
    }
}

/// Traffic of every kind in both directions, until the link ends.
fn traffic(domain: &Domain, link: &Link, memory: &Region, rng: &mut StdRng) -> TcpError {
    match exchange(domain, link, memory, rng) {
        Ok(never) => match never {},
        Err(error) => error,
    }
}

enum Never {}

fn exchange(
    domain: &Domain,
    link: &Link,
    memory: &Region,
    rng: &mut StdRng,
) -> Result<Never, TcpError> {
    let both = Access::REMOTE_READ | Access::REMOTE_WRITE;
    let registered = domain.register(memory, both)?;
    link.notify(&registered.remote().to_bytes())?;
    let remote = RemoteKey::from_bytes(&link.wait_notification(LONG)?)?;
    let mut under_way: [Vec<Request>; 5] = Default::default();
    loop {
        for (kind, operations) in under_way.iter_mut().enumerate() {
            while operations.len() < DEPTH {
                let most = MEMORY >> rng.random_range(0..18);
                let len = rng.random_range(1..=most);
                let part = memory.slice(0, len)?;
                operations.push(match kind {
                    0 => link.isend(&part)?,
                    // Long enough for whatever comes.
                    1 => link.irecv(memory)?,
                    2 => link.write(&part, remote)?,
                    3 => link.read(&part, remote)?,
                    _ => link.notify(&[1; 100])?,
                });
            }
            let mut at = 0;
            while at < operations.len() {
                match link.test(operations[at])? {
                    Some(_) => drop(operations.swap_remove(at)),
                    None => at += 1,
                }
            }
        }
        while link.poll_notification()?.is_some() {}
    }
}

/// The process that is killed: connects to the address it is given, or listens and says where.
#[test]
#[ignore = "started by the other test"]
fn peer() {
    let Ok(told) = std::env::var(PEER) else { return };
    let (seed, address) = told.split_once(' ').unwrap();
    let rng = &mut StdRng::seed_from_u64(seed.parse().unwrap());
    let domain = Domain::new(config(rng)).unwrap();
    let link = match address.parse::<SocketAddr>() {
        Ok(address) => domain.connect(address, LONG).unwrap(),
        Err(_) => {
            let mut listener = domain.listen(LOCAL).unwrap();
            say(listener.address());
            listener.accept(&domain, LONG).unwrap()
        }
    };
    let memory = Watched::new();
    traffic(&domain, &link, &memory.region, rng);
}

fn config(rng: &mut StdRng) -> Config {
    Config::default().sockets(rng.random_range(1..=4)).chunk(64 << 10)
}

fn start(seed: u64, address: &str) -> Child {
    Child::of_test("killed::peer", PEER, format!("{seed} {address}"))
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// One peer that is killed. Whether it was killed while it was connected.
fn survive(seed: u64) -> bool {
    let rng = &mut StdRng::seed_from_u64(seed);
    let before = descriptors();
    let memory = Watched::new();
    let domain = Domain::new(config(rng)).unwrap();
    let pause = Duration::from_micros(rng.random_range(0..40_000));
    let (connected, mut victim) = if seed.is_multiple_of(2) {
        let mut listener = domain.listen(LOCAL).unwrap();
        let victim = start(seed, &listener.address().to_string());
        (listener.accept(&domain, LONG), victim)
    } else {
        let mut victim = start(seed, "listen");
        let address = victim.said().parse().unwrap();
        if seed % 4 == 1 {
            // In the middle of the handshake, perhaps.
            let killer = std::thread::spawn(move || {
                // Any moment will do: it is drawn.
                std::thread::sleep(pause / 100);
                victim.kill();
                victim
            });
            let connected = domain.connect(address, LONG);
            (connected, killer.join().unwrap())
        } else {
            (domain.connect(address, LONG), victim)
        }
    };
    let is_connected = connected.is_ok();
    let error = match connected {
        Err(error) => error,
        Ok(link) => std::thread::scope(|scope| {
            let killer = scope.spawn(|| {
                // Any moment will do: it is drawn.
                std::thread::sleep(pause);
                victim.kill();
            });
            let error = traffic(&domain, &link, &memory.region, rng);
            killer.join().unwrap();
            // And everything after it.
            let after = link.isend(&memory.region).unwrap_err();
            assert!(after.ends_link(), "seed {seed}: {after}");
            error
        }),
    };
    assert!(error.ends_link(), "seed {seed}: {error}");
    drop((victim, domain));
    assert_eq!(Arc::strong_count(&memory.backing), 2, "seed {seed}: somebody keeps memory");
    assert_eq!(descriptors(), before, "seed {seed}: descriptors are left");
    is_connected
}

/// Alone in its process, since it counts descriptors.
#[test]
fn a_killed_peer_is_a_typed_error_and_leaves_nothing() {
    if !is_alone("killed::a_killed_peer_is_a_typed_error_and_leaves_nothing") {
        return;
    }
    let seeds = seeds(SEEDS);
    let count = seeds.len();
    let connected = seeds.filter(|&seed| survive(seed)).count();
    // Three of four are killed only after they have connected, however fast anybody is.
    assert!(count < 4 || connected > count / 2, "{connected} of {count} were connected");
}
