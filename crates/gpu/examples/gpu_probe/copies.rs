//! Cost of copies, and which of them go on while kernels hold the device.

use crate::common::{self, Spin, within};
use crate::{BLOCKED, SPIN, STARTS, micros, percentiles};
use std::sync::Arc;
use std::time::{Duration, Instant};
use warpverbs_gpu::driver::{CopyEngine, CopyPath, CopyPolicy, DriverGpu};
use warpverbs_gpu::{Dim, Gpu, GpuError, Place};
use warpverbs_mem::{CopyTicket, HostBuf, Region};

const SIZES: [usize; 6] = [8, 64, 4096, 65_536, 1 << 20, 16 << 20];
const LARGEST: usize = 16 << 20;

/// A copy between two places, by one engine.
struct Route {
    name: String,
    engine: Arc<CopyEngine>,
    to: Region,
    from: Region,
}

impl Route {
    fn start(&self, len: usize) -> Result<CopyTicket, GpuError> {
        assert!(len <= self.to.len() && len <= self.from.len());
        // SAFETY: both ranges are inside regions that `self` holds, and every caller holds `self`
        // until the ticket is done or for the rest of the process.
        unsafe { self.engine.enqueue(self.to.addr(), self.from.addr(), len) }
    }

    fn run(&self, len: usize) -> Result<(), GpuError> {
        let ticket = self.start(len)?;
        while !self.engine.landed(ticket)? {
            std::hint::spin_loop();
        }
        Ok(())
    }
}

fn policies(gpu: &DriverGpu) -> Vec<CopyPolicy> {
    let paths = [CopyPath::Async, CopyPath::Peer, CopyPath::Bounce];
    let batch = gpu.has_copy_path(CopyPath::Batch).then_some(CopyPath::Batch);
    let fixed = batch.into_iter().chain(paths).map(CopyPolicy::Always);
    fixed.chain([CopyPolicy::ByRoom]).collect()
}

fn engine(gpu: &DriverGpu, policy: CopyPolicy) -> Result<Arc<CopyEngine>, GpuError> {
    gpu.copy_engine(policy).map(Arc::new)
}

fn device_memory(gpu: &DriverGpu) -> Result<Region, GpuError> {
    gpu.alloc(LARGEST, Place::Device).map(|buffer| buffer.region().clone())
}

/// Inside the device, by each policy.
fn inside(gpu: &DriverGpu) -> Result<Vec<Route>, GpuError> {
    let (to, from) = (device_memory(gpu)?, device_memory(gpu)?);
    let route = |policy| {
        let (to, from) = (to.clone(), from.clone());
        let name = format!("device → same device, {policy}");
        Ok(Route { name, engine: engine(gpu, policy)?, to, from })
    };
    policies(gpu).into_iter().map(route).collect()
}

fn routes(gpu: &DriverGpu) -> Result<Vec<Route>, GpuError> {
    let (here, host) = (device_memory(gpu)?, gpu.alloc(LARGEST, Place::Shared)?);
    let pageable = HostBuf::region(LARGEST)?;
    pageable.fill(0, LARGEST, 1)?;
    let by = engine(gpu, CopyPolicy::ByRoom)?;
    let route = |name: &str, to: &Region, from: &Region| Route {
        name: name.to_owned(),
        engine: by.clone(),
        to: to.clone(),
        from: from.clone(),
    };
    let mut routes = vec![
        route("pinned → device", &here, host.region()),
        route("device → pinned", host.region(), &here),
        route("pageable → device", &here, &pageable),
        route("device → pageable", &pageable, &here),
    ];
    routes.extend(inside(gpu)?);
    Ok(routes)
}

pub(crate) fn print_latencies(gpu: &DriverGpu) -> Result<(), GpuError> {
    println!("## Copies on an idle device, started and polled by ticket\n");
    println!("Pipelined: 500 started in a row, time of all by 500.\n");
    print_latency(routes(gpu)?)
}

fn print_latency(routes: Vec<Route>) -> Result<(), GpuError> {
    println!("| route | bytes | p50 µs | p99 µs | start alone p50 µs | pipelined µs |");
    println!("|---|---|---|---|---|---|");
    for route in routes {
        for len in SIZES {
            let rounds = if len > 1 << 16 { 100 } else { 1000 };
            (0..20).try_for_each(|_| route.run(len))?;
            let (mut whole, mut starts) = (Vec::new(), Vec::new());
            for _ in 0..rounds {
                let begun = Instant::now();
                let ticket = route.start(len)?;
                starts.push(begun.elapsed());
                while !route.engine.landed(ticket)? {
                    std::hint::spin_loop();
                }
                whole.push(begun.elapsed());
            }
            let (median, high) = percentiles(whole);
            let (start, _) = percentiles(starts);
            let row = pipelined(&route, len)?;
            println!("| {} | {len} | {median} | {high} | {start} | {row} |", route.name);
        }
    }
    println!();
    Ok(())
}

fn pipelined(route: &Route, len: usize) -> Result<String, GpuError> {
    const DEPTH: u32 = 500;
    if len > 65_536 {
        return Ok("".to_owned());
    }
    let begun = Instant::now();
    (1..DEPTH).try_for_each(|_| route.start(len).map(drop))?;
    route.run(len)?;
    Ok(micros(begun.elapsed() / DEPTH))
}

/// How long one copy takes while `spin` holds the device; says so if it waits for it.
fn beside(route: &Arc<Route>, len: usize, mut spin: Spin) -> String {
    let work = route.clone();
    let took = within(BLOCKED, move || {
        let begun = Instant::now();
        work.run(len).map(|()| begun.elapsed())
    });
    let was_running = spin.is_running();
    let ended = spin.end();
    match (took, ended) {
        (_, Err(error)) => format!("spinning kernel failed: {error}"),
        (_, Ok(())) if !was_running => "kernel ended too early".to_owned(),
        (None, Ok(())) => {
            // Let the late copy land before the route is used again.
            std::thread::sleep(Duration::from_millis(50));
            "**waits for the kernel**".to_owned()
        }
        (Some(Ok(time)), Ok(())) => format!("{} µs", micros(time)),
        (Some(Err(error)), Ok(())) => error.to_string(),
    }
}

fn print_beside(routes: Vec<Route>, mut hold: impl FnMut() -> Spin) -> Result<(), GpuError> {
    println!("| route | {} |", SIZES.map(|len| len.to_string()).join(" | "));
    println!("|---|{}", "---|".repeat(SIZES.len()));
    for route in routes {
        let route = Arc::new(route);
        route.run(8)?;
        let cells = SIZES.map(|len| beside(&route, len, hold()));
        println!("| {} | {} |", route.name, cells.join(" | "));
    }
    println!();
    Ok(())
}

pub(crate) fn print_progress(gpu: &DriverGpu) -> Result<(), GpuError> {
    println!("## Copies while a spinning kernel has every thread slot of the device\n");
    print_beside(routes(gpu)?, || Spin::fill(gpu, SPIN))
}

/// Room that the driver's copy kernel needs in a multiprocessor.
pub(crate) fn print_room(gpu: &DriverGpu) -> Result<(), GpuError> {
    println!("## Copies while each multiprocessor holds two spinning blocks\n");
    println!("| threads of a block | 8 | 65536 | 16777216 |\n|---|---|---|---|");
    let mut routes = inside(gpu)?;
    let route = Arc::new(routes.swap_remove(0));
    for threads in [1024, 992, 960, 896, 768, 512, 256] {
        let dim = Dim::new(gpu.info().sm_count * 2, threads);
        let cells = [8, 65_536, LARGEST].map(|len| match Spin::start(gpu, dim, SPIN, STARTS) {
            Some(spin) => beside(&route, len, spin),
            None => "the kernel does not start".to_owned(),
        });
        println!("| {threads} | {} |", cells.join(" | "));
    }
    println!("\nRoute: {}\n", route.name);
    Ok(())
}

/// Between two devices, with either of them full.
pub(crate) fn print_between(gpu: &DriverGpu) -> Result<(), GpuError> {
    println!("## Copies between two devices\n");
    let Ok(other) = common::open(u32::from(gpu.info().ordinal == 0)) else {
        println!("There is one device only.\n");
        return Ok(());
    };
    let (here, there) = (device_memory(gpu)?, device_memory(&other)?);
    let routes = || -> Result<Vec<Route>, GpuError> {
        let mut routes = Vec::new();
        for path in [CopyPath::Peer, CopyPath::Bounce] {
            let engine = engine(gpu, CopyPolicy::Always(path))?;
            let route = |way: &str, to: &Region, from: &Region| Route {
                name: format!("{way}, {path:?}"),
                engine: engine.clone(),
                to: to.clone(),
                from: from.clone(),
            };
            routes.push(route("there → here", &here, &there));
            routes.push(route("here → there", &there, &here));
        }
        Ok(routes)
    };
    for reach in [false, true] {
        if reach {
            gpu.enable_peer(&other)?;
            other.enable_peer(gpu)?;
        }
        println!("Peer access: {reach}. Idle:\n");
        print_latency(routes()?)?;
        println!("The device of the engine is full:\n");
        print_beside(routes()?, || Spin::fill(gpu, SPIN))?;
        println!("The other device is full:\n");
        print_beside(routes()?, || Spin::fill(&other, SPIN))?;
    }
    Ok(())
}

/// Kernels on more streams than there are hardware queues.
pub(crate) fn print_progress_beside_many(gpu: &DriverGpu) -> Result<(), GpuError> {
    println!("## Beside many one-block kernels that spin, each on its own stream\n");
    let connections = std::env::var("CUDA_DEVICE_MAX_CONNECTIONS");
    println!("CUDA_DEVICE_MAX_CONNECTIONS: {}\n", connections.as_deref().unwrap_or("not set"));
    println!("| kernels | all start | pinned → device, 8 B | device → same device, 8 B |");
    println!("|---|---|---|---|");
    let routes = routes(gpu)?;
    // From pinned memory, and inside the device by room.
    let (up, inside) = (0, routes.len() - 1);
    let routes: Vec<Arc<Route>> = routes.into_iter().map(Arc::new).collect();
    for count in [1, 4, 8, 9, 16, 32, 33, 64] {
        let cell = |route: usize| {
            let mut spins = Vec::new();
            for _ in 0..count {
                match Spin::start(gpu, Dim::new(1, 32), SPIN, STARTS) {
                    Some(spin) => spins.push(spin),
                    None => break,
                }
            }
            let started = spins.len();
            let cell = match spins.pop() {
                Some(last) => beside(&routes[route], 8, last),
                None => "no kernel started".to_owned(),
            };
            for spin in spins {
                if let Err(error) = spin.end() {
                    println!("a spinning kernel: {error}");
                }
            }
            (started, cell)
        };
        let ((started, up), (_, inside)) = (cell(up), cell(inside));
        println!("| {count} | {started} | {up} | {inside} |");
    }
    println!();
    Ok(())
}
