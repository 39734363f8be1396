//! Messages, writes and reads whose payload the kernel puts into a dmabuf. Needs an interface that can
//! do it, and root.
//!
//! ```text
//! device_memory server INTERFACE:QUEUE|auto PORT BYTES     # on one host
//! device_memory client HOST PORT BYTES                    # on another
//! ```
//!
//! The server binds host memory (`/dev/udmabuf`) to the queue and accepts one link. The client
//! sends a message and writes to memory of the server, which then reads memory of the client, all of
//! this many bytes; the server compares every byte, and counts where the kernel put them.

use std::error::Error;
use std::net::ToSocketAddrs as _;
use std::sync::Arc;
use std::time::Duration;
use warpverbs_devmem::UnpackConfig;
use warpverbs_devmem::{BoundQueues, DeviceMemory, PayloadSockets as _, QueueChoice, Queues};
use warpverbs_gpu::Gpu;
use warpverbs_gpu::simt::{SimtConfig, SimtDevice};
use warpverbs_mem::{Access, HostBuf, Region};
use warpverbs_tcp::{Config, Domain, Link, Receive, RemoteKey};

/// Shorter than what is sent: pages have to be used again.
const DMABUF: u64 = 8 << 20;
const LIMIT: Duration = Duration::from_secs(300);

type Failure = Box<dyn Error + Send + Sync>;

/// The bytes of the three transfers.
const SEEDS: [u64; 3] = [1, 2, 3];

fn byte_at(seed: u64, position: u64) -> u8 {
    ((position + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 53) as u8
}

fn filled(seed: u64, len: usize) -> Result<Region, Failure> {
    let bytes: Vec<u8> = (0..len as u64).map(|at| byte_at(seed, at)).collect();
    let region = HostBuf::region(len)?;
    region.write(0, &bytes)?;
    Ok(region)
}

fn compare(what: &str, seed: u64, region: &Region) -> Result<(), Failure> {
    let mut found = vec![0; region.len()];
    region.read(0, &mut found)?;
    let wrong = (0..).zip(&found).find(|(at, found)| byte_at(seed, *at) != **found);
    wrong.map_or(Ok(()), |(at, _)| Err(format!("byte {at} of the {what} is wrong").into()))
}

/// Tells the peer of memory, and learns of the peer's.
fn exchange(link: &Link, memory: RemoteKey) -> Result<RemoteKey, Failure> {
    link.notify(&memory.to_bytes())?;
    Ok(RemoteKey::from_bytes(&link.wait_notification(LIMIT)?)?)
}

fn client(host: &str, port: u16, len: usize) -> Result<(), Failure> {
    let domain = Domain::new(Config::default().sockets(3))?;
    let address = (host, port).to_socket_addrs()?.next().ok_or("no address")?;
    let link = domain.connect(address, LIMIT)?;
    let readable = filled(SEEDS[2], len)?;
    let readable = domain.register(&readable, Access::REMOTE_READ)?;
    let remote = exchange(&link, readable.remote())?;
    let sent = link.isend(&filled(SEEDS[0], len)?)?;
    let written = link.write(&filled(SEEDS[1], len)?, remote)?;
    link.notify(b"written")?;
    link.wait(sent, LIMIT)?;
    link.wait(written, LIMIT)?;
    // The server reads meanwhile.
    link.wait_notification(LIMIT)?;
    Ok(link.close(LIMIT)?)
}

fn server(queues: &QueueChoice, port: u16, len: usize) -> Result<(), Failure> {
    let gpu: Arc<dyn Gpu> = Arc::new(SimtDevice::new(SimtConfig::default())?);
    let bound = queues.bind(&gpu, DMABUF)?;
    let queues = &bound.queues().clone();
    println!("bound: {}", bound.describe());
    // Once more is refused, with advice.
    let again = BoundQueues::bind(queues, &gpu, DMABUF).err();
    println!("again: {}", again.ok_or("a queue was bound twice")?);
    let absent = Queues { numbers: vec![9], ..queues.clone() };
    let refusal = BoundQueues::bind(&absent, &gpu, DMABUF).err();
    println!("queue 9: {}", refusal.ok_or("a queue that is not there was bound")?);
    let unpack =
        UnpackConfig { way: warpverbs_devmem::UnpackWay::from_env()?, ..Default::default() };
    let device = DeviceMemory { sockets: Arc::new(bound), gpu, unpack };
    let domain = Domain::receiving(Config::default().sockets(3), Receive::Device(device))?;
    let mut listener = domain.listen(([0, 0, 0, 0], port).into())?;
    println!("listening at {}", listener.address());
    let link = listener.accept(&domain, LIMIT)?;
    println!("{}", link.explain());
    let [message, writable, read] = [(); 3].map(|()| HostBuf::region(len));
    let (message, writable, read) = (message?, writable?, read?);
    let registered = domain.register(&writable, Access::REMOTE_WRITE)?;
    let received = link.irecv(&message)?;
    let remote = exchange(&link, registered.remote())?;
    link.wait(received, LIMIT)?;
    compare("message", SEEDS[0], &message)?;
    link.wait_notification(LIMIT)?;
    compare("write", SEEDS[1], &writable)?;
    let reading = link.read(&read, remote)?;
    link.wait(reading, LIMIT)?;
    compare("read", SEEDS[2], &read)?;
    let (placed, peer) = (link.placed(), link.peer()?);
    println!("a message, a write and a read of {len} bytes from {peer}, compared: {placed}");
    link.notify(b"read")?;
    link.close(LIMIT)?;
    if placed.device < 2 * len as u64 {
        return Err("too few bytes were in device memory".into());
    }
    Ok(())
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [role, place, port, bytes] = arguments.as_slice() else {
        return Err(
            "usage: device_memory server INTERFACE:QUEUE|auto or client HOST PORT BYTES".into()
        );
    };
    let (port, bytes) = (port.parse()?, bytes.parse()?);
    match role.as_str() {
        "server" => server(&place.parse()?, port, bytes),
        "client" => client(place, port, bytes),
        other => Err(format!("no role is called {other:?}").into()),
    }
}
