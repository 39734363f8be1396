//! Layers that go well: every byte is that of the reference.

use crate::case::{Case, Routing};
use crate::cases::{at_pace, under_seed};
use crate::ranks::{Pace, Routes};
use warpverbs_dev::simt_seeds;
use warpverbs_ep::{Combine, Layout};

/// All layouts, combines, routes and sizes by chance.
#[test]
fn any_layer_is_that_of_the_reference() {
    for seed in simt_seeds(0x100, 60) {
        let layers = under_seed(seed, Case::random);
        layers.check(&layers.run());
    }
}

/// Wrong choices are left out, and the status says so.
#[test]
fn experts_that_there_are_not_or_that_come_twice_are_left_out() {
    for seed in simt_seeds(0x200, 6) {
        let layers = under_seed(seed, |rng| {
            let mut case = Case::random(rng);
            case.routing = Routing::Wrong;
            case
        });
        layers.check(&layers.run());
    }
}

/// The epoch's bits run over in the middle of the calls.
#[test]
fn calls_go_on_where_the_epoch_wraps() {
    for seed in simt_seeds(0x300, 4) {
        let layers = under_seed(seed, |rng| {
            let mut case = Case::random(rng);
            (case.epoch, case.calls) = ((1 << 24) - 3, 6);
            case
        });
        layers.check(&layers.run());
    }
}

/// More tokens than a block plans or a warp posts at a time, more experts than are counted at a time, and
/// more blocks than tokens.
#[test]
fn tiles_and_parts_of_rows_fit_together() {
    let large = [45, 16, 3, 5];
    let long = [70, 8, 32, 40];
    let many = [5, 8, 3, 1500];
    let wide = [2, 512, 2, 3];
    let all = [(large, (2, 64)), (long, (1, 32)), (many, (2, 32)), (wide, (7, 32))];
    for (seed, (sizes, dim)) in (0x400..).zip(all) {
        for routes in Routes::APART {
            for (layout, combine) in
                [(Layout::ExpertMajor, Combine::Reduced), (Layout::RankMajor, Combine::Exact)]
            {
                let layers = under_seed(seed, |_| {
                    let mut case = Case::new((2, routes), sizes, layout, combine);
                    case.dim = dim;
                    case
                });
                layers.check(&layers.run());
            }
        }
    }
}

/// The same bits on a GPU, whose ranks are blocks of one launch.
#[test]
#[ignore = "needs a GPU"]
fn any_layer_on_a_gpu_is_that_of_the_reference() {
    for seed in simt_seeds(0x100, 40) {
        let layers = at_pace(Pace::Gpu, seed, |rng| {
            let mut case = Case::random(rng);
            case.timeout_ns = 10_000_000_000;
            case
        });
        layers.check(&layers.run());
    }
}
