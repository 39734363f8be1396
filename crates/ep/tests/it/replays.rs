//! Calls that are recorded once and made many times: tokens, routing and their number change in memory.

use crate::cases::words16;
use crate::launches::{EXPERTS, Given, HIDDEN, TOP_K};
use crate::threads::{Rank, config as heap_config, ranks, simt};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use warpverbs_dev::seed;
use warpverbs_ep::reference::{self, Dispatched};
use warpverbs_ep::{Combine, Ep, EpConfig, EpError, Layout, Packed, Replay, Tokens, Ways};
use warpverbs_gpu::{Buffer, Dim, KernelPtr, Place, Step};
use warpverbs_shmem::{Heap, RoutePolicy};
use warpverbs_test_kernels::ep::EpNegate;
use warpverbs_transport::Outcome;
use zerocopy::IntoBytes;

const TOKENS: u32 = 6;

/// The memory of a recorded call.
struct Memory {
    rows: Buffer,
    experts: Buffer,
    weights: Buffer,
    counted: Buffer,
    packed: Packed,
    outputs: Buffer,
    sums: Buffer,
}

impl Memory {
    fn new(rank: &Rank, ep: &Ep) -> Self {
        let buffer = |bytes: u32| rank.gpu.alloc(bytes as usize, Place::Device).unwrap();
        let packed = ep.packed().unwrap();
        Self {
            rows: buffer(TOKENS * HIDDEN * 2),
            experts: buffer(TOKENS * TOP_K * 4),
            weights: buffer(TOKENS * TOP_K * 4),
            counted: buffer(16),
            outputs: buffer(packed.rows.len() as u32),
            packed,
            sums: buffer(TOKENS * HIDDEN * 2),
        }
    }

    fn tokens(&self) -> Tokens<'_> {
        Tokens::new(TOKENS, &self.rows, &self.experts, &self.weights).counted(&self.counted)
    }

    fn record(&self, ep: &Ep, channel: usize) -> Replay {
        let experts = EpNegate {
            rows: KernelPtr::new(&self.packed.rows),
            elements: self.packed.rows.len() as u64 / 2,
            outputs: KernelPtr::new(&self.outputs),
        };
        let between = vec![Step::new(experts, Dim::new(2, 64))];
        let from = (&self.tokens(), &self.packed);
        ep.record(channel, from, between, (&self.outputs, &self.sums)).unwrap()
    }

    fn fill(&self, rank: &Rank, given: &Given) {
        rank.gpu.write(&self.counted, 0, given.count().as_bytes()).unwrap();
        rank.gpu.write(&self.rows, 0, given.rows.as_bytes()).unwrap();
        rank.gpu.write(&self.experts, 0, given.experts.as_bytes()).unwrap();
        rank.gpu.write(&self.weights, 0, given.weights.as_bytes()).unwrap();
    }
}

/// The sums that experts give who change all signs.
fn expected(config: &EpConfig, ways: Ways, given: &[Given]) -> Vec<Vec<u16>> {
    let batches: Vec<_> = given.iter().map(Given::batch).collect();
    let dispatched = reference::dispatch(config, ways, &batches);
    let outputs = |(rank, here): (usize, &Dispatched)| {
        let words = HIDDEN as usize;
        let mut rows = vec![0; config.packed_rows(ways, rank as u32) as usize * words];
        for (group, base) in here.groups.iter().zip(&here.bases) {
            for (n, (source, slot)) in group.iter().enumerate() {
                let row = here.rows[*source][*slot].row.iter().map(|element| element ^ 0x8000);
                let at = (*base as usize + n) * words;
                rows.splice(at..at + words, row);
            }
        }
        rows
    };
    let outputs: Vec<_> = dispatched.iter().enumerate().map(outputs).collect();
    reference::combine(config, ways, &batches, &dispatched, &outputs)
}

/// Replays of three channels in turn, and now and then a call by launches between them.
fn replays(rank: &Rank, heap: &Heap, ep: &mut Ep, config: &EpConfig, rounds: u32, seed: u64) {
    let memory = [(); 3].map(|()| Memory::new(rank, ep));
    let recorded: Vec<_> = memory.iter().enumerate().map(|(c, m)| m.record(ep, c)).collect();
    // All ranks draw the same.
    let mut rng = SmallRng::seed_from_u64(seed);
    let me = rank.number() as usize;
    for round in 0..rounds {
        let channel = round as usize % 3;
        let memory = &memory[channel];
        let given: Vec<_> = (0..ep.ways().ranks).map(|_| Given::random(&mut rng)).collect();
        memory.fill(rank, &given[me]);
        if round % 5 == 4 {
            let routed = ep.dispatch(heap, channel, &memory.tokens(), &memory.packed).unwrap();
            let mut rows = vec![0; memory.packed.rows.len()];
            rank.gpu.read(&memory.packed.rows, 0, &mut rows).unwrap();
            rows.iter_mut().skip(1).step_by(2).for_each(|byte| *byte ^= 0x80);
            rank.gpu.write(&memory.outputs, 0, &rows).unwrap();
            ep.combine(heap, routed, &memory.outputs, &memory.sums).unwrap();
        } else {
            ep.replay(heap, &recorded[channel]).unwrap();
        }
        let sums = &expected(config, ep.ways(), &given)[me];
        let mut found = vec![0; memory.sums.len()];
        rank.gpu.read(&memory.sums, 0, &mut found).unwrap();
        assert_eq!(words16(&found)[..sums.len()], sums[..], "round {round} of rank {me}");
    }
}

fn config(layout: Layout, combine: Combine) -> EpConfig {
    EpConfig::new(TOKENS, HIDDEN, TOP_K, EXPERTS).layout(layout).combine(combine).channels(3)
}

#[test]
fn a_call_is_recorded_once_and_made_again_with_other_tokens() {
    let seed = seed();
    for (policy, layout, combine) in [
        (RoutePolicy::Auto, Layout::ExpertMajor, Combine::Reduced),
        (RoutePolicy::RdmaOf(vec![1]), Layout::Flat { align: 4 }, Combine::Exact),
    ] {
        let config = config(layout, combine);
        let heap = heap_config().routes(policy);
        ranks(3, |rank| {
            let mut heap = rank.heap(&heap).unwrap();
            let mut ep = Ep::new(&mut heap, &mut rank.world, &config).unwrap();
            ep.set_dim(Dim::new(2, 32));
            replays(rank, &heap, &mut ep, &config, 12, seed);
            assert!(heap.health().unwrap().is_ok());
            rank.meet();
        });
    }
}

/// A call that was recorded before the ranks regrouped is refused; recorded again, it goes on.
#[test]
fn a_call_is_recorded_anew_when_ranks_have_regrouped() {
    let seed = seed();
    let config = config(Layout::ExpertMajor, Combine::Reduced);
    ranks(2, |rank| {
        let mut heap = rank.heap(&heap_config()).unwrap();
        let mut ep = Ep::new(&mut heap, &mut rank.world, &config).unwrap();
        ep.set_dim(Dim::new(2, 32));
        replays(rank, &heap, &mut ep, &config, 3, seed);
        let memory = Memory::new(rank, &ep);
        let before = memory.record(&ep, 1);
        ep.regroup(&mut heap, &mut rank.world, &[0, 1]).unwrap();
        let refused = ep.replay(&heap, &before).unwrap_err();
        let expected =
            "channel 1 has regrouped since the call was recorded, expected a new recording";
        assert_eq!(refused.to_string(), expected);
        replays(rank, &heap, &mut ep, &config, 3, seed ^ 1);
        rank.meet();
    });
}

/// A number in memory that is larger than the buffers: the status says so, and no token is read.
#[test]
fn too_many_tokens_in_memory_are_none() {
    ranks(1, |rank| {
        let config = config(Layout::ExpertMajor, Combine::Reduced);
        let mut heap = rank.heap(&heap_config()).unwrap();
        let mut ep = Ep::new(&mut heap, &mut rank.world, &config).unwrap();
        let memory = Memory::new(rank, &ep);
        let replay = memory.record(&ep, 0);
        for (count, outcome) in [(TOKENS + 1, Some(Outcome::TooLong)), (0, None)] {
            rank.gpu.write(&memory.counted, 0, count.as_bytes()).unwrap();
            let ended = ep.replay(&heap, &replay).map_err(EpError::from);
            let found = match ended {
                Ok(()) => None,
                Err(EpError::Kernel { outcome, missing, .. }) if missing.is_empty() => {
                    Some(outcome)
                }
                Err(other) => panic!("{other}"),
            };
            assert_eq!(found, outcome, "{count} tokens");
            let mut counts = vec![0xff; memory.packed.counts.len()];
            rank.gpu.read(&memory.packed.counts, 0, &mut counts).unwrap();
            assert!(counts.iter().all(|byte| *byte == 0), "{counts:?}");
        }
    });
}

#[test]
fn graphs_that_cannot_be_are_refused() {
    let gpu = simt();
    let said = |steps| gpu.graph(steps).err().unwrap().to_string();
    assert!(said(Vec::new()).contains("steps"), "{}", said(Vec::new()));
    let words = gpu.alloc(64, Place::Device).unwrap();
    let negate = |elements| {
        let (rows, outputs) = (KernelPtr::new(&words), KernelPtr::new(&words));
        Step::new(EpNegate { rows, elements, outputs }, Dim::new(100, 1024))
    };
    gpu.graph(vec![negate(32)]).unwrap();
    let resident = said(vec![negate(32), negate(32).resident()]);
    assert!(resident.contains("ep_negate"), "{resident}");
    assert!(said(vec![negate(33)]).contains("rows"), "{}", said(vec![negate(33)]));
}

#[test]
#[ignore = "needs a GPU"]
fn a_call_is_recorded_once_and_made_1000_times_on_a_gpu() {
    let seed = seed();
    let config = config(Layout::ExpertMajor, Combine::Reduced);
    ranks(1, |rank| {
        rank.gpu = warpverbs_gpu::open("cuda".parse().unwrap()).unwrap();
        let mut heap = rank.heap(&heap_config()).unwrap();
        let mut ep = Ep::new(&mut heap, &mut rank.world, &config).unwrap();
        replays(rank, &heap, &mut ep, &config, 1000, seed);
        assert!(heap.health().unwrap().is_ok());
    });
}
