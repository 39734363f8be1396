//! `warpverbs conform`: every case of the conformance suite on one NIC.

use crate::{Common, print};
use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use serde::Serialize;
use std::collections::BTreeMap;
use std::net::IpAddr;
use warpverbs::gpu::{self, GpuChoice};
use warpverbs::nic::Config;
use warpverbs::transport::{Context, NicChoice};
use warpverbs_conformance::{CASES, Case, Outcome, Setup};

/// Raised when a field is renamed or removed; new fields may come without.
const SCHEMA: u32 = 1;

#[derive(Args)]
pub(crate) struct ConformArgs {
    #[command(flatten)]
    common: Common,
    /// Two software NICs at ports of this address, instead of one connected to itself
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = "127.0.0.1")]
    network: Option<IpAddr>,
    /// Only cases whose names contain this; may be given several times
    #[arg(long, value_name = "WORDS")]
    case: Vec<String>,
    /// Only cases that the host posts
    #[arg(long)]
    host_only: bool,
    /// Leaves out the lines of cases that passed
    #[arg(long, conflicts_with = "json")]
    brief: bool,
    /// Says what the cases are, and runs none
    #[arg(long)]
    list: bool,
}

#[derive(Serialize)]
struct Line {
    name: &'static str,
    poster: String,
    about: &'static str,
    result: &'static str,
    detail: String,
    ms: f64,
}

#[derive(Serialize)]
struct Document {
    schema: u32,
    version: &'static str,
    command: &'static str,
    kind: String,
    nic: String,
    description: String,
    gpu: Option<String>,
    right: bool,
    counts: BTreeMap<&'static str, usize>,
    cases: Vec<Line>,
}

pub(crate) fn run(args: &ConformArgs) -> Result<()> {
    let cases = chosen(args)?;
    if args.list {
        for case in cases {
            print::line(format_args!(
                "{:<24} {:<6} {}",
                case.name,
                case.poster.to_string(),
                case.about
            ))?;
        }
        return Ok(());
    }
    let setup = open(args)?;
    let say = |text: String| if args.common.json { Ok(()) } else { print::line(text) };
    let gpu = setup.gpu.as_ref().map(|gpu| gpu.info().name.clone());
    let nic = setup.b.device.info();
    say(format!("{}: {}: {}", setup.kind(), nic.name, nic.description))?;
    say(format!("kernels on {}", gpu.as_deref().unwrap_or("nothing: only the host posts")))?;
    let mut outcomes = Vec::new();
    for case in cases {
        let outcome = setup.run(case);
        if !args.brief || outcome.word() != "passed" {
            say(line(&outcome))?;
        }
        outcomes.push(outcome);
    }
    let mut counts = BTreeMap::new();
    for outcome in &outcomes {
        *counts.entry(outcome.word()).or_insert(0) += 1;
    }
    let wrong = outcomes.iter().filter(|outcome| !outcome.is_right()).count();
    let told = counts.iter().map(|(word, count)| format!("{count} {word}"));
    say(told.collect::<Vec<_>>().join(", "))?;
    let all = outcomes.len();
    if args.common.json {
        let document = Document {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            command: "conform",
            kind: setup.kind().to_string(),
            nic: nic.name.clone(),
            description: nic.description.clone(),
            gpu,
            right: wrong == 0,
            counts,
            cases: outcomes.into_iter().map(Line::from).collect(),
        };
        print::line(serde_json::to_string_pretty(&document).context("the outcomes as JSON")?)?;
    }
    if wrong > 0 {
        bail!("{wrong} of {all} cases did not end as they should");
    }
    Ok(())
}

fn chosen(args: &ConformArgs) -> Result<Vec<&'static Case>> {
    for words in &args.case {
        ensure!(
            CASES.iter().any(|case| case.name.contains(words.as_str())),
            "--case {words}: no case is called so; --list names them"
        );
    }
    let asked = |case: &&Case| {
        args.case.is_empty() || args.case.iter().any(|words| case.name.contains(words.as_str()))
    };
    Ok(CASES.iter().filter(asked).collect())
}

fn open(args: &ConformArgs) -> Result<Setup> {
    let choice = NicChoice::from(args.common.nic.as_str());
    let config = Config::default();
    let setup = match (args.network, &choice) {
        (Some(address), NicChoice::Auto | NicChoice::Soft) => {
            Setup::network(&config.with_env()?, address)?
        }
        (Some(_), NicChoice::Named(name)) => {
            bail!("--network is for software NICs, and --nic is {name}; leave one of them out")
        }
        (None, _) => {
            Setup::on(&Context::builder().soft_config(config.with_env()?).build()?, choice)?
        }
    };
    if args.host_only {
        return Ok(setup);
    }
    let choice: GpuChoice = args.common.gpu.parse()?;
    Ok(setup.with_gpu(gpu::open(choice)?))
}

fn line(outcome: &Outcome) -> String {
    let Outcome { case, took, .. } = outcome;
    let (word, poster, ms) = (outcome.word(), case.poster.to_string(), took.as_millis());
    let line = format!("{word:<8} {poster:<6} {:<24} {ms:>6} ms  {}", case.name, outcome.detail());
    line.trim_end().to_owned()
}

impl From<Outcome> for Line {
    fn from(outcome: Outcome) -> Self {
        Self {
            name: outcome.case.name,
            poster: outcome.case.poster.to_string(),
            about: outcome.case.about,
            result: outcome.word(),
            detail: outcome.detail(),
            ms: outcome.took.as_secs_f64() * 1e3,
        }
    }
}
