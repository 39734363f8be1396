//! Figures of the NIC: copy rate beside `memcpy` and one busy QP beside idle ones, each on one
//! core; latency of its own thread beside a cache-line round trip. Best or median of many short
//! rounds, so that other work on the machine disturbs little.
//!
//! ```text
//! cargo run --release -p warpverbs-nic --example nic_figures
//! ```

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use warpverbs_dev::{Pair, Port, PortConfig, remote, sge};
use warpverbs_mem::{Access, HostBuf, copy_on_host};
use warpverbs_mlx5::wqe::{Remote, Sge, WqeBuilder};
use warpverbs_nic::{Config, SoftNic, VirtualClock};

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    for mib in [1, 64] {
        copy_rate(mib << 20)?;
    }
    latency()?;
    idle_qps()
}

fn pair(nic: &SoftNic, log_sq: u8) -> Outcome<Pair> {
    let port = PortConfig { log_sq, ..PortConfig::default() };
    Ok(Pair::on(nic.clone(), VirtualClock::new(), &port, &port, Default::default())?)
}

/// Spins until a completion comes; an error ends the program.
fn complete(port: &mut Port) -> Outcome<()> {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        match port.poll_send() {
            Some(warpverbs_mlx5::cqe::Cqe::Requester { .. }) => return Ok(()),
            Some(other) => return Err(format!("{other:?}").into()),
            None if Instant::now() > deadline => return Err("no completion in 10 s".into()),
            None => std::hint::spin_loop(),
        }
    }
}

/// WRITEs of `bytes` bytes, and the same copies without a NIC, by turns on this core.
fn copy_rate(bytes: usize) -> Outcome<()> {
    let nic = SoftNic::new(Config::default())?;
    let mut pair = pair(&nic, 6)?;
    let (from, to) = (HostBuf::region(bytes)?, HostBuf::region(bytes)?);
    from.fill(0, bytes, 7)?;
    to.fill(0, bytes, 0)?;
    let (mr_from, mr_to) =
        (nic.reg_mr(&pair.pd, &from, Access::all())?, nic.reg_mr(&pair.pd, &to, Access::all())?);
    let (there, here) = (remote(&mr_to, 0), sge(&mr_from, 0, bytes as u32));
    let rounds = ((2048 << 20) / bytes).max(16);
    let (mut engine, mut plain) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let start = Instant::now();
        pair.a.post_wqe(|buf, at| WqeBuilder::write(buf, at, there).sge(here).signaled());
        while pair.a.poll_send().is_none() {
            nic.step();
        }
        engine.push(start.elapsed());
        let start = Instant::now();
        copy_on_host(&to, 0, &from, 0, bytes)?;
        plain.push(start.elapsed());
    }
    let (engine, plain) = (best(engine), best(plain));
    let rate = |time: Duration| bytes as f64 / time.as_secs_f64() / 1e9;
    println!(
        "copy {:>3} MiB: NIC {:6.2} GB/s, memcpy {:6.2} GB/s, ratio {:.2}, target at least 0.9",
        bytes >> 20,
        rate(engine),
        rate(plain),
        plain.as_secs_f64() / engine.as_secs_f64()
    );
    Ok(())
}

fn best(times: Vec<Duration>) -> Duration {
    times.into_iter().min().unwrap_or_default()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// Median time for a cache line to go to another thread and back.
fn round_trip() -> Duration {
    const ROUNDS: u64 = 200_000;
    let cells: Arc<[crossbeam::utils::CachePadded<AtomicU64>; 2]> = Arc::default();
    let there = cells.clone();
    let echo = std::thread::spawn(move || {
        for i in 1..=ROUNDS {
            while there[0].load(Ordering::Acquire) != i {
                std::hint::spin_loop();
            }
            there[1].store(i, Ordering::Release);
        }
    });
    let mut times = Vec::new();
    for i in 1..=ROUNDS {
        let start = Instant::now();
        cells[0].store(i, Ordering::Release);
        while cells[1].load(Ordering::Acquire) != i {
            std::hint::spin_loop();
        }
        times.push(start.elapsed());
    }
    // The echo ends by itself after the last round.
    let _ = echo.join();
    median(times)
}

fn latency() -> Outcome<()> {
    let line = round_trip();
    let nic = SoftNic::new(Config::default())?;
    let mut pair = pair(&nic, 6)?;
    let (there, here) = (remote(&pair.mr_b, 0), sge(&pair.mr_a, 0, 8));
    let thread = nic.spawn()?;
    let mut times = Vec::new();
    for _ in 0..100_000 {
        let start = Instant::now();
        pair.a.post_wqe(|buf, at| WqeBuilder::write(buf, at, there).sge(here).signaled());
        complete(&mut pair.a)?;
        times.push(start.elapsed());
    }
    drop(thread);
    let post = median(times);
    println!(
        "8-byte WRITE, post to completion: {post:?}, cache-line round trip {line:?}, ratio {:.1}, target at most 4",
        post.as_secs_f64() / line.as_secs_f64()
    );
    Ok(())
}

/// 32 WRITEs, the last one signalled, under one doorbell.
fn post_batch(port: &mut Port, there: Remote, here: Sge) {
    for i in 1..=32 {
        port.put_wqe(|buf, at| {
            let wqe = WqeBuilder::write(buf, at, there).sge(here);
            if i == 32 { wqe.signaled() } else { wqe }
        });
    }
    port.announce();
}

/// Rate of the engine for one QP that posts batches of 32, beside idle ones, on this core.
fn idle_qps() -> Outcome<()> {
    let mut alone = None;
    for others in [0usize, 1, 16, 64, 256, 1022] {
        let nic = SoftNic::new(Config::default())?;
        let mut pair = pair(&nic, 10)?;
        let idle = PortConfig { log_sq: 4, log_cq: 2, ..PortConfig::default() };
        let ports: Result<Vec<_>, _> =
            (0..others).map(|_| Port::new(&nic, &pair.pd, &idle)).collect();
        let ports = ports?;
        let (there, here) = (remote(&pair.mr_b, 0), sge(&pair.mr_a, 0, 8));
        let mut batches = Vec::new();
        for _ in 0..50_000 {
            post_batch(&mut pair.a, there, here);
            let start = Instant::now();
            while pair.a.poll_send().is_none() {
                nic.step();
            }
            batches.push(start.elapsed());
        }
        let rate = 32.0 / median(batches).as_secs_f64() / 1e6;
        drop(ports);
        let alone = *alone.get_or_insert(rate);
        println!("{others:>4} idle QPs: {rate:6.2} M WQE/s, {:.2} of alone", rate / alone);
    }
    Ok(())
}
