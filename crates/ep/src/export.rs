//! From a heap and sizes to what kernels are given.

use crate::{EpConfig, EpError, Regions, Ways};
use std::sync::Arc;
use warpverbs_gpu::layout::{self, EP_RANKS, EpState};
use warpverbs_gpu::{Buffer, DeviceEp, DeviceHeap, Gpu, KernelPtr, Place};
use zerocopy::{FromZeros, IntoBytes};

/// A channel of one rank, to be made. In the heap its [`Regions`] are zero before any rank's first call.
#[derive(Debug)]
pub struct Export<'a> {
    /// Of the layer; checked.
    pub config: &'a EpConfig,
    /// Of the heap.
    pub ways: Ways,
    /// The own rank.
    pub rank: u32,
    /// The own heap.
    pub heap: KernelPtr<DeviceHeap>,
    /// Where the channel begins in every rank's heap, a multiple of 256.
    pub offset: u64,
    /// How it is divided.
    pub regions: &'a Regions,
    /// Number of the call before the first one: 0, unless the words in the heap say another.
    pub epoch: u32,
    /// Generation of the ranks: 0, unless the words in the heap say another.
    pub generation: u8,
}

/// A channel as kernels take it.
#[derive(Clone, Debug)]
pub struct Channel {
    /// `const wv::Ep*`.
    pub device: KernelPtr<DeviceEp>,
    /// The [`EpState`].
    state: Buffer,
    plans: Buffer,
}

/// From where the calls of a channel go on: the words in the heap say the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// Number of the call before the next one.
    pub epoch: u32,
    /// Of the ranks that take part.
    pub generation: u8,
    /// Those ranks, as bits.
    pub members: u64,
}

/// u32 of a plan: `wv::impl::PlanPlaces`.
fn plan_words(config: &EpConfig, ranks: u32) -> u64 {
    let [tokens, top_k] = [config.tokens, config.top_k].map(u64::from);
    let (ranks, local) = (u64::from(ranks), u64::from(config.most_experts(ranks)));
    2 + 2 * EP_RANKS as u64 + 2 * tokens + 3 * tokens * top_k + local * (ranks + 1)
}

/// Bytes of a plan, `wv::impl::ep_plan_bytes`.
#[doc(hidden)]
pub fn plan_bytes(config: &EpConfig, ranks: u32) -> u64 {
    (4 * plan_words(config, ranks)).next_multiple_of(256)
}

/// Of `Ep::owner_scales`, for so many experts of a rank.
fn owner_scale(experts: u32) -> u64 {
    if experts == 0 { 0 } else { (1_u64 << 32).div_ceil(experts.into()) }
}

impl Export<'_> {
    /// Copies the structure to memory of `gpu` that its kernels read. All that it refers to lives as long
    /// as the pointer or a launch that was given it.
    ///
    /// # Errors
    /// The sizes are refused, or the device has no memory.
    pub fn upload(&self, gpu: &dyn Gpu) -> Result<Channel, EpError> {
        self.config.check(self.ways)?;
        let plan = plan_bytes(self.config, self.ways.ranks);
        let state = gpu.alloc(size_of::<EpState>(), Place::Device)?;
        let plans = gpu.alloc(2 * plan as usize, Place::Device)?;
        let channel = self.upload_over(gpu, state, plans)?;
        let members = u64::MAX >> (64 - self.ways.ranks);
        channel.start(gpu, Start { epoch: self.epoch, generation: self.generation, members })?;
        Ok(channel)
    }

    /// The same channel on another heap: its state is that of `before`.
    ///
    /// # Errors
    /// As [`Export::upload`].
    pub fn upload_again(&self, gpu: &dyn Gpu, before: &Channel) -> Result<Channel, EpError> {
        self.upload_over(gpu, before.state.clone(), before.plans.clone())
    }

    #[allow(unsafe_code)]
    fn upload_over(&self, gpu: &dyn Gpu, state: Buffer, plans: Buffer) -> Result<Channel, EpError> {
        let entry = self.entry(&state, &plans);
        let buffer = gpu.alloc(size_of::<layout::Ep>(), Place::Device)?;
        gpu.write(&buffer, 0, entry.as_bytes())?;
        // SAFETY: the buffer holds a `wv::Ep`, which nobody writes again; state and plans have the sizes
        // that it says, and they and the heap are named below.
        let device = unsafe { KernelPtr::from_buffer(&buffer, Arc::new(())) };
        let device = device.reaching(&state).reaching(&plans).reaching_all_of(&self.heap);
        Ok(Channel { device, state, plans })
    }

    fn entry(&self, state: &Buffer, plans: &Buffer) -> layout::Ep {
        let Self { config, ways, regions, .. } = self;
        let at = |region: &std::ops::Range<u64>| self.offset + region.start;
        layout::Ep {
            heap: self.heap.addr(),
            state: state.kernel_addr(),
            plans: plans.kernel_addr(),
            plan_bytes: plan_bytes(config, ways.ranks),
            announced: at(&regions.announced),
            arrived: at(&regions.arrived),
            returned: at(&regions.returned),
            counts: at(&regions.counts),
            counts_out: at(&regions.counts_out),
            rows: at(&regions.rows),
            results: at(&regions.results),
            stage: at(&regions.stage),
            stage_back: self.offset + regions.backs,
            line: regions.line as u32,
            header_bytes: regions.header_bytes as u32,
            row_bytes: regions.row_bytes as u32,
            hidden: config.hidden,
            tokens: config.tokens,
            top_k: config.top_k,
            experts: config.experts,
            ranks: ways.ranks,
            rank: self.rank,
            most_experts: config.most_experts(ways.ranks),
            lanes: ways.lanes,
            answers: config.answers(*ways),
            backs: config.backs(*ways),
            align: config.layout.align(),
            layout: config.layout.code() as u32,
            combine: config.combine.code() as u32,
            staged: ways.staged.into(),
            payload: config.payload.code() as u32,
            scale: config.payload.scale().code() as u32,
            scale_words: config.scale_words(),
            payload_bytes: config.payload_bytes() as u32,
            scale_rows: config.scale_rows(*ways, self.rank) as u32,
            back_bytes: regions.back_bytes as u32,
            least_experts: config.experts / ways.ranks,
            owner_scales: [config.most_experts(ways.ranks), config.experts / ways.ranks]
                .map(owner_scale),
            outputs: if config.pulled() { at(&regions.outputs) } else { 0 },
        }
    }
}

impl Channel {
    /// Ranks whose rows the last dispatch did not bring, and ranks that took no rows of it or gave no
    /// results to its combine, as bits.
    ///
    /// # Errors
    /// The device refuses.
    pub fn missing(&self, gpu: &dyn Gpu) -> Result<[u64; 2], EpError> {
        let state = self.state(gpu)?;
        let parity = state.epoch as usize % 2;
        Ok([state.missing[parity], state.unanswered[parity]])
    }

    /// Sets the state anew. No call may be under way.
    ///
    /// # Errors
    /// The device refuses.
    pub fn start(&self, gpu: &dyn Gpu, start: Start) -> Result<(), EpError> {
        let Start { epoch, generation, members } = start;
        let mut state = EpState::new_zeroed();
        (state.epoch, state.ended) = (epoch, epoch);
        (state.generation, state.members) = (generation.into(), members);
        state.waited = self.state(gpu)?.waited;
        Ok(gpu.write(&self.state, 0, state.as_bytes())?)
    }

    /// Number of the last call that has ended with the rows and results of all members.
    ///
    /// # Errors
    /// The device refuses.
    pub fn ended(&self, gpu: &dyn Gpu) -> Result<u32, EpError> {
        let state = self.state(gpu)?;
        let parity = state.epoch as usize % 2;
        let whole = state.leaving == 0 && state.left_out[parity] == 0;
        let all = state.missing[parity] | state.unanswered[parity] == 0;
        Ok(if whole && all { state.epoch } else { state.ended })
    }

    /// Nanoseconds that the first block has waited for words of each rank, in all calls so far.
    ///
    /// # Errors
    /// The device refuses.
    pub fn waited_ns(&self, gpu: &dyn Gpu) -> Result<[u64; EP_RANKS], EpError> {
        Ok(self.state(gpu)?.waited)
    }

    fn state(&self, gpu: &dyn Gpu) -> Result<EpState, EpError> {
        let mut state = EpState::new_zeroed();
        gpu.read(&self.state, 0, state.as_mut_bytes())?;
        Ok(state)
    }
}

#[cfg(test)]
mod tests {
    use super::owner_scale;

    #[test]
    fn owners_are_those_of_a_division() {
        for each in 1..=1_u64 << 16 {
            let scale = owner_scale(each as u32);
            // Quotients change at multiples alone.
            for multiple in (0..1_u64 << 16).step_by(each as usize).chain([(1 << 16) - 1]) {
                for number in [multiple, multiple.saturating_sub(1)] {
                    assert_eq!((number * scale) >> 32, number / each, "{number} / {each}");
                }
            }
        }
        assert_eq!(owner_scale(0), 0);
    }
}
