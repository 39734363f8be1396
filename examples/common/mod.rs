//! Shared by all examples: the device and NIC they open, memory, and a kernel that runs to its end.
//! Flags, output, payload and ends are in `tests/harness`.
#![allow(dead_code, unused_imports, reason = "no example needs all of it")]

#[path = "../../tests/harness/mod.rs"]
mod harness;

pub(crate) use harness::bytes::{compare, open, poison, sample};
pub(crate) use harness::processes::Processes;
#[cfg(feature = "devmem")]
pub(crate) use harness::tcp;
pub(crate) use harness::{Common, check_bytes, check_threads, digest, end, main, one_line, roles};
pub(crate) use harness::{Words, within};

use anyhow::Result;
use serde_json::Value;
use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;
use warpverbs::gpu::{self, Buffer, Dim, Gpu, GpuChoice, Place, SafeKernel};
use warpverbs::raw::nic::Config;
use warpverbs::rendezvous::Launch;
#[cfg(feature = "verbs")]
use warpverbs::transport::VerbsProvider;
use warpverbs::transport::{Access, Context, Device, MemoryRegion, RegisterOptions};

/// Every wait of an example ends by then.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);
/// Bytes of one buffer at most.
pub(crate) const MAX_BYTES: u64 = 1 << 30;

/// An open device and NIC, and what is to be told at the end.
pub(crate) struct Session {
    /// Where kernels run.
    pub(crate) gpu: Arc<dyn Gpu>,
    /// The NIC that consumes the queues.
    pub(crate) nic: Device,
    words: Words,
    bounce: bool,
    /// It speaks, as one of several processes does.
    loud: bool,
    /// Ways to memory that were told.
    ways: RefCell<Vec<String>>,
}

impl Session {
    /// Opens both, and says in one line which and why.
    pub(crate) fn open(common: &Common) -> Result<Self> {
        Self::open_on(common, Config::default().with_env()?, None)
    }

    /// The same, the software NIC made as `config` says. Of several processes rank 0 speaks, and
    /// `auto` is the GPU of the local rank.
    pub(crate) fn open_on(common: &Common, config: Config, rank: Option<&Launch>) -> Result<Self> {
        let choice: GpuChoice = common.gpu.parse()?;
        let local = rank.and_then(|launch| launch.local_rank).unwrap_or(0);
        let opened = gpu::open_for_rank(choice, local)?;
        let builder = Context::builder().soft_config(config);
        #[cfg(feature = "verbs")]
        let builder = builder.verbs(VerbsProvider::default().with_way(common.way));
        let nic = builder.build()?.open_near(common.nic.as_str(), opened.gpu.info())?;

        let (mut words, bounce) = (Words::new(common.json), common.bounce);
        let loud = rank.is_none_or(|launch| launch.rank == 0);
        if loud {
            words.say(&format!("kernels on {}; NIC {}", opened.why, nic.why()))?;
        }
        words.fact("gpu", opened.gpu.info().name.clone());
        words.fact("nic", nic.info().name.clone());
        Ok(Self { gpu: opened.gpu, nic, words, bounce, loud, ways: RefCell::default() })
    }

    /// A line for people.
    pub(crate) fn say(&self, line: &str) -> Result<()> {
        self.words.say(line)
    }

    /// A field of the JSON line.
    pub(crate) fn fact(&mut self, name: &str, value: impl Into<Value>) {
        self.words.fact(name, value);
    }

    /// Several fields: those of an object.
    pub(crate) fn facts(&mut self, fields: Value) {
        self.words.facts(fields);
    }

    /// The end of an example whose bytes were compared and found equal.
    pub(crate) fn passed(self, what: &str) -> Result<()> {
        self.words.passed(what)
    }

    /// Device memory that holds `data`, registered for `access`.
    pub(crate) fn buffer(&self, data: &[u8], access: Access) -> Result<MemoryRegion> {
        let region = self.memory(&self.gpu, data.len().max(1), access)?;
        region.write(0, data)?;
        Ok(region)
    }

    /// Memory of `gpu`, registered for `access`; in how far the NIC reaches it is told. With
    /// `--bounce`, memory that peers reach is shared by host and GPU, since nobody sees them come.
    pub(crate) fn memory(
        &self,
        gpu: &Arc<dyn Gpu>,
        len: usize,
        access: Access,
    ) -> Result<MemoryRegion> {
        let peers = Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
        let shared = self.bounce && access.intersects(peers);
        let place = if shared { Place::Shared } else { Place::Device };
        let options = RegisterOptions::new(access).bounce(self.bounce);
        let region = self.nic.register(gpu.alloc(len, place)?, options)?;
        let way = region.how().why();
        if self.loud && !self.ways.borrow().contains(&way) {
            let (nic, gpu) = (&self.nic.info().name, &gpu.info().name);
            self.say(&format!("{nic} reaches memory of {gpu}: {way}"))?;
            self.ways.borrow_mut().push(way);
        }
        Ok(region)
    }

    /// Runs a kernel to its end.
    pub(crate) fn run(&self, kernel: &dyn SafeKernel, dim: Dim) -> Result<()> {
        Ok(self.gpu.launch(kernel, dim, 2 * DEADLINE)?.wait()?)
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
