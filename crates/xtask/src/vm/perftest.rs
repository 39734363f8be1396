//! Debian's perftest, unmodified: on Linux's RoCEv2 in one guest, and by `warpverbs run` on our NIC
//! in the other.

use super::bed::{FIRST, Nic, SECOND};
use super::case::{Case, Part, Shown};
use super::image::find;
use crate::bench_verbs::column;
use crate::workspace;
use anyhow::Result;
use clap::Args;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use warpverbs_bench::output::{Bound, Finding};
use warpverbs_bench::stats::median;
use warpverbs_bench::units;

/// perftest's words when a QP's retries are exceeded: emulated guests lose packets, or stand
/// still, while the machine is busy.
const LOST: &str = "Failed status 12";
/// Where perftest's servers listen.
pub(super) const PORT: u16 = 18515;

/// How much is run.
#[derive(Args)]
pub(crate) struct Rounds {
    /// Turns of each pair of NICs in the table of rates; medians count
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// Builds our NIC in release
    #[arg(long)]
    release: bool,
}

impl Rounds {
    /// One round, of our NIC as tests have it.
    pub(super) fn one() -> Self {
        Self { rounds: 1, release: false }
    }
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
const PAIRS: [([Nic; 2], &str); 4] = [
    ([Nic::Rxe, Nic::Rxe], "Linux's at both ends"),
    ([Nic::Rxe, Nic::Soft], "ours writes to Linux's"),
    ([Nic::Soft, Nic::Rxe], "Linux's writes to ours"),
    ([Nic::Soft, Nic::Soft], "ours at both ends"),
];

/// Four seconds (`-D`) without the first and the last one (`-f`).
const TIMED: Duration = Duration::from_secs(2);

/// Wanted ratio of the last row's rate to the first one's.
const WANTED: Bound = Bound::AtLeast(1.5);

/// Both ends of a program, with the NIC that each guest has.
fn both(nics: [Nic; 2], program: &str) -> [String; 2] {
    let line = |nic: Nic, own: &str| {
        let (before, device) = match nic {
            Nic::Rxe => (String::new(), "-d rxe0 -x 1"),
            Nic::Soft => (format!("warpverbs run --address {own} -- "), "-d mlx5_0 -x 0"),
        };
        // A second until a packet is sent again: emulated guests stand still for a while on busy
        // machines.
        format!("{before}{program} {device} -F -u 18")
    };
    [line(nics[0], FIRST), format!("{} {FIRST}", line(nics[1], SECOND))]
}

pub(super) fn part(rounds: &Rounds) -> Result<Part> {
    let mut words = vec!["--package", "warpverbs-cli", "--package", "warpverbs-preload"];
    let profile = if rounds.release { "release" } else { "debug" };
    words.extend(rounds.release.then_some("--release"));
    workspace::build(&words)?;
    let folder = workspace::target()?.join(profile);
    let programs = ["warpverbs", "libwarpverbs_preload.so"].map(|name| folder.join(name));
    let others = ["ib_read_bw", "ib_send_bw", "ib_send_lat", "ib_atomic_lat"];
    let others = others.map(|name| find(name, "perftest"));
    let programs = programs.into_iter().map(Ok).chain(others).collect::<Result<Vec<_>>>()?;
    let case = |nics: [Nic; 2], name: String, program| {
        let case = Case::pair(name, nics, both(nics, program)).on_port(PORT);
        case.again(LOST).shown(Shown::Nothing)
    };
    let mut cases = Vec::new();
    for nics in [[Nic::Rxe, Nic::Soft], [Nic::Soft, Nic::Rxe]] {
        let client = if nics[0] == Nic::Rxe { "ours" } else { "Linux's" };
        cases.extend(
            MIXED.map(|program| case(nics, format!("{program}, {client} is the client"), program)),
        );
    }
    let rates: Rc<RefCell<[Vec<f64>; PAIRS.len()]>> = Rc::default();
    for round in 1..=rounds.rounds {
        for (at, (nics, name)) in PAIRS.into_iter().enumerate() {
            let rates = rates.clone();
            let is_last = round == rounds.rounds && at + 1 == PAIRS.len();
            let case = case(nics, format!("8 bytes, {name}"), "ib_write_bw -D 4 -f 1 -s 8");
            cases.push(case.check(move |_, [_, text]| {
                // The count, since perftest's clock may go wrong in emulated machines.
                let rate = column(text, 8, 1)? / TIMED.as_secs_f64();
                rates.borrow_mut()[at].push(rate);
                let all = if is_last { medians(&rates.borrow()) } else { String::new() };
                Ok(format!("{}\n{all}", units::per_second(rate)))
            }));
        }
    }
    Ok(Part { name: "perftest", programs, cases })
}

/// Rates of WRITEs of 8 bytes. A missed bound is printed, and is no failure.
fn medians(rates: &[Vec<f64>; PAIRS.len()]) -> String {
    let [first, .., last] = rates.each_ref().map(|rates| median(rates));
    let over = Finding::new("ours over Linux's, at both ends", last / first, WANTED);
    let mut lines = over.to_string();
    for ((_, name), rates) in PAIRS.iter().zip(rates) {
        lines += &format!("\nmedian, {name}: {}", units::per_second(median(rates)));
    }
    lines
}
