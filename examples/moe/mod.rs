//! A layer on one rank, for the example `moe_layer`: its sizes, memory and kernels.

pub(crate) mod life;

use super::common::{Session, compare, sample};
use anyhow::{Context as _, Result, ensure};
use clap::Args;
use std::ops::Range;
use std::time::{Duration, Instant};
use warpverbs::ep::{Ep, EpConfig, EpError, Packed, Tokens};
use warpverbs::gpu::{Buffer, Dim, KernelPtr, Place};
use warpverbs::kernels::moe_layer::{MoeAlone, MoeExperts, MoeRouter};
use warpverbs::shmem::Heap;

/// Sizes of a layer
#[derive(Args, Clone, Copy)]
pub(crate) struct Sizes {
    /// Experts of all ranks
    #[arg(long, default_value_t = 16)]
    pub(crate) experts: u32,
    /// Experts of a token, 1 to 32
    #[arg(long, default_value_t = 4)]
    pub(crate) top_k: u32,
    /// Tokens of each rank
    #[arg(long, default_value_t = 64)]
    pub(crate) tokens: u32,
    /// Elements of a token, a multiple of 8
    #[arg(long, default_value_t = 64)]
    pub(crate) hidden: u32,
}

/// Memory and sizes of a layer on one rank.
pub(crate) struct Moe<'a> {
    session: &'a Session,
    sizes: Sizes,
    config: EpConfig,
    packed: Packed,
    rows: Buffer,
    chosen: Buffer,
    weights: Buffer,
    outputs: Buffer,
    sums: Buffer,
    alone: Buffer,
}

impl<'a> Moe<'a> {
    pub(crate) fn new(session: &'a Session, sizes: Sizes, ep: &Ep) -> Result<Self> {
        let Sizes { top_k, tokens, hidden, .. } = sizes;
        let gpu = &session.gpu;
        let buffer = |each: u32| gpu.alloc(tokens as usize * each as usize, Place::Device);
        let packed = ep.packed()?;
        Ok(Self {
            session,
            sizes,
            config: ep.config().clone(),
            rows: buffer(2 * hidden)?,
            chosen: buffer(4 * top_k)?,
            weights: buffer(4 * top_k)?,
            outputs: gpu.alloc(packed.rows.len(), Place::Device)?,
            sums: buffer(2 * hidden)?,
            alone: buffer(2 * hidden)?,
            packed,
        })
    }

    /// One layer, without the experts of a rank that is away. How long dispatch, experts and combine took.
    pub(crate) fn layer(
        &self,
        ep: &mut Ep,
        heap: &Heap,
        round: u32,
        away: Option<u32>,
    ) -> Result<Duration> {
        let Sizes { experts, top_k, tokens, hidden } = self.sizes;
        let (session, gpu, ways) = (self.session, &self.session.gpu, ep.ways());
        let mine = self.config.experts_of(ways.ranks, heap.rank());
        let Self { packed, rows, chosen, weights, outputs, sums, alone, .. } = self;
        #[rustfmt::skip] // One line for each kernel.
        let (router, whole, run_experts) = (
            MoeRouter { rows: KernelPtr::new(rows), tokens, hidden, experts, top_k, chosen: KernelPtr::new(chosen), weights: KernelPtr::new(weights) },
            MoeAlone { rows: KernelPtr::new(rows), tokens, hidden, top_k, chosen: KernelPtr::new(chosen), weights: KernelPtr::new(weights), sums: KernelPtr::new(alone) },
            MoeExperts { packed: KernelPtr::new(&packed.rows), capacity: self.config.packed_rows(ways, heap.rank()), hidden, first: mine.start, local: mine.len() as u32, counts: KernelPtr::new(&packed.counts), bases: KernelPtr::new(&packed.bases), outputs: KernelPtr::new(outputs) },
        );
        let seed = (u64::from(round) << 16 | u64::from(heap.rank())) + 1;
        let mut bytes = sample(seed, rows.len());
        // Any bf16 of less than 2.
        bytes.iter_mut().skip(1).step_by(2).for_each(|high| *high &= 0xbf);
        gpu.write(rows, 0, &bytes)?;
        session.run(&router, Dim::new(tokens.div_ceil(64), 64))?;
        let given = Tokens::new(tokens, rows, chosen, weights);
        let begun = Instant::now();
        let routed = ep.dispatch(heap, 0, &given, packed).map_err(EpError::from)?;
        life::die_in(round)?;
        session.run(&run_experts, Dim::new(16, 64))?;
        ep.combine(heap, routed, outputs, sums).map_err(EpError::from)?;
        let time = begun.elapsed();
        if let Some(away) = away {
            self.forget(&self.config.experts_of(ways.ranks, away))?;
        }
        session.run(&whole, Dim::new(16, 64))?;
        let mut expected = bytes.clone();
        gpu.read(alone, 0, &mut expected)?;
        gpu.read(sums, 0, &mut bytes)?;
        ensure!(expected.iter().any(|byte| *byte != 0), "the sums of layer {round} are all zero");
        compare(&expected, &bytes).with_context(|| format!("sums of layer {round}"))?;
        Ok(time)
    }

    /// Choices of these experts count as none.
    fn forget(&self, gone: &Range<u32>) -> Result<()> {
        let mut chosen = vec![0; self.chosen.len()];
        self.session.gpu.read(&self.chosen, 0, &mut chosen)?;
        for choice in chosen.as_chunks_mut().0 {
            if gone.contains(&u32::from_le_bytes(*choice)) {
                *choice = (-1i32).to_le_bytes();
            }
        }
        Ok(self.session.gpu.write(&self.chosen, 0, &chosen)?)
    }
}
