//! Commands of the user's in the guests.

use super::bed::{Bed, Nic};
use super::options::Options;
use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

/// In which guests there is `rxe0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Rxe {
    /// In neither: UDP port 4791 is free.
    None,
    /// In guest 1.
    One,
    /// In both.
    Both,
}

/// The commands, and what they need.
#[derive(Args)]
pub(crate) struct What {
    /// A shell command for guest 1, 10.99.0.1
    one: String,
    /// A shell command for guest 2, 10.99.0.2, begun a second later
    two: Option<String>,
    /// A program to take along, as /bin/NAME, with its shared libraries; may be repeated
    #[arg(long, value_name = "FILE")]
    program: Vec<PathBuf>,
    /// Where there is rxe0, Linux's RoCEv2
    #[arg(long, value_enum, default_value = "none")]
    rxe: Rxe,
    /// Seconds after which a command is killed
    #[arg(long, default_value_t = 120)]
    limit: u64,
}

pub(crate) fn run(options: &Options, what: &What) -> Result<()> {
    let mut bed = Bed::boot(options, &what.program)?;
    bed.have(match what.rxe {
        Rxe::None => [Nic::Soft, Nic::Soft],
        Rxe::One => [Nic::Rxe, Nic::Soft],
        Rxe::Both => [Nic::Rxe, Nic::Rxe],
    })?;
    let limit = Duration::from_secs(what.limit);
    let first = bed.one.begin(&what.one, limit)?;
    let mut outputs = Vec::new();
    if let Some(two) = &what.two {
        std::thread::sleep(Duration::from_secs(1));
        outputs.push((bed.two.name.clone(), bed.two.run(two, limit)?));
    }
    outputs.insert(0, (bed.one.name.clone(), bed.one.finish(first)?));
    let mut failed = Vec::new();
    for (guest, output) in &outputs {
        println!("== {guest}, exit status {}\n{}", output.status, output.text);
        failed.extend((output.status != 0).then_some(guest.as_str()));
    }
    match failed[..] {
        [] => Ok(()),
        _ => bail!("the command of {} failed", failed.join(" and of ")),
    }
}
