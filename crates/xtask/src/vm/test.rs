//! The workspace's own programs between two guests.

use super::bed::{FIRST, Nic, SECOND};
use super::build;
use super::case::{Case, Part, Shown};
use anyhow::{Result, bail, ensure};
use clap::Args;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Which cases.
#[derive(Args, Default)]
pub(crate) struct Choice {
    /// Only cases whose name has this in it, such as dist_write or Rxe
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// All conformance cases between the guests, also with our NIC alone and at both ends
    #[arg(long)]
    all: bool,
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

/// The program that ranks run, see tests/dist.
const PROGRAM: &str = "ranks";
/// Its parts, and what makes them small enough for an emulated machine.
const RANKS: [(&str, &str); 3] = [
    // Many blocks, which share two queue pairs.
    ("dist_write", "-b 8 -e 64K -f 16 -n 64 -w 2 -c 8 -q 2 --sha256"),
    ("dist_send_recv", "-b 8 -e 64K -f 16 -n 20 -w 2 --sha256"),
    ("dist_atomic", "-n 1 -w 0 -c 1 -t 32"),
];
/// The NICs of the two guests, in an order that changes little.
const NICS: [[Nic; 2]; 4] =
    [[Nic::Soft, Nic::Soft], [Nic::Rxe, Nic::Soft], [Nic::Rxe, Nic::Rxe], [Nic::Soft, Nic::Rxe]];

/// Cases of the conformance suite that run between guests where not all do: every operation that has
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

/// The conformance suite on one NIC of the first guest. Tests run it on ours too, outside of guests.
fn conform_alone(nics: [Nic; 2], all: bool) -> Option<Case> {
    let (on, flags) = match nics {
        [Nic::Soft, Nic::Soft] if all => ("soft", format!(" --network {FIRST}")),
        [Nic::Rxe, Nic::Soft] => ("rxe0", String::new()),
        _ => return None,
    };
    let command = format!("warpverbs conform --gpu simt --brief --nic {on}{flags}");
    Some(Case::one(format!("conform on {on}"), nics, command))
}

/// The conformance suite between the guests: the second posts, the first is its peer.
fn conform_between(nics: [Nic; 2], all: bool) -> Option<Case> {
    if nics == [Nic::Soft; 2] && !all {
        return None;
    }
    let cases = CASES.map(|case| format!(" --case {case}")).concat();
    let cases = if all { "" } else { cases.as_str() };
    let flags = |nic: Nic| format!("--gpu simt --udp-port 4791 --nic {}", nic.word());
    let server = format!("warpverbs conform server {}", flags(nics[0]));
    let client = format!("warpverbs conform client {FIRST} --brief {}{cases}", flags(nics[1]));
    let name = format!("conform, {:?} towards {:?}", nics[1], nics[0]);
    Some(Case::pair(name, nics, [server, client]))
}

/// An example, a rank in each guest. Its rows with `sha256` are those of its first run.
fn ranks((example, flags): (&'static str, &str), nics: [Nic; 2], rows: &Rc<RefCell<Rows>>) -> Case {
    let command = |rank: usize| {
        let (nic, own) = (nics[rank].word(), [FIRST, SECOND][rank]);
        format!(
            "{PROGRAM} {example} --gpu simt --nic {nic} {flags} --rank {rank} --world-size 2 \
             --master-addr {FIRST} --master-port 29500 --bind {own} --udp-port 4791"
        )
    };
    let name = format!("{example}, {:?} and {:?}", nics[0], nics[1]);
    let case = Case::pair(name.clone(), nics, [command(0), command(1)]).shown(Shown::Server);
    if !flags.contains("--sha256") {
        return case;
    }
    let rows = rows.clone();
    case.check(move |_, [text, _]| rows.borrow_mut().compare(example, &name, text))
}

pub(super) fn part(choice: &Choice) -> Result<Part> {
    let (mut cases, rows) = (Vec::new(), Rc::default());
    for nics in NICS {
        cases.extend(conform_alone(nics, choice.all));
        cases.extend(conform_between(nics, choice.all));
        cases.extend(RANKS.map(|example| ranks(example, nics, &rows)));
    }
    let only = choice.only.as_deref();
    cases.retain(|case| only.is_none_or(|text| case.name().contains(text)));
    ensure!(!cases.is_empty(), "no case's name has {only:?} in it");
    let mut programs = build::examples("warpverbs", &[PROGRAM])?;
    programs.push(build::program("warpverbs-cli", "warpverbs")?);
    Ok(Part { name: "test", programs, cases })
}

/// The bytes that arrived in each row, by example, and in which case first.
#[derive(Default)]
struct Rows(BTreeMap<&'static str, (String, Vec<[String; 2]>)>);

impl Rows {
    /// The same bytes arrived as in the first case of the example, row by row. A line that says so.
    fn compare(&mut self, example: &'static str, case: &str, text: &str) -> Result<String> {
        let found: Vec<_> = text.lines().filter_map(row).collect();
        ensure!(!found.is_empty(), "no rows with `sha256` in {text:?}");
        let Some((first, expected)) = self.0.get(example) else {
            self.0.insert(example, (case.to_owned(), found));
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
        Ok(format!("{} rows: the same bytes as in {first}", found.len()))
    }
}

/// Size and hash, if the line of a table has them.
fn row(line: &str) -> Option<[String; 2]> {
    let words: Vec<_> = line.split_whitespace().collect();
    let at = words.iter().position(|word| *word == "sha256")?;
    Some([words.get(1)?.to_string(), words.get(at + 1)?.to_string()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_differ_are_told() {
        let table = |hash: &str| {
            format!(
                "Index Size\n  0  8  0.1  4.2  0.3  sha256 ab\n  1  128  1  2  3  sha256 {hash}\n"
            )
        };
        let mut rows = Rows::default();
        let mut compare = |case: &str, text: &str| rows.compare("dist_write", case, text);
        assert_eq!(compare("one", &table("cd")).expect("rows"), "");
        let text = compare("two", &table("cd")).expect("the same rows");
        assert!(text.contains("2 rows: the same bytes as in one"), "{text}");
        let error = compare("three", &table("ce")).expect_err("another row");
        assert_eq!(error.to_string(), "128 bytes: received ce, in one cd (128 bytes)");
        assert!(compare("four", "no table").is_err());
        assert!(compare("five", "0 8 1 1 1 sha256 ab").is_err());
    }
}
