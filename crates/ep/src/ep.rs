//! The channels of a layer on one rank, and the launches that use them.

use crate::buffers::{Packed, Tokens, pointer};
use crate::kernels::ep::{IMAGE, MoeCombine, MoeDispatch};
use crate::stage::Turn;
use crate::{
    Channel, EpConfig, EpError, Export, Failed, Layout, Regions, Regrouped, Returned, Routed, Sent,
    Ways,
};
use std::sync::Arc;
use std::time::Duration;
use warpverbs_gpu::{Buffer, DeviceEp, Dim, Gpu, GpuKind, Graph, KernelPtr, SafeKernel};
use warpverbs_rendezvous::World;
use warpverbs_shmem::{Heap, Sym};
use warpverbs_transport::{KernelStatus, Outcome};

/// Which halves of a call a launch makes.
pub(crate) const SEND: u32 = 1;
pub(crate) const RECV: u32 = 2;

/// Dispatch and combine of one layer, on one rank.
pub struct Ep {
    pub(crate) config: EpConfig,
    pub(crate) ways: Ways,
    pub(crate) rank: u32,
    pub(crate) gpu: Arc<dyn Gpu>,
    dim: Dim,
    pub(crate) deadline: Duration,
    pub(crate) channels: Vec<Slot>,
    pub(crate) places: Vec<Sym<u64>>,
    /// Of the ranks that take part.
    pub(crate) generation: u8,
    /// This rank has come back, and has not met the others yet.
    pub(crate) is_new: bool,
    pub(crate) last: Option<Regrouped>,
    /// For launches that put no rows.
    nothing: Packed,
}

/// One channel.
pub(crate) struct Slot {
    pub(crate) channel: Channel,
    pub(crate) turn: Turn,
    pub(crate) status: KernelStatus,
}

impl Ep {
    /// Makes the channels on all ranks of the heap, each at the same place. A rank that is lost ends the
    /// waits of the heap's kernels for it from now on ([`Heap::watch`]).
    ///
    /// On a rank that comes back: of the others, who [admit](Ep::admit) it.
    ///
    /// # Errors
    /// Ranks that disagree about a setting, settings that cannot be, no room in the heap: all ranks get
    /// the same error.
    #[track_caller]
    pub fn new(heap: &mut Heap, world: &mut World, config: &EpConfig) -> Result<Self, EpError> {
        let is_new = heap.is_behind();
        if !is_new {
            agree(world, config)?;
        }
        let ways = Ways::of(heap);
        let (rank, gpu) = (heap.rank(), heap.gpu().clone());
        let bytes = config.bytes(ways)?;
        let regions = Regions::new(config, ways, 0);
        let (mut channels, mut places) = (Vec::new(), Vec::new());
        for _ in 0..config.channels {
            let place = heap.alloc_zeroed::<u64>(world, bytes / 8)?;
            let (offset, heap) = (place.offset(), heap.device());
            let regions = &regions;
            let export =
                Export { config, ways, rank, heap, offset, regions, epoch: 0, generation: 0 };
            let (channel, status) = (export.upload(&*gpu)?, KernelStatus::new(&gpu)?);
            channels.push(Slot { channel, turn: Turn::DispatchSend, status });
            places.push(place);
        }
        let dim = match gpu.info().kind {
            GpuKind::Simt => Dim::new(2, 64),
            _ => Dim::new(gpu.info().sm_count.max(1), 256),
        };
        // No launch has to wait for a compiler while another rank's waits for it.
        gpu.load(&IMAGE)?;
        let rank_major = config.clone().layout(Layout::RankMajor);
        let nothing = Packed::new(&*gpu, &rank_major, ways, rank)?;
        let deadline = Duration::from_secs(60);
        if !is_new {
            heap.watch(world)?;
        }
        let mut ep = Self {
            config: config.clone(),
            ways,
            rank,
            gpu,
            dim,
            deadline,
            channels,
            places,
            generation: 0,
            is_new,
            last: None,
            nothing,
        };
        if is_new {
            ep.follow(heap, world)?;
            heap.watch(world)?;
        }
        Ok(ep)
    }

    /// The shape of its launches, in place of the usual one. All blocks must be resident at once.
    pub fn set_dim(&mut self, dim: Dim) {
        self.dim = dim;
    }

    /// How long a launch may take in all; waits for ranks end by the heap's timeout.
    pub fn set_deadline(&mut self, deadline: Duration) {
        self.deadline = deadline;
    }

    /// Sizes and choices.
    pub fn config(&self) -> &EpConfig {
        &self.config
    }

    /// Number of ranks and how they are reached.
    pub fn ways(&self) -> Ways {
        self.ways
    }

    /// A channel for kernels of one's own, `const wv::Ep*`.
    ///
    /// # Errors
    /// There is no such channel.
    pub fn device(&self, channel: usize) -> Result<KernelPtr<DeviceEp>, EpError> {
        Ok(self.channel(channel)?.channel.device.clone())
    }

    /// Buffers for a dispatch.
    ///
    /// # Errors
    /// The device refuses.
    pub fn packed(&self) -> Result<Packed, EpError> {
        Packed::new(&*self.gpu, &self.config, self.ways, self.rank)
    }

    /// Gives the channels' memory back. Every rank makes the same call, after all have ended theirs.
    ///
    /// # Errors
    /// It is another heap.
    pub fn free(self, heap: &mut Heap) -> Result<(), EpError> {
        Ok(self.places.into_iter().try_for_each(|place| heap.free(place))?)
    }

    fn channel(&self, channel: usize) -> Result<&Slot, EpError> {
        let channels = self.channels.len();
        self.channels.get(channel).ok_or(EpError::Channel { channel, channels })
    }

    /// Sends the rows of `tokens` to the ranks of their experts, and waits for those of all ranks, which it
    /// puts in `packed`.
    ///
    /// # Errors
    /// Sizes that cannot be, before anything happens. A wait that failed: which ranks are missing, and the
    /// first cause; the call can be gone on with.
    pub fn dispatch(
        &mut self,
        heap: &Heap,
        channel: usize,
        tokens: &Tokens<'_>,
        packed: &Packed,
    ) -> Result<Routed, Failed<Routed>> {
        self.launch_dispatch(heap, channel, SEND | RECV, Some(tokens), packed, tokens.count)
    }

    /// The first half of [`Ep::dispatch`].
    ///
    /// # Errors
    /// As that.
    pub fn dispatch_send(
        &mut self,
        heap: &Heap,
        channel: usize,
        tokens: &Tokens<'_>,
    ) -> Result<Sent, Failed<Sent>> {
        let none = self.nothing.clone();
        let sent = |routed: Routed| Sent { channel, tokens: routed.tokens };
        let done = self.launch_dispatch(heap, channel, SEND, Some(tokens), &none, tokens.count);
        done.map(sent).map_err(|Failed { cause, next }| Failed { cause, next: next.map(sent) })
    }

    /// The second half of [`Ep::dispatch`].
    ///
    /// # Errors
    /// As that.
    pub fn dispatch_recv(
        &mut self,
        heap: &Heap,
        sent: Sent,
        packed: &Packed,
    ) -> Result<Routed, Failed<Routed>> {
        self.launch_dispatch(heap, sent.channel, RECV, None, packed, sent.tokens)
    }

    fn launch_dispatch(
        &mut self,
        heap: &Heap,
        channel: usize,
        halves: u32,
        tokens: Option<&Tokens<'_>>,
        packed: &Packed,
        count: u32,
    ) -> Result<Routed, Failed<Routed>> {
        let first = if halves & SEND != 0 { Turn::DispatchSend } else { Turn::DispatchRecv };
        let next = if halves & RECV != 0 { Turn::CombineSend } else { Turn::DispatchRecv };
        self.channel(channel)?.turn.check(channel, first)?;
        let kernel = self.dispatch_kernel(channel, halves, tokens, packed)?;
        let outcome = self.run(channel, next, kernel)?;
        let [missing, unanswered] = self.missing(channel)?;
        let routed = Routed { channel, tokens: count, missing: ranks_of(missing) };
        match outcome {
            Ok(()) => Ok(routed),
            Err(outcome) => Err(failure(heap, outcome, missing | unanswered)?.with(routed)),
        }
    }

    pub(crate) fn dispatch_kernel(
        &self,
        channel: usize,
        halves: u32,
        tokens: Option<&Tokens<'_>>,
        packed: &Packed,
    ) -> Result<MoeDispatch, EpError> {
        let (config, top_k, ranks) = (&self.config, self.config.top_k, self.ways.ranks);
        // A half that reads no tokens is given none.
        let nothing = Tokens::new(0, &packed.rows, &packed.counts, &packed.counts);
        let tokens = tokens.unwrap_or(&nothing);
        let count = tokens.count;
        if count > config.tokens {
            return Err(EpError::Tokens { count, most: config.tokens });
        }
        let (given, into) = (config.given_words(), config.packed_words());
        let scaled = config.given_scales();
        let each = |words: u32| u64::from(count) * u64::from(words);
        let unpacks = config.layout != Layout::RankMajor && halves & RECV != 0;
        let local = config.experts_of(ranks, self.rank).len() as u32;
        let all = if unpacks { config.packed_rows(self.ways, self.rank) } else { 0 };
        let local = if unpacks { local } else { 0 };
        let scale_room = if unpacks { config.packed_scales(self.ways, self.rank) } else { 0 };
        let tables = u64::from(local);
        if scaled != 0 && count != 0 && tokens.scales.is_none() {
            let (what, expected) = ("scales of tokens", 4 * each(scaled));
            return Err(EpError::Small { what, expected, found: 0 });
        }
        let scales = tokens.scales.unwrap_or(&packed.scales);
        let counted = tokens.counted.unwrap_or(&packed.counts);
        let in_memory = tokens.counted.is_some().into();
        let kernel = MoeDispatch {
            ep: self.device(channel)?,
            halves,
            given,
            top_k,
            scaled,
            count,
            rows: pointer("rows of tokens", tokens.rows, each(given))?,
            experts: pointer("experts of tokens", tokens.experts, each(top_k))?,
            weights: pointer("weights of tokens", tokens.weights, each(top_k))?,
            scales: pointer("scales of tokens", scales, each(scaled))?,
            in_memory,
            counted: pointer("number of tokens", counted, in_memory.into())?,
            into,
            local,
            ranks,
            capacity: all,
            packed: pointer("packed rows", &packed.rows, all * u64::from(into))?,
            counts: pointer("counts of packed rows", &packed.counts, tables)?,
            bases: pointer("bases of packed rows", &packed.bases, tables)?,
            ranges: pointer("ranges of packed rows", &packed.ranges, tables * u64::from(ranks))?,
            tokens: pointer("tokens of packed rows", &packed.tokens, all)?,
            scale_room,
            packed_scale: pointer("scales of packed rows", &packed.scales, scale_room)?,
            status: self.channel(channel)?.status.pointer(),
        };
        Ok(kernel)
    }

    /// Sends back what the experts made of the rows, and waits for the results of this rank's tokens, which
    /// it adds. `rows` has room for [`EpConfig::packed_rows`]: by expert the places are those of the dispatch,
    /// in rank-major layout those of the received rows, each with one row for each of its local experts.
    /// `sums` has a row for each token.
    ///
    /// # Errors
    /// As [`Ep::dispatch`].
    pub fn combine(
        &mut self,
        heap: &Heap,
        routed: Routed,
        rows: &Buffer,
        sums: &Buffer,
    ) -> Result<(), Failed<()>> {
        let Routed { channel, tokens, .. } = routed;
        self.launch_combine(heap, channel, SEND | RECV, tokens, (rows, sums))
    }

    /// The first half of [`Ep::combine`].
    ///
    /// # Errors
    /// As that.
    pub fn combine_send(
        &mut self,
        heap: &Heap,
        routed: Routed,
        rows: &Buffer,
    ) -> Result<Returned, Failed<Returned>> {
        let Routed { channel, tokens, .. } = routed;
        let returned = |()| Returned { channel, tokens };
        let done = self.launch_combine(heap, channel, SEND, tokens, (rows, rows));
        done.map(returned)
            .map_err(|Failed { cause, next }| Failed { cause, next: next.map(returned) })
    }

    /// The second half of [`Ep::combine`].
    ///
    /// # Errors
    /// As that.
    pub fn combine_recv(
        &mut self,
        heap: &Heap,
        returned: Returned,
        sums: &Buffer,
    ) -> Result<(), Failed<()>> {
        let Returned { channel, tokens } = returned;
        self.launch_combine(heap, channel, RECV, tokens, (sums, sums))
    }

    fn launch_combine(
        &mut self,
        heap: &Heap,
        channel: usize,
        halves: u32,
        tokens: u32,
        (rows, sums): (&Buffer, &Buffer),
    ) -> Result<(), Failed<()>> {
        let first = if halves & SEND != 0 { Turn::CombineSend } else { Turn::CombineRecv };
        let next = if halves & RECV != 0 { Turn::DispatchSend } else { Turn::CombineRecv };
        self.channel(channel)?.turn.check(channel, first)?;
        let kernel = self.combine_kernel(channel, halves, tokens, (rows, sums))?;
        let outcome = self.run(channel, next, kernel)?;
        self.combined(heap, channel, outcome)
    }

    pub(crate) fn combine_kernel(
        &self,
        channel: usize,
        halves: u32,
        tokens: u32,
        (rows, sums): (&Buffer, &Buffer),
    ) -> Result<MoeCombine, EpError> {
        let hidden = u64::from(self.config.hidden);
        let all = self.config.packed_rows(self.ways, self.rank);
        let capacity = if halves & SEND != 0 { all } else { 0 };
        let count = if halves & RECV != 0 { tokens } else { 0 };
        let rows = pointer("rows of experts", rows, capacity * hidden)?;
        let sums = pointer("sums of tokens", sums, u64::from(count) * hidden)?;
        let (ep, hidden) = (self.device(channel)?, self.config.hidden);
        let status = self.channel(channel)?.status.pointer();
        Ok(MoeCombine { ep, halves, hidden, capacity, rows, count, sums, status })
    }

    /// The result of a combine that has ended.
    fn combined(
        &self,
        heap: &Heap,
        channel: usize,
        outcome: Result<(), Outcome>,
    ) -> Result<(), Failed<()>> {
        match outcome {
            Ok(()) => Ok(()),
            Err(outcome) => {
                let [missing, unanswered] = self.missing(channel)?;
                Err(failure(heap, outcome, missing | unanswered)?.with(()))
            }
        }
    }

    /// For how long the first block of this rank's launches has waited for words of each rank, in all calls
    /// so far: longer for a rank that is late.
    ///
    /// # Errors
    /// There is no such channel, or the device refuses.
    pub fn waited(&self, channel: usize) -> Result<Vec<Duration>, EpError> {
        let waited = self.channel(channel)?.channel.waited_ns(&*self.gpu)?;
        let ranks = &waited[..self.ways.ranks as usize];
        Ok(ranks.iter().map(|ns| Duration::from_nanos(*ns)).collect())
    }

    fn missing(&self, channel: usize) -> Result<[u64; 2], EpError> {
        self.channels[channel].channel.missing(&*self.gpu)
    }

    /// Runs a kernel to its end; it is then `next`'s turn.
    fn run<K: SafeKernel>(
        &mut self,
        channel: usize,
        next: Turn,
        kernel: K,
    ) -> Result<Result<(), Outcome>, EpError> {
        let slot = &mut self.channels[channel];
        slot.status.clear()?;
        self.gpu.launch_resident(&kernel, self.dim, self.deadline)?.wait()?;
        slot.turn = next;
        Ok(Outcome::of(slot.status.read()?))
    }

    /// Whether a whole call of a channel may begin.
    pub(crate) fn check_idle(&self, channel: usize) -> Result<(), EpError> {
        self.channel(channel)?.turn.check(channel, Turn::DispatchSend)
    }

    /// Launches a graph that is a whole call of a channel, and waits for its end.
    pub(crate) fn run_graph(
        &mut self,
        heap: &Heap,
        channel: usize,
        graph: &Graph,
    ) -> Result<(), Failed<()>> {
        let slot = &self.channels[channel];
        slot.status.clear().map_err(EpError::from)?;
        let launch = graph.launch(self.deadline).map_err(EpError::from)?;
        launch.wait().map_err(EpError::from)?;
        let outcome = Outcome::of(slot.status.read().map_err(EpError::from)?);
        self.combined(heap, channel, outcome)
    }

    /// The device of its launches, and their shape.
    pub(crate) fn launches(&self) -> (&dyn Gpu, Dim) {
        (&*self.gpu, self.dim)
    }
}

/// Ranks of a set.
fn ranks_of(set: u64) -> Vec<u32> {
    (0..64).filter(|rank| set >> rank & 1 != 0).collect()
}

pub(crate) fn failure(heap: &Heap, outcome: Outcome, missing: u64) -> Result<EpError, EpError> {
    let health = Box::new(heap.health()?);
    Ok(EpError::Kernel { outcome, missing: ranks_of(missing), health })
}

/// All ranks have the same settings, and such a layer can be.
fn agree(world: &mut World, config: &EpConfig) -> Result<(), EpError> {
    let mine: Vec<u8> = config.fields().iter().flat_map(|(_, value)| value.to_le_bytes()).collect();
    let all = world.exchange("expert parallelism", &mine)?;
    let mut settings = Vec::new();
    for &rank in world.members() {
        let theirs = &all[rank as usize];
        let (found, expected) = (theirs.len(), mine.len());
        if found != expected {
            return Err(EpError::Version { rank, found, expected });
        }
        let words = theirs.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word));
        settings.push((rank, words.collect()));
    }
    agree_on(config, &settings)
}

/// All have the settings of the first.
pub(crate) fn agree_on(config: &EpConfig, all: &[(u32, Vec<u64>)]) -> Result<(), EpError> {
    let Some((rank, first)) = all.first() else { return Ok(()) };
    for (other, theirs) in all {
        let pairs = first.iter().zip(theirs);
        for ((field, _), (&value, &other_value)) in config.fields().into_iter().zip(pairs) {
            if value != other_value {
                let (rank, other) = (*rank, *other);
                return Err(EpError::Unequal { field, rank, value, other, other_value });
            }
        }
    }
    Ok(())
}
