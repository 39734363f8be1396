//! Instructions of one `parse` of an 8-byte WRITE, to be counted from outside:
//!
//! ```text
//! cargo build --release -p warpverbs-ionic --example ionic_parse_cost
//! valgrind --tool=callgrind --callgrind-out-file=/dev/null target/release/examples/ionic_parse_cost 100000
//! ```
//!
//! The argument is the number of WQEs; the cost of one is the difference between two runs.

use std::hint::black_box;
use warpverbs_ionic::body::WQE;
use warpverbs_ionic::opcode::Protocol;
use warpverbs_ionic::ring::Position;
use warpverbs_ionic::wqe::{build, parse};
use warpverbs_rdma::{Data, Op, Remote, SendFlags, Sge, WorkRequest};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let count: u32 = std::env::args().nth(1).ok_or("expected a number of WQEs")?.parse()?;
    let sges = [Sge::new(0x2000, 8, 0x200)];
    let op = Op::Write(Remote::new(0x1000, 0x100));
    let request = WorkRequest { id: 0, op, data: Data::Sges(&sges), flags: SendFlags::empty() };
    let mut raw = [0; WQE];
    let at = Position { counter: 7, log_depth: 8 };
    build(&mut raw, at, Protocol::V2, &request)?;

    let mut sum = 0_u64;
    for _ in 0..count {
        sum = sum.wrapping_add(one(black_box(&raw), black_box(at)));
    }
    println!("{sum:#x}");
    Ok(())
}

/// Parses and looks at everything an engine would.
#[inline(never)]
fn one(raw: &[u8; WQE], at: Position) -> u64 {
    match parse(raw, at, Protocol::V2) {
        Ok(posted) => match posted.op {
            Op::Write(remote) => {
                let local =
                    posted.local.iter().map(|sge| sge.addr ^ u64::from(sge.len ^ sge.lkey.0));
                let flags = u64::from(posted.flags.bits());
                local.fold(remote.addr ^ u64::from(remote.rkey.0), u64::wrapping_add) + flags
            }
            _ => posted.byte_len(),
        },
        Err(violation) => violation.field().len() as u64,
    }
}
