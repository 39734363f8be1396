//! One buffer from one GPU to another, step by step: a kernel writes the WQE, rings the doorbell
//! and polls the completion; a kernel on the other side checks every byte.

mod common;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Parser;
use common::{Common, DEADLINE, MAX_BYTES, Session, parse_size, within, words};
use std::{process::ExitCode, sync::Arc, time::Instant};
use warpverbs::gpu::simt::{SimtConfig, SimtDevice};
use warpverbs::gpu::{self, Dim, Gpu, GpuChoice, GpuKind, KernelPtr, Place};
use warpverbs::kernels::interchange::{Fill, IMAGE, Transfer, Verify};
use warpverbs::transport::{Access, Context, EndpointConfig, KernelStatus};

/// Data from one GPU to another, posted by a kernel
#[derive(Parser)]
struct Flags {
    #[command(flatten)]
    common: Common,
    /// Bytes to move
    #[arg(long, default_value = "1K", value_parser = parse_size)]
    bytes: u64,
    /// Value of every byte
    #[arg(long, default_value_t = 42)]
    value: u8,
    /// Sending and receiving GPU: A,B, each a number or a name as --gpu takes
    #[arg(long, value_name = "A,B")]
    gpus: Option<String>,
}

/// Grid of the kernels that fill and verify.
const GRID: Dim = Dim::new(4, 64);

fn main() -> ExitCode {
    common::main(run)
}

/// A GPU by its name, or by its number among those like the one of `--gpu`.
fn device(name: &str, like: &Arc<dyn Gpu>) -> Result<Arc<dyn Gpu>> {
    let choice = match (name.parse(), like.info().kind) {
        (Ok(ordinal), GpuKind::Simt) => {
            return Ok(Arc::new(SimtDevice::new(SimtConfig::from_env()?.ordinal(ordinal))?));
        }
        (Ok(ordinal), _) => GpuChoice::Cuda(ordinal),
        (Err(_), _) => name.parse().with_context(|| format!("--gpus: {name}"))?,
    };
    Ok(gpu::open(choice)?)
}

fn run(Flags { common, bytes, value, gpus }: Flags) -> Result<()> {
    within("--bytes", bytes, 1, MAX_BYTES)?;
    let session = Session::open(&common)?;
    session.say(&format!("Transferring {bytes} bytes with value {value}\n"))?;

    session.say("Step 1: Initialising devices...")?;
    let [sender, receiver] = match gpus.as_ref().map(|names| (names, names.split_once(','))) {
        None => [session.gpu.clone(), session.gpu.clone()],
        Some((_, Some((a, b)))) => [device(a, &session.gpu)?, device(b, &session.gpu)?],
        Some((one, None)) => bail!("--gpus is {one:?}, expected two, as in 0,1 or simt,cuda:0"),
    };
    let [from, to] = [&sender, &receiver].map(|gpu| gpu.info());
    let way = format!("from {} #{} to {} #{}", from.name, from.ordinal, to.name, to.ordinal);
    session.say(&format!("  {way}"))?;

    session.say("Step 2: Looking at the NIC...")?;
    let (info, nics) = (session.nic.info(), Context::new()?.devices()?.len());
    session.say(&format!("  {nics} NIC(s), the software NIC among them"))?;
    session.say(&format!("  {} ({}): {}", info.name, info.provider, info.description))?;

    session.say("Step 3: Loading kernels...")?;
    [&sender, &receiver].iter().try_for_each(|gpu| gpu.load(&IMAGE))?;
    session.say(&format!("  {} kernels on each side", IMAGE.entries.len()))?;

    session.say("Step 4: Creating endpoints...")?;
    let config = |gpu| EndpointConfig::for_gpu(gpu).timeout(DEADLINE);
    let near = session.nic.endpoint(&config(&sender))?;
    let far = session.nic.endpoint(&config(&receiver))?;
    session.say(&format!("  QPN: send={:#x}, recv={:#x}", near.qpn(), far.qpn()))?;

    session.say("Step 5: Connecting endpoints...")?;
    near.connect(&far.handle())?;
    far.connect(&near.handle())?;
    session.say(&format!("  send in {}, recv in {}", near.state(), far.state()))?;

    session.say("Step 6: Allocating, registering and filling buffers...")?;
    let src = session.memory(&sender, bytes as usize, Access::empty())?;
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let dst = session.memory(&receiver, bytes as usize, access)?;
    // Every byte of the destination differs from the one that is to come.
    for (gpu, region, value) in [(&sender, &src, value), (&receiver, &dst, !value)] {
        let fill = Fill { data: KernelPtr::new(region.buffer()), bytes, value };
        gpu.launch(&fill, GRID, DEADLINE)?.wait()?;
    }
    session.say(&format!("  lkey {:#010x}, rkey {:#010x}", src.lkey(), dst.rkey()))?;

    session.say("Step 7: Launching the kernel that posts, and one that verifies...")?;
    let (state, steps) = (KernelStatus::new(&sender)?, sender.alloc(24, Place::Device)?);
    let (qp, from, to) = (near.device_qp(), src.local().into(), dst.remote().into());
    let (status, trace) = (state.pointer(), KernelPtr::new(&steps));
    let start = Instant::now();
    let transfer = Transfer { qp, from, to, bytes: bytes as u32, status, trace };
    sender.launch(&transfer, Dim::new(1, 1), 2 * DEADLINE)?.wait()?;
    let time = start.elapsed();
    state.check(&[&near])?;
    let [first, end, done] = words(&sender, &steps)?;
    session.say(&format!("  WQEBBs {first}..{end} rung for, {done} completed, {time:?} in all"))?;
    let count = receiver.alloc(8, Place::Device)?;
    let (data, wrong) = (KernelPtr::new(dst.buffer()), KernelPtr::new(&count));
    receiver.launch(&Verify { data, bytes, value, wrong }, GRID, DEADLINE)?.wait()?;
    let [wrong] = words(&receiver, &count)?;
    ensure!(wrong == 0, "{wrong} of {bytes} bytes are not {value}");
    session.say(&format!("  All {bytes} bytes verified with value {value}"))?;

    session.say("Step 8: Cleaning up...")?;
    drop((near, far, src, dst));
    session.say("  Endpoints and memory regions released\n")?;
    session.facts([("bytes", bytes), ("value", value.into())]);
    session.fact("seconds", time.as_secs_f64());
    session.passed(&format!("{bytes} bytes went {way}"))
}
