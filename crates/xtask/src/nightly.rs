//! `cargo xtask nightly`: the campaigns that take hours, and one table of what came of them.

use crate::{fuzz, workspace};
use anyhow::{Result, bail};
use clap::Args;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use warpverbs_bench::rig::output::table;

/// The tests under ThreadSanitizer: crates with threads of their own.
const TSAN_TESTS: &str = "-p warpverbs-mem --lib";

/// How long the campaigns are.
#[derive(Args)]
pub(crate) struct Nightly {
    /// Simulated runs of each seeded test.
    #[arg(long, default_value_t = 10_000_000)]
    runs: u64,
    /// Rounds of other people's programs with random payload.
    #[arg(long, default_value_t = 200)]
    rounds: u64,
    /// Minutes of fuzzing for each target.
    #[arg(long, default_value_t = 60)]
    fuzz_minutes: u64,
    /// Campaigns whose names contain this; all of them otherwise.
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Prints the campaigns with their commands, and runs none.
    #[arg(long)]
    list: bool,
}

/// One row of the table.
struct Campaign {
    name: String,
    amount: String,
    env: Vec<(&'static str, String)>,
    program: PathBuf,
    arguments: Vec<String>,
}

impl Campaign {
    fn new(name: &str, amount: String, arguments: &str) -> Self {
        let arguments = arguments.split(' ').map(str::to_owned).collect();
        let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()).into();
        Self { name: name.into(), amount, env: Vec::new(), program, arguments }
    }

    /// A test that runs by seeds.
    fn seeded(name: &str, runs: u64, arguments: &str) -> Self {
        let new = Self::new(name, format!("{runs} runs"), arguments);
        Self { env: vec![("WARPVERBS_RUNS", runs.to_string())], ..new }
    }

    /// As one types it, with these variables.
    fn command(&self, env: &[(&'static str, String)]) -> String {
        let quoted = |value: &str| match value.contains(' ') {
            true => format!("'{value}'"),
            false => value.to_owned(),
        };
        let env = env.iter().map(|(name, value)| format!("{name}={} ", quoted(value)));
        let ours = workspace::root().ok().and_then(|root| self.program.strip_prefix(root).ok());
        let name = self.program.file_name().unwrap_or_default().as_ref();
        let program = ours.unwrap_or(name).to_string_lossy();
        env.collect::<String>() + [&*program, &self.arguments.join(" ")].join(" ").trim_end()
    }

    fn run(&self, log: &Path) -> Result<(Duration, bool)> {
        let out = File::create(log)?;
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).current_dir(workspace::root()?);
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out);
        let began = Instant::now();
        let passed = command.status()?.success();
        Ok((began.elapsed(), passed))
    }

    /// How to see a failure again: the failing seed alone, if the log names one.
    fn repeat(&self, log: &str) -> String {
        match failing_seed(log) {
            Some(seed) => self.command(&[("WARPVERBS_SEED", seed.to_owned())]),
            None => self.command(&self.env),
        }
    }
}

/// The seed of the run that failed: the last that a log names.
fn failing_seed(log: &str) -> Option<&str> {
    ["WARPVERBS_SEED=", "seed "].iter().find_map(|mark| {
        let (_, after) = log.rsplit_once(mark)?;
        let seed = &after[..after.bytes().take_while(u8::is_ascii_digit).count()];
        (!seed.is_empty()).then_some(seed)
    })
}

fn campaigns(options: &Nightly) -> Result<Vec<Campaign>> {
    let runs = options.runs;
    let mut all = vec![
        Campaign::seeded(
            "rc simulation",
            runs,
            "test --release -p warpverbs-rc --test it simulation",
        ),
        Campaign::seeded(
            "nic network_faults",
            runs,
            "test --release -p warpverbs-nic --test nic network_faults",
        ),
    ];
    all.push(Campaign {
        env: vec![("WARPVERBS_MODELCHECK_EFFORT", "100".into())],
        ..Campaign::new("model checker", "effort 100".into(), "test -p warpverbs-modelcheck")
    });
    all.push(Campaign::seeded(
        "payload of other programs",
        options.rounds,
        "test -p warpverbs-cli --test it unmodified::payload",
    ));
    all.push(Campaign::seeded(
        "agent kills",
        20_000,
        "test --release -p warpverbs-agent --test it kills::",
    ));
    all.push(Campaign {
        env: vec![("WARPVERBS_SHMEM_CELLS", "all".into())],
        ..Campaign::new(
            "shmem matrix",
            "all cells".into(),
            "test --release -p warpverbs-shmem --test it heap::matrix::every_call_between_processes",
        )
    });
    all.push(Campaign::seeded(
        "shmem litmus",
        runs.div_ceil(10_000),
        "test --release -p warpverbs-shmem --test it device::litmus",
    ));
    all.push(Campaign::seeded(
        "kernels' stress",
        runs.div_ceil(100_000),
        "test --release -p warpverbs-test-kernels --test it device::stress",
    ));
    // With the examples, which these tests run.
    let heaps = "test -p warpverbs --features full dist::heaps";
    all.push(Campaign::seeded("routes of heaps", 2, heaps));
    all.push(thread_sanitizer()?);
    for (target, _) in fuzz::TARGETS {
        let (minutes, seconds) = (options.fuzz_minutes, options.fuzz_minutes * 60);
        let arguments = format!("xtask fuzz --seconds {seconds} {target}");
        all.push(Campaign::new(&format!("fuzz {target}"), format!("{minutes} min"), &arguments));
    }
    all.push(Campaign {
        program: workspace::root()?.join("kernels/check.sh"),
        arguments: Vec::new(),
        ..Campaign::new("kernels", "every compiler and GPU".into(), "")
    });
    all.push(Campaign::new("guests", "every step".into(), "xtask vm test --all"));
    let wanted = |name: &str| options.only.iter().any(|text| name.contains(text));
    all.retain(|campaign| options.only.is_empty() || wanted(&campaign.name));
    Ok(all)
}

/// Tests with real threads under ThreadSanitizer. The standard library that comes with the compiler
/// is not instrumented, so what TSan reports within it is suppressed; docs/fuzzing.md says more.
fn thread_sanitizer() -> Result<Campaign> {
    let suppressions = workspace::root()?.join("crates/xtask/src/tsan.supp");
    let flags = "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer";
    let arguments = format!("test --target {} --target-dir target/tsan {TSAN_TESTS}", fuzz::TRIPLE);
    Ok(Campaign {
        env: vec![
            ("RUSTC_BOOTSTRAP", "1".into()),
            ("RUSTFLAGS", flags.into()),
            ("TSAN_OPTIONS", format!("suppressions={}", suppressions.display())),
        ],
        ..Campaign::new("thread sanitizer", "1 run".into(), &arguments)
    })
}

pub(crate) fn run(options: &Nightly) -> Result<()> {
    let campaigns = campaigns(options)?;
    if campaigns.is_empty() {
        bail!("no campaign has {:?} in its name; --list shows all", options.only);
    }
    if options.list {
        for campaign in &campaigns {
            println!("{}: {}", campaign.name, campaign.command(&campaign.env));
        }
        return Ok(());
    }
    let logs = workspace::target()?.join("nightly");
    fs::create_dir_all(&logs)?;
    let (mut rows, mut failures) = (Vec::new(), Vec::new());
    for campaign in &campaigns {
        let log: PathBuf = logs.join(campaign.name.replace(' ', "-") + ".log");
        eprintln!("{}: {}", campaign.name, log.display());
        let (took, passed) = campaign.run(&log)?;
        let result = if passed { "passed" } else { "FAILED" };
        let took = format!("{} s", took.as_secs());
        rows.push(vec![
            ("campaign", campaign.name.clone()),
            ("runs", campaign.amount.clone()),
            ("time", took),
            ("result", result.to_owned()),
        ]);
        if !passed {
            let text = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
            let repeat = campaign.repeat(&text);
            failures.push(format!("{}: {}\n  {repeat}", campaign.name, log.display()));
        }
    }
    println!("{}", table(&rows));
    if !failures.is_empty() {
        bail!("{} failed; to repeat:\n{}", failures.len(), failures.join("\n"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_repeated_by_its_seed() {
        let campaign = Campaign::seeded("a", 9, "test -p x");
        let log = "WARPVERBS_SEED=4 ok\nrun failed; repeat it with WARPVERBS_SEED=77 cargo test";
        assert_eq!(campaign.repeat(log), "WARPVERBS_SEED=77 cargo test -p x");
        assert_eq!(campaign.repeat("seed 5 hangs: {}"), "WARPVERBS_SEED=5 cargo test -p x");
        assert_eq!(campaign.repeat("it did not build"), "WARPVERBS_RUNS=9 cargo test -p x");
    }
}
