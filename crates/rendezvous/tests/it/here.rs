//! Ranks of one machine without a launcher. Their processes are tested with the examples, which are such
//! ranks.

use warpverbs_rendezvous::{RankInfo, StartError};

#[test]
fn a_number_of_ranks_that_cannot_be_is_refused() {
    for ranks in [0, 65, u32::MAX] {
        let error = RankInfo::here(ranks).expect_err("no such number");
        assert!(matches!(error, StartError::Count { ranks: found } if found == ranks), "{error:?}");
        assert!(error.to_string().contains("expected 1 to 64"), "{error}");
    }
}
