//! One rank of `perf ep`: its heap, its part in each row, and the comparison.

use super::load::Load;
use super::plan::{By, Case, Elements, LIMIT, Loop, Sizes, Times, latest, times_of};
use crate::rig::kernel::{Report, read_words};
use crate::rig::pattern::{compare, pattern};
use crate::rig::ranks::leave;
use anyhow::{Context as _, Result, ensure};
use std::sync::Arc;
use warpverbs::ep::{Ep, EpConfig, Packed, Ways};
use warpverbs::gpu::{Buffer, Dim, Gpu, KernelPtr, Place};
use warpverbs::raw::ep::Regions;
use warpverbs::rendezvous::World;
use warpverbs::shmem::{Heap, HeapConfig, RoutePolicy, Sym, TEAM_BLOCK_BYTES};
use warpverbs::transport::Device;
use warpverbs_test_kernels::ep_perf as k;

/// A kernel's own meeting place, and the times of all of its calls.
const GATE: usize = 4 * 8;

pub(super) struct Rank {
    pub(super) world: World,
    pub(super) gpu: Arc<dyn Gpu>,
    heap: Heap,
    team: Sym<u64>,
    looped: Loop,
}

/// The figures of a case.
pub(super) struct Figures {
    /// Of the latest rank.
    pub(super) times: Times,
    /// A dispatch and its combine, one after the other without a barrier: nanoseconds of the slowest rank.
    pub(super) pair: f64,
    /// Bytes of a channel.
    pub(super) channel: u64,
}

/// The rows of one of this rank's experts.
struct Group {
    expert: u32,
    /// The first packed one.
    base: u64,
    /// Source and token of each.
    from: Vec<(u32, u32)>,
}

/// Memory of the calls of one case.
struct Memory {
    count: u32,
    rows: Buffer,
    scales: Buffer,
    experts: Buffer,
    weights: Buffer,
    packed: Packed,
    /// Rows of `outputs`, which are those of `packed` unless rows are not packed.
    inputs: u64,
    outputs: Buffer,
    sums: Buffer,
}

impl Rank {
    /// A heap with room for a channel of each of `configs`, and for an all-gather of `gathered` bytes.
    pub(super) fn join(
        mut world: World,
        gpu: Arc<dyn Gpu>,
        nic: &Device,
        routes: RoutePolicy,
        (configs, gathered): (&[EpConfig], u64),
        looped: Loop,
    ) -> Result<Self> {
        gpu.load(&k::IMAGE)?;
        let ways = Ways { ranks: world.world_size(), lanes: 1, staged: true };
        let bytes = configs.iter().map(|config| config.bytes(ways));
        let most = bytes.collect::<Result<Vec<_>, _>>()?.into_iter().max().unwrap_or(0);
        let size = most.max(gathered) + TEAM_BLOCK_BYTES + (1 << 16);
        let settings = HeapConfig::new(size).timeout(LIMIT).routes(routes);
        let mut heap = Heap::create(&mut world, &gpu, Some(nic), &settings)?;
        let team = heap.alloc_zeroed::<u64>(&mut world, TEAM_BLOCK_BYTES / 8)?;
        Ok(Self { world, gpu, heap, team, looped })
    }

    pub(super) fn is_first(&self) -> bool {
        self.heap.rank() == 0
    }

    pub(super) fn ways(&self) -> Ways {
        Ways::of(&self.heap)
    }

    /// The first other rank's route.
    pub(super) fn route(&self) -> String {
        let peer = usize::from(self.heap.rank() == 0);
        self.heap.routes().get(peer).map(ToString::to_string).unwrap_or_default()
    }

    pub(super) fn leave(self, failed: Option<&anyhow::Error>) {
        leave(self.world, self.heap, failed);
    }

    /// One row's figures, the same on all ranks.
    pub(super) fn measure(&mut self, case: &Case, load: &Load) -> Result<Figures> {
        let config = case.config();
        let mut ep = Ep::new(&mut self.heap, &mut self.world, &config)?;
        ep.set_dim(case.dim);
        let memory = self.memory(case, load, &ep)?;
        let figures = self.figures(case, load, &ep, &memory);
        let health = self.heap.health()?;
        let figures = figures.with_context(|| format!("rank {}: {health}", self.heap.rank()))?;
        self.world.barrier("measured")?;
        ep.free(&mut self.heap)?;
        Ok(figures)
    }

    fn figures(&mut self, case: &Case, load: &Load, ep: &Ep, memory: &Memory) -> Result<Figures> {
        let (aligned, _) = self.calls(case, ep, memory, true)?;
        self.verify(case, load, ep, memory)?;
        let (_, pair) = self.calls(case, ep, memory, false)?;
        self.verify(case, load, ep, memory)?;
        let bytes: Vec<u8> = aligned.iter().flatten().flat_map(|ns| ns.to_le_bytes()).collect();
        let ranks = self.world.exchange("times", &bytes)?;
        let times = |bytes: &Vec<u8>| -> Times {
            let numbers = bytes.as_chunks::<4>().0.iter().map(|four| u32::from_le_bytes(*four));
            numbers.collect::<Vec<_>>().as_chunks::<13>().0.to_vec()
        };
        let pairs = self.world.exchange("pair", &pair.to_le_bytes())?;
        let pair = pairs.iter().filter_map(|bytes| bytes.as_slice().try_into().ok());
        Ok(Figures {
            times: latest(&ranks.iter().map(times).collect::<Vec<_>>()),
            pair: pair.map(f64::from_le_bytes).fold(0.0, f64::max),
            channel: case.config().bytes(self.ways())?,
        })
    }

    fn buffer(&self, bytes: &[u8]) -> Result<Buffer> {
        let buffer = self.gpu.alloc(bytes.len().max(16), Place::Device)?;
        self.gpu.write(&buffer, 0, bytes)?;
        Ok(buffer)
    }

    fn memory(&self, case: &Case, load: &Load, ep: &Ep) -> Result<Memory> {
        let (rank, ways, config) = (self.heap.rank(), self.ways(), case.config());
        let packed = Packed::new(&*self.gpu, &config, ways, rank)?;
        let inputs = config.packed_rows(ways, rank);
        let words = |words: &mut dyn Iterator<Item = [u8; 4]>| words.flatten().collect::<Vec<u8>>();
        let experts = words(&mut load.experts(rank).iter().map(|expert| expert.to_le_bytes()));
        let weights = words(&mut load.experts(rank).iter().map(|_| 1f32.to_le_bytes()));
        let outputs = match (case.by, case.elements) {
            (By::Rank, _) if case.outside => self.buffer(&self.own_sums(case, load))?,
            (By::Rank, _) => {
                let outputs = ep.outputs(&self.heap, 0)?;
                self.gpu.write(&outputs, 0, &self.own_sums(case, load))?;
                outputs
            }
            (By::Expert | By::Flat, Elements::Bf16) => packed.rows.clone(),
            (By::Expert | By::Flat, _) => self.expert_rows(case, load, inputs)?,
        };
        let (mut rows, mut scales) = (load.rows(rank, 1), Vec::new());
        let sums = self.gpu.alloc(rows.len().max(16), Place::Device)?;
        if case.elements == Elements::Fp8 {
            rows.clear();
            for token in 0..case.sizes.tokens {
                let (row, words) = load.arriving(rank, token, case.elements);
                rows.extend(row);
                scales.extend(words);
            }
        }
        Ok(Memory {
            count: case.sizes.tokens,
            sums,
            rows: self.buffer(&rows)?,
            scales: self.buffer(&scales)?,
            experts: self.buffer(&experts)?,
            weights: self.buffer(&weights)?,
            packed,
            inputs,
            outputs,
        })
    }

    /// Rows that a caller in rank-major layout gives to the combine: for each received row the sum over its
    /// experts here, each of which gives the row back.
    fn own_sums(&self, case: &Case, load: &Load) -> Vec<u8> {
        let me = self.heap.rank();
        let place = case.sizes.row_bytes() as usize * case.sizes.tokens as usize;
        let mut all = Vec::with_capacity(place * load.ranks as usize);
        for source in 0..load.ranks {
            for token in load.slots(source, me) {
                load.push_row(source, token, load.local(source, token, me), &mut all);
            }
            all.resize(place * (source as usize + 1), 0);
        }
        all
    }

    /// Rows of each of this rank's experts, which give them back as the callers had them: of fp8 rows in bf16.
    fn expert_rows(&self, case: &Case, load: &Load, places: u64) -> Result<Buffer> {
        let each = case.sizes.row_bytes();
        let outputs = self.gpu.alloc((places * each).max(16) as usize, Place::Device)?;
        for Group { base, from, .. } in self.groups(case, load) {
            let mut rows = Vec::new();
            from.iter().for_each(|&(source, token)| load.push_row(source, token, 1, &mut rows));
            self.gpu.write(&outputs, base * each, &rows)?;
        }
        Ok(outputs)
    }

    fn groups(&self, case: &Case, load: &Load) -> Vec<Group> {
        let local = case.sizes.experts_of(load.ranks, self.heap.rank());
        let from: Vec<_> = local.clone().map(|expert| load.of_expert(expert)).collect();
        let rows: Vec<_> = from.iter().map(|rows| rows.len() as u64).collect();
        let bases = case.bases(&rows, load.ranks);
        let groups = local.zip(bases).zip(from);
        groups.map(|((expert, base), from)| Group { expert, base, from }).collect()
    }

    /// Runs the kernel once: times of its calls, and nanoseconds of a pair.
    fn calls(
        &mut self,
        case: &Case,
        ep: &Ep,
        memory: &Memory,
        aligned: bool,
    ) -> Result<(Times, f64)> {
        let Sizes { hidden, top_k, .. } = case.sizes;
        let Loop { warmup, iters } = self.looped;
        self.gpu.zero(&memory.sums)?;
        self.heap.write(&self.team, &vec![0; TEAM_BLOCK_BYTES as usize])?;
        let (report, gate) = (Report::new(&*self.gpu)?, self.gpu.alloc(GATE, Place::Device)?);
        let times = self.gpu.alloc(iters as usize * 13 * 8, Place::Device)?;
        let ranks = self.ways().ranks;
        let local = case.sizes.experts_of(ranks, self.heap.rank()).len() as u32;
        let packed = case.by != By::Rank;
        let is_fp8 = case.elements == Elements::Fp8;
        let scaled = if is_fp8 { case.config().scale_words() } else { 0 };
        let kernel = k::EpCalls {
            ep: ep.device(0)?,
            r#loop: k::EpLoop {
                team_block: self.team.offset(),
                warmup,
                iters,
                aligned: aligned.into(),
                count: memory.count,
            },
            hidden,
            top_k,
            tokens: memory.count,
            given: if is_fp8 { hidden / 2 } else { hidden },
            rows: KernelPtr::new(&memory.rows),
            scaled,
            scales: KernelPtr::new(&memory.scales),
            experts: KernelPtr::new(&memory.experts),
            weights: KernelPtr::new(&memory.weights),
            local,
            ranks,
            capacity: if packed { memory.inputs } else { 0 },
            into: (case.payload_bytes() / 2) as u32,
            packed: KernelPtr::new(&memory.packed.rows),
            scale_room: memory.packed.scales.len() as u64 / 4,
            packed_scale: KernelPtr::new(&memory.packed.scales),
            of_token: KernelPtr::new(&memory.packed.tokens),
            counts: KernelPtr::new(&memory.packed.counts),
            bases: KernelPtr::new(&memory.packed.bases),
            ranges: KernelPtr::new(&memory.packed.ranges),
            inputs: memory.inputs,
            outputs: KernelPtr::new(&memory.outputs),
            sums: KernelPtr::new(&memory.sums),
            measured: iters,
            times: KernelPtr::new(&times),
            gate: KernelPtr::new(&gate),
            report: report.pointer(),
        };
        self.world.barrier("ready")?;
        self.gpu.launch_resident(&kernel, case.dim, LIMIT)?.wait()?;
        report.times(&*self.gpu, &[])?;
        let gate = read_words(&*self.gpu, &gate, 4)?;
        let pair = gate[3].saturating_sub(!gate[2]) as f64 / f64::from(iters);
        Ok((times_of(&read_words(&*self.gpu, &times, iters as usize * 13)?), pair))
    }

    /// Every received row lies where it belongs, and every sum is right.
    fn verify(&self, case: &Case, load: &Load, ep: &Ep, memory: &Memory) -> Result<()> {
        let me = self.heap.rank();
        let mut found = vec![0; memory.sums.len()];
        self.gpu.read(&memory.sums, 0, &mut found)?;
        let expected = load.rows(me, case.sizes.top_k);
        compare(0, &expected, &found).with_context(|| format!("sums of rank {me}"))?;
        match case.by {
            By::Rank => self.verify_arrived(case, load, ep),
            By::Expert | By::Flat => self.verify_packed(case, load, memory),
        }
    }

    fn verify_packed(&self, case: &Case, load: &Load, memory: &Memory) -> Result<()> {
        for Group { expert, base, from } in self.groups(case, load) {
            let (mut rows, mut scales) = (Vec::new(), Vec::new());
            for (source, token) in from {
                let (row, words) = load.arriving(source, token, case.elements);
                rows.extend(row);
                scales.extend(words);
            }
            let words = 4 * u64::from(case.config().scale_words());
            for (what, buffer, each, expected) in [
                ("rows", &memory.packed.rows, case.payload_bytes(), rows),
                ("scales", &memory.packed.scales, words, scales),
            ] {
                let mut found = vec![0; expected.len()];
                self.gpu.read(buffer, base * each, &mut found)?;
                let of = || format!("{what} of expert {expert} of {} ranks", load.ranks);
                compare(0, &expected, &found).with_context(of)?;
            }
        }
        Ok(())
    }

    /// Rank-major: the rows where they came. Results that NICs take may lie there already.
    fn verify_arrived(&self, case: &Case, load: &Load, ep: &Ep) -> Result<()> {
        let regions = Regions::new(&case.config(), self.ways(), 0);
        if self.ways().staged {
            return Ok(());
        }
        let me = self.heap.rank();
        let mut found = vec![0; regions.rows.end as usize];
        self.heap.read(ep.place(0)?, &mut found)?;
        for source in 0..load.ranks {
            for (slot, token) in (0..).zip(load.slots(source, me)) {
                let (mut expected, scales) = load.arriving(source, token, case.elements);
                expected.extend(scales);
                let place = u64::from(source) * u64::from(case.sizes.tokens) + slot;
                let at = regions.rows.start + place * regions.row_bytes + regions.header_bytes;
                compare(0, &expected, &found[at as usize..][..expected.len()])
                    .with_context(|| format!("row {slot} of rank {source}"))?;
            }
        }
        Ok(())
    }

    /// An all-gather of `bytes` of each rank: nanoseconds of the slowest rank, by turn. None where a rank is
    /// not reached by loads and stores.
    pub(super) fn gather(&mut self, bytes: u64, dim: Dim) -> Result<Option<Vec<u64>>> {
        let (world, me) = (self.ways().ranks, self.heap.rank());
        if self.ways().staged {
            return Ok(None);
        }
        let Loop { warmup, iters } = self.looped;
        let heap = &mut self.heap;
        let from = heap.alloc::<u8>(bytes)?;
        let to = heap.alloc::<u8>(bytes * u64::from(world))?;
        let signals = heap.alloc_zeroed::<u64>(&mut self.world, 2 * u64::from(world))?;
        heap.write(&from, &pattern(me.into(), bytes as usize))?;
        heap.write(&self.team, &vec![0; TEAM_BLOCK_BYTES as usize])?;
        let (report, gate) = (Report::new(&*self.gpu)?, self.gpu.alloc(GATE, Place::Device)?);
        let times = self.gpu.alloc(iters as usize * 16, Place::Device)?;
        let what = k::Gathering {
            team_block: self.team.offset(),
            from: from.offset(),
            to: to.offset(),
            signals: signals.offset(),
            bytes,
            warmup,
            iters,
        };
        let kernel = k::EpGather {
            heap: heap.device(),
            what,
            measured: iters,
            times: KernelPtr::new(&times),
            gate: KernelPtr::new(&gate),
            report: report.pointer(),
        };
        self.world.barrier("ready")?;
        self.gpu.launch_resident(&kernel, dim, LIMIT)?.wait()?;
        report.times(&*self.gpu, &[])?;
        let mut found = vec![0; to.bytes() as usize];
        self.heap.read(&to, &mut found)?;
        for rank in (0..world).filter(|&rank| rank != me) {
            let part = &found[(u64::from(rank) * bytes) as usize..][..bytes as usize];
            compare(0, &pattern(rank.into(), bytes as usize), part)
                .with_context(|| format!("all-gather: bytes of rank {rank}"))?;
        }
        let words = read_words(&*self.gpu, &times, 2 * iters as usize)?;
        let took = words.as_chunks::<2>().0.iter().map(|[begin, end]| end.saturating_sub(!begin));
        let mine: Vec<u8> = took.flat_map(u64::to_le_bytes).collect();
        let all = self.world.exchange("gathered", &mine)?;
        self.heap.free(signals)?;
        self.heap.free(to)?;
        self.heap.free(from)?;
        let mut most = vec![0; iters as usize];
        for bytes in &all {
            let turns = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
            most.iter_mut().zip(turns).for_each(|(most, ns): (&mut u64, _)| *most = ns.max(*most));
        }
        ensure!(most.iter().all(|&ns| ns > 0), "the device's clock stood still");
        Ok(Some(most))
    }
}
