//! Shared by the examples: flags, the device and NIC that they name, what is printed, and payload.
#![allow(dead_code, reason = "no example needs all of it")]

#[cfg(feature = "udp")]
pub(crate) mod job;

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Args, Parser};
use serde_json::{Map, Value};
use std::cell::RefCell;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use warpverbs::gpu::{self, Buffer, Dim, Gpu, GpuChoice, Place, SafeKernel};
#[cfg(feature = "verbs")]
use warpverbs::transport::VerbsProvider;
use warpverbs::transport::{
    Access, Context, ContextBuilder, Device, MemoryRegion as Region, RegisterOptions, Way,
};

/// Every wait of an example ends by then.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);
/// Bytes of one buffer at most.
pub(crate) const MAX_BYTES: u64 = 1 << 30;

/// Flags of every example that has a NIC.
#[derive(Args, Clone)]
pub(crate) struct Common {
    /// Where kernels run: auto, simt, cuda[:N] or hip[:N]
    #[arg(long, default_value = "auto", env = "WARPVERBS_GPU")]
    pub(crate) gpu: String,
    /// The NIC that consumes the queues: auto, soft or a name
    #[arg(long, default_value = "auto", env = "WARPVERBS_NIC")]
    nic: String,
    /// How an RDMA device's queues are read: auto, proxy (by the CPU) or direct (by the device)
    #[arg(long, default_value_t = Way::Auto, env = "WARPVERBS_WAY")]
    way: Way,
    /// Let an RDMA device that cannot reach the GPU's memory have it copied through host memory
    #[arg(long)]
    bounce: bool,
    /// One line of JSON on stdout; the words for people go to stderr
    #[arg(long)]
    json: bool,
}

/// An open device and NIC, and what is to be told at the end.
pub(crate) struct Session {
    /// Where kernels run.
    pub(crate) gpu: Arc<dyn Gpu>,
    /// The NIC that consumes the queues.
    pub(crate) nic: Device,
    flags: Common,
    facts: RefCell<Map<String, Value>>,
}

impl Session {
    /// Opens both, and says in one line which and why.
    pub(crate) fn open(flags: &Common) -> Result<Self> {
        Self::open_on(flags, Context::builder().soft_env(None)?, [0, 0])
    }

    /// The same for a rank and its number on this machine, whose GPU `auto` takes; rank 0 speaks.
    pub(crate) fn open_on(flags: &Common, nics: ContextBuilder, ranks: [u32; 2]) -> Result<Self> {
        let opened = gpu::open_for_rank(flags.gpu.parse::<GpuChoice>()?, ranks[1])?;
        #[cfg(feature = "verbs")]
        let nics = nics.verbs(VerbsProvider::default().with_way(flags.way));
        let nic = nics.build()?.open_near(flags.nic.as_str(), opened.gpu.info())?;
        let session =
            Self { gpu: opened.gpu, nic, flags: flags.clone(), facts: RefCell::default() };
        if ranks[0] == 0 {
            session.say(&format!("kernels on {}; NIC {}", opened.why, session.nic.why()))?;
        }
        session.fact("gpu", session.gpu.info().name.clone());
        session.fact("nic", session.nic.info().name.clone());
        Ok(session)
    }

    /// A line for people.
    pub(crate) fn say(&self, line: &str) -> Result<()> {
        if self.flags.json { print(io::stderr(), line) } else { print(io::stdout(), line) }
    }

    /// A field of the JSON line.
    pub(crate) fn fact(&self, name: &str, value: impl Into<Value>) {
        self.facts.borrow_mut().insert(name.to_owned(), value.into());
    }

    pub(crate) fn facts<const N: usize, V: Into<Value>>(&self, all: [(&str, V); N]) {
        all.into_iter().for_each(|(name, value)| self.fact(name, value));
    }

    /// The end of an example whose bytes were compared and found equal.
    pub(crate) fn passed(&self, what: &str) -> Result<()> {
        if self.flags.json {
            self.fact("result", "passed");
            print(io::stdout(), &Value::Object(self.facts.take()).to_string())?;
        }
        self.say(&format!("passed: {what}"))
    }

    /// Device memory that holds `data`, registered for `access`.
    pub(crate) fn buffer(&self, data: &[u8], access: Access) -> Result<Region> {
        let region = self.memory(&self.gpu, data.len().max(1), access)?;
        region.write(0, data)?;
        Ok(region)
    }

    /// Memory of `gpu`, registered for `access`. With `--bounce`, memory that peers reach is shared by
    /// host and GPU, since nobody sees them come.
    pub(crate) fn memory(&self, gpu: &Arc<dyn Gpu>, len: usize, access: Access) -> Result<Region> {
        let peers = Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
        let shared = self.flags.bounce && access.intersects(peers);
        let memory = gpu.alloc(len, if shared { Place::Shared } else { Place::Device })?;
        Ok(self.nic.register(memory, RegisterOptions::new(access).bounce(self.flags.bounce))?)
    }

    /// Runs a kernel to its end.
    pub(crate) fn run(&self, kernel: &dyn SafeKernel, dim: Dim) -> Result<()> {
        Ok(self.gpu.launch(kernel, dim, 2 * DEADLINE)?.wait()?)
    }
}

/// The first words of a buffer, as a kernel left them.
pub(crate) fn words<const N: usize>(gpu: &Arc<dyn Gpu>, buffer: &Buffer) -> Result<[u64; N]> {
    let mut bytes = vec![0; 8 * N];
    gpu.read(buffer, 0, &mut bytes)?;
    let mut words = bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word));
    Ok(std::array::from_fn(|_| words.next().unwrap_or_default()))
}

/// A size as 8, 64K, 1M or 2G, in powers of 1024.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(['K', 'M', 'G']);
    let unit = ["", "K", "M", "G"].iter().position(|unit| *unit == &text[digits.len()..]);
    let size = unit.zip(digits.parse().ok());
    let size = size.and_then(|(unit, n): (_, u64)| n.checked_mul(1 << (10 * unit)));
    size.ok_or_else(|| format!("{text:?} is no size; expected digits and perhaps K, M or G"))
}

/// A flag's value is one of those expected.
pub(crate) fn within(name: &str, value: impl Into<u64>, least: u64, most: u64) -> Result<()> {
    let value = value.into();
    ensure!((least..=most).contains(&value), "{name} is {value}, expected {least} to {most}");
    Ok(())
}

/// Bytes that differ from their neighbours, from zero-filled memory, and from those of another `seed`.
pub(crate) fn sample(seed: u64, len: usize) -> Vec<u8> {
    let word = |i: u64| ((i + 1) ^ (seed << 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    (0..len.div_ceil(8) as u64).flat_map(word).take(len).collect()
}

/// Contents of a destination before: every byte differs from the one that is to come.
pub(crate) fn poison(expected: &[u8]) -> Vec<u8> {
    expected.iter().map(|byte| !byte).collect()
}

/// Compares what arrived with what was sent.
pub(crate) fn compare(expected: &[u8], found: &[u8]) -> Result<()> {
    ensure!(expected.len() == found.len(), "{} bytes arrived of {}", found.len(), expected.len());
    let wrong = expected.iter().zip(found).position(|(e, f)| e != f);
    wrong.map_or(Ok(()), |at| {
        bail!("byte {at} is {:#04x}, expected {:#04x}", found[at], expected[at])
    })
}

fn print(mut out: impl Write, line: &str) -> Result<()> {
    writeln!(out, "{line}").and_then(|()| out.flush()).context("output")
}

/// Parses the flags, runs the example, and tells the cause if it failed.
pub(crate) fn main<T: Parser>(example: impl FnOnce(T) -> Result<()>) -> ExitCode {
    let Err(error) = example(T::parse()) else { return ExitCode::SUCCESS };
    let cause = error.downcast_ref::<io::Error>().map(io::Error::kind);
    // A reader of the output that has left, as `head` does, is not there to be told.
    if cause != Some(io::ErrorKind::BrokenPipe) {
        let line = format!("{error:#}").replace('\n', ";");
        let _ = writeln!(io::stderr(), "failed: {line}");
    }
    ExitCode::FAILURE
}
