//! A buffer of one GPU goes over TCP sockets into a buffer of another. Every byte is compared.
//!
//! ```text
//! tcpx_transfer server
//! tcpx_transfer client HOST [--bytes 64M]
//! ```
//!
//! With `--queues eth0:7`, the server receives into device memory, and `--unpack` says who moves the
//! bytes from there to their places.

mod common;

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use common::{DEADLINE, MAX_BYTES, compare, parse_size, sample, within};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use warpverbs::devmem::unpack::{UnpackConfig, UnpackWay};
use warpverbs::devmem::{BoundQueues, QUEUES_ENV, QueueChoice};
use warpverbs::gpu::{self, Gpu, Place};
use warpverbs::tcp::{Config, Domain, Link, Receive};

/// GPU memory to GPU memory over TCP
#[derive(Parser)]
#[command(version)]
struct Flags {
    /// Which end this process is
    #[arg(value_parser = ["server", "client"])]
    side: String,
    /// Host name or address of the server, for its client
    #[arg(required_if_eq("side", "client"))]
    host: Option<String>,
    /// Address that the server listens at
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::UNSPECIFIED))]
    bind: IpAddr,
    /// TCP port of the server; 0 takes any free one
    #[arg(short = 'p', long, default_value_t = 18519)]
    port: u16,
    /// Sockets of the connection
    #[arg(long, default_value_t = 3)]
    sockets: u16,
    /// Receive queues to be bound to memory of the device, such as eth0:7, or auto; needs root
    #[arg(long, env = QUEUES_ENV)]
    queues: Option<QueueChoice>,
    /// Seconds to wait for the other end
    #[arg(long, default_value_t = 60)]
    wait: u64,
    /// Whose memory: auto, simt, cuda[:N] or hip[:N]
    #[arg(long, default_value = "auto", env = "WARPVERBS_GPU")]
    gpu: String,
    /// Bytes that the client sends (K, M, G are powers of 1024)
    #[arg(long, value_parser = parse_size, default_value = "64M")]
    bytes: u64,
    /// How device memory is unpacked: auto, d2d (copy engine), host or kernel
    #[arg(long, env = "WARPVERBS_UNPACK", default_value_t = UnpackWay::Auto)]
    unpack: UnpackWay,
}

fn main() -> ExitCode {
    common::main(run)
}

fn run(flags: Flags) -> Result<()> {
    let opened = gpu::open_explained(flags.gpu.parse()?)?;
    println!("memory of {}", opened.why);
    let (gpu, wait) = (opened.gpu, Duration::from_secs(flags.wait));
    let unpack = UnpackConfig { way: flags.unpack, ..UnpackConfig::default() };
    let receive = Receive::choose(flags.queues.as_ref(), BoundQueues::BYTES, &gpu, unpack);
    let domain = Domain::receiving(Config::default().sockets(flags.sockets), receive)?;
    let link = match flags.host.as_ref().filter(|_| flags.side == "client") {
        Some(host) => domain.reach(host, flags.port, wait)?,
        None => {
            let mut listener = domain.listen(SocketAddr::new(flags.bind, flags.port))?;
            println!("waiting for a client at {}", listener.address());
            listener.accept(&domain, wait)?
        }
    };
    println!("connected to {}: {}", link.peer()?, link.explain());
    match flags.side == "client" {
        true => send(&link, &*gpu, flags.bytes)?,
        false => take(&link, &*gpu)?,
    }
    link.close(DEADLINE)?;
    println!("passed: every byte compared");
    Ok(())
}

fn send(link: &Link, gpu: &dyn Gpu, bytes: u64) -> Result<()> {
    within("--bytes", bytes, 1, MAX_BYTES)?;
    let buffer = gpu.alloc(bytes as usize, Place::Device)?;
    gpu.write(&buffer, 0, &sample(0, bytes as usize))?;
    link.notify(&bytes.to_le_bytes())?;
    // The server has its memory ready: the time is that of the transfer.
    link.wait_notification(DEADLINE)?;
    let began = Instant::now();
    link.wait(link.isend(buffer.region())?, DEADLINE)?;
    let answer = link.wait_notification(DEADLINE)?;
    let rate = bytes as f64 / began.elapsed().as_secs_f64() / 1e9;
    ensure!(answer == b"verified", "the server says {:?}", String::from_utf8_lossy(&answer));
    println!("{bytes} bytes, unpacked and compared, at {rate:.2} GB/s");
    Ok(())
}

fn take(link: &Link, gpu: &dyn Gpu) -> Result<()> {
    let said = link.wait_notification(DEADLINE)?;
    let bytes = u64::from_le_bytes(said.as_slice().try_into().context("the length")?);
    within("the length", bytes, 1, MAX_BYTES)?;
    let buffer = gpu.alloc(bytes as usize, Place::Device)?;
    let received = link.irecv(buffer.region())?;
    link.notify(b"ready")?;
    let count = link.wait(received, DEADLINE)?;
    ensure!(count == bytes, "{count} bytes came, expected {bytes}");
    println!("{count} bytes received into the buffer; the kernel put {}", link.placed());
    let mut found = vec![0; bytes as usize];
    gpu.read(&buffer, 0, &mut found)?;
    let verdict = compare(&sample(0, bytes as usize), &found);
    link.notify(if verdict.is_ok() { b"verified" } else { b"the bytes differ" })?;
    verdict
}
