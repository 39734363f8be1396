//! Several processes, on one machine or more, in each of which a kernel sends messages to all and
//! receives theirs, over RoCEv2. The kernel checks length, order and immediate of every message.
//!
//! ```text
//! dist_send_recv --procs 2
//! dist_send_recv --rank R --world-size N --master-addr HOST --master-port PORT   (or under a launcher)
//! ```

mod common;

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use common::job::{self, Job};
use common::{Session, compare, parse_size, poison, sample, within, words};
use std::process::ExitCode;
use warpverbs::gpu::{Dim, KernelPtr, Place};
use warpverbs::kernels::dist::{Exchange, IMAGE, Offer, Peer};
use warpverbs::rendezvous::World;
use warpverbs::transport::Access;

/// Kernels of several processes send each other messages
#[derive(Parser)]
#[command(version)]
struct Flags {
    #[command(flatten)]
    job: Job,
    /// Bytes of a message, as 8, 64K or 1M
    #[arg(short = 'b', long, default_value = "64K", value_parser = parse_size)]
    bytes: u64,
    /// Messages to each rank
    #[arg(short = 'n', long, default_value_t = 64)]
    messages: u32,
}

/// Receives that are offered at a time. A sender has one message more, and sends them by turns.
const WINDOW: u32 = 8;

fn main() -> ExitCode {
    common::main(|flags: Flags| {
        within("--bytes", flags.bytes, 1, 64 << 20)?;
        within("--messages", flags.messages, 1, 1_000_000)?;
        let plan = format!("dist_send_recv -b {} -n {}", flags.bytes, flags.messages);
        flags.job.run(&plan, |session, world| exchange(session, world, &flags))
    })
}

/// The messages of a rank, as it sends them by turns.
fn messages(rank: u32, bytes: u64) -> Vec<Vec<u8>> {
    let message = |slot| sample(u64::from(rank) << 8 | u64::from(slot), bytes as usize);
    (0..=WINDOW).map(message).collect()
}

fn exchange(session: &Session, world: &mut World, flags: &Flags) -> Result<String> {
    let me = world.rank();
    let (gpu, ranks, size) = (&session.gpu, world.world_size(), flags.bytes);
    gpu.load(&IMAGE)?;

    // This rank's messages, and for each rank the places that its messages are received to.
    let source = session.buffer(&messages(me, size).concat(), Access::empty())?;
    let room = |from| poison(&messages(from, size)[..WINDOW as usize].concat());
    let endpoints = job::connect(session, world, WINDOW)?;
    let inbox = |(from, _): &(u32, _)| session.buffer(&room(*from), Access::LOCAL_WRITE);
    let inboxes = endpoints.iter().map(inbox).collect::<Result<Vec<_>>>()?;
    let peers = endpoints.iter().zip(&inboxes).map(|((_, endpoint), inbox)| {
        let (qp, local) = (endpoint.device_qp(), source.local().into());
        Peer { qp, local, inbox: inbox.local().into() }
    });
    let peers = KernelPtr::upload(&**gpu, &peers.collect::<Vec<_>>())?;

    // A kernel's report: its first bad status, its start and end, and messages that are wrong.
    let reports = [gpu.alloc(32, Place::Device)?, gpu.alloc(32, Place::Device)?];
    let count = ranks - 1;
    let (bytes, window, messages) = (u32::try_from(size)?, WINDOW, flags.messages);
    let report = KernelPtr::new(&reports[0]);
    let offer = Offer { peers: peers.clone(), count, bytes, window, messages, report };
    session.run(&offer, Dim::new(1, 32))?;
    world.barrier("offered")?;

    // Two warps for each queue pair: one sends, the other receives.
    let report = KernelPtr::new(&reports[1]);
    let kernel = Exchange { peers, count, bytes, window, messages, report };
    session.run(&kernel, Dim::new(count, 2 * gpu.info().warp_size))?;
    for (peer, endpoint) in &endpoints {
        let health = endpoint.health()?;
        ensure!(health.is_ok(), "work with rank {peer} failed: {health}");
    }
    let [status, start, end, wrong] = words(gpu, &reports[1])?;
    ensure!(status == 0, "the kernel ended with status {status:#x}");
    ensure!(wrong == 0, "{wrong} messages have another length, order or immediate than sent");

    // Each place holds the last message that went there.
    let mut found = vec![0; size as usize];
    for ((from, _), inbox) in endpoints.iter().zip(&inboxes) {
        let sent = self::messages(*from, size);
        for number in messages.saturating_sub(WINDOW)..messages {
            inbox.read(u64::from(number % WINDOW) * size, &mut found)?;
            compare(&sent[(number % (WINDOW + 1)) as usize], &found)
                .with_context(|| format!("message {number} from rank {from}"))?;
        }
    }
    let seconds = (end - !start) as f64 / 1e9;
    session.facts([("bytes", size), ("messages", messages.into())]);
    session.fact("seconds", seconds);
    let rate = f64::from(messages * count) * size as f64 / seconds / 1e9;
    let each =
        format!("{messages} messages of {size} bytes from each of {ranks} ranks to all others");
    Ok(format!("{each}, once and in order, {rate:.3} GB/s"))
}
