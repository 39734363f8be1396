//! The sizes of a layer, and how it is run; at random.

use crate::ranks::Routes;
use rand::RngExt;
use rand::rngs::SmallRng;
use warpverbs_ep::{Combine, EpConfig, Layout, Payload, Scale, ScaleOrder, Ways};

/// A layer's sizes, and how it is run.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) config: EpConfig,
    pub(crate) ranks: u32,
    pub(crate) routes: Routes,
    /// The most tokens, as the configuration has it, and other sizes of it.
    pub(crate) tokens: u32,
    pub(crate) hidden: u32,
    pub(crate) top_k: u32,
    pub(crate) experts: u32,
    pub(crate) layout: Layout,
    /// Blocks of a rank and threads of a block.
    pub(crate) dim: (u32, u32),
    pub(crate) calls: u32,
    /// Number of the call before the first.
    pub(crate) epoch: u32,
    /// The rank that stops, and before which step of the last call; 0 is none.
    pub(crate) stops: (u32, u32),
    /// A rank that is late, and by how many nanoseconds for each step of a call.
    pub(crate) lags: (u32, u32),
    pub(crate) timeout_ns: u64,
    /// How routing is chosen.
    pub(crate) routing: Routing,
    /// Tokens that each rank has at least.
    pub(crate) least: u32,
    pub(crate) payload: Payload,
    pub(crate) order: ScaleOrder,
    /// NICs read what experts give where it is, in the heap.
    pub(crate) in_place: bool,
    /// The kernel stores results itself where stores lead. Rank-major, and not reduced.
    pub(crate) stores: bool,
    /// Kernels read the number of tokens in memory.
    pub(crate) in_memory: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Routing {
    /// Any experts, each choice left out by chance.
    Any,
    /// All tokens go to the same experts.
    One,
    /// With experts that there are not, and experts named twice.
    Wrong,
}

impl Case {
    pub(crate) fn new(
        (ranks, routes): (u32, Routes),
        [tokens, hidden, top_k, experts]: [u32; 4],
        layout: Layout,
        combine: Combine,
    ) -> Self {
        let config = EpConfig::new(tokens, hidden, top_k, experts).layout(layout).combine(combine);
        Self {
            config,
            ranks,
            routes,
            tokens,
            hidden,
            top_k,
            experts,
            layout,
            dim: (2, 40),
            calls: 1,
            epoch: 0,
            stops: (0, 0),
            lags: (0, 0),
            timeout_ns: 1_000_000_000,
            routing: Routing::Any,
            least: 0,
            payload: Payload::Bf16,
            order: ScaleOrder::Rows,
            in_place: false,
            stores: false,
            in_memory: false,
        }
    }

    /// The same with other rows.
    pub(crate) fn payload(mut self, payload: Payload, order: ScaleOrder) -> Self {
        self.config = self.config.payload(payload).scale_order(order);
        (self.payload, self.order) = (payload, order);
        self
    }

    /// The same with results that nobody copies.
    pub(crate) fn in_place(mut self, in_place: bool) -> Self {
        self.config = self.config.in_place(in_place);
        self.in_place = in_place;
        self
    }

    /// Of sizes at random.
    pub(crate) fn random(rng: &mut SmallRng) -> Self {
        let ranks = rng.random_range(1..=4);
        let routes = Routes::ALL[rng.random_range(0..Routes::ALL.len())];
        let experts = rng.random_range(1..=40);
        let top_k = rng.random_range(1..=experts.min(32));
        let payload = random_payload(rng);
        let hidden = match (payload, rng.random_range(0..8)) {
            // As much as several blocks send.
            (Payload::Bf16, 0..2) => 8 * rng.random_range(33..=80),
            (Payload::Bf16, _) => 8 * rng.random_range(1..=9),
            // More scales than a word has.
            (_, 0) => 16 * rng.random_range(33..=41),
            _ => 16 * rng.random_range(1..=18),
        };
        let sizes = [rng.random_range(1..=9), hidden, top_k, experts];
        let layouts = [
            Layout::RankMajor,
            Layout::ExpertMajor,
            Layout::Flat { align: rng.random_range(1..=4) },
        ];
        let layout = layouts[rng.random_range(0..3)];
        let combines = [Combine::Reduced, Combine::Exact, Combine::Summed];
        let most = if layout == Layout::RankMajor { 3 } else { 2 };
        let combine = combines[rng.random_range(0..most)];
        let order = [ScaleOrder::Rows, ScaleOrder::Columns][rng.random_range(0..2)];
        let whole = combine != Combine::Reduced;
        let mut case = Self::new((ranks, routes), sizes, layout, combine)
            .payload(payload, order)
            .in_place(whole && rng.random());
        case.stores = whole && layout == Layout::RankMajor && rng.random();
        case.in_memory = rng.random();
        case.dim = [(1, 32), (2, 40), (3, 64), (5, 32)][rng.random_range(0..4)];
        case.calls = rng.random_range(1..=3);
        case.routing = [Routing::Any, Routing::Any, Routing::One][rng.random_range(0..3)];
        case
    }

    /// Whether results are read where they were made: all calls have the same.
    pub(crate) fn pulled(&self) -> bool {
        self.in_place && self.layout == Layout::RankMajor
    }

    pub(crate) fn ways(&self) -> Ways {
        if self.routes != Routes::Direct {
            // As many queue pairs as the bed makes.
            return Ways { ranks: self.ranks, lanes: 2, staged: true };
        }
        Ways { ranks: self.ranks, lanes: 1 + 2 * (self.epoch % 2), staged: false }
    }

    /// u16 of a token's row and of a packed one.
    pub(crate) fn words(&self) -> [u32; 2] {
        match self.payload {
            Payload::Bf16 => [self.hidden; 2],
            Payload::Cast(_) => [self.hidden, self.hidden / 2],
            _ => [self.hidden / 2; 2],
        }
    }

    /// Words of scales that a token has before it is sent.
    pub(crate) fn scaled(&self) -> u32 {
        if matches!(self.payload, Payload::Fp8(_)) { self.config.scale_words() } else { 0 }
    }

    /// Words that the scales of a rank's packed rows take, the most of any.
    pub(crate) fn scale_room(&self) -> usize {
        let room = (0..self.ranks).map(|rank| self.config.packed_scales(self.ways(), rank));
        room.max().unwrap_or(0) as usize
    }

    pub(crate) fn local(&self) -> u32 {
        self.experts.div_ceil(self.ranks)
    }

    /// The most rows that a rank takes and gives, by rank.
    pub(crate) fn capacity(&self) -> usize {
        let rows = (0..self.ranks).map(|rank| self.config.packed_rows(self.ways(), rank));
        rows.max().unwrap_or(0) as usize
    }
}

fn random_payload(rng: &mut SmallRng) -> Payload {
    let scale = [Scale::F32, Scale::PowerOfTwo, Scale::Ue8m0][rng.random_range(0..3)];
    [Payload::Bf16, Payload::Cast(scale), Payload::Fp8(scale)][rng.random_range(0..3)]
}
