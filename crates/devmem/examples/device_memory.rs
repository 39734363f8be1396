//! A stream over TCP whose payload the kernel puts into a dmabuf. Needs an interface that can do it,
//! and root.
//!
//! ```text
//! device_memory server INTERFACE PORT BYTES     # on one host
//! device_memory client HOST PORT BYTES          # on another
//! ```
//!
//! The server binds host memory (`/dev/udmabuf`) to receive queue 0, accepts one connection, compares
//! every byte where the kernel put it, returns every token, and counts where the bytes were.

use std::error::Error;
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};
use warpverbs_devmem::kernel::{Binding, HostDmabuf, Interface, Netdev};
use warpverbs_devmem::receive::{DeviceReceiver, Limits};
use warpverbs_devmem::{Fragment, Received, Receiver as _, Source};
use warpverbs_gpu::Buffer;
use warpverbs_mem::HostBuf;

/// Smaller than the stream: pages have to be used again.
const DMABUF: u64 = 8 << 20;
const LANDING: usize = 1 << 20;
const LIMIT: Duration = Duration::from_secs(100);

type Failure = Box<dyn Error + Send + Sync>;

fn byte_at(position: u64) -> u8 {
    (position.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 53) as u8
}

fn client(host: &str, port: u16, bytes: u64) -> Result<(), Failure> {
    let mut stream = TcpStream::connect((host, port))?;
    let mut at = 0;
    while at < bytes {
        // Pieces of many lengths, so that packets are not all full.
        let len = (at % 77_777 + 1).min(bytes - at);
        let piece: Vec<u8> = (at..at + len).map(byte_at).collect();
        stream.write_all(&piece)?;
        at += len;
    }
    println!("sent {bytes} bytes");
    Ok(())
}

/// Bytes and fragments by kind: in the dmabuf, linear, plain.
#[derive(Debug, Default)]
struct Counts {
    bytes: [u64; 3],
    fragments: [u64; 3],
}

fn check(receiver: &DeviceReceiver, fragment: &Fragment) -> Result<(), Failure> {
    let memory = receiver.memory(fragment.source).ok_or("memory of a fragment")?;
    let mut found = vec![0; fragment.len as usize];
    memory.region().read(fragment.offset, &mut found)?;
    let wrong = (fragment.at..).zip(&found).find(|(at, found)| byte_at(*at) != **found);
    wrong.map_or(Ok(()), |(at, _)| Err(format!("byte {at} is wrong: {fragment:?}").into()))
}

fn receive(receiver: &mut DeviceReceiver) -> Result<Counts, Failure> {
    let (start, mut counts, mut held) = (Instant::now(), Counts::default(), Vec::new());
    loop {
        let end = match receiver.receive(LANDING as u64, &mut held)? {
            Received::Bytes(_) => false,
            Received::WouldBlock => {
                std::thread::sleep(Duration::from_micros(100));
                false
            }
            Received::End => true,
        };
        for fragment in &held {
            check(receiver, fragment)?;
            let kind = match fragment.source {
                Source::Dmabuf(_) => 0,
                Source::Linear => 1,
                Source::Plain => 2,
            };
            counts.bytes[kind] += fragment.len;
            counts.fragments[kind] += 1;
        }
        receiver.give_back(&held)?;
        held.clear();
        if end {
            receiver.return_tokens()?;
            return Ok(counts);
        }
        if start.elapsed() > LIMIT {
            return Err(format!("no end after {LIMIT:?}: {counts:?}").into());
        }
    }
}

fn server(interface: &str, port: u16, bytes: u64) -> Result<(), Failure> {
    let memory = HostDmabuf::new(DMABUF)?;
    let interface = Interface::named(interface)?;
    let binding: Binding = Netdev::open()?.bind_receive(&interface, &[0], memory.as_fd())?;
    println!("bound {DMABUF} bytes to queue 0 of {} as dmabuf {}", interface.name, binding.id());
    // Once more is refused, with advice.
    let refusal = Netdev::open()?.bind_receive(&interface, &[0], memory.as_fd()).err();
    println!("again: {}", refusal.ok_or("a queue was bound twice")?);
    let refusal = Netdev::open()?.bind_receive(&interface, &[9], memory.as_fd()).err();
    println!("queue 9: {}", refusal.ok_or("a queue that is not there was bound")?);
    let (stream, peer) = TcpListener::bind(("0.0.0.0", port))?.accept()?;
    let landing = Buffer::of_region(HostBuf::region(LANDING)?);
    let mut receiver = DeviceReceiver::new(stream.into(), landing, Limits::default());
    receiver.bind(binding.id(), memory.memory().clone());
    let counts = receive(&mut receiver)?;
    let ledger = receiver.incoming().ledger();
    println!("{bytes} bytes from {peer}, compared: {counts:?}");
    println!("tokens held: {}, not returned: {}", ledger.held(), ledger.unreturned());
    if counts.bytes.iter().sum::<u64>() != bytes || counts.bytes[0] < bytes / 2 {
        return Err("bytes are missing, or not in device memory".into());
    }
    Ok(())
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [role, place, port, bytes] = arguments.as_slice() else {
        return Err("usage: device_memory server INTERFACE|client HOST PORT BYTES".into());
    };
    let (port, bytes) = (port.parse()?, bytes.parse()?);
    match role.as_str() {
        "server" => server(place, port, bytes),
        "client" => client(place, port, bytes),
        other => Err(format!("no role is called {other:?}").into()),
    }
}
