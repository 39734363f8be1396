//! Programs of NIXL's, from a folder of its sources, run unchanged on the wheel.

use anyhow::{Context as _, Result, bail, ensure};
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use warpverbs_bench::child::{self, Running};

/// How long a program may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(50);

/// How a program is run, and what shows that it went well.
enum How {
    /// By pytest.
    Tests,
    /// Alone, with arguments; its output has this text.
    Alone(&'static [&'static str], &'static str),
    /// As target and initiator; both print the last text, the initiator the first one, too.
    Pair(&'static str, &'static str),
    /// Not at all, for this reason.
    Never(&'static str),
}

struct Program {
    path: &'static str,
    torch: bool,
    how: How,
}

const fn program(path: &'static str, torch: bool, how: How) -> Program {
    Program { path, torch, how }
}

const PROGRAMS: [Program; 10] = [
    program("test/python/test_nixl_bindings.py", false, How::Tests),
    program("test/python/test_nixl_api.py", true, How::Tests),
    program("test/python/prep_xfer_perf.py", false, How::Alone(&["list"], "make_prepped_xfer")),
    program("test/python/prep_xfer_perf.py", false, How::Alone(&["array"], "make_prepped_xfer")),
    program("test/python/desc_perf.py", false, How::Alone(&[], "Time per desc add")),
    program(
        "examples/python/basic_two_peers.py",
        true,
        How::Pair("Data verification passed", "Test Complete."),
    ),
    program(
        "examples/python/expanded_two_peers.py",
        true,
        How::Pair("data verification passed", "Test Complete."),
    ),
    program(
        "examples/python/partial_md_example.py",
        false,
        How::Alone(&["--init-port", "PORT", "--target-port", "PORT"], "Test Complete."),
    ),
    program(
        "examples/python/query_mem_example.py",
        false,
        How::Alone(&[], "completed successfully"),
    ),
    program(
        "examples/python/remote_storage_example/nixl_p2p_storage_example.py",
        true,
        How::Never("its client names the plugin GDS_MT and memory of a GPU"),
    ),
];

/// Runs all, and prints a table.
pub(super) fn run(python: &Path, sources: &Path) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    for folder in ["test/python", "examples/python"] {
        copy(&sources.join(folder), &scratch.path().join(folder))?;
    }
    let torch =
        output(Command::new(python).args(["-c", "import torch"]), PATIENCE)?.status.success();
    let mut failed = 0;
    println!("\n{:72} result", "program of NIXL's");
    for each in &PROGRAMS {
        let words = match each.how {
            How::Alone(words, _) => words.join(" "),
            _ => String::new(),
        };
        let skipped = match each.how {
            How::Never(why) => Some(why),
            _ => (each.torch && !torch).then_some("torch is not installed (--torch)"),
        };
        let result = match skipped {
            Some(why) => format!("skipped: {why}"),
            None => each.run(python, scratch.path()).unwrap_or_else(|error| {
                failed += 1;
                format!("FAILED: {error:#}")
            }),
        };
        println!("{:72} {result}", format!("{} {words}", each.path));
    }
    ensure!(failed == 0, "{failed} program(s) of NIXL's failed");
    Ok(())
}

impl Program {
    fn command(&self, python: &Path, folder: &Path) -> Command {
        let mut command = child::command(python);
        let file = Path::new(self.path);
        command.current_dir(folder.join(file.parent().unwrap_or(file)));
        command.env("WARPVERBS_AS_NIXL", "1").env("PYTHONDONTWRITEBYTECODE", "1");
        // A program reads it whether it uses etcd or not.
        command.env("NIXL_ETCD_ENDPOINTS", "none").env_remove("NIXL_LOG_LEVEL");
        command
    }

    fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(self.path)
    }

    fn run(&self, python: &Path, folder: &Path) -> Result<String> {
        let mut command = self.command(python, folder);
        match self.how {
            How::Tests => {
                command.args(["-m", "pytest", "-q", "-p", "no:cacheprovider", self.name()]);
                let out = output(&mut command, PATIENCE)?;
                let text = String::from_utf8_lossy(&out.stdout).into_owned();
                let last = text.lines().last().unwrap_or("no output").to_owned();
                ensure!(out.status.success(), "{last} ({})", out.status);
                Ok(last)
            }
            How::Alone(words, shown) => {
                command.arg(self.name());
                for word in words {
                    match *word {
                        "PORT" => command.arg(free_port()?.to_string()),
                        word => command.arg(word),
                    };
                }
                let out = output(&mut command, PATIENCE)?;
                expect("it", &out.stdout, &out.stderr, &[shown])?;
                ensure!(out.status.success(), "{}", out.status);
                Ok(format!("{shown:?}, exit code 0"))
            }
            How::Pair(verified, over) => self.pair(python, folder, verified, over),
            How::Never(why) => Ok(why.to_owned()),
        }
    }

    /// As NIXL's own script does: the target says on its standard error at which port it listens.
    fn pair(&self, python: &Path, folder: &Path, verified: &str, over: &str) -> Result<String> {
        let (outs, errs) = (folder.join("target.out"), folder.join("target.err"));
        let mut target = self.command(python, folder);
        target.args([self.name(), "--mode=target", "--ip=127.0.0.1", "--port=0"]);
        target.env("NIXL_LOG_LEVEL", "INFO");
        target.stdout(fs::File::create(&outs)?).stderr(fs::File::create(&errs)?);
        let end = Instant::now() + PATIENCE;
        let mut target = Running::start("target", &mut target)?;
        let port = loop {
            let text = fs::read_to_string(&errs)?;
            let line = text.lines().find(|line| line.contains("MD listener is listening on port"));
            if let Some(port) = line.and_then(|line| line.rsplit(' ').next()) {
                break port.to_owned();
            }
            ensure!(target.ended()?.is_none(), "the target ended: {text}");
            ensure!(Instant::now() < end, "the target says no port in {PATIENCE:?}");
            thread::sleep(PAUSE);
        };
        let mut initiator = self.command(python, folder);
        initiator.args([self.name(), "--mode=initiator", "--ip=127.0.0.1"]);
        let out = output(initiator.arg(format!("--port={port}")), PATIENCE)?;
        expect("the initiator", &out.stdout, &out.stderr, &[verified, over])?;
        ensure!(out.status.success(), "initiator: {}", out.status);
        let status = target.wait(end)?;
        expect("the target", &fs::read(&outs)?, &fs::read(&errs)?, &[over])?;
        ensure!(status.success(), "target: {status}");
        Ok(format!("{verified:?}, {over:?} at both, exit codes 0"))
    }
}

fn expect(who: &str, out: &[u8], err: &[u8], texts: &[&str]) -> Result<()> {
    let (out, err) = (String::from_utf8_lossy(out), String::from_utf8_lossy(err));
    for text in texts {
        if !out.contains(text) {
            let last = err.lines().chain(out.lines()).last().unwrap_or("no output");
            bail!("{who} does not print {text:?}; its last line: {last}");
        }
    }
    Ok(())
}

/// Runs a program to its end, or kills it after this time.
pub(super) fn output(command: &mut Command, patience: Duration) -> Result<Output> {
    let scratch = tempfile::tempdir()?;
    let (outs, errs) = (scratch.path().join("out"), scratch.path().join("err"));
    command.stdin(Stdio::null()).stdout(fs::File::create(&outs)?).stderr(fs::File::create(&errs)?);
    let status = Running::start("it", command)?.wait(Instant::now() + patience)?;
    Ok(Output { status, stdout: fs::read(&outs)?, stderr: fs::read(&errs)? })
}

fn free_port() -> Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Copies a folder: programs write beside themselves.
pub(super) fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(|| from.display().to_string())? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy(&entry.path(), &target)?,
            false => fs::copy(entry.path(), target).map(drop)?,
        }
    }
    Ok(())
}
