//! Which calls of the driver wait for a kernel that runs.

use crate::common::{IMAGE, Spin, within};
use crate::raw::{enter, raw};
use crate::{BLOCKED, SPIN, micros};
use std::sync::Arc;
use std::time::{Duration, Instant};
use warpverbs_gpu::cuda::cubin;
use warpverbs_gpu::driver::{Cache, DriverGpu};
use warpverbs_gpu::{Gpu, GpuError, Place};
use warpverbs_mem::HostBuf;

type Step = Box<dyn FnOnce() -> Result<(), GpuError> + Send>;

fn steps(gpu: &Arc<DriverGpu>) -> Result<Vec<(&'static str, Step)>, GpuError> {
    let code = cubin(&IMAGE, &gpu.info().arch, &Cache::Off)?.0;
    let host = HostBuf::region(1 << 20)?;
    enter(gpu.info().ordinal)?;
    let mut spare = 0;
    raw!(cuMemAlloc_v2(&mut spare, 2 << 20))?;
    let registered = HostBuf::region(1 << 20)?;
    let start = registered.addr();
    raw!(cuMemHostRegister_v2(start as *mut _, 1 << 20, 3))?;
    let with = |work: fn(&DriverGpu) -> Result<(), GpuError>| -> Step {
        let gpu = gpu.clone();
        Box::new(move || work(&gpu))
    };
    Ok(vec![
        ("cuMemAlloc 2 MiB", Box::new(|| raw!(cuMemAlloc_v2(&mut 0, 2 << 20)))),
        ("cuMemAlloc 256 MiB", Box::new(|| raw!(cuMemAlloc_v2(&mut 0, 256 << 20)))),
        ("cuMemFree", Box::new(move || raw!(cuMemFree_v2(spare)))),
        (
            "cuMemHostRegister 1 MiB",
            Box::new(move || {
                let result = raw!(cuMemHostRegister_v2(host.addr() as *mut _, 1 << 20, 3));
                // Stays registered, so it must stay mapped.
                std::mem::forget(host);
                result
            }),
        ),
        (
            "cuMemHostUnregister",
            Box::new(move || {
                let result = raw!(cuMemHostUnregister(start as *mut _));
                std::mem::forget(registered);
                result
            }),
        ),
        (
            "cuModuleLoadData",
            Box::new(move || {
                let mut module = std::ptr::null_mut();
                raw!(cuModuleLoadData(&mut module, code.as_ptr().cast()))
            }),
        ),
        ("stream, create and destroy", Box::new(|| stream(false))),
        ("stream of highest priority", Box::new(|| stream(true))),
        ("Gpu::alloc 4 KiB device", with(|gpu| gpu.alloc(4096, Place::Device).map(drop))),
        ("Gpu::alloc 8 MiB device", with(|gpu| gpu.alloc(8 << 20, Place::Device).map(drop))),
        ("Gpu::alloc 64 KiB shared", with(|gpu| gpu.alloc(65_536, Place::Shared).map(drop))),
        ("opening the device again", with(|gpu| crate::reopened(gpu).map(drop))),
    ])
}

fn stream(urgent: bool) -> Result<(), GpuError> {
    let (mut least, mut greatest, mut stream) = (0, 0, std::ptr::null_mut());
    raw!(cuCtxGetStreamPriorityRange(&mut least, &mut greatest))?;
    let priority = if urgent { greatest } else { least };
    raw!(cuStreamCreateWithPriority(&mut stream, 1, priority))?;
    raw!(cuStreamDestroy_v2(stream))
}

pub(crate) fn print(gpu: &Arc<DriverGpu>) -> Result<(), GpuError> {
    println!("## Calls while a spinning kernel has every thread slot of the device\n");
    println!("| call | took |\n|---|---|");
    drop(gpu.alloc(4096, Place::Device)?);
    for (name, step) in steps(gpu)? {
        println!("| {name} | {} |", timed(gpu, step));
    }
    println!();
    Ok(())
}

fn timed(gpu: &Arc<DriverGpu>, step: Step) -> String {
    let mut spin = Spin::fill(&**gpu, SPIN);
    let ordinal = gpu.info().ordinal;
    let took = within(BLOCKED, move || {
        enter(ordinal)?;
        let begun = Instant::now();
        step().map(|()| begun.elapsed())
    });
    // Asking the driver whether the kernel runs may itself block now, hence on a thread.
    let ended = within(SPIN * 2, move || (spin.is_running(), spin.end()));
    match (took, ended) {
        (_, None) => "**the driver hangs**".to_owned(),
        (_, Some((_, Err(error)))) => format!("spinning kernel failed: {error}"),
        (None, Some(_)) => {
            // Let the late call return before the next one.
            std::thread::sleep(Duration::from_millis(200));
            "**waits for the kernel**".to_owned()
        }
        (Some(_), Some((false, _))) => "kernel ended too early".to_owned(),
        (Some(Ok(time)), _) => format!("{} µs", micros(time)),
        (Some(Err(error)), _) => error.to_string(),
    }
}
