//! Both ends check every byte by a kernel. The transfer through a symmetric heap of two ranks, each a
//! thread with a GPU: one kernel on either side puts to the other, signals, and waits.

use crate::common::{DEADLINE, Session, words};
use crate::flags::name;
use anyhow::{Result, anyhow, ensure};
use serde_json::json;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use warpverbs::gpu::{Buffer, Dim, Gpu, KernelPtr, Place};
use warpverbs::kernels::interchange::{Fill, Verify};
use warpverbs::kernels::shm_coll::{IMAGE, ShmRing};
use warpverbs::rendezvous::{Host, Limits, Server, World, WorldConfig};
use warpverbs::shmem::{Heap, HeapConfig, Signal};
use warpverbs::transport::{Device, KernelStatus};

/// Grid of the kernels that fill and verify.
pub(crate) const GRID: Dim = Dim::new(4, 64);

/// Has a kernel of `gpu` compare every byte.
pub(crate) fn verify(gpu: &Arc<dyn Gpu>, buffer: &Buffer, value: u8) -> Result<()> {
    let count = gpu.alloc(8, Place::Device)?;
    let (data, bytes) = (KernelPtr::new(buffer), buffer.len() as u64);
    let kernel = Verify { data, bytes, value, wrong: KernelPtr::new(&count) };
    gpu.launch(&kernel, GRID, DEADLINE)?.wait()?;
    let [wrong] = words(gpu, &count)?;
    ensure!(wrong == 0, "{wrong} of {bytes} bytes are not {value}");
    Ok(())
}

/// `bytes` of `value` from the first device to the second, and of its complement the other way.
pub(crate) fn run(
    mut session: Session,
    gpus: &[Arc<dyn Gpu>; 2],
    bytes: u32,
    value: u8,
) -> Result<()> {
    session.say("Step 4: Meeting in a world of two ranks...")?;
    let server = Server::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), Limits::default())?;
    let port = server.local_addr().port();
    let nic = &session.nic.clone();
    // One rank says its steps, which is enough.
    let times = thread::scope(|scope| -> Result<[Duration; 2]> {
        let second = scope.spawn(move || one(&|_| Ok(()), (1, port), &gpus[1], nic, bytes, value));
        let first = one(&|line| session.say(line), (0, port), &gpus[0], nic, bytes, value);
        let second = second.join().map_err(|_| anyhow!("the second rank panicked"))?;
        // A rank that fails leaves the other without a peer: the first failure says why.
        match (first, second) {
            (Ok(first), Ok(second)) => Ok([first, second]),
            (Ok(_), Err(error)) => Err(error.context("rank 1")),
            (Err(error), Ok(_)) => Err(error.context("rank 0")),
            (Err(first), Err(second)) => Err(first.context(format!("rank 1: {second}; rank 0"))),
        }
    })?;
    let [first, second] = gpus.each_ref().map(name);
    let seconds = times.iter().max().map_or(0.0, Duration::as_secs_f64);
    session.facts(json!({"bytes": bytes, "value": value, "path": "shmem", "seconds": seconds}));
    session.passed(&format!("{bytes} bytes went from {first} to {second}, and as many back"))
}

/// One rank; how long its kernel took.
fn one(
    say: &dyn Fn(&str) -> Result<()>,
    (rank, port): (u32, u16),
    gpu: &Arc<dyn Gpu>,
    nic: &Device,
    bytes: u32,
    value: u8,
) -> Result<Duration> {
    let config = WorldConfig::at(rank, 2, "127.0.0.1", port).host(Host::Elsewhere);
    let mut world = World::join(&config.timeout(DEADLINE))?;
    say("Step 5: Making a symmetric heap...")?;
    gpu.load(&IMAGE)?;
    let size = 2 * u64::from(bytes) + (1 << 16);
    let config = HeapConfig::new(size).deadline(DEADLINE).timeout(DEADLINE);
    let mut heap = Heap::create(&mut world, gpu, Some(nic), &config)?;
    for peer in &heap.report().peers {
        say(&format!("  rank {} is reached: {}", peer.rank, peer.route.explain()))?;
    }
    say("Step 6: Allocating and filling places of the heap...")?;
    let [from, to] = [heap.alloc::<u8>(bytes.into())?, heap.alloc::<u8>(bytes.into())?];
    let signal = heap.alloc_zeroed::<Signal>(&mut world, 1)?;
    // Every byte of a destination differs from the one that is to come.
    let own = if rank == 0 { value } else { !value };
    for place in [&from, &to] {
        let data = heap.local(place)?;
        let fill = Fill { data: KernelPtr::new(&data), bytes: bytes.into(), value: own };
        gpu.launch(&fill, GRID, DEADLINE)?.wait()?;
    }
    world.barrier("filled")?;

    say("Step 7: Launching the kernels that put, signal and wait, and one that verifies...")?;
    let status = KernelStatus::new(gpu)?;
    let ring = ShmRing {
        heap: heap.device(),
        to: to.offset(),
        from: from.offset(),
        bytes: bytes.into(),
        signal: signal.offset(),
        round: 1,
        status: status.pointer(),
    };
    let start = Instant::now();
    gpu.launch(&ring, Dim::new(1, 256), 2 * DEADLINE)?.wait()?;
    let time = start.elapsed();
    status.check(&[])?;
    verify(gpu, &heap.local(&to)?, !own)?;
    say(&format!("  All {bytes} bytes verified with value {value}, {time:?} with launch"))?;
    world.barrier("verified")?;

    say("Step 8: Cleaning up...")?;
    drop(heap);
    world.leave()?;
    say("  The heap released\n")?;
    Ok(time)
}
