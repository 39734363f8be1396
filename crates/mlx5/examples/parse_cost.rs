//! Instructions of one `parse` of an 8-byte WRITE, to be counted from outside:
//!
//! ```text
//! cargo build --release -p warpverbs-mlx5 --example parse_cost
//! valgrind --tool=callgrind --callgrind-out-file=/dev/null target/release/examples/parse_cost 100000
//! ```
//!
//! The argument is the number of WQEs; the cost of one is the difference between two runs.

use std::hint::black_box;
use warpverbs_mlx5::num::{Lkey, Qpn, Rkey, WQEBB, WqeIndex};
use warpverbs_mlx5::wqe::{Op, Payload, Position, Remote, Sge, WqeBuilder, parse};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let count: u32 = std::env::args().nth(1).ok_or("expected a number of WQEs")?.parse()?;
    let qpn = Qpn::new(0x12e).ok_or("24 bits")?;
    let at = Position { qpn, index: WqeIndex(7) };
    let remote = Remote { addr: 0x1000, rkey: Rkey(0x100) };
    let sge = Sge { addr: 0x2000, len: 8, lkey: Lkey(0x200) };
    let mut raw = [0; WQEBB];
    WqeBuilder::write(&mut raw, at, remote).sge(sge).finish()?;

    let mut sum = 0_u64;
    for _ in 0..count {
        sum = sum.wrapping_add(one(black_box(&raw), black_box(at)));
    }
    println!("{sum:#x}");
    Ok(())
}

/// Parses and looks at everything an engine would.
#[inline(never)]
fn one(raw: &[u8; WQEBB], at: Position) -> u64 {
    match parse(raw, at) {
        Ok(wqe) => match wqe.op {
            Op::Write { remote, payload: Payload::Sges(sges), imm: None } => {
                let flags = u64::from(wqe.flags.completion.is_signaled()) + wqe.wqebbs() as u64;
                let local = sges.iter().map(|sge| sge.addr ^ u64::from(sge.len ^ sge.lkey.0));
                local.fold(remote.addr ^ u64::from(remote.rkey.0), u64::wrapping_add) + flags
            }
            other => other.byte_len(),
        },
        Err(violation) => violation.field().len() as u64,
    }
}
