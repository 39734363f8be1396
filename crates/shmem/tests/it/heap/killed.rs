//! A rank that is a process of its own and is killed, with SIGKILL, while the heap is made, while it
//! grows, while kernels wait for it, and while its own kernels put.

use crate::calls::{self, Move};
use crate::heap::cut::{cutting, make_and_grow};
use crate::heap::processes::{self, BLOCK, ROUTE_ENV, raised, rank_of_env, said};
use crate::heap::ranks::{PATIENCE, Rank, config, serve, simt, world_config};
use rustix::process::{Signal as Kill, getpid, kill_process};
use std::process::Child;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use warpverbs_gpu::{Dim, Place};
use warpverbs_rendezvous::World;
use warpverbs_shmem::{Heap, HeapConfig, ShmemError, Signal, Sym, Team};
use warpverbs_test_kernels::{shm as k, shm_mail as m};
use warpverbs_transport::{Outcome, WaitFor};

/// Task of the process: `grow`, `wait` or `put`.
const ACT: &str = "SHMEM_TEST_ACT";

/// The part of the process that is killed.
#[test]
fn part() {
    let Ok(act) = std::env::var(ACT) else { return };
    let mut rank = rank_of_env();
    if act == "grow" {
        // Fails if the other rank saw an end first.
        let _ = make_and_grow(rank);
        return;
    }
    if act == "put" {
        return put_until_killed(rank);
    }
    let (heap, never, ..) = equipped(&mut rank);
    rank.meet();
    // Until it is killed.
    let _ = rank.run(&heap, raised(&never, 0, PATIENCE).kernel());
}

fn start(act: &str, port: u16) -> Child {
    processes::start("heap::killed::part", (1, 2, port), &[(ACT, act)])
}

fn first_rank(port: u16, timeout: Duration) -> Option<Rank> {
    let config = world_config(0, 2, port).timeout(timeout);
    let world = World::join(&config).ok()?;
    Some(Rank { world, gpu: simt(), nic: None })
}

#[test]
fn a_process_killed_while_the_heap_is_made_or_grows_is_named() {
    let mut steps = Vec::new();
    for pieces in (7..200).step_by(3) {
        let server = serve();
        let (send, receive) = mpsc::channel::<Child>();
        let proxy = cutting(server.local_addr(), pieces, move || {
            let mut child = receive.recv().unwrap();
            child.kill().unwrap();
            child.wait().unwrap();
        });
        send.send(start("grow", proxy.port())).unwrap();
        let begun = Instant::now();
        // A killed process may not have joined.
        let port = server.local_addr().port();
        let Some(rank) = first_rank(port, Duration::from_secs(10)) else { continue };
        println!("killed after {pieces}: joined after {:?}", begun.elapsed());
        let ended = make_and_grow(rank);
        // The other rank's death ends it, and not its own deadline, which is minutes away.
        assert!(begun.elapsed() < PATIENCE, "killed after {pieces}");
        match ended {
            // It had nothing more to say.
            Ok(()) => break,
            Err(error) => {
                let text = error.to_string();
                assert!(text.contains("rank 1"), "killed after {pieces}: {text}");
                if let ShmemError::Meet { step, .. } = error {
                    steps.push(step);
                }
            }
        }
    }
    steps.dedup();
    println!("killed in {steps:?}");
    // How many pieces a step takes is the system's choice.
    assert!(steps.iter().any(|step| step.starts_with("grow")), "{steps:?}");
    assert!(steps.iter().filter(|step| !step.starts_with("grow")).count() >= 2, "{steps:?}");
}

/// A heap with a signal that nobody raises, a team and a mailbox.
fn equipped(rank: &mut Rank) -> (Heap, Sym<Signal>, Team, Sym<u64>) {
    let mut heap = rank.heap(&config()).unwrap();
    let world = &mut rank.world;
    let never = heap.alloc_zeroed::<Signal>(world, 1).unwrap();
    let team = heap.team(world, 0, 1, 2).unwrap();
    let mailbox = heap.mail_block(world, 64, 1).unwrap();
    (heap, never, team, mailbox)
}

/// Runs a kernel that waits for the killed rank for at most `limit`, and gives how that ended.
fn run(
    rank: &Rank,
    (heap, never, team, mailbox): (&Heap, &Sym<Signal>, &Team, &Sym<u64>),
    what: WaitFor,
    limit: Duration,
) -> Result<(), Outcome> {
    let ns = limit.as_nanos() as u64;
    match what {
        WaitFor::Signal => rank.run(heap, raised(never, 1, limit).kernel()),
        WaitFor::Barrier => rank.run(heap, calls::meet((0, 1, 2), team.block().offset(), ns)),
        _ => {
            let done = rank.gpu.alloc(8, Place::Device).unwrap();
            rank.run(heap, |heap, status| m::ShmLoneMail {
                heap,
                receives: u32::from(what == WaitFor::Mail),
                r#box: mailbox.offset(),
                bytes: 64,
                log_slots: 1,
                size: 64,
                peer: 1,
                ns,
                done: (&done).into(),
                status,
            })
        }
    }
}

/// A put of 16 bytes to the same place in rank 1, by a kernel that waits until they are there.
fn put_and_wait(rank: &Rank, heap: &Heap, to: u64) -> Result<(), Outcome> {
    rank.run(heap, Move { group: BLOCK, to, from: to, bytes: 16, pe: 1 }.put())
}

#[test]
fn kernels_that_wait_for_a_killed_process_end_and_name_it() {
    for what in [WaitFor::Signal, WaitFor::Barrier, WaitFor::Mail, WaitFor::Credit] {
        let server = serve();
        let mut child = start("wait", server.local_addr().port());
        let mut rank = first_rank(server.local_addr().port(), PATIENCE).unwrap();
        let (mut heap, never, team, mailbox) = equipped(&mut rank);
        rank.meet();
        child.kill().unwrap();
        child.wait().unwrap();
        // Its memory stays: what is put there harms nobody.
        put_and_wait(&rank, &heap, mailbox.offset()).unwrap();
        let heap_parts = (&heap, &never, &team, &mailbox);
        let ended = run(&rank, heap_parts, what, Duration::from_millis(300));
        assert_eq!(ended, Err(Outcome::Timeout), "{what:?}");
        let fault = heap.health().unwrap().fault.unwrap();
        assert_eq!((fault.what, fault.peer), (what, Some(1)), "{fault}");
        assert!(fault.to_string().contains("from rank 1"), "{fault}");
        // Given up, it is waited for no more.
        heap.mark_lost(1).unwrap();
        let begun = Instant::now();
        let ended = run(&rank, (&heap, &never, &team, &mailbox), what, 4 * PATIENCE);
        assert_eq!(ended, Err(Outcome::PeerLost), "{what:?}");
        // That ends it, and not its own limit, which is half an hour away.
        assert!(begun.elapsed() < PATIENCE);
        // The store tells it as well.
        let error = heap.grow(&mut rank.world).unwrap_err().to_string();
        assert!(error.contains("rank 1"), "{error}");
    }
}

/// `Heap::run` watches the world: its kernel's waits end long before their own limit.
#[test]
fn a_rank_that_is_killed_while_a_kernel_runs_is_named() {
    let server = serve();
    let mut child = start("wait", server.local_addr().port());
    let mut rank = first_rank(server.local_addr().port(), PATIENCE).unwrap();
    let (mut heap, never, ..) = equipped(&mut rank);
    rank.meet();
    child.kill().unwrap();
    let begun = Instant::now();
    let wait = raised(&never, 1, PATIENCE).kernel();
    let ended = heap.run(&mut rank.world, Dim::new(1, 64), 2 * PATIENCE, wait);
    child.wait().unwrap();
    assert!(begun.elapsed() < PATIENCE);
    let error = ended.unwrap_err();
    assert!(matches!(error, ShmemError::World(_)), "{error:?}");
    assert!(error.to_string().contains("rank 1 is gone"), "{error}");
    assert!(heap.health().unwrap().aborted);
}

/// Puts of a process before it is killed, and their bytes.
const PUTS: u64 = 64;
const LEN: u64 = 9001;
/// Of rank 0 for a put that may not come any more.
const WAIT: Duration = Duration::from_secs(1);
/// Microseconds from the first put to its end, for rank 1.
const END_US: &str = "SHMEM_TEST_END_US";

fn bytes_of(put: u64) -> Vec<u8> {
    (0..LEN).map(|at| (at * 31 + put * 7 + (at >> 8)) as u8).collect()
}

/// Rank 1 puts to rank 0, each put with a signal of its own, and ends itself meanwhile. Rank 0 compares
/// what was announced.
fn put_until_killed(mut rank: Rank) {
    rank.gpu.load(&k::IMAGE).unwrap();
    let mut heap = rank.heap(&HeapConfig::new(4 << 20).deadline(PATIENCE)).unwrap();
    let signals = heap.alloc_zeroed::<Signal>(&mut rank.world, PUTS + 1).unwrap();
    let (from, to) = (heap.alloc::<u8>(PUTS * LEN).unwrap(), heap.alloc::<u8>(PUTS * LEN).unwrap());
    let all: Vec<u8> = (0..PUTS).flat_map(bytes_of).collect();
    heap.write(&from, &all).unwrap();
    rank.meet();
    if rank.number() == 0 {
        return compare_until_lost(&mut rank, &mut heap, &to, &signals);
    }
    let end = Duration::from_micros(std::env::var(END_US).unwrap().parse().unwrap());
    std::thread::spawn(move || {
        // Any moment will do: it is drawn.
        std::thread::sleep(end);
        kill_process(getpid(), Kill::KILL).unwrap();
    });
    for put in (0..PUTS).cycle() {
        put_one(&rank, &heap, (&from, &to), &signals.slice(put, 1).unwrap(), put).unwrap();
    }
}

/// One put with its signal, by a kernel, to rank 0.
fn put_one(
    rank: &Rank,
    heap: &Heap,
    (from, to): (&Sym<u8>, &Sym<u8>),
    signal: &Sym<Signal>,
    put: u64,
) -> Result<(), Outcome> {
    let (to, from) = (to.offset() + put * LEN, from.offset() + put * LEN);
    let put = Move { group: BLOCK, to, from, bytes: LEN, pe: 0 };
    rank.run(heap, put.put_signal(signal.offset(), false, 1))
}

fn compare_until_lost(rank: &mut Rank, heap: &mut Heap, to: &Sym<u8>, signals: &Sym<Signal>) {
    let wait = |rank: &Rank, heap: &Heap, signal: u64, limit| {
        let signal = signals.slice(signal, 1).unwrap();
        rank.run(heap, raised(&signal, 1, limit).kernel())
    };
    let (mut seen, mut last) = (0, Ok(()));
    while seen < PUTS && last.is_ok() {
        last = wait(rank, heap, seen, WAIT);
        if last.is_ok() {
            let mut arrived = vec![0; LEN as usize];
            heap.read(&to.slice(seen * LEN, LEN).unwrap(), &mut arrived).unwrap();
            assert!(arrived == bytes_of(seen), "put {seen}");
            seen += 1;
        }
    }
    if last.is_ok() {
        // The one that nobody raises.
        last = wait(rank, heap, PUTS, WAIT);
    }
    assert_eq!(last, Err(Outcome::Timeout), "after {seen}");
    let fault = heap.health().unwrap().fault.unwrap().to_string();
    assert!(fault.contains("from rank 1"), "{fault}");
    rank.meet_if_possible();
    // Its memory stays where it is mapped; by RDMA nobody answers.
    let answered = put_and_wait(rank, heap, to.offset());
    heap.mark_lost(1).unwrap();
    assert_eq!(wait(rank, heap, PUTS, PATIENCE), Err(Outcome::PeerLost));
    println!("\n> {seen} {answered:?} {}", heap.health().unwrap());
}

#[test]
fn of_a_process_killed_while_it_puts_what_was_announced_is_whole() {
    let seed = u64::from(std::process::id());
    println!("seed {seed}");
    for (route, answer) in [("direct", "Ok(())"), ("rdma", "Err(")] {
        for turn in 0..3 {
            // At once, and up to 16 ms later.
            let end = (seed.wrapping_add(turn).wrapping_mul(6364136223846793005) >> 50) * turn / 2;
            let (server, end) = (serve(), end.to_string());
            let port = server.local_addr().port();
            let env = [(ROUTE_ENV, route), (ACT, "put"), (END_US, &*end)];
            let [first, mut second] =
                [0, 1].map(|rank| processes::start("heap::killed::part", (rank, 2, port), &env));
            let told = said(first);
            let status = second.wait().unwrap();
            assert!(!status.success(), "{status}");
            let (_, told) = told.split_once(' ').unwrap();
            assert!(told.starts_with(answer), "{route}, killed after {end} us: {told}");
            assert!(told.contains("rank 1"), "{told}");
        }
    }
}
