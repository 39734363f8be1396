//! The engine's cost for one 8-byte WRITE: instructions, by the difference of two runs under
//! `valgrind --tool=callgrind`, and WQEs per second. One WQE in 32 is signalled.
//!
//! ```text
//! cargo run --release -p warpverbs-nic --example wqe_cost
//! ```

mod counting;

use counting::instructions;
use std::error::Error;
use std::time::{Duration, Instant};
use warpverbs_dev::{Pair, PairConfig, PortConfig, remote, sge};
use warpverbs_mlx5::wqe::WqeBuilder;

/// WQEs between two signalled ones.
const BATCH: usize = 32;

/// Posts and executes `batches` batches; the time spent in the engine.
fn execute(batches: usize) -> Result<Duration, Box<dyn Error + Send + Sync>> {
    let port = PortConfig { log_sq: 10, ..PortConfig::default() };
    let mut pair = Pair::new(PairConfig { a: port, ..PairConfig::default() })?;
    let (from, to) = (sge(&pair.mr_a, 0, 8), remote(&pair.mr_b, 0));
    let mut engine = Duration::ZERO;
    for _ in 0..batches {
        for i in 1..=BATCH {
            pair.a.put_wqe(|buf, at| {
                let wqe = WqeBuilder::write(buf, at, to).sge(from);
                if i == BATCH { wqe.signaled() } else { wqe }
            });
        }
        pair.a.announce();
        let start = Instant::now();
        pair.nic.step();
        engine += start.elapsed();
        if pair.a.poll_send().is_none() {
            return Err("a batch was not completed".into());
        }
    }
    Ok(engine)
}

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    if let Some(batches) = std::env::args().nth(1) {
        execute(batches.parse()?)?;
        return Ok(());
    }
    let batches = 200_000;
    execute(batches / 10)?;
    let engine = execute(batches)?;
    let wqes = (batches * BATCH) as f64;
    println!("engine: {:.1} M WQE/s", wqes / engine.as_secs_f64() / 1e6);
    let of = |batches: usize| instructions("*SoftNic*step*", &[batches.to_string()]);
    let (few, many) = (of(100)?, of(1100)?);
    let per_wqe = (many - few) as f64 / (1000 * BATCH) as f64;
    println!("engine: {per_wqe:.1} instructions per WQE, at most 290");
    Ok(())
}
