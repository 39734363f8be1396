//! `cargo xtask nightly`: the campaigns that take hours, and one table of what came of them.

use crate::{fuzz, python, workspace};
use anyhow::{Context as _, Result, bail};
use clap::Args;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use warpverbs_bench::output::{Columns, table};

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
    /// Each campaign as short as it can be, to see that it starts, works and is reported.
    #[arg(long, conflicts_with_all = ["runs", "rounds", "fuzz_minutes"])]
    short: bool,
    /// Where there are sources of ROCm's MORI: its kernels post to the software NIC.
    #[arg(long, value_name = "DIR")]
    mori: Option<PathBuf>,
    /// Campaigns whose names contain this; all of them otherwise.
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// A folder with sources of rdma-core, one folder for each version: other people's programs run on these too.
    #[arg(long, value_name = "FOLDER")]
    sources: Option<PathBuf>,
    /// Prints the campaigns with their commands, and runs none.
    #[arg(long)]
    list: bool,
}

/// How long each kind of campaign is.
struct Lengths {
    runs: u64,
    rounds: u64,
    kills: u64,
    /// Cells of the matrix that are not always tried, as its test reads them.
    cells: &'static str,
    /// Of the model checker.
    effort: u64,
    fuzz: Duration,
    /// Of the guests.
    guests: &'static str,
}

impl Lengths {
    fn of(options: &Nightly) -> Self {
        if options.short {
            let (cells, guests, fuzz) = ("1", "xtask vm test", Duration::from_secs(1));
            return Self { runs: 100, rounds: 1, kills: 2, cells, effort: 1, fuzz, guests };
        }
        let Nightly { runs, rounds, fuzz_minutes, .. } = *options;
        let fuzz = Duration::from_secs(60 * fuzz_minutes);
        let (cells, guests) = ("all", "xtask vm test --all");
        Self { runs, rounds, kills: 20_000, cells, effort: 100, fuzz, guests }
    }
}

/// One row of the table.
struct Campaign {
    name: String,
    amount: String,
    env: Vec<(&'static str, String)>,
    program: PathBuf,
    arguments: Vec<String>,
    /// Skipped where no wheel can be built for this target.
    wheel_for: Option<&'static str>,
}

impl Campaign {
    fn new(name: &str, amount: String, arguments: &str) -> Self {
        let arguments = arguments.split(' ').map(str::to_owned).collect();
        let program = workspace::cargo(".").get_program().into();
        Self { name: name.into(), amount, env: Vec::new(), program, arguments, wheel_for: None }
    }

    fn env(mut self, name: &'static str, value: impl ToString) -> Self {
        self.env.push((name, value.to_string()));
        self
    }

    /// A test that runs by seeds.
    fn seeded(name: &str, runs: u64, arguments: &str) -> Self {
        Self::new(name, format!("{runs} runs"), arguments).env("WARPVERBS_RUNS", runs)
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

    /// Runs it. Its row, and if it failed, why and how to see that again.
    fn report(&self, log: &Path) -> (Columns, Option<String>) {
        let began = Instant::now();
        if let Some(Err(why)) = self.wheel_for.map(python::can_build) {
            return (self.row(began, format!("skipped: {why:#}")), None);
        }
        let failure = match self.run(log) {
            Ok(passed) => {
                let text = fs::read(log).unwrap_or_default();
                let text = String::from_utf8_lossy(&text);
                let ran = self.arguments.first().is_none_or(|word| word != "test") || ran(&text);
                let vain = || (!ran).then(|| format!("no test ran: {}", self.command(&self.env)));
                if passed { vain() } else { Some(self.repeat(&text)) }
            }
            Err(error) => Some(format!("{error:#}: {}", self.command(&self.env))),
        };
        let row = self.row(began, if failure.is_none() { "passed" } else { "FAILED" }.to_owned());
        (row, failure.map(|failure| format!("{}: {}\n  {failure}", self.name, log.display())))
    }

    fn row(&self, began: Instant, result: String) -> Columns {
        vec![
            ("campaign", self.name.clone()),
            ("runs", self.amount.clone()),
            ("time", format!("{} s", began.elapsed().as_secs())),
            ("result", result),
        ]
    }

    /// Whether it passes; everything that it prints goes to `log`.
    fn run(&self, log: &Path) -> Result<bool> {
        let out = File::create(log).context("its log")?;
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).current_dir(workspace::root()?);
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out);
        let status = command.status().with_context(|| self.program.display().to_string())?;
        Ok(status.success())
    }

    /// How to see a failure again: the failing seed instead of many, if the log names one.
    fn repeat(&self, log: &str) -> String {
        let mut env = self.env.clone();
        if let Some(seed) = failing_seed(log) {
            env.retain(|(name, _)| *name != "WARPVERBS_RUNS");
            env.push(("WARPVERBS_SEED", seed.to_owned()));
        }
        self.command(&env)
    }
}

/// Whether the output of `cargo test` is of at least one test, which a name of the campaign may have lost.
fn ran(log: &str) -> bool {
    let counts = log.lines().filter_map(|line| line.strip_prefix("test result: ok. "));
    counts.map(|count| count.split(' ').next().unwrap_or_default()).any(|count| count != "0")
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
    let Lengths { runs, rounds, kills, cells, effort, fuzz, guests } = Lengths::of(options);
    let seeded = [
        ("rc simulation", runs, "--release -p warpverbs-rc --test it simulation"),
        ("nic network_faults", runs, "--release -p warpverbs-nic --test nic network_faults"),
        ("payload of other programs", rounds, "-p warpverbs-cli --test it unmodified::payload"),
        ("agent kills", kills, "--release -p warpverbs-agent --test it kills::"),
        (
            "shmem litmus",
            runs.div_ceil(10_000),
            "--release -p warpverbs-shmem --test it device::litmus",
        ),
        (
            "expert parallelism",
            runs.div_ceil(10_000),
            "--release -p warpverbs-ep --test it -- again:: faults:: layers:: members:: network::",
        ),
        (
            "kernels' stress",
            runs.div_ceil(100_000),
            "--release -p warpverbs-test-kernels --test it device::stress",
        ),
        // With the examples, which these tests run.
        ("routes of heaps", 2, "-p warpverbs --features full dist::heaps"),
    ];
    let seeded = seeded
        .into_iter()
        .map(|(name, runs, test)| Campaign::seeded(name, runs, &format!("test {test}")));
    let mut all: Vec<Campaign> = seeded.collect();
    let test = "test -p warpverbs-modelcheck";
    let checker = Campaign::new("model checker", format!("effort {effort}"), test);
    all.push(checker.env("WARPVERBS_MODELCHECK_EFFORT", effort));
    let test =
        "test --release -p warpverbs-shmem --test it heap::matrix::every_call_between_processes";
    let matrix = Campaign::new("shmem matrix", format!("cells: {cells}"), test);
    all.push(matrix.env("WARPVERBS_SHMEM_CELLS", cells));
    let trials = kills.min(100);
    let test = "test --release -p warpverbs-ep --test it killed::";
    let killed = Campaign::new("expert parallelism: kills", format!("{trials} trials"), test);
    all.push(killed.env("WARPVERBS_KILLS", trials));
    all.push(thread_sanitizer()?);
    all.extend(python(rounds));
    all.extend(emulated()?);
    all.push(Campaign::new("nixl-sys on libnixl_capi", "its tests".into(), "xtask nixl-sys"));
    all.extend(options.sources.as_deref().map(rdma_cores).transpose()?);
    for (target, _) in fuzz::TARGETS {
        let seconds = fuzz.as_secs();
        let arguments = format!("xtask fuzz --seconds {seconds} {target}");
        all.push(Campaign::new(&format!("fuzz {target}"), format!("{seconds} s"), &arguments));
    }
    all.push(Campaign {
        program: workspace::root()?.join("kernels/check.sh"),
        arguments: Vec::new(),
        ..Campaign::new("kernels by every compiler", "every GPU".into(), "")
    });
    let few = runs.div_ceil(100_000);
    let kernels = "test --release --workspace --test it -- device:: views:: selftest::";
    let lockstep = Campaign::seeded("kernels in lockstep", few, kernels);
    all.push(lockstep.env("WARPVERBS_SIMT_LOCKSTEP", 1));
    // In a folder of its own: kernels and device are compiled for the number of lanes.
    let folder = workspace::target()?.join("lanes64");
    let kernels = "test --release -p warpverbs-test-kernels --test it -- device:: selftest::";
    let wide = Campaign::seeded("kernels in lockstep, 64 lanes", few, kernels);
    let wide = wide.env("WARPVERBS_SIMT_LOCKSTEP", 1).env("WARPVERBS_SIMT_LANES", 64);
    all.push(wide.env("CARGO_TARGET_DIR", folder.display()));
    all.push(Campaign::new("guests", "every step".into(), guests));
    all.extend(options.mori.as_deref().map(|sources| mori(few, sources)).transpose()?);
    let wanted = |name: &str| options.only.iter().any(|text| name.contains(text));
    all.retain(|campaign| options.only.is_empty() || wanted(&campaign.name));
    Ok(all)
}

/// Kernels of MORI, from a folder of its sources, post to the software NIC.
fn mori(runs: u64, sources: &Path) -> Result<Campaign> {
    let sources = sources.canonicalize().with_context(|| sources.display().to_string())?;
    let test = "test --release -p warpverbs-nic --test nic mori::";
    let campaign = Campaign::seeded("kernels of MORI", runs, test);
    Ok(campaign.env("WARPVERBS_MORI", sources.display()))
}

/// The Python package: `rounds` killed peers, programs of others, the wheels.
fn python(rounds: u64) -> Vec<Campaign> {
    let what = format!("{rounds} kills");
    let killed = Campaign::new("Python: killed peers", what, "xtask python -- -k killed");
    let name = "Python: programs that use NIXL";
    let mut all = vec![
        killed.env("WARPVERBS_RUNS", rounds),
        Campaign::new(name, "their tests".into(), "xtask python --consumers"),
    ];
    all.extend(wheels());
    all
}

/// On the emulator of an AMD GPU: what takes too long for CI, kernels in lazy mode under a seed of the day, and whether
/// every instruction of every kernel is known to it.
fn emulated() -> Result<Vec<Campaign>> {
    let library = workspace::target()?.join("debug/libamdhip64.so");
    let seed = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let campaign = |name: &str, amount: &str, arguments: &str| {
        let campaign = Campaign::new(name, amount.into(), arguments);
        campaign.env("WARPVERBS_HIP", library.display()).env("WARPVERBS_TEST_GPU", "hip")
    };
    let built = "build -p warpverbs-gfx-hip";
    let slow = "test -p warpverbs-gpu --test it -- --ignored vendor::copies vendor::withdraw";
    let lazy = "test -p warpverbs-gpu -p warpverbs-test-kernels --test it -- --ignored \
        selftest::hip vendor:: --skip compile_for_every_architecture";
    let perf = "run -p warpverbs-cli -- perf issue --gpu hip";
    let decoded = "test --release -p warpverbs-gfx --test it decode::";
    let decoded = Campaign::new("gfx90a, gfx942: instructions", "every kernel".into(), decoded);
    let both = "test -p warpverbs-gpu -p warpverbs-test-kernels -p warpverbs-peer -p warpverbs-shmem \
        -p warpverbs-agent --test it --test cuda_lost -- --ignored vendor:: selftest::hip \
        a_failed_kernel_is_named memory_of_a_gpu_is_mapped kernels_of_two_gpus a_list_is_written \
        --skip compile_for_every_architecture";
    let conform = "run -p warpverbs-cli -- conform --gpu hip --case kernel_";
    let other = |campaign: Campaign| campaign.env("WARPVERBS_GFX_TARGET", "gfx90a");
    Ok(vec![
        campaign("emulated gfx942: library", "1 build", built),
        campaign("emulated gfx942: copies", "its tests", slow),
        campaign("emulated gfx942: lazy", "its tests", lazy).env("WARPVERBS_GFX_LAZY", seed),
        campaign("emulated gfx942: perf", "its table", perf),
        other(campaign("emulated gfx90a: tests", "those of gfx942", both)),
        other(campaign("emulated gfx90a: cases", "those with kernels", conform)),
        other(campaign("emulated gfx90a: lazy", "its tests", lazy).env("WARPVERBS_GFX_LAZY", seed)),
        decoded.env("WARPVERBS_GFX_KERNELS", "all"),
    ])
}

/// Other people's programs, on each version of rdma-core whose sources the caller has.
fn rdma_cores(sources: &Path) -> Result<Campaign> {
    let sources = std::path::absolute(sources)?;
    let arguments = format!("xtask rdma-core --sources {}", sources.display());
    Ok(Campaign::new("versions of rdma-core", "their tests".into(), &arguments))
}

/// Python's wheels: for machines like this one, and for others by zig.
fn wheels() -> Vec<Campaign> {
    let what = || "size, C library".to_owned();
    let mut all = vec![Campaign::new("wheel", what(), "xtask python --wheel --release")];
    for target in ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"] {
        let (arch, _) = target.split_once('-').unwrap_or_default();
        let arguments = format!("xtask python --wheel --target {target}");
        let wheel = Campaign::new(&format!("wheel for {arch}, by zig"), what(), &arguments);
        all.push(Campaign { wheel_for: Some(target), ..wheel });
    }
    all
}

/// Tests with real threads under ThreadSanitizer. The standard library that comes with the compiler
/// is not instrumented, so what TSan reports within it is suppressed; docs/fuzzing.md says more.
fn thread_sanitizer() -> Result<Campaign> {
    let suppressions = workspace::root()?.join("crates/xtask/src/tsan.supp");
    let flags = "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer";
    let folder = workspace::target()?.join("tsan");
    let (triple, folder) = (fuzz::TRIPLE, folder.display());
    let arguments = format!("test --target {triple} --target-dir {folder} {TSAN_TESTS}");
    let campaign = Campaign::new("thread sanitizer", "1 run".into(), &arguments);
    let campaign = campaign.env("RUSTC_BOOTSTRAP", 1).env("RUSTFLAGS", flags);
    Ok(campaign.env("TSAN_OPTIONS", format!("suppressions={}", suppressions.display())))
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
        let (row, failure) = campaign.report(&log);
        rows.push(row);
        failures.extend(failure);
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
        let emulated = campaign.env("WARPVERBS_TEST_GPU", "hip");
        let expected = "WARPVERBS_TEST_GPU=hip WARPVERBS_SEED=5 cargo test -p x";
        assert_eq!(emulated.repeat("seed 5 hangs: {}"), expected);
    }
    #[test]
    fn a_campaign_without_a_test_fails() {
        let line = "running 1 test\ntest result: ok. 0 passed; 0 failed; 3 ignored";
        assert!(!ran(line) && !ran("") && ran("test result: ok. 12 passed; 0 failed"));
        let folder = tempfile::tempdir().unwrap();
        // As `cargo test …` that passes, and prints nothing.
        let campaign =
            Campaign { program: "true".into(), ..Campaign::new("a", "".into(), "test -p x") };
        let (row, failure) = campaign.report(&folder.path().join("log"));
        assert_eq!(row[3].1, "FAILED");
        assert!(failure.is_some_and(|failure| failure.contains("no test ran: true test -p x")));
    }

    #[test]
    fn a_wheel_for_a_target_without_a_standard_library_is_skipped() {
        let new = Campaign::new("a wheel", "".into(), "-c true");
        let wheel = Campaign { wheel_for: Some("s390x-unknown-linux-gnu"), ..new };
        let (row, failure) = wheel.report(Path::new("/nowhere"));
        let why = "skipped: rustup target add s390x-unknown-linux-gnu";
        assert_eq!((row[3].1.as_str(), failure), (why, None));
    }

    #[test]
    fn a_campaign_that_does_not_start_has_its_row() {
        let folder = tempfile::tempdir().unwrap();
        let new = || Campaign::new("a campaign", "1 run".into(), "-c true");
        let campaign = |program: &str| Campaign { program: program.into(), ..new() };
        let (row, failure) = campaign("sh").report(&folder.path().join("log"));
        assert_eq!((row[3].1.as_str(), failure), ("passed", None));
        let (row, failure) = campaign("/nowhere/program").report(&folder.path().join("log"));
        assert_eq!(row[3].1, "FAILED");
        let failure = failure.unwrap();
        assert!(failure.contains("/nowhere/program") && failure.contains("-c true"), "{failure}");
        let (row, failure) = campaign("sh").report(&folder.path().join("none/log"));
        assert!(failure.is_some_and(|failure| failure.contains("its log")), "{row:?}");
    }
}
