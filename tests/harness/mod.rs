//! The surroundings of an example: flags, words and JSON, and how it ends.

pub(crate) mod bytes;
pub(crate) mod digest;
pub(crate) mod processes;
pub(crate) mod roles;
#[cfg(feature = "devmem")]
pub(crate) mod tcp;

use anyhow::{Context as _, Result, ensure};
use clap::{Args, Parser};
use serde_json::{Map, Value};
use std::io::{self, Write};
use std::process::ExitCode;
use warpverbs::transport::Way;

/// Flags of every example.
#[derive(Args, Clone)]
pub(crate) struct Common {
    /// Where kernels run: auto, simt, cuda or cuda:N
    #[arg(long, default_value = "auto", env = "WARPVERBS_GPU")]
    pub(crate) gpu: String,
    /// The NIC that consumes the queues: auto, soft or a name
    #[arg(long, default_value = "auto", env = "WARPVERBS_NIC")]
    pub(crate) nic: String,
    /// How an RDMA device's queues are read: auto, proxy (by the CPU) or direct (by the device)
    #[arg(long, default_value_t = Way::Auto, env = "WARPVERBS_WAY")]
    pub(crate) way: Way,
    /// Let an RDMA device that cannot reach the GPU's memory have it copied through host memory
    #[arg(long)]
    pub(crate) bounce: bool,
    /// One line of JSON on stdout; the words for people go to stderr
    #[arg(long)]
    pub(crate) json: bool,
}

/// Words for people while an example runs, and fields for programs at its end.
pub(crate) struct Words {
    json: bool,
    facts: Map<String, Value>,
}

impl Words {
    pub(crate) fn new(json: bool) -> Self {
        Self { json, facts: Map::new() }
    }

    /// A line for people.
    pub(crate) fn say(&self, line: &str) -> Result<()> {
        if self.json { print(io::stderr(), line) } else { print(io::stdout(), line) }
    }

    /// A field of the JSON line.
    pub(crate) fn fact(&mut self, name: &str, value: impl Into<Value>) {
        self.facts.insert(name.to_owned(), value.into());
    }

    /// Several fields: those of an object.
    pub(crate) fn facts(&mut self, fields: Value) {
        if let Value::Object(fields) = fields {
            self.facts.extend(fields);
        }
    }

    /// The end of an example whose bytes were compared and found equal.
    pub(crate) fn passed(mut self, what: &str) -> Result<()> {
        if self.json {
            self.fact("result", "passed");
            print(io::stdout(), &Value::Object(std::mem::take(&mut self.facts)).to_string())?;
        }
        self.say(&format!("passed: {what}"))
    }
}

fn print(mut out: impl Write, line: &str) -> Result<()> {
    writeln!(out, "{line}").and_then(|()| out.flush()).context("output")
}

/// A flag's value, if it is one of those expected.
pub(crate) fn within(name: &str, value: u64, least: u64, most: u64) -> Result<()> {
    ensure!((least..=most).contains(&value), "{name} is {value}, expected {least} to {most}");
    Ok(())
}

/// `--bytes`, if a buffer can be of that size.
pub(crate) fn check_bytes(bytes: u64, least: u64, most: u64) -> Result<usize> {
    within("--bytes", bytes, least, most)?;
    Ok(usize::try_from(bytes)?)
}

/// `--threads`, if a block can be of that size.
pub(crate) fn check_threads(threads: u32) -> Result<u32> {
    within("--threads", threads.into(), 1, 1024)?;
    Ok(threads)
}

/// An error and its causes, each once: many an error's own text ends in that of its cause.
pub(crate) fn one_line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain() {
        let cause = cause.to_string().lines().map(str::trim).collect::<Vec<_>>().join("; ");
        if line.is_empty() {
            line = cause;
        } else if !line.ends_with(&cause) {
            line += &format!(": {cause}");
        }
    }
    line
}

/// Parses the flags, runs the example, and tells the cause if it failed.
pub(crate) fn main<T: Parser>(example: impl FnOnce(T) -> Result<()>) -> ExitCode {
    end(example(T::parse()))
}

/// Ends an example, and tells the cause if it failed.
pub(crate) fn end(outcome: Result<()>) -> ExitCode {
    let Err(error) = outcome else { return ExitCode::SUCCESS };
    let cause = error.downcast_ref::<io::Error>().map(io::Error::kind);
    // A reader of the output that has left, as `head` does, is not there to be told.
    if cause != Some(io::ErrorKind::BrokenPipe) {
        let _ = writeln!(io::stderr(), "failed: {}", one_line(&error));
    }
    ExitCode::FAILURE
}
