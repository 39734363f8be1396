//! One buffer from one GPU to another, step by step: a kernel writes the WQE, rings the doorbell
//! and polls the completion; a kernel on the other side checks every byte. With `--path shmem` both
//! GPUs are ranks of a symmetric heap, and put to each other.

mod common;
mod interchange;

use anyhow::{Result, bail};
use clap::{Parser, ValueEnum};
use common::{Common, DEADLINE, MAX_BYTES, Session, check_bytes, words};
use interchange::{GRID, active_ports, name, verify};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};
use warpverbs::gpu::{Dim, Gpu, KernelPtr, Place};
use warpverbs::kernels::interchange::{Fill, IMAGE, Transfer};
use warpverbs::transport::{Access, Endpoint, EndpointConfig, KernelStatus, MemoryRegion};
use warpverbs_bench::units::parse_size;

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
    value: u32,
    /// Sending and receiving GPU: A,B, each a number or a name as --gpu takes
    #[arg(long, value_name = "A,B")]
    gpus: Option<String>,
    /// The carrier: queue pairs, or a symmetric heap, by loads and stores where possible
    #[arg(long, value_enum, default_value_t = Path::Qp)]
    path: Path,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Path {
    Qp,
    Shmem,
}

fn main() -> ExitCode {
    common::main(run)
}

fn run(flags: Flags) -> Result<()> {
    let bytes = check_bytes(flags.bytes, 1, MAX_BYTES)? as u32;
    let Ok(value) = u8::try_from(flags.value) else {
        bail!("--value is {}, expected 0 to 255", flags.value);
    };
    let mut session = Session::open(&flags.common)?;
    session.say(&format!("Transferring {bytes} bytes with value {value}\n"))?;

    session.say("Step 1: Initialising devices...")?;
    let [sender, receiver] = match &flags.gpus {
        Some(names) => session.two_gpus(names)?,
        None => [session.gpu.clone(), session.gpu.clone()],
    };
    let way = format!("from {} to {}", name(&sender), name(&receiver));
    session.say(&format!("  {way}"))?;

    session.say("Step 2: Looking at the NIC...")?;
    let info = session.nic.info();
    let ports = active_ports();
    session.say(&format!("  {ports} active port(s), the software NIC's among them"))?;
    session.say(&format!("  {} ({}): {}", info.name, info.provider, info.description))?;

    session.say("Step 3: Loading kernels...")?;
    let start = Instant::now();
    for gpu in [&sender, &receiver] {
        gpu.load(&IMAGE)?;
    }
    session.say(&format!(
        "  {} kernels on each side in {:?}",
        IMAGE.entries.len(),
        start.elapsed()
    ))?;

    if flags.path == Path::Shmem {
        return interchange::shmem::run(session, &[sender, receiver], bytes, value);
    }

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
    let filled = |gpu: &Arc<dyn Gpu>, value, access| -> Result<MemoryRegion> {
        let region = session.memory(gpu, bytes as usize, access)?;
        let fill = Fill { data: KernelPtr::new(region.buffer()), bytes: bytes.into(), value };
        gpu.launch(&fill, GRID, DEADLINE)?.wait()?;
        Ok(region)
    };
    let src = filled(&sender, value, Access::empty())?;
    // Every byte of the destination differs from the one that is to come.
    let dst = filled(&receiver, !value, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    session.say(&format!("  lkey {:#010x}, rkey {:#010x}", src.lkey(), dst.rkey()))?;

    session
        .say("Step 7: Launching the kernel that posts the transfer, and one that verifies it...")?;
    let time = transfer(&session, &sender, &near, &src, &dst)?;

    verify(&receiver, dst.buffer(), value)?;
    session.say(&format!("  All {bytes} bytes verified with value {value}"))?;

    session.say("Step 8: Cleaning up...")?;
    drop((near, far));
    drop((src, dst));
    session.say("  Endpoints and memory regions released\n")?;
    session.fact("bytes", bytes);
    session.fact("value", value);
    session.fact("seconds", time.as_secs_f64());
    session.passed(&format!("{bytes} bytes went {way}"))
}

/// WQE, doorbell record, doorbell, completion: all of it in a kernel of `gpu`.
fn transfer(
    session: &Session,
    gpu: &Arc<dyn Gpu>,
    endpoint: &Endpoint,
    src: &MemoryRegion,
    dst: &MemoryRegion,
) -> Result<Duration> {
    let (status, trace) = (KernelStatus::new(gpu)?, gpu.alloc(24, Place::Device)?);
    let kernel = Transfer {
        qp: endpoint.device_qp(),
        from: src.local().into(),
        to: dst.remote().into(),
        bytes: src.len() as u32,
        status: status.pointer(),
        trace: KernelPtr::new(&trace),
    };
    let start = Instant::now();
    gpu.launch(&kernel, Dim::new(1, 1), 2 * DEADLINE)?.wait()?;
    let time = start.elapsed();
    status.check(&[endpoint])?;
    let [first, end, completed] = words(gpu, &trace)?;
    let rung = format!("WQEBBs {first}..{end} rung for, {completed} completed");
    session.say(&format!("  {rung}, {time:?} with launch"))?;
    Ok(time)
}
