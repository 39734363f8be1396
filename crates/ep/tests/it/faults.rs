//! Ranks that stop in the middle of a call: the others end by the deadline and name them, and what does
//! not depend on them is right.

use crate::case::{Case, Routing};
use crate::cases::{Layers, under_seed};
use crate::ranks::Routes;
use warpverbs::transport::{Outcome, WaitFor};
use warpverbs_dev::simt_seeds;
use warpverbs_ep::{Combine, Layout};

const ROUTES: [Routes; 5] = Routes::ALL;

/// Three ranks, of which one stops before a step of the second call. Every token goes to every rank.
fn stopped(
    seed: u64,
    routes: Routes,
    step: u32,
    layout: Layout,
    combine: Combine,
) -> (Layers, u32) {
    let rank = (seed / 3 % 3) as u32;
    let layers = under_seed(seed, |_| {
        let mut case = Case::new((3, routes), [5, 16, 7, 7], layout, combine);
        (case.calls, case.stops, case.routing) = (2, (rank, step), Routing::One);
        (case.timeout_ns, case.least) = (8_000_000, 1);
        case
    });
    (layers, rank)
}

/// `what` is what the others wait for in vain, `missing` whether they lack the rank's rows. In rank-major layout
/// counts come with rows.
fn others_end(step: u32, what: WaitFor, missing: bool) {
    let choices = [
        (Layout::ExpertMajor, Combine::Reduced),
        (Layout::RankMajor, Combine::Exact),
        (Layout::Flat { align: 2 }, Combine::Exact),
    ];
    for seed in simt_seeds(0x500, 6) {
        let (layout, combine) = choices[seed as usize / 2 % 3];
        let (layers, stopped) = stopped(seed, ROUTES[seed as usize % 3], step, layout, combine);
        let ended = layers.run();
        let counts_alone = layout != Layout::RankMajor || what != WaitFor::EpCounts;
        let what = if counts_alone { what } else { WaitFor::EpRows };
        for rank in (0..3).filter(|rank| *rank != stopped) {
            let what_case = format!("rank {rank}, {:?}, {}", layers.case, layers.ranks.what);
            let at = rank as usize;
            assert_eq!(ended.status[at], Err(Outcome::Timeout), "{what_case}");
            let absent = [u64::from(missing) << stopped, 1 << stopped];
            assert_eq!(ended.absent[at], absent, "{what_case}");
            let fault = layers.ranks.fault(at);
            assert_eq!((fault.peer, fault.what), (stopped, what.value()), "{what_case}");
        }
        layers.check_without(&ended, stopped, step == 1);
    }
}

#[test]
fn a_rank_that_does_not_call_is_named() {
    others_end(1, WaitFor::EpCounts, true);
}

#[test]
fn a_rank_that_announces_rows_and_sends_none_is_named() {
    others_end(2, WaitFor::EpRows, true);
}

#[test]
fn a_rank_that_returns_no_results_is_named() {
    others_end(3, WaitFor::EpResults, false);
}

/// Words of another generation are not taken for those of this one.
#[test]
fn a_rank_of_another_generation_is_not_heard() {
    let mut layers = under_seed(7, |_| {
        let mut case =
            Case::new((2, Routes::Direct), [3, 8, 2, 2], Layout::ExpertMajor, Combine::Reduced);
        (case.routing, case.timeout_ns, case.least) = (Routing::One, 1_000_000, 1);
        case
    });
    layers.set_generation(1, 200);
    let ended = layers.run();
    assert_eq!(ended.status, [Err(Outcome::Timeout), Err(Outcome::Timeout)]);
    assert_eq!(ended.absent[0][1], 0b10);
    let fault = layers.ranks.fault(0);
    assert_eq!((fault.peer, fault.what), (1, WaitFor::EpCounts.value()));
}

/// A block that is smaller than a warp moves no rows. All are told, and the call does not count as one that has
/// ended.
#[test]
fn a_call_by_blocks_smaller_than_a_warp_has_not_ended() {
    for seed in simt_seeds(0xa00, 8) {
        let layers = under_seed(seed, |rng| {
            let mut case = Case::random(rng);
            (case.routing, case.least, case.calls, case.dim) = (Routing::Any, 1, 1, (2, 24));
            case
        });
        let ended = layers.run();
        let case = &layers.case;
        let all = vec![Err(Outcome::TooLong); case.ranks as usize];
        assert_eq!(ended.status, all, "{case:?}, {}", layers.ranks.what);
        for rank in 0..case.ranks {
            let unanswered = ended.absent[rank as usize][1];
            assert!(unanswered >> rank & 1 != 0, "rank {rank} took its own results");
            assert_eq!(layers.last_ended(rank), case.epoch, "{case:?}, {}", layers.ranks.what);
        }
        assert!(ended.outputs.sums.iter().all(|sum| *sum == 0), "{case:?}");
        layers.check_canaries("blocks of 24 threads");
    }
}
