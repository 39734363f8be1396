//! Work that a layer posts where all other ranks are reached by RDMA.

use crate::case::Case;
use crate::cases::at_pace;
use crate::ranks::{Pace, Routes};
use warpverbs_dev::simt_seeds;
use warpverbs_ep::{Combine, Layout};

const TOKENS: u32 = 32;
const TOP_K: u32 = 4;
const EXPERTS: u32 = 6;

/// Rows that leave their rank: one for each token and other rank that has some of its experts.
fn rows(experts: &[i32]) -> u64 {
    let each = (EXPERTS / 2) as i32;
    let by_rank = experts.chunks((TOKENS * TOP_K) as usize).zip(0..);
    let rows = by_rank.map(|(of_rank, rank)| {
        let tokens = of_rank.chunks(TOP_K as usize);
        let leaves = |token: &&[i32]| token.iter().any(|&e| e >= 0 && e / each != rank);
        tokens.filter(leaves).count() as u64
    });
    rows.sum()
}

/// A WQE for each row and each result, and two words for each other rank: rows have come, results have. A warp posts all that it has for a rank under one doorbell, as lanes that are not parted
/// at random by a seed come to it together.
#[test]
fn a_row_takes_one_wqe_and_a_warp_one_doorbell() {
    for seed in simt_seeds(0x500, 6) {
        let routes = [Routes::Rdma, Routes::Bnxt, Routes::Ionic][seed as usize % 3];
        let layers = at_pace(Pace::Real, seed, |_| {
            let sizes = [TOKENS, 64, TOP_K, EXPERTS];
            let mut case = Case::new((2, routes), sizes, Layout::RankMajor, Combine::Summed);
            (case.dim, case.least, case.timeout_ns) = ((1, 64), TOKENS, 20_000_000_000);
            case
        });
        layers.check(&layers.run());
        let posted = layers.ranks.endpoints.iter().map(|e| e.health().unwrap().send.published);
        let rows = rows(&layers.inputs.experts);
        assert!(rows > u64::from(TOKENS), "{rows} rows");
        assert_eq!(posted.sum::<u64>(), 2 * rows + 2 * 2, "{}", layers.ranks.what);
        // Rows, results and the two words, by each of the two ranks.
        let doorbells = layers.ranks.nic.stats().qps.doorbells;
        assert!(doorbells <= 2 * 4, "{doorbells} doorbells; {}", layers.ranks.what);
    }
}
