//! How fast WRITEs are between two guests: Debian's `ib_write_bw`, our transport over libibverbs
//! posted to by the host and by a kernel, and our own NIC. Same guests, same sizes, by turns.

use super::bed::{Bed, FIRST, SECOND};
use super::{Options, build};
use crate::bench::median;
use anyhow::{Context as _, Result, bail};
use clap::Args;
use std::time::Duration;
use tabled::builder::Builder;
use tabled::settings::object::Columns;
use tabled::settings::{Alignment, Style};
use warpverbs_units as units;

/// For all sizes of one contender on an emulated machine, with room.
const LIMIT: Duration = Duration::from_secs(300);
/// Bytes of a message, and how many are timed.
const SIZES: [(u64, u32); 3] = [(8, 2000), (65536, 300), (1 << 20, 30)];

/// Times that a contender is tried in one round.
const ATTEMPTS: u32 = 3;

/// How often.
#[derive(Args)]
pub(crate) struct Rounds {
    /// Turns of each contender; medians count.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
}

/// Who writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Contender {
    /// `ib_write_bw` over rxe.
    Perftest,
    /// Ours, through `nic`.
    Ours { nic: &'static str, kernel: bool },
}

/// The first four use rxe, which takes the UDP port from the others.
const CONTENDERS: [(&str, Contender); 5] = [
    ("ib_write_bw", Contender::Perftest),
    ("rxe, host posts", Contender::Ours { nic: "rxe0", kernel: false }),
    ("rxe, kernel posts", Contender::Ours { nic: "rxe0", kernel: true }),
    ("our NIC, host posts", Contender::Ours { nic: "soft", kernel: false }),
    ("our NIC, kernel posts", Contender::Ours { nic: "soft", kernel: true }),
];

impl Contender {
    fn needs_rxe(self) -> bool {
        !matches!(self, Self::Ours { nic: "soft", .. })
    }

    /// As [`Self::run`]. Emulated guests lose packets while the host is busy, and rxe then ends a
    /// connection now and then, whoever posts: what failed is told, and tried again.
    fn insist(self, bed: &mut Bed) -> Result<Vec<f64>> {
        for _ in 1..ATTEMPTS {
            match self.run(bed) {
                Ok(rates) => return Ok(rates),
                Err(error) => eprintln!("tried again: {error:#}"),
            }
        }
        self.run(bed)
    }

    /// Messages a second, for each size.
    fn run(self, bed: &mut Bed) -> Result<Vec<f64>> {
        match self {
            Self::Perftest => SIZES.iter().map(|&size| perftest(bed, size)).collect(),
            Self::Ours { nic, kernel } => ours(bed, nic, kernel),
        }
    }
}

pub(crate) fn run(options: &Options, rounds: &Rounds) -> Result<()> {
    let mut bed = Bed::boot(options, &[build::fast_program("warpverbs-interop")?])?;
    let mut all = [(); CONTENDERS.len()].map(|()| SIZES.map(|_| Vec::new()));
    for rxe in [true, false] {
        for guest in [&mut bed.one, &mut bed.two] {
            if rxe {
                Bed::rxe(guest)?;
            } else {
                guest.check("rxe-down", LIMIT)?;
            }
        }
        for round in 1..=rounds.rounds {
            for ((name, contender), rates) in CONTENDERS.iter().zip(&mut all) {
                if contender.needs_rxe() == rxe {
                    eprintln!("{name}: round {round} of {}", rounds.rounds);
                    let measured = contender.insist(&mut bed).with_context(|| name.to_string())?;
                    rates.iter_mut().zip(measured).for_each(|(rates, rate)| rates.push(rate));
                }
            }
        }
    }
    println!("{}", table(&all.map(|sizes| sizes.map(|rates| median(&rates)))));
    println!("medians of {} rounds, each in messages a second and bytes a second", rounds.rounds);
    Ok(())
}

fn table(medians: &[[f64; SIZES.len()]; CONTENDERS.len()]) -> String {
    let mut table = Builder::new();
    let sizes = SIZES.iter().map(|&(bytes, _)| units::bytes(bytes));
    let head = sizes.flat_map(|size| [size, String::new(), "of ib_write_bw".into()]);
    table.push_record(std::iter::once("WRITEs".to_owned()).chain(head));
    for ((name, _), rates) in CONTENDERS.iter().zip(medians) {
        let cells =
            SIZES.iter().zip(rates.iter().zip(&medians[0])).flat_map(|(size, (rate, base))| {
                let bandwidth = units::rate(rate * size.0 as f64);
                [units::per_second(*rate), bandwidth, format!("{:.2}", rate / base)]
            });
        table.push_record(std::iter::once((*name).to_owned()).chain(cells));
    }
    let mut table = table.build();
    table.with(Style::rounded()).modify(Columns::new(1..), Alignment::right()).to_string()
}

fn perftest(bed: &mut Bed, (bytes, count): (u64, u32)) -> Result<f64> {
    let line = format!("ib_write_bw -d rxe0 -x 1 -F -s {bytes} -n {count}");
    let [_, text] = bed.pair(&line, &format!("{line} {FIRST}"), LIMIT)?;
    // Bytes, iterations, MB/s at most, MB/s, million messages a second.
    column(&text, bytes, 4).map(|rate| rate * 1e6)
}

/// As many under way as perftest has.
fn ours(bed: &mut Bed, nic: &str, kernel: bool) -> Result<Vec<f64>> {
    let sizes: Vec<_> = SIZES.iter().map(|(bytes, count)| format!("{bytes}x{count}")).collect();
    let kernel = if kernel { "--kernel" } else { "" };
    let serve = format!("warpverbs-interop --nic {nic} --bind {FIRST} rate-serve");
    let sizes = sizes.join(",");
    let ask = format!(
        "warpverbs-interop --nic {nic} --bind {SECOND} rate {FIRST} --sizes {sizes} --depth 128 {kernel}"
    );
    let [_, text] = bed.pair(&serve, &ask, LIMIT)?;
    // Bytes, MB/s, million messages a second.
    SIZES.iter().map(|&(bytes, _)| column(&text, bytes, 2).map(|rate| rate * 1e6)).collect()
}

/// A number of the row that begins with `bytes`.
fn column(text: &str, bytes: u64, column: usize) -> Result<f64> {
    let bytes = bytes.to_string();
    let row = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let row = row.into_iter().find(|words| words.first() == Some(&bytes.as_str()));
    let number = row.as_ref().and_then(|words| words.get(column)?.parse::<f64>().ok());
    match number {
        Some(number) if number > 0.0 => Ok(number),
        _ => bail!("no rate at {bytes} bytes in\n{text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::column;

    const PERFTEST: &str = "\
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 65536      300              17.31              17.12              0.000274
";

    #[test]
    fn rates_are_found_in_what_programs_print() {
        assert_eq!(column(PERFTEST, 65536, 4).ok(), Some(0.000274));
        assert!(column(PERFTEST, 8, 4).is_err(), "a size that was not measured");
        assert!(column("8 0.00 0.000000\n", 8, 2).is_err(), "a rate of nothing");
    }
}
