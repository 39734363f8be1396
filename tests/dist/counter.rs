//! A number of rank 0 that all ranks count up, and the check that each value came back once.

use super::Load;
use super::mesh::{Link, Mesh, endpoint_config};
use super::rank::Rank;
use anyhow::{Context as _, Result, ensure};
use warpverbs::gpu::{Buffer, Dim, KernelPtr, Local, Place};
use warpverbs::kernels::dist as kernels;
use warpverbs::transport::{Access, Endpoint, MemoryRegion, RemoteRegion};

/// Values that come back, at most: each rank hears of all of them, as bits.
const MOST: u64 = 1 << 25;

/// Everything that a kernel needs to count up.
pub(crate) struct Counter {
    pub(crate) mesh: Mesh,
    /// The other ends of rank 0's endpoints to itself.
    _ends: Vec<Endpoint>,
    /// The number, at rank 0.
    number: Option<MemoryRegion>,
    pub(crate) found: Buffer,
    pub(crate) targets: KernelPtr<kernels::Target>,
    pub(crate) count: u32,
    pub(crate) dim: Dim,
}

impl Counter {
    pub(crate) fn new(rank: &mut Rank<'_>, load: &Load) -> Result<Self> {
        rank.session.gpu.load(&kernels::IMAGE)?;
        let first = rank.is_first();
        let mut mesh = Mesh::new(rank, |peer| first || peer == 0, load.qps, 0)?;
        let mut ends = Vec::new();
        for _ in 0..if first { load.qps } else { 0 } {
            let config = endpoint_config(rank.session).recv_depth(0);
            let (endpoint, end) = rank.session.nic.pair(&config)?;
            mesh.push(Link { peer: 0, endpoint });
            ends.push(end);
        }
        let access = Access::LOCAL_WRITE | Access::REMOTE_ATOMIC;
        // The NIC counts by instructions of the CPU where host and GPU share memory; in the GPU's own
        // it would copy the number there and back each time.
        let number = match first {
            true => {
                let shared = rank.session.gpu.alloc(8, Place::Shared)?;
                Some(rank.session.nic.register(shared, access)?)
            }
            false => None,
        };
        let mine = number.as_ref().map(|number| number.remote().to_bytes());
        let told = rank.exchange("number", &mine.unwrap_or_default())?;
        let word = told.first().context("nothing of rank 0")?;
        let word = RemoteRegion::from_bytes(word).context("the bytes from rank 0")?;
        let to_number = mesh.links().filter(|link| link.peer == 0);
        let target = |link: &Link| kernels::Target {
            qp: link.endpoint.device_qp(),
            local: Local::default(),
            remote: word.into(),
        };
        let rows: Vec<_> = to_number.map(target).collect();
        let targets = KernelPtr::upload(&*rank.session.gpu, &rows)?;
        let count = u32::try_from(rows.len())?;
        let dim = load.dim(1)?;
        let values =
            u64::from(dim.blocks() * dim.threads()) * u64::from(load.iters.max(load.warmup));
        let all = values * u64::from(rank.world_size());
        ensure!(all <= MOST, "{all} operations of all ranks and threads, expected at most {MOST}");
        let found = rank.session.gpu.alloc(8 * usize::try_from(values)?, Place::Device)?;
        Ok(Self { mesh, _ends: ends, number, found, targets, count, dim })
    }

    /// Values that come back to this rank.
    pub(crate) fn own(&self, load: &Load) -> u64 {
        u64::from(self.dim.blocks() * self.dim.threads()) * u64::from(load.iters)
    }

    /// Values that come back to all ranks.
    pub(crate) fn all(&self, rank: &Rank<'_>, load: &Load) -> u64 {
        self.own(load) * u64::from(rank.world_size())
    }

    /// All ranks begin at 0, at once.
    pub(crate) fn reset(&self, rank: &mut Rank<'_>) -> Result<()> {
        rank.barrier("at rest")?;
        if let Some(number) = &self.number {
            rank.session.gpu.write(number.buffer(), 0, &[0; 8])?;
        }
        rank.barrier("at zero")
    }

    /// Every value below the final one came back once.
    pub(crate) fn verify(&self, rank: &mut Rank<'_>, load: &Load) -> Result<()> {
        let all = self.all(rank, load);
        if let Some(number) = &self.number {
            let mut last = [0; 8];
            rank.session.gpu.read(number.buffer(), 0, &mut last)?;
            let last = u64::from_le_bytes(last);
            ensure!(last == all, "the number ended as {last}, expected {all}");
        }
        let mut found = vec![0; 8 * usize::try_from(self.own(load))?];
        rank.session.gpu.read(&self.found, 0, &mut found)?;
        let mut seen = vec![0u8; usize::try_from(all.div_ceil(8))?];
        for value in found.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes)) {
            ensure!(value < all, "{value} came back, expected values below {all}");
            mark(&mut seen, value)?;
        }
        let theirs = rank.exchange("values", &seen)?;
        let mut union = vec![0u8; seen.len()];
        for (other, bits) in theirs.iter().enumerate() {
            let (len, expected) = (bits.len(), union.len());
            ensure!(len == expected, "rank {other} sent {len} bytes, expected {expected}");
            for (at, (union, bits)) in union.iter_mut().zip(bits).enumerate() {
                let twice = *union & bits;
                let value = at as u64 * 8 + u64::from(twice.trailing_zeros());
                ensure!(twice == 0, "{value} came back twice, the second time to rank {other}");
                *union |= bits;
            }
        }
        let once: u64 = union.iter().map(|bits| u64::from(bits.count_ones())).sum();
        ensure!(once == all, "{} of {all} values never came back", all - once);
        Ok(())
    }
}

fn mark(seen: &mut [u8], value: u64) -> Result<()> {
    let (at, bit) = ((value / 8) as usize, 1 << (value % 8));
    ensure!(seen[at] & bit == 0, "{value} came back twice");
    seen[at] |= bit;
    Ok(())
}
