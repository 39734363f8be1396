//! Debian's perftest, unmodified: on Linux's RoCEv2 in one guest, and by `warpverbs run` on our NIC
//! in the other.

use super::Options;
use super::bed::{Bed, FIRST, SECOND};
use super::image::find;
use crate::bench_verbs::column;
use crate::figures::median;
use crate::workspace;
use anyhow::Result;
use clap::Args;
use std::time::{Duration, Instant};
use warpverbs_bench::units;

/// For one run on busy, emulated machines, with room.
const LIMIT: Duration = Duration::from_secs(120);

/// What perftest prints when a QP's retries are exceeded: emulated guests lose packets, or stand
/// still, while the machine is busy.
const LOST: &str = "Failed status 12";
/// How often a program is run that fails by that.
const ATTEMPTS: u32 = 4;
/// Where perftest's servers listen.
pub(super) const PORT: u16 = 18515;

/// What is run.
#[derive(Args)]
pub(crate) struct Rounds {
    /// Turns of each pair of NICs in the table of rates; medians count
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// Builds our NIC in release
    #[arg(long)]
    release: bool,
}

/// The NIC that a guest's program uses.
#[derive(Clone, Copy)]
enum Side {
    Rxe,
    Ours,
}

/// Programs that run with one NIC of each kind, either of them as the server. As mlx5 devices do, ours
/// takes 16 READs or atomics at a time, rxe 128.
const MIXED: [&str; 7] = [
    "ib_write_bw -n 300 -s 65536",
    "ib_write_bw -n 200 -s 8 -q 17 -t 8",
    "ib_write_lat -n 100 -s 8",
    "ib_read_bw -n 100 -s 65536 -o 16",
    "ib_send_bw -n 200 -s 4096",
    "ib_send_lat -n 100 -s 8",
    "ib_atomic_lat -n 50 -o 16",
];

/// Rows of the table: the server's NIC, the client's, and a name.
const PAIRS: [(Side, Side, &str); 4] = [
    (Side::Rxe, Side::Rxe, "Linux's at both ends"),
    (Side::Rxe, Side::Ours, "ours writes to Linux's"),
    (Side::Ours, Side::Rxe, "Linux's writes to ours"),
    (Side::Ours, Side::Ours, "ours at both ends"),
];

/// Four seconds (`-D`) without the first and the last one (`-f`).
const TIMED: Duration = Duration::from_secs(2);

/// Wanted ratio of the last row's rate to the first one's.
const WANTED: f64 = 1.5;

/// rxe takes the UDP port of RoCEv2 for itself, so a guest has one of the two NICs.
fn prepare(bed: &mut Bed, sides: [Side; 2]) -> Result<()> {
    for (guest, side) in [&mut bed.one, &mut bed.two].into_iter().zip(sides) {
        // Fails where there is none.
        guest.run("rxe-down", LIMIT)?;
        if matches!(side, Side::Rxe) {
            Bed::rxe(guest)?;
        }
    }
    Ok(())
}

fn line(side: Side, own: &str, line: &str) -> String {
    let (before, device) = match side {
        Side::Rxe => (String::new(), "-d rxe0 -x 1"),
        Side::Ours => (format!("warpverbs run --address {own} -- "), "-d mlx5_0 -x 0"),
    };
    // A second until a packet is sent again: emulated guests stand still for a while on busy machines.
    format!("{before}{line} {device} -F -u 18")
}

fn pair(bed: &mut Bed, sides: [Side; 2], program: &str) -> Result<String> {
    let [server, client] = sides;
    let client = format!("{} {FIRST}", line(client, SECOND, program));
    let server = line(server, FIRST, program);
    let mut attempt = 1;
    loop {
        match bed.pair_on(PORT, &server, &client, LIMIT) {
            Ok([_, text]) => return Ok(text),
            Err(error) if attempt < ATTEMPTS && format!("{error:#}").contains(LOST) => {
                println!("tried again, as packets were lost: {program}");
                attempt += 1;
            }
            Err(error) => return Err(error),
        }
    }
}

pub(crate) fn run(options: &Options, rounds: &Rounds) -> Result<()> {
    let mut words = vec!["--package", "warpverbs-cli", "--package", "warpverbs-preload"];
    let profile = if rounds.release { "release" } else { "debug" };
    words.extend(rounds.release.then_some("--release"));
    workspace::build(&words)?;
    let folder = workspace::target()?.join(profile);
    let programs = ["warpverbs", "libwarpverbs_preload.so"].map(|name| folder.join(name));
    let others = ["ib_read_bw", "ib_send_bw", "ib_send_lat", "ib_atomic_lat"];
    let others = others.map(|name| find(name, "perftest"));
    let programs = programs.into_iter().map(Ok).chain(others).collect::<Result<Vec<_>>>()?;
    let mut bed = Bed::boot(options, &programs)?;
    for sides in [[Side::Rxe, Side::Ours], [Side::Ours, Side::Rxe]] {
        prepare(&mut bed, sides)?;
        for program in MIXED {
            let began = Instant::now();
            pair(&mut bed, sides, program)?;
            let client = if matches!(sides[0], Side::Rxe) { "ours" } else { "Linux's" };
            println!("ok      {program}, {client} is the client ({:.1?})", began.elapsed());
        }
    }
    rates(&mut bed, rounds.rounds)
}

/// WRITEs of 8 bytes. A missed bound is printed, and is no failure.
fn rates(bed: &mut Bed, rounds: u32) -> Result<()> {
    let mut rates: [Vec<f64>; PAIRS.len()] = Default::default();
    for _ in 0..rounds {
        for ((server, client, _), rates) in PAIRS.iter().zip(&mut rates) {
            let sides = [*server, *client];
            prepare(bed, sides)?;
            let text = pair(bed, sides, "ib_write_bw -D 4 -f 1 -s 8")?;
            // The count, since perftest's clock may go wrong in emulated machines.
            rates.push(column(&text, 8, 1)? / TIMED.as_secs_f64());
        }
    }
    for ((_, _, name), rates) in PAIRS.iter().zip(&rates) {
        println!("8 bytes, {name}: {}", units::per_second(median(rates)));
    }
    let [first, .., last] = rates.each_ref().map(|rates| median(rates));
    println!("ours over Linux's, at both ends: {:.2}, wanted ≥ {WANTED}", last / first);
    Ok(())
}
