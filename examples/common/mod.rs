//! Shared by all examples: their flags, the device and NIC they open, and how they end.
#![allow(dead_code, reason = "no example needs all of it")]

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Args, Parser};
use serde_json::{Map, Value};
use std::cell::RefCell;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use warpverbs::gpu::simt::{SimtConfig, SimtDevice};
use warpverbs::gpu::{self, Buffer, Dim, Gpu, GpuChoice, GpuKind, Place, SafeKernel};
use warpverbs::raw::nic::Config;
#[cfg(feature = "verbs")]
use warpverbs::transport::VerbsProvider;
use warpverbs::transport::{
    Access, Context, Device, Endpoint, EndpointConfig, MemoryRegion, RegisterOptions, Way,
};
use warpverbs_rendezvous as rendezvous;

/// Every wait of an example ends by then.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);
/// Bytes of one buffer at most.
pub(crate) const MAX_BYTES: u64 = 1 << 30;

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

/// An open device and NIC, and what is to be told at the end.
pub(crate) struct Session {
    /// Where kernels run.
    pub(crate) gpu: Arc<dyn Gpu>,
    /// The NIC that consumes the queues.
    pub(crate) nic: Device,
    json: bool,
    bounce: bool,
    /// It speaks, as one of several processes does.
    loud: bool,
    /// Ways to memory that were told.
    ways: RefCell<Vec<String>>,
    facts: Map<String, Value>,
}

impl Session {
    /// Opens both, and says in one line which and why.
    pub(crate) fn open(common: &Common) -> Result<Self> {
        Self::open_on(common, Config::default().with_env()?, None)
    }

    /// The same, the software NIC made as `config` says. Of several processes rank 0 speaks, and
    /// `auto` is the GPU of the local rank.
    pub(crate) fn open_on(
        common: &Common,
        config: Config,
        rank: Option<&rendezvous::Launch>,
    ) -> Result<Self> {
        let choice: GpuChoice = common.gpu.parse()?;
        let loud = rank.is_none_or(|launch| launch.rank == 0);
        let local = rank.and_then(|launch| launch.local_rank).unwrap_or(0);
        let opened = gpu::open_for_rank(choice, local)?;
        let builder = Context::builder().soft_config(config);
        #[cfg(feature = "verbs")]
        let builder = builder.verbs(VerbsProvider::default().with_way(common.way));
        let context = builder.build()?;
        let nic = context.open_near(common.nic.as_str(), opened.gpu.info())?;
        if loud {
            say(common.json, &format!("kernels on {}; NIC {}", opened.why, nic.why()))?;
        }
        let (json, bounce, ways) = (common.json, common.bounce, RefCell::default());
        let mut session =
            Self { gpu: opened.gpu, nic, json, bounce, loud, ways, facts: Map::new() };
        session.fact("gpu", session.gpu.info().name.clone());
        session.fact("nic", session.nic.info().name.clone());
        Ok(session)
    }

    /// The devices that `--gpus A,B` names, each by its number among those of the kind that `--gpu`
    /// gave, or by a name as `--gpu` takes.
    pub(crate) fn two_gpus(&self, names: &str) -> Result<[Arc<dyn Gpu>; 2]> {
        let expected =
            || format!("--gpus is {names:?}, expected two devices, as in 0,1 or simt,cuda:0");
        let (a, b) = names.split_once(',').with_context(expected)?;
        let open = |name: &str| -> Result<Arc<dyn Gpu>> {
            match (name.parse::<u32>(), self.gpu.info().kind) {
                (Ok(ordinal), GpuKind::Simt) => {
                    let config = SimtConfig::from_env()?.ordinal(ordinal);
                    Ok(Arc::new(SimtDevice::new(config)?))
                }
                (Ok(ordinal), _) => Ok(gpu::open(GpuChoice::Cuda(ordinal))?),
                (Err(_), _) => {
                    let choice: GpuChoice = name.parse().with_context(expected)?;
                    gpu::open(choice).with_context(|| format!("--gpus: {name}"))
                }
            }
        };
        Ok([open(a)?, open(b)?])
    }

    /// A line for people.
    pub(crate) fn say(&self, line: &str) -> Result<()> {
        say(self.json, line)
    }

    /// A field of the JSON line.
    pub(crate) fn fact(&mut self, name: &str, value: impl Into<Value>) {
        self.facts.insert(name.to_owned(), value.into());
    }

    /// Device memory that holds `data`, registered for `access`.
    pub(crate) fn buffer(&self, data: &[u8], access: Access) -> Result<MemoryRegion> {
        let region = self.memory(&self.gpu, data.len().max(1), access)?;
        self.gpu.write(region.buffer(), 0, data)?;
        Ok(region)
    }

    /// Memory of `gpu`, registered for `access`; in how far the NIC reaches it is told. With
    /// `--bounce`, what peers reach lies where host and GPU share it, since nobody sees them come.
    pub(crate) fn memory(
        &self,
        gpu: &Arc<dyn Gpu>,
        len: usize,
        access: Access,
    ) -> Result<MemoryRegion> {
        let peers = Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
        let place = match self.bounce && access.intersects(peers) {
            true => Place::Shared,
            false => Place::Device,
        };
        let options = RegisterOptions::new(access).bounce(self.bounce);
        let region = self.nic.register(gpu.alloc(len, place)?, options)?;
        let way = region.how().why();
        if self.loud && !self.ways.borrow().contains(&way) {
            self.say(&format!(
                "{} reaches memory of {}: {way}",
                self.nic.info().name,
                gpu.info().name
            ))?;
            self.ways.borrow_mut().push(way);
        }
        Ok(region)
    }

    /// Two endpoints that kernels post to, connected to each other.
    pub(crate) fn pair(&self) -> Result<(Endpoint, Endpoint)> {
        let config = EndpointConfig::for_gpu(&self.gpu).timeout(DEADLINE);
        let (a, b) = (self.nic.endpoint(&config)?, self.nic.endpoint(&config)?);
        a.connect(&b.handle())?;
        b.connect(&a.handle())?;
        Ok((a, b))
    }

    /// Runs a kernel to its end.
    pub(crate) fn run(&self, kernel: &dyn SafeKernel, dim: Dim) -> Result<()> {
        Ok(self.gpu.launch(kernel, dim, 2 * DEADLINE)?.wait()?)
    }

    /// The bytes of a region, or in its first `len` bytes.
    pub(crate) fn read(&self, region: &MemoryRegion, len: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.gpu.read(region.buffer(), 0, &mut bytes)?;
        Ok(bytes)
    }

    /// The end of an example whose bytes were compared and found equal.
    pub(crate) fn passed(mut self, what: &str) -> Result<()> {
        if self.json {
            self.fact("result", "passed");
            print(io::stdout(), &Value::Object(std::mem::take(&mut self.facts)).to_string())?;
        }
        say(self.json, &format!("passed: {what}"))
    }
}

/// The first words of a buffer, as a kernel left them.
pub(crate) fn words<const N: usize>(gpu: &Arc<dyn Gpu>, buffer: &Buffer) -> Result<[u64; N]> {
    let mut out = [0; N];
    for (i, word) in out.iter_mut().enumerate() {
        let mut bytes = [0; 8];
        gpu.read(buffer, 8 * i as u64, &mut bytes)?;
        *word = u64::from_le_bytes(bytes);
    }
    Ok(out)
}

/// Bytes that differ from their neighbours and from zero-filled memory.
pub(crate) fn sample(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 251 + 1) as u8).collect()
}

/// Contents of a destination before: every byte differs from the one that is to come, so that one
/// that nobody wrote is seen.
pub(crate) fn poison(expected: &[u8]) -> Vec<u8> {
    expected.iter().map(|byte| !byte).collect()
}

/// Compares what arrived with what was sent.
pub(crate) fn compare(expected: &[u8], found: &[u8]) -> Result<()> {
    ensure!(expected.len() == found.len(), "{} bytes arrived of {}", found.len(), expected.len());
    let wrong = expected.iter().zip(found).position(|(e, f)| e != f);
    if let Some(at) = wrong {
        bail!("byte {at} is {:#04x}, expected {:#04x}", found[at], expected[at]);
    }
    Ok(())
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

fn say(json: bool, line: &str) -> Result<()> {
    if json { print(io::stderr(), line) } else { print(io::stdout(), line) }
}

fn print(mut out: impl Write, line: &str) -> Result<()> {
    writeln!(out, "{line}").and_then(|()| out.flush()).context("output")
}

/// Parses the flags, runs the example, and tells the cause if it failed.
pub(crate) fn main<T: Parser>(example: impl FnOnce(T) -> Result<()>) -> ExitCode {
    end(example(T::parse()))
}

/// Ends an example, and tells the cause if it failed.
pub(crate) fn end(outcome: Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let cause = error.downcast_ref::<io::Error>().map(io::Error::kind);
            // Who reads the output has left, as `head` does: nobody is there to be told.
            if cause != Some(io::ErrorKind::BrokenPipe) {
                let _ = writeln!(io::stderr(), "failed: {}", one_line(&error));
            }
            ExitCode::FAILURE
        }
    }
}
