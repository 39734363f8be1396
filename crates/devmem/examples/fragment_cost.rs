//! Cost of a fragment of 4 KiB in device memory: the parser and the ledger, from control data to
//! the tokens that return; and the submission of a batch that a kernel unpacks, without the kernel.
//! Instructions, by the difference of two runs under `valgrind --tool=callgrind`.
//!
//! ```text
//! cargo run --release -p warpverbs-devmem --example fragment_cost
//! ```

use std::error::Error;
use std::process::Command;
use std::time::Duration;
use warpverbs_devmem::receive::abi::{Announcement, DmabufCmsg};
use warpverbs_devmem::receive::{Incoming, Limits, Message};
use warpverbs_devmem::unpack::{AreaOffset, Move, UnpackConfig, UnpackWay, Unpacker};
use warpverbs_gpu::GpuChoice;
use zerocopy::IntoBytes as _;

/// Fragments of one `recvmsg`: 1 MiB.
const FRAGMENTS: u32 = 256;
const PAGE: u32 = 4096;
/// Under callgrind, on a busy machine.
const LIMIT: Duration = Duration::from_secs(300);
/// Pages of the dmabuf.
const PAGES: u32 = 1024;

type Failure = Box<dyn Error + Send + Sync>;

/// The control data of one message. Pages are in any order, tokens dense.
fn control(round: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    for i in 0..FRAGMENTS {
        let number = round * FRAGMENTS + i;
        let fragment = DmabufCmsg {
            frag_offset: u64::from(number * 193 % PAGES * PAGE),
            frag_size: PAGE,
            frag_token: number % (2 * FRAGMENTS),
            dmabuf_id: 1,
            flags: 0,
        };
        bytes.extend(Announcement::dmabuf(fragment).as_bytes());
    }
    bytes
}

/// Receives and gives back `messages` messages; every token returns.
#[inline(never)]
fn receive_messages(messages: u32) -> Result<u64, Failure> {
    let controls: [Vec<u8>; 2] = std::array::from_fn(|round| control(round as u32));
    let mut incoming = Incoming::new(Limits { watermark: FRAGMENTS, ..Limits::default() });
    incoming.bind(1, u64::from(PAGES * PAGE));
    let mut fragments = Vec::new();
    for message in 0..messages as usize {
        let bytes = u64::from(FRAGMENTS * PAGE);
        incoming.room(bytes);
        let control = &controls[message % 2];
        incoming.received(Message { bytes, control, truncated: false }, &mut fragments)?;
        incoming.give_back(&fragments)?;
        fragments.clear();
        let tokens = incoming.ledger_mut();
        if tokens.is_due() {
            let freed = tokens.batch().iter().map(|range| range.token_count).sum();
            tokens.returned(freed)?;
        }
    }
    Ok(incoming.position())
}

/// Submits one batch of `count` shuffled fragments to a kernel of the host SIMT device.
#[inline(never)]
fn submit(count: u64) -> Result<(), Failure> {
    let gpu = warpverbs_gpu::open(GpuChoice::Simt)?;
    let config = UnpackConfig { way: UnpackWay::Kernel, ..UnpackConfig::default() };
    let mut unpacker = Unpacker::new(gpu.clone(), config);
    let page = u64::from(PAGE);
    let bytes = (count * page) as usize;
    let mut area =
        || Ok::<_, Failure>(unpacker.add(gpu.alloc(bytes, warpverbs_gpu::Place::Device)?));
    let (from, to) = (area()?, area()?);
    let at = |area, n| AreaOffset { area, offset: n * page };
    // An odd number and a power of two have no common factor.
    let shuffled = |n| Move { from: at(from, n * 193 % count), to: at(to, n), len: page };
    let moves: Vec<_> = (0..count).map(shuffled).collect();
    // The first one loads the kernel and makes the ring.
    let ticket = unpacker.submit(&moves[..1])?;
    unpacker.wait(ticket, LIMIT)?;
    let ticket = unpacker.submit(&moves)?;
    Ok(unpacker.wait(ticket, LIMIT)?)
}

/// Instructions of this program with these arguments; of one function if it is named.
fn instructions(what: &str, count: u64, function: Option<&str>) -> Result<u64, Failure> {
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    valgrind.args(function.map(|name| format!("--toggle-collect={name}")));
    valgrind.arg(std::env::current_exe()?).args([what, &count.to_string()]);
    let output = valgrind.output()?;
    let text = String::from_utf8_lossy(&output.stderr);
    let count = text.lines().find_map(|line| line.split_once("Collected :"));
    let (_, count) = count.ok_or_else(|| format!("no count in callgrind's output:\n{text}"))?;
    Ok(count.trim().parse()?)
}

fn main() -> Result<(), Failure> {
    if let Some(what) = std::env::args().nth(1) {
        let count = std::env::args().nth(2).ok_or("how many?")?.parse()?;
        return match what.as_str() {
            "messages" => receive_messages(count as u32).map(|_| ()),
            _ => submit(count),
        };
    }
    let each = |what, few, many, fragments: u32, function| {
        let more = instructions(what, many, function)? - instructions(what, few, function)?;
        Ok::<_, Failure>(more as f64 / ((many - few) as f64 * f64::from(fragments)))
    };
    let received = each("messages", 100, 1100, FRAGMENTS, None)?;
    println!("{received:.1} instructions per fragment received and given back, at most 60");
    let submitted = each("moves", 256, 2048, 1, Some("*Unpacker::submit*"))?;
    println!("{submitted:.1} instructions per fragment submitted to the kernel");
    Ok(())
}
