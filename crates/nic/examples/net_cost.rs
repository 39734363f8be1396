//! The cost of WRITEs over 127.0.0.1, from one NIC to another in this process.
//!
//! ```text
//! cargo run --release -p warpverbs-nic --example net_cost
//! WARPVERBS_LINK=shm cargo run --release -p warpverbs-nic --example net_cost
//! ```
//!
//! `cost`: one thread drives both NICs in turn, so that nothing waits; instructions of the two
//! engines without the system, by the difference of two runs under `valgrind --tool=callgrind`,
//! and calls of the system, counted by `strace` if it is there. `rate` and `latency`: one thread
//! for each NIC, which posts, drives its engine and polls, as `ucx_perftest` does.

mod counting;

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use warpverbs_dev::{Port, PortConfig, connect_over, remote, sge};
use warpverbs_mem::{Access, HostBuf};
use warpverbs_mlx5::cqe::Cqe;
use warpverbs_mlx5::wqe::WqeBuilder;
use warpverbs_nic::link::{Chance, FaultPlan, Faulty, Link, Udp};
use warpverbs_nic::{
    Clock, Config, LinkConfig, Mr, Pd, QpAttrs, SoftNic, Step, UdpConfig, VirtualClock,
};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// WRITEs between two signalled ones.
const BATCH: usize = 32;
/// WRITEs under way at most.
const DEPTH: usize = 1000;
/// Bytes under way at most.
const AHEAD: usize = 8 << 20;
const LIMIT: Duration = Duration::from_secs(60);

/// Idle steps before a thread yields its core: the machine may be shared.
const IDLE_STEPS: u32 = 64;

/// Drives an engine, and yields to other threads while it has nothing to do.
#[derive(Default)]
struct Driver {
    idle: u32,
}

impl Driver {
    fn step(&mut self, nic: &SoftNic) {
        self.idle = if nic.step() == Step::Idle { self.idle + 1 } else { 0 };
        if self.idle >= IDLE_STEPS {
            std::thread::yield_now();
        }
    }
}

/// One NIC with ports to the other.
struct Side {
    nic: SoftNic,
    _pd: Pd,
    ports: Vec<Port>,
    mr: Mr,
}

impl Side {
    fn new(qps: usize, bytes: usize, loss: u32, clock: &Clock) -> Outcome<Self> {
        let bind = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
        let udp = UdpConfig::at(bind);
        let config = Config { clock: clock.clone(), ..Config::default() };
        let nic = match loss {
            0 => SoftNic::new(Config { link: LinkConfig::Udp(udp), ..config }.with_env()?)?,
            loss => {
                let plan =
                    FaultPlan { seed: 7, loss: Chance::thousandths(loss), ..FaultPlan::default() };
                let link: Box<dyn Link> = Box::new(Faulty::new(Udp::bind(&udp)?, plan));
                SoftNic::with_link(config, link)?
            }
        };
        let pd = nic.alloc_pd();
        let config = PortConfig { log_sq: 10, ..PortConfig::default() };
        let ports: Result<_, _> = (0..qps).map(|_| Port::new(&nic, &pd, &config)).collect();
        let mr = nic.reg_mr(&pd, &HostBuf::region(bytes.max(4096))?, Access::all())?;
        Ok(Self { nic, _pd: pd, ports: ports?, mr })
    }

    fn connect(&self, peer: &Side) -> Outcome<()> {
        let addr = peer.nic.local_addr().ok_or("no link")?;
        let mtu = self.nic.max_mtu();
        for (ours, theirs) in self.ports.iter().zip(&peer.ports) {
            connect_over(ours, addr, theirs.qp.qpn(), QpAttrs { mtu, ..QpAttrs::default() });
        }
        Ok(())
    }
}

fn sides(qps: usize, bytes: usize, loss: u32, clock: &Clock) -> Outcome<[Side; 2]> {
    let (a, b) = (Side::new(qps, bytes, loss, clock)?, Side::new(qps, bytes, loss, clock)?);
    a.connect(&b)?;
    b.connect(&a)?;
    let pattern: Vec<u8> = (0..bytes).map(|i| (i * 31 + i / 251) as u8).collect();
    a.mr.region().write(0, &pattern)?;
    Ok([a, b])
}

fn check(a: &Side, b: &Side, bytes: usize) -> Outcome<()> {
    let (mut sent, mut found) = (vec![0; bytes], vec![0; bytes]);
    a.mr.region().read(0, &mut sent)?;
    b.mr.region().read(0, &mut found)?;
    if sent == found { Ok(()) } else { Err("wrong bytes at the target".into()) }
}

/// Keeps queues full of WRITEs of `bytes` bytes until `count` for each port are done; `idle` is
/// called after each look.
fn write(
    a: &mut Side,
    b: &Mr,
    bytes: usize,
    count: usize,
    mut idle: impl FnMut(),
) -> Outcome<Duration> {
    let depth = (AHEAD / a.ports.len() / bytes).clamp(2, DEPTH);
    let batch = BATCH.min(depth / 2);
    let (from, to) = (sge(&a.mr, 0, bytes as u32), remote(b, 0));
    let mut done = vec![0; a.ports.len()];
    let (start, mut driver) = (Instant::now(), Driver::default());
    while done.iter().any(|done| *done < count) {
        for (port, done) in a.ports.iter_mut().zip(&mut done) {
            let posted = port.posted as usize;
            let room = (depth - (posted - *done)).min(count - posted);
            if room >= batch || posted + room == count {
                for i in posted + 1..=posted + room {
                    port.put_wqe(|buf, at| {
                        let wqe = WqeBuilder::write(buf, at, to).sge(from);
                        let signals = i % batch == 0 || i == count;
                        if signals { wqe.signaled() } else { wqe }
                    });
                }
                if room > 0 {
                    port.announce();
                }
            }
            match port.poll_send() {
                Some(Cqe::Requester { .. }) => *done = (*done + batch).min(count),
                Some(other) => return Err(format!("{other:?}").into()),
                None => {}
            }
        }
        driver.step(&a.nic);
        idle();
        if start.elapsed() > LIMIT {
            return Err("not done in time".into());
        }
    }
    Ok(start.elapsed())
}

/// Both engines on this thread. Their clock stands still: nothing is lost here, and a timer that
/// expires because valgrind is slow would have packets sent again that have arrived.
fn cost(qps: usize, bytes: usize, count: usize) -> Outcome<Duration> {
    let [mut a, b] = sides(qps, bytes, 0, &Clock::Virtual(VirtualClock::new()))?;
    let time = write(&mut a, &b.mr, bytes, count, || {
        b.nic.step();
    })?;
    check(&a, &b, bytes)?;
    Ok(time)
}

/// Each engine on a thread of its own.
fn rate(qps: usize, bytes: usize, count: usize, loss: u32) -> Outcome<(Duration, String)> {
    let [mut a, b] = sides(qps, bytes, loss, &Clock::default())?;
    let over = AtomicBool::new(false);
    let time = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut driver = Driver::default();
            while !over.load(Ordering::Relaxed) {
                driver.step(&b.nic);
            }
        });
        let time = write(&mut a, &b.mr, bytes, count, || {});
        over.store(true, Ordering::Relaxed);
        time
    })?;
    check(&a, &b, bytes)?;
    let resent: u64 = a.ports.iter().map(|port| port.qp.stats().resent).sum();
    Ok((time, format!("{} datagrams, {resent} again", a.nic.stats().net.sent)))
}

/// One WRITE of 8 bytes there and one back, by turns; half of the median.
fn latency(rounds: u64) -> Outcome<Duration> {
    let [mut a, mut b] = sides(1, 8, 0, &Clock::default())?;
    let barrier = Barrier::new(2);
    let turn = |side: &mut Side, peer: &Mr, first: bool| -> Outcome<Vec<Duration>> {
        let (from, to) = (sge(&side.mr, 8, 8), remote(peer, 0));
        let mut times = Vec::new();
        let mut driver = Driver::default();
        barrier.wait();
        for round in 1..=rounds {
            let start = Instant::now();
            let await_round = |side: &mut Side, driver: &mut Driver| -> Outcome<()> {
                while side.mr.region().atomic_u64(0)?.load(Ordering::Acquire) != round {
                    driver.step(&side.nic);
                    if start.elapsed() > LIMIT {
                        return Err("no answer".into());
                    }
                }
                Ok(())
            };
            if !first {
                await_round(side, &mut driver)?;
            }
            side.mr.region().atomic_u64(8)?.store(round, Ordering::Release);
            side.ports[0].post_wqe(|buf, at| WqeBuilder::write(buf, at, to).sge(from).signaled());
            side.nic.step();
            if first {
                await_round(side, &mut driver)?;
            }
            while side.ports[0].poll_send().is_some() {}
            times.push(start.elapsed());
        }
        // The peer may still want its last answer acknowledged.
        for _ in 0..1000 {
            side.nic.step();
        }
        Ok(times)
    };
    let (at_a, at_b) = (a.mr.clone(), b.mr.clone());
    let mut times = std::thread::scope(|scope| {
        let back = scope.spawn(|| turn(&mut b, &at_a, false));
        let times = turn(&mut a, &at_b, true);
        back.join().map_err(|_| "a thread failed")??;
        times
    })?;
    times.sort();
    Ok(times[times.len() / 2] / 2)
}

/// Arguments that make this program run [`cost`] alone.
fn part(bytes: usize, count: usize) -> [String; 4] {
    ["cost".into(), "1".into(), bytes.to_string(), count.to_string()]
}

/// Calls of `sendmsg` and `recvmmsg`.
fn calls(bytes: usize, count: usize) -> Outcome<(u64, u64)> {
    let text = counting::under("strace", &["-f", "-c", "-U", "name,calls"], &part(bytes, count))?;
    let of = |name: &str| {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(name));
        line.and_then(|calls| calls.trim().parse().ok()).unwrap_or(0)
    };
    Ok((of("sendmsg"), of("recvmmsg")))
}

fn costs() -> Outcome<()> {
    for bytes in [8, 4096, 8192, 16_384, 1 << 16, 1 << 20] {
        let few = (1 << 22) / bytes.max(2048);
        let many = 5 * few;
        let per = |few: u64, many: u64, times: usize| (many - few) as f64 / times as f64;
        let of = |count| counting::instructions("*SoftNic*step*", &part(bytes, count));
        let instr = per(of(few)?, of(many)?, many - few);
        let cpu = cost(1, bytes, many * 4)?.as_secs_f64() / (many * 4) as f64;
        print!("{bytes:>8} bytes: {instr:9.0} instructions, {:9.3} us of both ends", cpu * 1e6);
        match calls(bytes, many) {
            Ok((sends, receives)) => println!(
                ", {:.3} sendmsg, {:.3} recvmmsg",
                sends as f64 / many as f64,
                receives as f64 / many as f64
            ),
            Err(error) => println!(", no strace: {error}"),
        }
    }
    Ok(())
}

fn rates() -> Outcome<()> {
    for (bytes, count) in [
        (8, 2_000_000),
        (4096, 200_000),
        (8192, 200_000),
        (16_384, 100_000),
        (1 << 16, 40_000),
        (1 << 20, 2000),
    ] {
        show(1, bytes, count, 0)?;
    }
    show(1, 1 << 20, 1000, 10)?;
    for qps in [16, 256] {
        show(qps, 8, 2_000_000 / qps, 0)?;
        show(qps, 4096, 200_000 / qps, 0)?;
    }
    Ok(())
}

fn show(qps: usize, bytes: usize, count: usize, loss: u32) -> Outcome<()> {
    let (time, stats) = rate(qps, bytes, count, loss)?;
    let per_s = (qps * count) as f64 / time.as_secs_f64();
    let (millions, giga) = (per_s / 1e6, per_s * bytes as f64 / 1e9);
    let lost = if loss > 0 { format!(", {loss} in 1000 lost") } else { String::new() };
    println!("{qps:>4} QPs {bytes:>8} bytes{lost}: {millions:7.3} M/s {giga:7.3} GB/s; {stats}");
    Ok(())
}

fn main() -> Outcome<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["cost", qps, bytes, count] => {
            cost(qps.parse()?, bytes.parse()?, count.parse()?)?;
        }
        ["loss"] => {
            for _ in 0..3 {
                show(1, 1 << 20, 2000, 0)?;
                show(1, 1 << 20, 2000, 10)?;
            }
        }
        ["rate", qps, bytes, count, loss] => {
            show(qps.parse()?, bytes.parse()?, count.parse()?, loss.parse()?)?;
        }
        ["latency"] => println!("latency of 8 bytes: {:?}", latency(50_000)?),
        ["rates"] => rates()?,
        ["costs"] => costs()?,
        _ => {
            costs()?;
            rates()?;
            println!("latency of 8 bytes: {:?}", latency(50_000)?);
        }
    }
    Ok(())
}
