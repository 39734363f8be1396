//! One buffer from one GPU to another, step by step: a kernel writes the WQE, rings the doorbell
//! and polls the completion; a kernel on the other side checks every byte. With `--path shmem` both
//! GPUs are ranks of a symmetric heap, and put to each other.

mod common;
#[path = "../tests/harness/interchange.rs"]
mod flags;
mod interchange;

use anyhow::Result;
use common::{DEADLINE, Session, words};
use flags::{Flags, Path, active_ports, name};
use interchange::{GRID, verify};
use serde_json::json;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};
use warpverbs::gpu::{Dim, Gpu, KernelPtr, Place};
use warpverbs::kernels::interchange::{Fill, IMAGE, Transfer};
use warpverbs::transport::{Access, Endpoint, EndpointConfig, KernelStatus, MemoryRegion};

fn main() -> ExitCode {
    common::main(run)
}

fn run(flags: Flags) -> Result<()> {
    let (bytes, value) = flags.payload()?;
    let mut session = Session::open(&flags.common)?;
    session.say(&format!("Transferring {bytes} bytes with value {value}\n"))?;

    session.say("Step 1: Initialising devices...")?;
    let [sender, receiver] = flags.devices(&session.gpu)?;
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
    let (kernels, took) = (IMAGE.entries.len(), start.elapsed());
    session.say(&format!("  {kernels} kernels on each side in {took:?}"))?;

    if flags.path == Path::Shmem {
        return interchange::run(session, &[sender, receiver], bytes, value);
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

    session.say("Step 7: Launching the kernel that posts, and one that verifies...")?;
    let time = transfer(&session, &sender, &near, &src, &dst)?;

    verify(&receiver, dst.buffer(), value)?;
    session.say(&format!("  All {bytes} bytes verified with value {value}"))?;

    session.say("Step 8: Cleaning up...")?;
    drop((near, far, src, dst));
    session.say("  Endpoints and memory regions released\n")?;
    session.facts(json!({"bytes": bytes, "value": value, "seconds": time.as_secs_f64()}));
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
