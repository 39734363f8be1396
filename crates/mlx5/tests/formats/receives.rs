//! Receive WQEs: round trip and refusals.

use proptest::collection::vec;
use proptest::prelude::*;
use warpverbs_mlx5::num::Lkey;
use warpverbs_mlx5::recv::{self, RecvBuildError, RecvViolation};
use warpverbs_mlx5::wqe::Sge;

fn sge() -> impl Strategy<Value = Sge> {
    (any::<u64>(), 1..=i32::MAX as u32, any::<u32>()).prop_map(|(addr, len, lkey)| Sge {
        addr,
        len,
        lkey: Lkey(lkey),
    })
}

proptest! {
    #[test]
    fn round_trip(sges in vec(sge(), 0..8), spare in 0..8usize, next: u16) {
        // At least one segment, and old bytes everywhere.
        let mut slot = vec![0xa5; (sges.len() + spare).max(1) * 16];
        prop_assert_eq!(recv::build(&mut slot, &sges), Ok(()));
        let list = recv::parse(&slot).expect("well formed");
        prop_assert_eq!(list.iter().collect::<Vec<_>>(), &sges[..]);
        prop_assert_eq!(list.byte_len(), sges.iter().map(|s| u64::from(s.len)).sum::<u64>());

        let mut slot = vec![0xa5; slot.len() + 16];
        prop_assert_eq!(recv::build_srq(&mut slot, next, &sges), Ok(()));
        let (link, list) = recv::parse_srq(&slot).expect("well formed");
        prop_assert_eq!(link, next);
        prop_assert_eq!(list.iter().collect::<Vec<_>>(), sges);
    }
}

const SGE: Sge = Sge { addr: 0x2000, len: 4, lkey: Lkey(2) };

#[test]
fn parser_refuses() {
    let mut slot = [0; 64];
    recv::build(&mut slot, &[SGE, SGE]).expect("room for four");
    let mut wrong = slot;
    wrong[16] = 0x80;
    let byte_count = 0x8000_0004;
    assert_eq!(recv::parse(&wrong), Err(RecvViolation::InlineBit { sge: 1, byte_count }));
    wrong = slot;
    wrong[19] = 0;
    assert_eq!(recv::parse(&wrong), Err(RecvViolation::ZeroLength { sge: 1, lkey: 2 }));
    wrong = slot;
    // A terminator whose lkey was swapped as 64 bits and cut to 32.
    wrong[36..40].fill(0);
    assert_eq!(recv::parse(&wrong), Err(RecvViolation::ZeroLength { sge: 2, lkey: 0 }));
    let size = |available, min| Err(RecvViolation::Size { available, min });
    assert_eq!(recv::parse(&slot[..40]), size(40, 16));
    assert_eq!(recv::parse(&[]), size(0, 16));
}

/// UCX keeps a mask, a counter and a pointer there.
#[test]
fn an_srq_link_may_carry_state_of_the_library() {
    let mut slot = [0; 64];
    recv::build_srq(&mut slot, 3, &[SGE]).expect("room for three");
    for offset in [0, 1, 4, 5, 15] {
        slot[offset] = 0xa5;
    }
    let (link, sges) = recv::parse_srq(&slot).expect("only the link is read");
    assert_eq!((link, sges.byte_len()), (3, u64::from(SGE.len)));
}

#[test]
fn srq_parser_refuses() {
    let mut slot = [0; 64];
    recv::build_srq(&mut slot, 3, &[SGE]).expect("room for three");
    for available in [0, 15, 16, 40] {
        let got = recv::parse_srq(&slot[..available]);
        assert_eq!(got, Err(RecvViolation::Size { available, min: 32 }));
    }
}

#[test]
fn builder_refuses() {
    let mut slot = [0; 32];
    let many = RecvBuildError::TooMany { entries: 3, slot: 32, room: 2 };
    assert_eq!(recv::build(&mut slot, &[SGE; 3]), Err(many));
    let many = RecvBuildError::TooMany { entries: 2, slot: 32, room: 1 };
    assert_eq!(recv::build_srq(&mut slot, 0, &[SGE; 2]), Err(many));
    let odd = RecvBuildError::SlotSize { slot: 24 };
    assert_eq!(recv::build(&mut slot[..24], &[SGE]), Err(odd));
    let long = Sge { len: 1 << 31, ..SGE };
    let refused = Err(RecvBuildError::SgeLength { len: 1 << 31 });
    assert_eq!(recv::build(&mut slot, &[long]), refused);
}
