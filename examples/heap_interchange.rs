//! One buffer from one GPU to another and as much back, through a symmetric heap of two ranks that
//! are threads of this process: a kernel on either side puts to the other, signals, and waits.
//! Kernels check every byte.

mod common;

use anyhow::{Context as _, Result, anyhow, ensure};
use clap::Parser;
use common::{Common, DEADLINE, MAX_BYTES, Session, parse_size, within, words};
use std::net::Ipv4Addr;
use std::{process::ExitCode, sync::Arc, thread, time::Duration};
use warpverbs::gpu::simt::{SimtConfig, SimtDevice};
use warpverbs::gpu::{self, Dim, Gpu, GpuChoice, GpuKind, KernelPtr, Place};
use warpverbs::kernels::interchange::{Fill, Verify};
use warpverbs::kernels::shm_coll::ShmRing;
use warpverbs::rendezvous::{Host, Limits, Server, World, WorldConfig};
use warpverbs::shmem::{Heap, HeapConfig, Signal};
use warpverbs::transport::Device;

/// Data between two GPUs, put by kernels into a symmetric heap
#[derive(Parser)]
struct Flags {
    #[command(flatten)]
    common: Common,
    /// Bytes to move
    #[arg(long, default_value = "1K", value_parser = parse_size)]
    bytes: u64,
    /// Value of every byte; those that come back have its complement
    #[arg(long, default_value_t = 42)]
    value: u8,
    /// The other GPU, by its number among those like the one of --gpu [default: the same once more]
    #[arg(long)]
    peer: Option<u32>,
}

/// Grid of the kernels that fill and verify.
const GRID: Dim = Dim::new(4, 64);

fn main() -> ExitCode {
    common::main(|flags: Flags| {
        within("--bytes", flags.bytes, 1, MAX_BYTES)?;
        let session = Session::open(&flags.common)?;
        let peer: Arc<dyn Gpu> = match (flags.peer, session.gpu.info().kind) {
            (None, _) => session.gpu.clone(),
            (Some(number), GpuKind::Simt) => {
                Arc::new(SimtDevice::new(SimtConfig::from_env()?.ordinal(number))?)
            }
            (Some(number), _) => gpu::open(GpuChoice::Cuda(number))?,
        };
        let store = Server::bind((Ipv4Addr::LOCALHOST, 0).into(), Limits::default())?;
        let port = store.local_addr().port();
        let nic = &session.nic;
        let play = |rank, gpu| {
            let config = WorldConfig::at(rank, 2, "127.0.0.1", port).host(Host::Elsewhere);
            let world = World::join(&config.timeout(DEADLINE))?;
            exchange(world, gpu, nic, &flags).with_context(|| format!("rank {rank}"))
        };
        let (first, second) = thread::scope(|scope| {
            let second = scope.spawn(|| play(1, &peer));
            (play(0, &session.gpu), second.join().map_err(|_| anyhow!("the second rank panicked")))
        });
        // A rank that fails leaves the other without a peer: the second is asked first.
        let [(back, _), (forth, report)] = [second??, first?];
        session.say(&report)?;
        session.fact("bytes", flags.bytes);
        session.fact("seconds", forth.max(back).as_secs_f64());
        let [to, from] = [&peer, &session.gpu].map(|gpu| gpu.info());
        let way = format!("from {} #{} to {} #{}", from.name, from.ordinal, to.name, to.ordinal);
        session.passed(&format!("{} bytes went {way}, and as many back", flags.bytes))
    })
}

/// One rank: how long its kernel took, and how the other is reached.
fn exchange(
    mut world: World,
    gpu: &Arc<dyn Gpu>,
    nic: &Device,
    flags: &Flags,
) -> Result<(Duration, String)> {
    let bytes = flags.bytes;
    let config = HeapConfig::new(2 * bytes + (1 << 16)).timeout(DEADLINE);
    let mut heap = Heap::create(&mut world, gpu, Some(nic), &config)?;
    let places = [heap.alloc::<u8>(bytes)?, heap.alloc::<u8>(bytes)?];
    let signal = heap.alloc_zeroed::<Signal>(&mut world, 1)?;
    // Every byte of a destination differs from the one that is to come.
    let own = if heap.rank() == 0 { flags.value } else { !flags.value };
    for place in &places {
        let data = KernelPtr::new(&heap.local(place)?);
        gpu.launch(&Fill { data, bytes, value: own }, GRID, DEADLINE)?.wait()?;
    }
    world.barrier("filled")?;

    let ([from, to], signal) = (places.each_ref().map(|place| place.offset()), signal.offset());
    let dim = Dim::new(1, 256);
    let time = heap.run(&mut world, dim, 2 * DEADLINE, |heap, status| ShmRing {
        heap,
        to,
        from,
        bytes,
        signal,
        round: 1,
        status,
    })?;
    let count = gpu.alloc(8, Place::Device)?;
    let (data, wrong) = (KernelPtr::new(&heap.local(&places[1])?), KernelPtr::new(&count));
    gpu.launch(&Verify { data, bytes, value: !own, wrong }, GRID, DEADLINE)?.wait()?;
    let [wrong] = words(gpu, &count)?;
    ensure!(wrong == 0, "{wrong} of {bytes} bytes are not {}", !own);
    world.barrier("verified")?;
    let report = heap.report().to_string();
    drop(heap);
    world.leave()?;
    Ok((time, report))
}
