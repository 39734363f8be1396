//! The host's side: channels that ranks make together, and launches that use them.

use crate::cases::{words16, words32};
use crate::threads::{Rank, config as heap_config, ranks, ranks_on};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use warpverbs_dev::seed;
use warpverbs_ep::reference::{self, Batch, Dispatched, bf16_of};
use warpverbs_ep::{
    Combine, Ep, EpConfig, EpError, Layout, Packed, Payload, Routed, Scale, Tokens, Ways,
};
use warpverbs_gpu::{Buffer, Dim, Place};
use warpverbs_shmem::{Heap, RoutePolicy};
use zerocopy::IntoBytes;

pub(crate) const HIDDEN: u32 = 48;
pub(crate) const TOP_K: u32 = 3;
pub(crate) const EXPERTS: u32 = 7;

fn config(layout: Layout, combine: Combine) -> EpConfig {
    EpConfig::new(6, HIDDEN, TOP_K, EXPERTS).layout(layout).combine(combine).channels(2)
}

/// The tokens of one rank.
#[derive(Clone)]
pub(crate) struct Given {
    pub(crate) rows: Vec<u16>,
    pub(crate) experts: Vec<i32>,
    pub(crate) weights: Vec<f32>,
}

fn numbers(count: usize, rng: &mut SmallRng) -> Vec<u16> {
    (0..count).map(|_| bf16_of(rng.random_range(-4.0f32..4.0))).collect()
}

impl Given {
    pub(crate) fn random(rng: &mut SmallRng) -> Self {
        let count = rng.random_range(0..=6);
        let choices = |_| {
            let first = rng.random_range(0..EXPERTS as i32);
            [first, -1, (first + 3) % EXPERTS as i32]
        };
        let experts: Vec<i32> = (0..count).flat_map(choices).collect();
        let weights = (0..experts.len()).map(|_| rng.random_range(-1.0f32..1.0)).collect();
        Self { rows: numbers(count * HIDDEN as usize, rng), experts, weights }
    }

    pub(crate) fn batch(&self) -> Batch<'_> {
        Batch {
            rows: &self.rows,
            experts: &self.experts,
            weights: &self.weights,
            ..Batch::default()
        }
    }

    pub(crate) fn count(&self) -> u32 {
        self.experts.len() as u32 / TOP_K
    }
}

/// Tokens and results of all ranks in one call.
pub(crate) struct Layer {
    given: Vec<Given>,
    pub(crate) outputs: Vec<Vec<u16>>,
    dispatched: Vec<Dispatched>,
    sums: Vec<Vec<u16>>,
}

impl Layer {
    pub(crate) fn random(config: &EpConfig, ways: Ways, rng: &mut SmallRng) -> Self {
        let given: Vec<_> = (0..ways.ranks).map(|_| Given::random(rng)).collect();
        let rows = |rank| config.packed_rows(ways, rank) as usize * HIDDEN as usize;
        let outputs: Vec<_> = (0..ways.ranks).map(|rank| numbers(rows(rank), rng)).collect();
        Self::of(config, ways, given, outputs)
    }

    fn of(config: &EpConfig, ways: Ways, given: Vec<Given>, outputs: Vec<Vec<u16>>) -> Self {
        let batches: Vec<_> = given.iter().map(Given::batch).collect();
        let dispatched = reference::dispatch(config, ways, &batches);
        let sums = reference::combine(config, ways, &batches, &dispatched, &outputs);
        Self { given, outputs, dispatched, sums }
    }

    /// One in which `from` has a row for `to`.
    pub(crate) fn with_row(
        config: &EpConfig,
        ways: Ways,
        from: u32,
        to: u32,
        rng: &mut SmallRng,
    ) -> Self {
        let experts = config.experts_of(ways.ranks, to);
        loop {
            let layer = Self::random(config, ways, rng);
            let mut chosen = layer.given[from as usize].experts.iter();
            if chosen.any(|expert| experts.contains(&(*expert as u32))) {
                return layer;
            }
        }
    }

    /// The same without some ranks: their tokens, and the choices of their experts.
    pub(crate) fn without(&self, config: &EpConfig, ways: Ways, away: &[u32]) -> Self {
        let gone = |expert: &i32| {
            let of = |rank: &u32| config.experts_of(ways.ranks, *rank);
            away.iter().any(|rank| of(rank).contains(&(*expert as u32)))
        };
        let mut given = self.given.clone();
        for (rank, given) in (0..).zip(&mut given) {
            if away.contains(&rank) {
                *given = Given { rows: vec![], experts: vec![], weights: vec![] };
            }
            let lost = given.experts.iter_mut().filter(|expert| gone(expert));
            lost.for_each(|expert| *expert = -1);
        }
        Self::of(config, ways, given, self.outputs.clone())
    }
}

/// One rank's memory for a call.
pub(crate) struct Memory {
    count: u32,
    rows: Buffer,
    experts: Buffer,
    weights: Buffer,
    pub(crate) outputs: Buffer,
    pub(crate) sums: Buffer,
    pub(crate) packed: Packed,
}

impl Memory {
    pub(crate) fn new(rank: &Rank, ep: &Ep, layer: &Layer) -> Self {
        let me = rank.number() as usize;
        let buffer = |bytes: &[u8]| {
            let buffer = rank.gpu.alloc(bytes.len().max(16), Place::Device).unwrap();
            rank.gpu.write(&buffer, 0, bytes).unwrap();
            buffer
        };
        let given = &layer.given[me];
        Self {
            count: given.count(),
            rows: buffer(given.rows.as_bytes()),
            experts: buffer(given.experts.as_bytes()),
            weights: buffer(given.weights.as_bytes()),
            outputs: buffer(layer.outputs[me].as_bytes()),
            sums: buffer(vec![0xee; 2 * given.rows.len()].as_slice()),
            packed: ep.packed().unwrap(),
        }
    }

    pub(crate) fn tokens(&self) -> Tokens<'_> {
        let Self { count, rows, experts, weights, .. } = self;
        Tokens::new(*count, rows, experts, weights)
    }

    pub(crate) fn check(&self, rank: &Rank, layer: &Layer, layout: Layout) {
        let me = rank.number() as usize;
        let read = |buffer: &Buffer| {
            let mut out = vec![0; buffer.len()];
            rank.gpu.read(buffer, 0, &mut out).unwrap();
            out
        };
        let sums = words16(&read(&self.sums));
        assert_eq!(sums[..layer.sums[me].len()], layer.sums[me], "sums of rank {me}");
        if layout == Layout::RankMajor {
            return;
        }
        let dispatched = &layer.dispatched[me];
        let (counts, packed) =
            (words32(&read(&self.packed.counts)), words16(&read(&self.packed.rows)));
        let scales = words32(&read(&self.packed.scales));
        for (e, group) in dispatched.groups.iter().enumerate() {
            assert_eq!(counts[e] as usize, group.len(), "rows of expert {e}");
            for (n, (source, slot)) in group.iter().enumerate() {
                let at = dispatched.bases[e] as usize + n;
                let row = &dispatched.rows[*source][*slot];
                let same = |found: &[u16]| assert_eq!(found, row.row, "row {n} of expert {e}");
                same(&packed[at * row.row.len()..][..row.row.len()]);
                let words = row.scales.len();
                assert_eq!(scales[at * words..][..words], row.scales[..], "row {n} of expert {e}");
            }
        }
    }
}

/// Two channels at once: one by whole calls, the other by halves around them.
fn both_channels(rank: &Rank, heap: &Heap, ep: &mut Ep, layers: [&Layer; 2], layout: Layout) {
    let [a, b] = layers.map(|layer| Memory::new(rank, ep, layer));
    let sent = ep.dispatch_send(heap, 1, &b.tokens()).unwrap();
    let routed: Routed = ep.dispatch(heap, 0, &a.tokens(), &a.packed).unwrap();
    let other = ep.dispatch_recv(heap, sent, &b.packed).unwrap();
    let returned = ep.combine_send(heap, other, &b.outputs).unwrap();
    ep.combine(heap, routed, &a.outputs, &a.sums).unwrap();
    ep.combine_recv(heap, returned, &b.sums).unwrap();
    a.check(rank, layers[0], layout);
    b.check(rank, layers[1], layout);
}

#[test]
fn ranks_make_channels_and_use_them_by_launches() {
    let seed = seed();
    let cast = Payload::Cast(Scale::PowerOfTwo);
    let (flat, some) = (Layout::Flat { align: 4 }, RoutePolicy::RdmaOf(vec![1]));
    for (n, (nic, policy, layout, combine, payload)) in (0..).zip([
        ("soft", RoutePolicy::Auto, Layout::ExpertMajor, Combine::Reduced, Payload::Bf16),
        ("soft", RoutePolicy::Rdma, Layout::RankMajor, Combine::Summed, cast),
        ("soft", some.clone(), flat, Combine::Exact, cast),
        ("soft-bnxt", RoutePolicy::Rdma, Layout::ExpertMajor, Combine::Reduced, cast),
        ("soft-bnxt", some.clone(), Layout::RankMajor, Combine::Summed, Payload::Bf16),
        ("soft-ionic", RoutePolicy::Rdma, Layout::RankMajor, Combine::Summed, cast),
        ("soft-ionic", some, flat, Combine::Exact, Payload::Bf16),
    ]) {
        let config = config(layout, combine).payload(payload);
        let heap = heap_config().routes(policy).qps_per_peer(2);
        ranks_on(nic, 3, |rank| {
            let mut heap = rank.heap(&heap).unwrap();
            let free = heap.report().free_bytes;
            let mut ep = Ep::new(&mut heap, &mut rank.world, &config).unwrap();
            let bytes = config.bytes(ep.ways()).unwrap();
            assert_eq!(free - heap.report().free_bytes, 2 * bytes, "bytes of two channels");
            ep.set_dim(Dim::new(3, 32));
            // All ranks draw the same.
            let mut rng = SmallRng::seed_from_u64(seed ^ n);
            for _ in 0..3 {
                let layers = [0, 1].map(|_| Layer::random(&config, ep.ways(), &mut rng));
                both_channels(rank, &heap, &mut ep, [&layers[0], &layers[1]], layout);
            }
            rank.meet();
            ep.free(&mut heap).unwrap();
            assert_eq!(heap.report().free_bytes, free);
            assert!(heap.health().unwrap().is_ok());
            rank.meet();
        });
    }
}

#[test]
fn ranks_that_disagree_are_told_about_what() {
    for (other, field) in [
        (
            EpConfig::new(6, HIDDEN, TOP_K, EXPERTS + 1),
            "experts differs: rank 0 has 7, rank 1 has 8",
        ),
        (
            config(Layout::ExpertMajor, Combine::Exact).channels(1),
            "combine differs: rank 0 has 0, rank 1 has 1",
        ),
        (
            config(Layout::Flat { align: 8 }, Combine::Reduced).channels(1),
            "layout differs: rank 0 has 1, rank 1 has 2",
        ),
    ] {
        ranks(2, |rank| {
            let mut heap = rank.heap(&heap_config()).unwrap();
            let mine = match rank.number() {
                0 => EpConfig::new(6, HIDDEN, TOP_K, EXPERTS),
                _ => other.clone(),
            };
            let Err(error) = Ep::new(&mut heap, &mut rank.world, &mine) else { panic!("{field}") };
            assert_eq!(error.to_string(), field);
            // Nothing was made, and the same ranks can agree.
            Ep::new(&mut heap, &mut rank.world, &EpConfig::new(1, 8, 1, 1)).unwrap();
            rank.meet();
        });
    }
}

#[test]
fn what_cannot_be_is_refused_before_a_launch() {
    ranks(1, |rank| {
        let mut heap = rank.heap(&heap_config()).unwrap();
        let layer = config(Layout::ExpertMajor, Combine::Reduced);
        let large = EpConfig::new(1 << 20, 4096, 1, 1);
        let refused = Ep::new(&mut heap, &mut rank.world, &large).err().unwrap();
        assert!(matches!(refused, EpError::Heap(_)), "{refused}");
        let mut ep = Ep::new(&mut heap, &mut rank.world, &layer).unwrap();
        let scaled = EpConfig::new(6, HIDDEN, TOP_K, EXPERTS).payload(Payload::Fp8(Scale::F32));
        let mut other = Ep::new(&mut heap, &mut rank.world, &scaled).unwrap();
        let buffer = |bytes| rank.gpu.alloc(bytes, Place::Device).unwrap();
        let [rows, few] = [6 * 96, 16].map(buffer);
        let packed = ep.packed().unwrap();
        let tokens = Tokens::new(6, &rows, &rows, &rows);
        let said = |ep: &mut Ep, channel, tokens: &Tokens<'_>, packed: &Packed| {
            ep.dispatch(&heap, channel, tokens, packed).unwrap_err().to_string()
        };
        assert_eq!(
            said(&mut ep, 2, &tokens, &packed),
            "there is no channel 2, expected less than 2"
        );
        let many = Tokens::new(7, &rows, &rows, &rows);
        assert_eq!(said(&mut ep, 0, &many, &packed), "7 tokens, expected at most 6");
        let short = Tokens::new(6, &few, &rows, &rows);
        let small = "rows of tokens: expected 576 bytes or more at a multiple of 16, found 16";
        assert_eq!(said(&mut ep, 0, &short, &packed), small);
        let shifted = rows.slice(8, 72).unwrap();
        let shifted = Tokens::new(6, &rows, &rows, &shifted);
        assert!(said(&mut ep, 0, &shifted, &packed).starts_with("weights of tokens: expected 72"));
        let small = Packed { ranges: few.slice(0, 8).unwrap(), ..packed.clone() };
        assert!(said(&mut ep, 0, &tokens, &small).starts_with("ranges of packed rows"));
        let unscaled = other.dispatch(&heap, 0, &tokens, &other.packed().unwrap()).unwrap_err();
        let missing = "scales of tokens: expected 24 bytes or more at a multiple of 16, found 0";
        assert_eq!(unscaled.to_string(), missing);
        // Nothing has happened so far; the next call is a dispatch, and then its combine.
        let none = Tokens::new(0, &rows, &rows, &rows);
        let routed = ep.dispatch(&heap, 0, &none, &packed).unwrap();
        let turn = "channel 0 is to combine_send next";
        assert_eq!(said(&mut ep, 0, &none, &packed), turn);
        assert!(routed.missing().is_empty());
        let short = ep.combine(&heap, routed, &few, &few).unwrap_err();
        assert!(short.to_string().starts_with("rows of experts: expected"), "{short}");
    });
}

/// The routing is wrong: the status says so, and the call ends all the same.
#[test]
fn a_wrong_routing_is_in_the_status() {
    ranks(1, |rank| {
        let mut heap = rank.heap(&heap_config()).unwrap();
        let mut ep = Ep::new(&mut heap, &mut rank.world, &EpConfig::new(1, 8, 2, 2)).unwrap();
        let buffer = |bytes: &[u8]| {
            let buffer = rank.gpu.alloc(16, Place::Device).unwrap();
            rank.gpu.write(&buffer, 0, bytes).unwrap();
            buffer
        };
        let rows = buffer(&[0x80, 0x3f].repeat(8));
        let (experts, weights) = (buffer([1i32, 2].as_bytes()), buffer([3f32, 5.0].as_bytes()));
        let (packed, sums) = (ep.packed().unwrap(), buffer(&[0; 16]));
        let tokens = Tokens::new(1, &rows, &experts, &weights);
        let failed = ep.dispatch(&heap, 0, &tokens, &packed).unwrap_err();
        let EpError::Kernel { outcome, missing, .. } = &*failed.cause else { panic!("{failed}") };
        assert_eq!(outcome.to_string(), "a token names an expert that there is not, or one twice");
        assert!(missing.is_empty());
        // Without the wrong choice: 3 × 1.0.
        ep.combine(&heap, failed.next.unwrap(), &packed.rows, &sums).unwrap();
        let mut found = [0; 16];
        rank.gpu.read(&sums, 0, &mut found).unwrap();
        assert_eq!(words16(&found), [bf16_of(3.0); 8]);
    });
}

/// One rank on a GPU, with launches of the usual shape.
#[test]
#[ignore = "needs a GPU"]
fn a_rank_on_a_gpu_uses_its_channels_by_launches() {
    let seed = seed();
    let config = config(Layout::ExpertMajor, Combine::Exact);
    ranks(1, |rank| {
        rank.gpu = warpverbs_gpu::open("cuda".parse().unwrap()).unwrap();
        let mut heap = rank.heap(&heap_config()).unwrap();
        let mut ep = Ep::new(&mut heap, &mut rank.world, &config).unwrap();
        let mut rng = SmallRng::seed_from_u64(seed);
        for _ in 0..20 {
            let layers = [0, 1].map(|_| Layer::random(&config, ep.ways(), &mut rng));
            both_channels(rank, &heap, &mut ep, [&layers[0], &layers[1]], Layout::ExpertMajor);
        }
        assert!(heap.health().unwrap().is_ok());
    });
}
