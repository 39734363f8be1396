//! The workspace's own programs between two guests.

use super::bed::{Bed, FIRST, SECOND};
use super::guest::Guest;
use super::{Options, build};
use anyhow::{Result, ensure};
use std::time::{Duration, Instant};

/// For one step on emulated machines, with room.
const LIMIT: Duration = Duration::from_secs(120);
/// For a look at something.
const SHORT: Duration = Duration::from_secs(20);

/// What consumes the queues in a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Nic {
    /// Ours, in user space.
    Soft,
    /// Linux's `rdma_rxe`, through libibverbs.
    Rxe,
}

impl Nic {
    /// As `--nic` has it.
    fn word(self) -> &'static str {
        match self {
            Self::Soft => "soft",
            Self::Rxe => "rxe0",
        }
    }
}

/// Commands that must succeed.
struct Step {
    name: String,
    nics: [Nic; 2],
    work: Work,
}

/// Who has something to do.
enum Work {
    /// The first guest alone.
    One(String),
    /// A command in each guest, the first of them a second earlier; whose words are shown.
    Pair([String; 2], usize),
}

/// Examples that ranks run, and what makes them small enough for an emulated machine.
const RANKS: [(&str, &str); 3] = [
    ("dist_write", "-b 8 -e 64K -f 16 -n 20 -w 2"),
    ("dist_send_recv", "-b 8 -e 64K -f 16 -n 20 -w 2"),
    ("dist_atomic", "-n 1 -w 0 -c 1 -t 32"),
];
/// The NICs of the two guests, in an order that changes little.
const NICS: [[Nic; 2]; 4] =
    [[Nic::Soft, Nic::Soft], [Nic::Rxe, Nic::Soft], [Nic::Rxe, Nic::Rxe], [Nic::Soft, Nic::Rxe]];

/// The conformance suite on one NIC of the first guest.
fn conform_alone(nics: [Nic; 2]) -> Option<Step> {
    let (on, flags) = match nics {
        [Nic::Soft, Nic::Soft] => ("soft", format!(" --network {FIRST}")),
        [Nic::Rxe, Nic::Soft] => ("rxe0", String::new()),
        _ => return None,
    };
    let command = format!("warpverbs conform --gpu simt --brief --nic {on}{flags}");
    Some(Step { name: format!("conform on {on}"), nics, work: Work::One(command) })
}

/// The conformance suite between the guests: the second posts, the first is its peer.
fn conform_between(nics: [Nic; 2]) -> Step {
    let flags = |nic: Nic| format!("--gpu simt --udp-port 4791 --nic {}", nic.word());
    let server = format!("warpverbs conform server {}", flags(nics[0]));
    let client = format!("warpverbs conform client {FIRST} --brief {}", flags(nics[1]));
    let name = format!("conform, {:?} towards {:?}", nics[1], nics[0]);
    Step { name, nics, work: Work::Pair([server, client], 1) }
}

fn steps() -> Vec<Step> {
    let mut all = Vec::new();
    for nics in NICS {
        all.extend(conform_alone(nics));
        all.push(conform_between(nics));
        for (example, flags) in RANKS {
            let command = |rank: usize| {
                let nic = nics[rank].word();
                let own = [FIRST, SECOND][rank];
                format!(
                    "{example} --gpu simt --nic {nic} {flags} --rank {rank} --world-size 2 \
                     --master-addr {FIRST} --master-port 29500 --bind {own} --udp-port 4791"
                )
            };
            let name = format!("{example}, {:?} and {:?}", nics[0], nics[1]);
            all.push(Step { name, nics, work: Work::Pair([command(0), command(1)], 0) });
        }
    }
    all
}

pub(crate) fn run(options: &Options, only: Option<&str>) -> Result<()> {
    let mut steps = steps();
    steps.retain(|step| only.is_none_or(|text| step.name.contains(text)));
    ensure!(!steps.is_empty(), "no step's name has {only:?} in it");
    let mut programs = build::examples("warpverbs", &RANKS.map(|(example, _)| example))?;
    programs.push(build::program("warpverbs-cli", "warpverbs")?);
    let mut bed = Bed::boot(options, &programs)?;
    let mut now = [Nic::Soft; 2];
    let mut failed = Vec::new();
    for step in steps {
        for (guest, (now, next)) in
            [&mut bed.one, &mut bed.two].into_iter().zip(now.iter_mut().zip(step.nics))
        {
            change(guest, now, next)?;
        }
        let began = Instant::now();
        let outcome = match &step.work {
            Work::One(command) => bed.one.check(command, LIMIT),
            Work::Pair([first, second], shown) => {
                bed.pair(first, second, LIMIT).map(|told| told[*shown].clone())
            }
        };
        let seconds = began.elapsed().as_secs_f64();
        let left = leftovers(&mut bed, now)?;
        match outcome
            .and_then(|text| if left.is_empty() { Ok(text) } else { Err(anyhow::anyhow!(left)) })
        {
            Ok(first) => {
                println!("ok      {} ({seconds:.0} s)", step.name);
                first.lines().for_each(|line| println!("        {line}"));
            }
            Err(error) => {
                println!("FAILED  {} ({seconds:.0} s): {error:#}", step.name);
                failed.push(step.name);
            }
        }
    }
    ensure!(failed.is_empty(), "failed: {}", failed.join("; "));
    Ok(())
}

/// Makes or takes away `rxe0`.
fn change(guest: &mut Guest, now: &mut Nic, next: Nic) -> Result<()> {
    match (*now, next) {
        (Nic::Soft, Nic::Rxe) => Bed::rxe(guest)?,
        (Nic::Rxe, Nic::Soft) => drop(guest.check("rxe-down", SHORT)?),
        _ => {}
    }
    *now = next;
    Ok(())
}

/// Objects that a program which has ended has left in the kernel; none, if all is well.
fn leftovers(bed: &mut Bed, nics: [Nic; 2]) -> Result<String> {
    let mut all = String::new();
    for (guest, nic) in [&mut bed.one, &mut bed.two].into_iter().zip(nics) {
        if nic == Nic::Rxe {
            // What belongs to a process has its number; the kernel's own have none.
            let command =
                "for kind in qp mr cq pd; do rdma resource show $kind; done | grep pid || true";
            let found = guest.check(command, SHORT)?;
            if !found.is_empty() {
                all += &format!("{} has left: {found}", guest.name);
            }
        }
    }
    Ok(all)
}
