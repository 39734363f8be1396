//! Which calls of the driver wait for a kernel that runs.

use crate::common::{IMAGE, Spin, within};
use crate::{BLOCKED, SPIN, micros};
use std::sync::Arc;
use std::time::{Duration, Instant};
use warpverbs_gpu::cuda::context::{Priority, Stream};
use warpverbs_gpu::cuda::{Cache, CudaDevice, api::Driver, cubin};
use warpverbs_gpu::{Gpu, GpuError, Place};
use warpverbs_mem::HostBuf;

type Step = Box<dyn FnOnce(&Driver) -> Result<(), GpuError> + Send>;

/// One call of the driver in a context, written once with its obligations.
macro_rules! raw {
    ($driver:expr, $call:ident($($arg:expr),*)) => {
        // SAFETY: the probe passes handles and memory that are live, pointers to live locals, and
        // frees only what it made and nothing uses; the context is current.
        unsafe { $driver.$call($($arg),*) }
    };
}

fn steps(gpu: &Arc<CudaDevice>) -> Result<Vec<(&'static str, Step)>, GpuError> {
    let context = gpu.context();
    let code = cubin(&IMAGE, &context.arch()?, &Cache::Off)?.0;
    let host = HostBuf::region(1 << 20)?;
    let _entered = context.enter()?;
    let mut spare = 0;
    raw!(context.driver(), cuMemAlloc_v2(&mut spare, 2 << 20))?;
    let registered = HostBuf::region(1 << 20)?;
    let start = registered.addr();
    raw!(context.driver(), cuMemHostRegister_v2(start as *mut _, 1 << 20, 3))?;
    let with = |work: fn(&CudaDevice) -> Result<(), GpuError>| -> Step {
        let gpu = gpu.clone();
        Box::new(move |_| work(&gpu))
    };
    Ok(vec![
        ("cuMemAlloc 2 MiB", Box::new(|d| raw!(d, cuMemAlloc_v2(&mut 0, 2 << 20)))),
        ("cuMemAlloc 256 MiB", Box::new(|d| raw!(d, cuMemAlloc_v2(&mut 0, 256 << 20)))),
        ("cuMemFree", Box::new(move |d| raw!(d, cuMemFree_v2(spare)))),
        (
            "cuMemHostRegister 1 MiB",
            Box::new(move |d| {
                let result = raw!(d, cuMemHostRegister_v2(host.addr() as *mut _, 1 << 20, 3));
                // Stays registered, so it must stay mapped.
                std::mem::forget(host);
                result
            }),
        ),
        (
            "cuMemHostUnregister",
            Box::new(move |d| {
                let result = raw!(d, cuMemHostUnregister(start as *mut _));
                std::mem::forget(registered);
                result
            }),
        ),
        (
            "cuModuleLoadData",
            Box::new(move |d| {
                let mut module = std::ptr::null_mut();
                raw!(d, cuModuleLoadData(&mut module, code.as_ptr().cast()))
            }),
        ),
        ("stream, create and destroy", with(|gpu| stream(gpu, Priority::Usual))),
        ("stream of highest priority", with(|gpu| stream(gpu, Priority::Highest))),
        ("Gpu::alloc 4 KiB device", with(|gpu| gpu.alloc(4096, Place::Device).map(drop))),
        ("Gpu::alloc 8 MiB device", with(|gpu| gpu.alloc(8 << 20, Place::Device).map(drop))),
        ("Gpu::alloc 64 KiB shared", with(|gpu| gpu.alloc(65_536, Place::Shared).map(drop))),
        ("opening the device again", with(|gpu| crate::reopened(gpu).map(drop))),
    ])
}

fn stream(gpu: &CudaDevice, priority: Priority) -> Result<(), GpuError> {
    Stream::new(gpu.context(), priority).map(drop)
}

pub(crate) fn print(gpu: &Arc<CudaDevice>) -> Result<(), GpuError> {
    println!("## Calls while a spinning kernel has every thread slot of the device\n");
    println!("| call | took |\n|---|---|");
    drop(gpu.alloc(4096, Place::Device)?);
    for (name, step) in steps(gpu)? {
        println!("| {name} | {} |", timed(gpu, step));
    }
    println!();
    Ok(())
}

fn timed(gpu: &Arc<CudaDevice>, step: Step) -> String {
    let mut spin = Spin::fill(&**gpu, SPIN);
    let context = gpu.context();
    let took = within(BLOCKED, move || {
        let _entered = context.enter()?;
        let begun = Instant::now();
        step(context.driver()).map(|()| begun.elapsed())
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
