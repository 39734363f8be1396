//! The workspace's own programs between two guests.

use super::bed::{Bed, FIRST, SECOND};
use super::guest::Guest;
use super::{Options, build};
use anyhow::{Result, bail, ensure};
use clap::Args;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// For one step on emulated machines that others keep busy, with room.
const LIMIT: Duration = Duration::from_secs(300);
/// For a look at something.
const SHORT: Duration = Duration::from_secs(20);

/// Which steps.
#[derive(Args)]
pub(crate) struct Choice {
    /// Only steps whose name has this in it, such as dist_write or Rxe
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// All conformance cases between the guests, also with our NIC at both ends
    #[arg(long)]
    all: bool,
}

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
    /// The example whose `sha256` rows must be equal in all steps that run it.
    alike: Option<&'static str>,
}

/// Who has something to do.
enum Work {
    /// The first guest alone.
    One(String),
    /// A command in each guest, the first one second earlier; the output of one is shown.
    Pair([String; 2], usize),
}

/// Examples that ranks run, and what makes them small enough for an emulated machine.
const RANKS: [(&str, &str); 3] = [
    // Many blocks, which share two queue pairs.
    ("dist_write", "-b 8 -e 64K -f 16 -n 64 -w 2 -c 8 -q 2 --sha256"),
    ("dist_send_recv", "-b 8 -e 64K -f 16 -n 20 -w 2 --sha256"),
    ("dist_atomic", "-n 1 -w 0 -c 1 -t 32"),
];
/// The NICs of the two guests, in an order that changes little.
const NICS: [[Nic; 2]; 4] =
    [[Nic::Soft, Nic::Soft], [Nic::Rxe, Nic::Soft], [Nic::Rxe, Nic::Rxe], [Nic::Soft, Nic::Rxe]];

/// What of the conformance suite is run between guests where not all is: every operation that has
/// packets of its own, every answer that refuses, order, recovery, and all that kernels post. Left
/// out is what depends on one side alone, or takes a round trip for each of many alike steps.
const CASES: [&str; 18] = [
    "send_sizes",
    "send_imm",
    "send_invalidate",
    "send_scatter",
    "write_sizes",
    "write_imm",
    "read_sizes",
    "many_reads",
    "small_mtu",
    "fetch_add",
    "compare_swap",
    "missing_right",
    "queue_pair_denies",
    "receive_too_small",
    "no_receive",
    "late_receive",
    "reset_and_reconnect",
    "kernel_",
];

/// The conformance suite on one NIC of the first guest.
fn conform_alone(nics: [Nic; 2]) -> Option<Step> {
    let (on, flags) = match nics {
        [Nic::Soft, Nic::Soft] => ("soft", format!(" --network {FIRST}")),
        [Nic::Rxe, Nic::Soft] => ("rxe0", String::new()),
        _ => return None,
    };
    let command = format!("warpverbs conform --gpu simt --brief --nic {on}{flags}");
    Some(Step { name: format!("conform on {on}"), nics, work: Work::One(command), alike: None })
}

/// The conformance suite between the guests: the second posts, the first is its peer.
fn conform_between(nics: [Nic; 2], all: bool) -> Option<Step> {
    if nics == [Nic::Soft; 2] && !all {
        return None;
    }
    let cases = CASES.map(|case| format!(" --case {case}")).concat();
    let cases = if all { "" } else { cases.as_str() };
    let flags = |nic: Nic| format!("--gpu simt --udp-port 4791 --nic {}", nic.word());
    let server = format!("warpverbs conform server {}", flags(nics[0]));
    let client = format!("warpverbs conform client {FIRST} --brief {}{cases}", flags(nics[1]));
    let name = format!("conform, {:?} towards {:?}", nics[1], nics[0]);
    Some(Step { name, nics, work: Work::Pair([server, client], 1), alike: None })
}

fn steps(choice: &Choice) -> Result<Vec<Step>> {
    let mut all = Vec::new();
    for nics in NICS {
        all.extend(conform_alone(nics));
        all.extend(conform_between(nics, choice.all));
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
            let work = Work::Pair([command(0), command(1)], 0);
            let alike = flags.contains("--sha256").then_some(example);
            all.push(Step { name, nics, work, alike });
        }
    }
    let only = choice.only.as_deref();
    all.retain(|step| only.is_none_or(|text| step.name.contains(text)));
    ensure!(!all.is_empty(), "no step's name has {only:?} in it");
    Ok(all)
}

pub(crate) fn run(options: &Options, choice: &Choice) -> Result<()> {
    let steps = steps(choice)?;
    let mut programs = build::examples("warpverbs", &RANKS.map(|(example, _)| example))?;
    programs.push(build::program("warpverbs-cli", "warpverbs")?);
    let mut bed = Bed::boot(options, &programs)?;
    let (mut now, mut rows) = ([Nic::Soft; 2], Rows::default());
    let mut failed = Vec::new();
    for step in steps {
        for (guest, (now, next)) in
            [&mut bed.one, &mut bed.two].into_iter().zip(now.iter_mut().zip(step.nics))
        {
            change(guest, now, next)?;
        }
        let began = Instant::now();
        let outcome = carry_out(&step, &mut bed);
        let seconds = began.elapsed().as_secs_f64();
        let left = leftovers(&mut bed, now)?;
        let outcome = outcome.and_then(|text| {
            ensure!(left.is_empty(), "{left}");
            let compared = rows.compare(&step, &text)?;
            Ok(text + &compared)
        });
        match outcome {
            Ok(text) => {
                println!("ok      {} ({seconds:.0} s)", step.name);
                text.lines().for_each(|line| println!("        {line}"));
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

/// What is shown of it.
fn carry_out(step: &Step, bed: &mut Bed) -> Result<String> {
    match &step.work {
        Work::One(command) => bed.one.check(command, LIMIT),
        Work::Pair([first, second], shown) => {
            Ok(std::mem::take(&mut bed.pair(first, second, LIMIT)?[*shown]))
        }
    }
}

/// What was received in each row, by example, and in which step first.
#[derive(Default)]
struct Rows(BTreeMap<&'static str, (String, Vec<[String; 2]>)>);

impl Rows {
    /// The same bytes were received as in the first step of the example, row by row. A line that
    /// says so.
    fn compare(&mut self, step: &Step, text: &str) -> Result<String> {
        let Some(example) = step.alike else { return Ok(String::new()) };
        let found: Vec<_> = text.lines().filter_map(row).collect();
        ensure!(!found.is_empty(), "no rows with `sha256` in {text:?}");
        let Some((first, expected)) = self.0.get(example) else {
            self.0.insert(example, (step.name.clone(), found));
            return Ok(String::new());
        };
        ensure!(
            found.len() == expected.len(),
            "{} rows, {first} has {}",
            found.len(),
            expected.len()
        );
        for ([size, hash], [expected_size, expected_hash]) in found.iter().zip(expected) {
            if (size, hash) != (expected_size, expected_hash) {
                bail!(
                    "{size} bytes: received {hash}, in {first} {expected_hash} ({expected_size} bytes)"
                );
            }
        }
        Ok(format!("\n{} rows: the same bytes as in {first}", found.len()))
    }
}

/// Size and hash, if the line of a table has them.
fn row(line: &str) -> Option<[String; 2]> {
    let words: Vec<_> = line.split_whitespace().collect();
    let at = words.iter().position(|word| *word == "sha256")?;
    Some([words.get(1)?.to_string(), words.get(at + 1)?.to_string()])
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

#[cfg(test)]
mod tests {
    use super::*;

    fn step(name: &str) -> Step {
        let work = Work::One(String::new());
        Step { name: name.into(), nics: [Nic::Soft; 2], work, alike: Some("dist_write") }
    }

    #[test]
    fn rows_that_differ_are_told() {
        let table = |hash: &str| {
            format!(
                "Index Size\n  0  8  0.1  4.2  0.3  sha256 ab\n  1  128  1  2  3  sha256 {hash}\n"
            )
        };
        let mut rows = Rows::default();
        assert_eq!(rows.compare(&step("one"), &table("cd")).expect("rows"), "");
        let text = rows.compare(&step("two"), &table("cd")).expect("the same rows");
        assert!(text.contains("2 rows: the same bytes as in one"), "{text}");
        let error = rows.compare(&step("three"), &table("ce")).expect_err("another row");
        assert_eq!(error.to_string(), "128 bytes: received ce, in one cd (128 bytes)");
        assert!(rows.compare(&step("four"), "no table").is_err());
        assert!(rows.compare(&step("five"), "0 8 1 1 1 sha256 ab").is_err());
    }
}
