//! `warpverbs conform`: every case of the conformance suite, on one NIC or between two.

mod args;
mod far;

use crate::output::Measured;
use crate::print;
use crate::rig::ends::{AtPort, Place, Role, beside};
use crate::rig::plan::word;
use crate::rig::{Common, NicOnly};
use anyhow::{Result, bail};
pub use args::ConformArgs;
use args::{Choice, Kernels, LocalArgs};
use serde::Serialize;
use std::collections::BTreeMap;
use warpverbs::gpu::{self, GpuChoice};
use warpverbs::raw::nic::Config;
use warpverbs::transport::NicChoice;
use warpverbs_conformance::{About, Case, Outcome, Setup, Which};

#[derive(Serialize)]
struct Line {
    #[serde(flatten)]
    case: Listed,
    result: &'static str,
    detail: String,
    ms: f64,
}

#[derive(Serialize)]
struct Listed {
    name: &'static str,
    poster: String,
    about: &'static str,
}

#[derive(Serialize)]
struct Nic {
    kind: String,
    nic: String,
    description: String,
    gpu: Option<String>,
}

/// The own side, and the peer's if it is another process's.
#[derive(Serialize)]
struct Nics {
    #[serde(flatten)]
    own: Nic,
    peer: Option<Nic>,
}

/// Runs the cases, and prints how they ended.
///
/// # Errors
/// The sides do not meet, or a case did not end as it should.
pub fn run(args: &ConformArgs) -> Result<()> {
    match &args.role {
        None if args.list => list(&args.choice.cases()?, args.common.nic.json),
        None => report(&alone(args)?, &args.choice, args.common.nic.json),
        Some(Role::Server(args)) => args.serve(|talk| far::follow(&args.own, talk)),
        Some(Role::Client(args)) => {
            let AtPort { udp_port, own } = &args.own;
            lead(own, *udp_port, &args.place())
        }
        Some(Role::Local(args)) => local(args),
    }
}

fn list(cases: &[&Case], json: bool) -> Result<()> {
    let rows: Vec<_> = cases.iter().map(|case| Listed::from(*case)).collect();
    if json {
        return print::line(Measured::new("conform --list", "no case is run", rows).json()?);
    }
    rows.iter().try_for_each(|Listed { name, poster, about }| {
        print::line(format_args!("{name:<26} {poster:<6} {about}"))
    })
}

fn alone(args: &ConformArgs) -> Result<Setup> {
    args.choice.cases()?;
    let choice = NicChoice::from(args.common.nic.nic.as_str());
    let config = Config::default();
    let setup = match (args.network, &choice) {
        (Some(address), NicChoice::Auto) => {
            let soft = || NicChoice::Soft;
            Setup::network(&config.with_env()?, address, [soft(), soft()])?
        }
        (Some(address), soft) if soft.soft().is_some() => {
            Setup::network(&config.with_env()?, address, [soft.clone(), soft.clone()])?
        }
        (Some(_), name) => {
            bail!("--network is for software NICs, and --nic is {name}; leave one of them out")
        }
        (None, _) => {
            Setup::on(&args.common.context().soft_config(config.with_env()?).build()?, choice)?
        }
    };
    let Kernels { host_only, mem } = args.choice.kernels;
    if host_only {
        return Ok(setup);
    }
    let choice: GpuChoice = args.common.gpu.parse()?;
    Ok(setup.with_gpu(gpu::open(choice)?).placed(mem.place()))
}

fn lead(args: &LocalArgs, udp_port: u16, place: &Place) -> Result<()> {
    args.choice.cases()?;
    let setup = far::connect(args, udp_port, place)?;
    report(&setup, &args.choice, args.common.nic.json)
}

fn local(args: &LocalArgs) -> Result<()> {
    let Common { gpu, nic: NicOnly { nic, way, .. } } = &args.common;
    let Kernels { host_only, mem } = args.choice.kernels;
    let (mem, way) = (word(mem), way.to_string());
    let mut flags = vec!["--nic", nic, "--gpu", gpu, "--way", &way, "--mem", &mem];
    flags.extend(host_only.then_some("--host-only"));
    beside(&["conform"], &flags, |place| lead(args, 0, place))
}

fn report(setup: &Setup, choice: &Choice, json: bool) -> Result<()> {
    let cases = choice.cases()?;
    let say = |text: String| if json { Ok(()) } else { print::line(text) };
    let nics = sides(setup);
    for (who, side) in [("", Some(&nics.own)), ("peer: ", nics.peer.as_ref())] {
        if let Some(side) = side {
            say(format!("{who}{}: {}: {}", side.kind, side.nic, side.description))?;
            let gpu = side.gpu.as_deref().unwrap_or("nothing: only the host posts");
            say(format!("{who}kernels on {gpu}"))?;
        }
    }
    let mut outcomes = Vec::new();
    for case in &cases {
        let outcome = setup.run(case);
        if setup.b.lost().is_some() {
            break;
        }
        if !choice.brief || outcome.word() != "passed" {
            say(line(&outcome))?;
        }
        outcomes.push(outcome);
    }
    let mut counts = BTreeMap::new();
    for outcome in &outcomes {
        *counts.entry(outcome.word()).or_insert(0) += 1;
    }
    let wrong = outcomes.iter().filter(|outcome| !outcome.is_right()).count();
    let summary = counts.iter().map(|(word, count)| format!("{count} {word}"));
    let summary = summary.collect::<Vec<_>>().join(", ");
    let (all, ended) = (cases.len(), outcomes.len());
    print::line(match json {
        true => {
            let rows = outcomes.into_iter().map(Line::from).collect();
            Measured::new("conform", nics, rows).noting(vec![summary]).json()?
        }
        false => summary,
    })?;
    match setup.b.lost() {
        Some(why) => bail!("{why}; {ended} of {all} cases had ended, {wrong} not as they should"),
        None if wrong > 0 => bail!("{wrong} of {all} cases did not end as they should"),
        None => Ok(()),
    }
}

fn sides(setup: &Setup) -> Nics {
    let side = |which, about: About| Nic {
        kind: setup.kind(which).to_string(),
        nic: about.nic,
        description: about.description,
        gpu: about.gpu,
    };
    let [a, b] = setup.abouts();
    Nics { own: side(Which::A, a), peer: setup.b.is_far().then(|| side(Which::B, b)) }
}

fn line(outcome: &Outcome) -> String {
    let Outcome { case, took, .. } = outcome;
    let (word, poster, ms) = (outcome.word(), case.poster.to_string(), took.as_millis());
    let line = format!("{word:<8} {poster:<6} {:<26} {ms:>6} ms  {}", case.name, outcome.detail());
    line.trim_end().to_owned()
}

impl From<&Case> for Listed {
    fn from(case: &Case) -> Self {
        Self { name: case.name, poster: case.poster.to_string(), about: case.about }
    }
}

impl From<Outcome> for Line {
    fn from(outcome: Outcome) -> Self {
        Self {
            case: Listed::from(outcome.case),
            result: outcome.word(),
            detail: outcome.detail(),
            ms: outcome.took.as_secs_f64() * 1e3,
        }
    }
}
