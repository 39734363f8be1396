//! One rank: its device and NIC, and the others.

use super::mesh::Mesh;
use crate::common::{DEADLINE, Session, words};
use anyhow::{Context as _, Result, bail};
use std::time::{Duration, Instant};
use warpverbs::gpu::{Dim, KernelPtr, Place, SafeKernel};
use warpverbs::rendezvous::World;
use warpverbs::transport::{Access, MemoryRegion};

/// How often it is asked, while a kernel runs, whether all ranks are there.
const LOOK: Duration = Duration::from_millis(100);
/// How long a peer that does not answer may take to be known as lost.
const VERDICT: Duration = Duration::from_secs(1);
/// Words of a kernel's report: its first bad status, the complement of its earliest start, its
/// latest end, and whatever it counted.
const REPORT: usize = 4;

pub(crate) struct Rank<'r> {
    pub(crate) session: &'r Session,
    /// All ranks.
    pub(crate) world: &'r mut World,
}

impl Rank<'_> {
    pub(crate) fn number(&self) -> u32 {
        self.world.rank()
    }

    pub(crate) fn world_size(&self) -> u32 {
        self.world.world_size()
    }

    pub(crate) fn is_first(&self) -> bool {
        self.number() == 0
    }

    pub(crate) fn others(&self) -> impl Iterator<Item = u32> + use<> {
        let own = self.number();
        (0..self.world_size()).filter(move |&rank| rank != own)
    }

    pub(crate) fn barrier(&mut self, name: &str) -> Result<()> {
        Ok(self.world.barrier(name)?)
    }

    /// Bytes of every rank, by rank.
    pub(crate) fn exchange(&mut self, name: &str, mine: &[u8]) -> Result<Vec<Vec<u8>>> {
        Ok(self.world.exchange(name, mine)?)
    }

    /// Memory for payload: the GPU's own.
    pub(crate) fn memory(&self, bytes: u64, access: Access) -> Result<MemoryRegion> {
        self.session.memory(&self.session.gpu, usize::try_from(bytes)?, access)
    }

    /// Runs a kernel that is given its report, to its end or until a rank is lost. Returns the
    /// kernel's count, and the time that it took.
    pub(crate) fn time(
        &mut self,
        mesh: &Mesh,
        dim: Dim,
        kernel: impl FnOnce(KernelPtr<u64>) -> Box<dyn SafeKernel>,
    ) -> Result<(u64, Duration)> {
        let report = self.session.gpu.alloc(8 * REPORT, Place::Device)?;
        let broken = self.supervise(mesh, &*kernel(KernelPtr::new(&report)), dim)?;
        let [status, start, end, counted]: [u64; REPORT] = words(&self.session.gpu, &report)?;
        if status != 0 || broken.is_some() {
            // A peer that was killed is first noticed by its silence.
            if let Some(loss) = self.world.loss_within(VERDICT) {
                return Err(loss.into());
            }
            let blame = broken.or_else(|| mesh.blame());
            bail!(blame.unwrap_or_else(|| format!("the kernel ended with status {status:#x}")));
        }
        let took = end.checked_sub(!start).filter(|&took| took > 0);
        Ok((counted, Duration::from_nanos(took.context("the device's clock stood still")?)))
    }

    /// Waits for a kernel, and for no rank that is lost: a kernel that waits for a message of such
    /// a rank would not notice. If a queue pair breaks, the kernel's work with all others ends too,
    /// and what is returned says why.
    fn supervise(
        &mut self,
        mesh: &Mesh,
        kernel: &dyn SafeKernel,
        dim: Dim,
    ) -> Result<Option<String>> {
        let mut launch = self.session.gpu.launch(kernel, dim, 2 * DEADLINE)?;
        let (mut looked, mut spins, mut blame) = (Instant::now(), 0u32, None);
        while !launch.is_done()? {
            if blame.is_none() && looked.elapsed() > LOOK {
                looked = Instant::now();
                let lost = self.world.check();
                blame = mesh.is_broken().then(|| mesh.blame()).flatten();
                if blame.is_some() || lost.is_err() {
                    mesh.links().try_for_each(|link| link.endpoint.abort())?;
                }
                // The launch waits for its kernel when it is dropped.
                lost?;
            }
            spins = spins.saturating_add(1);
            match spins {
                0..64 => std::thread::yield_now(),
                // Leaves the processor to a kernel on the host.
                _ => std::thread::sleep(Duration::from_micros(50)),
            }
        }
        Ok(blame)
    }

    /// The longest time of all ranks, once all have ended.
    pub(crate) fn slowest(&mut self, own: Duration) -> Result<Duration> {
        let own = u64::try_from(own.as_nanos())?.to_le_bytes();
        let all = self.exchange("time", &own)?;
        let mut slowest = 0;
        for (rank, time) in all.iter().enumerate() {
            let time = time[..].try_into().ok().with_context(|| format!("time of rank {rank}"))?;
            slowest = slowest.max(u64::from_le_bytes(time));
        }
        Ok(Duration::from_nanos(slowest))
    }

    /// Gives every other rank a list of byte strings of its own, and takes what each has for this
    /// one. Both are in order of the other ranks.
    pub(crate) fn trade(
        &mut self,
        name: &str,
        lists: &[Vec<Vec<u8>>],
    ) -> Result<Vec<Vec<Vec<u8>>>> {
        let mut of_rank: Vec<&[Vec<u8>]> = vec![&[]; self.world_size() as usize];
        for (rank, list) in self.others().zip(lists) {
            of_rank[rank as usize] = list;
        }
        let all = self.exchange(name, &serde_json::to_vec(&of_rank)?)?;
        let own = self.number() as usize;
        let lists = self.others().map(|rank| {
            let lists = serde_json::from_slice::<Vec<_>>(&all[rank as usize]);
            let list = lists.ok().and_then(|lists| lists.into_iter().nth(own));
            list.with_context(|| format!("rank {rank} sent something else ({name})"))
        });
        lists.collect()
    }
}
