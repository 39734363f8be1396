//! The Rust side's sizes are those of the C++ side.

use crate::cases::bed;
use crate::ranks::{Pace, Routes};
use std::path::Path;
use warpverbs_ep::{EpConfig, Ways};
use warpverbs_kernel_build::Mirror;

#[test]
fn plans_have_the_same_size() {
    let mut mirror = Mirror::new("#include \"warpverbs/ep.h\"\nusing namespace wv::impl;");
    for (tokens, top_k, experts, ranks) in
        [(1, 1, 1, 1), (128, 8, 256, 4), (7, 3, 10, 4), (33, 32, 64, 64)]
    {
        let config = EpConfig::new(tokens, 8, top_k, experts);
        let bytes = warpverbs_ep::plan_bytes(&config, ranks);
        let local = experts.div_ceil(ranks);
        let call = format!("ep_plan_bytes({tokens}, {top_k}, {ranks}, {local})");
        mirror.equal(&call, format!("{bytes}ull"));
    }
    mirror.compile(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels/include")).unwrap();
}

/// A channel that is refused is not made.
#[test]
fn sizes_that_cannot_be_are_refused_before_anything_is_made() {
    let ranks = bed(1, 1 << 12, Routes::Direct, Pace::Seeded(1));
    let ways = Ways { ranks: 1, lanes: 1, staged: false };
    let config = EpConfig::new(4, 12, 1, 1);
    assert!(config.bytes(ways).is_err());
    let regions = warpverbs_ep::Regions::new(&config, ways, 0);
    let export = warpverbs_ep::Export {
        config: &config,
        ways,
        rank: 0,
        heap: ranks.heaps[0].clone(),
        offset: 0,
        regions: &regions,
        epoch: 0,
        generation: 0,
    };
    let said = export.upload(&*ranks.gpu).unwrap_err().to_string();
    assert_eq!(said, "hidden is 12, expected a multiple of 8");
}
