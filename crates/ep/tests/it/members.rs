//! Ranks that are excluded, from any place, and do not know it.

use crate::case::{Case, Routing};
use crate::cases::{Ended, Layers, under_seed};
use crate::ranks::Routes;
use warpverbs_dev::simt_seeds;
use warpverbs_ep::{Combine, Layout};

/// Three or four ranks without one, in all layouts.
fn without(seed: u64, stops: u32) -> (Layers, u32) {
    let choices = [
        (Layout::ExpertMajor, Combine::Reduced),
        (Layout::RankMajor, Combine::Exact),
        (Layout::Flat { align: 2 }, Combine::Exact),
        (Layout::RankMajor, Combine::Summed),
    ];
    let routes = Routes::ALL[seed as usize % Routes::ALL.len()];
    let (layout, combine) = choices[seed as usize / 3 % 4];
    let ranks = 3 + (seed / 2 % 2) as u32;
    let away = (seed / 5) as u32 % ranks;
    let mut layers = under_seed(seed, |_| {
        let mut case = Case::new((ranks, routes), [5, 16, 7, 9], layout, combine);
        (case.stops, case.routing) = ((away, stops), Routing::Any);
        case.timeout_ns = 8_000_000;
        case
    });
    layers.exclude(away);
    (layers, away)
}

fn others_go_on(layers: &Layers, away: u32) -> Ended {
    let ended = layers.run();
    for rank in (0..layers.case.ranks as usize).filter(|rank| *rank != away as usize) {
        let what = format!("rank {rank} without {away}, {:?}, {}", layers.case, layers.ranks.what);
        assert_eq!(ended.status[rank], Ok(()), "{:?}; {what}", layers.ranks.fault(rank));
        assert_eq!(ended.absent[rank], [0, 0], "{what}");
    }
    layers.check_without(&ended, away, true);
    ended
}

/// It does nothing any more.
#[test]
fn others_go_on_without_a_rank_that_is_excluded() {
    for seed in simt_seeds(0x600, 12) {
        let (layers, away) = without(seed, 1);
        others_go_on(&layers, away);
    }
}

/// It goes on with a call of the old generation: rows, words, and results of rows that it takes for theirs.
#[test]
fn an_excluded_rank_that_goes_on_harms_nobody() {
    for seed in simt_seeds(0x700, 12) {
        let (layers, away) = without(seed, 0);
        let ended = others_go_on(&layers, away);
        // It has taken rows of all, and so given results.
        assert_eq!(ended.absent[away as usize][0], 0, "{:?}", layers.case);
    }
}
