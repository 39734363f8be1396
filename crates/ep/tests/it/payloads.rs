//! Layers of the sizes that people use, with few tokens, and at the edges.

use crate::case::{Case, Routing};
use crate::cases::under_seed;
use crate::ranks::Routes;
use rand::rngs::SmallRng;
use warpverbs_ep::{Combine, Layout, Payload, Scale, ScaleOrder};

fn check(seed: u64, case: impl FnOnce(&mut SmallRng) -> Case) {
    let layers = under_seed(seed, case);
    layers.check(&layers.run());
}

/// The largest rows, in parts by more blocks than there are rows, and with more scales than a warp has lanes.
#[test]
fn rows_of_8192_channels_are_those_of_the_reference() {
    let flat = Layout::Flat { align: 4 };
    for (seed, (payload, layout, combine, routes)) in (0x700..).zip([
        (Payload::Bf16, Layout::ExpertMajor, Combine::Reduced, Routes::Rdma),
        (Payload::Cast(Scale::F32), flat, Combine::Exact, Routes::Direct),
        (Payload::Cast(Scale::Ue8m0), Layout::ExpertMajor, Combine::Reduced, Routes::Mixed),
        (Payload::Fp8(Scale::PowerOfTwo), Layout::RankMajor, Combine::Summed, Routes::Direct),
    ]) {
        check(seed, |_| {
            let mut case = Case::new((2, routes), [1, 8192, 2, 3], layout, combine)
                .payload(payload, ScaleOrder::Columns);
            (case.dim, case.least) = ((3, 64), 1);
            case
        });
    }
}

/// Groups that are not whole, and scales that do not fill their word.
#[test]
fn hidden_sizes_need_not_be_multiples_of_a_group() {
    for (seed, hidden) in (0x710..).zip([16, 112, 128, 144, 512, 528, 640]) {
        for scale in [Scale::F32, Scale::Ue8m0] {
            check(seed, |_| {
                let sizes = [3, hidden, 2, 3];
                let way = (2, Routes::Direct);
                let case = Case::new(way, sizes, Layout::ExpertMajor, Combine::Reduced);
                case.payload(Payload::Cast(scale), ScaleOrder::Rows)
            });
        }
    }
}

/// More ranks than experts, and as many choices as a token may have.
#[test]
fn eight_ranks_share_experts_that_do_not_divide() {
    for (seed, (top_k, experts, routing)) in
        (0x720..).zip([(5, 5, Routing::Any), (32, 43, Routing::Any), (7, 20, Routing::One)])
    {
        check(seed, |_| {
            let sizes = [2, 16, top_k, experts];
            let way = (8, Routes::Direct);
            let mut case = Case::new(way, sizes, Layout::Flat { align: 2 }, Combine::Exact)
                .payload(Payload::Cast(Scale::F32), ScaleOrder::Columns);
            (case.dim, case.routing, case.calls) = ((1, 32), routing, 2);
            case
        });
    }
}

/// Nobody has a token, and then some do.
#[test]
fn ranks_without_tokens_take_part() {
    for (seed, routes) in (0x730..).zip([Routes::Direct, Routes::Rdma, Routes::Mixed]) {
        let mut layers = under_seed(seed, |_| {
            let way = (3, routes);
            let mut case = Case::new(way, [2, 16, 2, 4], Layout::ExpertMajor, Combine::Reduced);
            (case.calls, case.in_memory, case.least) = (3, seed % 2 == 0, 1);
            case
        });
        layers.inputs.counts[..6].fill(0);
        layers.check(&layers.run());
    }
}
