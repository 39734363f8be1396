//! What a fragment of 4 KiB in device memory costs the parser and the ledger, from control data to
//! the tokens that return: instructions, by the difference of two runs under
//! `valgrind --tool=callgrind`.
//!
//! ```text
//! cargo run --release -p warpverbs-devmem --example fragment_cost
//! ```

use std::error::Error;
use std::process::Command;
use warpverbs_devmem::receive::abi::{Announcement, DmabufCmsg};
use warpverbs_devmem::receive::{Incoming, Limits, Message};
use zerocopy::IntoBytes as _;

/// Fragments of one `recvmsg`: 1 MiB.
const FRAGMENTS: u32 = 256;
const PAGE: u32 = 4096;
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
        if incoming.is_due() {
            let freed = incoming.batch().iter().map(|range| range.token_count).sum();
            incoming.returned(freed)?;
        }
    }
    Ok(incoming.position())
}

/// Instructions of the whole program with `messages` messages.
fn instructions(messages: u32) -> Result<u64, Failure> {
    let options = ["--tool=callgrind", "--callgrind-out-file=/dev/null"];
    let mut valgrind = Command::new("valgrind");
    valgrind.args(options).arg(std::env::current_exe()?).arg(messages.to_string());
    let output = valgrind.output()?;
    let text = String::from_utf8_lossy(&output.stderr);
    let count = text.lines().find_map(|line| line.split_once("Collected :"));
    let (_, count) = count.ok_or_else(|| format!("no count in callgrind's output:\n{text}"))?;
    Ok(count.trim().parse()?)
}

fn main() -> Result<(), Failure> {
    if let Some(messages) = std::env::args().nth(1) {
        receive_messages(messages.parse()?)?;
        return Ok(());
    }
    let (few, many) = (instructions(100)?, instructions(1100)?);
    let each = (many - few) as f64 / f64::from(1000 * FRAGMENTS);
    println!("{each:.1} instructions per fragment, at most 60");
    Ok(())
}
