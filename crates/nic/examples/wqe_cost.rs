//! The engine's cost for one 8-byte WRITE in queues of each format: instructions, by the difference of two
//! runs under `valgrind --tool=callgrind`, and by time, in turns. One WQE in 32 is
//! signalled.
//!
//! ```text
//! cargo run --release -p warpverbs-nic --example wqe_cost
//! ```

mod counting;

use counting::instructions;
use std::error::Error;
use std::time::{Duration, Instant};
use warpverbs_dev::{Poster, QueueFormat, remote, sge};
use warpverbs_mem::{Access, HostBuf};
use warpverbs_nic::{Config, CqMode, QpAttrs, SoftNic};
use warpverbs_rdma::{Data, Op, SendFlags, WorkRequest};

/// WQEs between two signalled ones.
const BATCH: usize = 32;
/// Batches of one round, of a millisecond.
const BATCHES: usize = 2000;
/// Rounds, in which the formats take turns.
const ROUNDS: usize = 200;

/// Posts and executes `batches` batches; the time spent in the engine.
fn execute(format: QueueFormat, batches: usize) -> Result<Duration, Box<dyn Error + Send + Sync>> {
    let nic = SoftNic::new(Config::default())?;
    let pd = nic.alloc_pd();
    let make = || Poster::new(&nic, &pd, format, (CqMode::Ring, 8));
    let (mut a, mut b) = (make()?, make()?);
    let (here, there) = (HostBuf::region(4096)?, HostBuf::region(4096)?);
    let mr_a = nic.reg_mr(&pd, &here, Access::all())?;
    let mr_b = nic.reg_mr(&pd, &there, Access::all())?;
    let (init, rts) = (QpAttrs::init(Access::all()), QpAttrs::rts());
    let (to_a, to_b) = (QpAttrs::rtr(a.qp.qpn()), QpAttrs::rtr(b.qp.qpn()));
    a.connect(&init, &to_b, &rts);
    b.connect(&init, &to_a, &rts);
    let (from, op) = ([sge(&mr_a, 0, 8)], Op::Write(remote(&mr_b, 0)));
    let mut engine = Duration::ZERO;
    for _ in 0..batches {
        for i in 1..=BATCH {
            let flags = if i == BATCH { SendFlags::SIGNALED } else { SendFlags::UNSIGNALED };
            a.put(&WorkRequest { id: 0, op, data: Data::Sges(&from), flags });
        }
        a.ring();
        let start = Instant::now();
        // A step takes so many units of the queue, which may be fewer WQEs than a batch.
        let done = (0..4).any(|_| {
            nic.step();
            a.poll_send().is_some()
        });
        engine += start.elapsed();
        if !done {
            return Err("a batch was not completed".into());
        }
    }
    Ok(engine)
}

/// Nanoseconds of a WQE in each format: those of its fastest round, which other programs have disturbed least.
fn times() -> Result<Vec<f64>, Box<dyn Error + Send + Sync>> {
    let mut fastest = vec![f64::INFINITY; QueueFormat::ALL.len()];
    for _ in 0..ROUNDS {
        for (&format, fastest) in QueueFormat::ALL.iter().zip(&mut fastest) {
            let time = execute(format, BATCHES)?.as_nanos() as f64;
            *fastest = fastest.min(time / (BATCHES * BATCH) as f64);
        }
    }
    Ok(fastest)
}

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut args = std::env::args().skip(1);
    if let (Some(format), Some(batches)) = (args.next(), args.next()) {
        execute(QueueFormat::ALL[format.parse::<usize>()?], batches.parse()?)?;
        return Ok(());
    }
    let times = times()?;
    let mut mlx5 = 0.0;
    for (number, format) in QueueFormat::ALL.into_iter().enumerate() {
        let of = |batches: usize| {
            instructions("*SoftNic*step*", &[number.to_string(), batches.to_string()])
        };
        let (few, many) = (of(100)?, of(1100)?);
        let per_wqe = (many - few) as f64 / (1000 * BATCH) as f64;
        if number == 0 {
            mlx5 = per_wqe;
        }
        let most = if number == 0 { 290.0 } else { 1.3 * mlx5 };
        let beside = per_wqe / mlx5;
        println!(
            "{format:?}: {per_wqe:.1} instructions per WQE, {beside:.2} × mlx5's, at most {most:.0}; \
             {:.1} ns, {:.2} × mlx5's",
            times[number],
            times[number] / times[0]
        );
    }
    Ok(())
}
