//! Small words: indexes, owner bits, opcode and syndrome tables.

use proptest::prelude::*;
use proptest::sample::select;
use std::collections::HashSet;
use warpverbs_mlx5::cqe::{CqeTail, collapsed_index, gives_back, owned_by_software, owner_bit};
use warpverbs_mlx5::export::{ErrorWord, Outcome};
use warpverbs_mlx5::flags::Flags;
use warpverbs_mlx5::num::{Be24, Qpn, WqeIndex, wqebbs};
use warpverbs_mlx5::opcode::{CqeOpcode, SendOpcode};
use warpverbs_mlx5::syndrome::Syndrome;

const CAUSES: &[Outcome] = &[
    Outcome::Aborted,
    Outcome::Requester,
    Outcome::Responder,
    Outcome::BadError,
    Outcome::StrayCqe,
];

proptest! {
    #[test]
    fn widen_inverts_truncation(floor in 0..u64::MAX / 2, ahead in 0..0x1_0000u64) {
        prop_assert_eq!(WqeIndex::of(floor + ahead).widen(floor), floor + ahead);
    }

    /// The collapsed CQ names exactly the indexes in [completed, published).
    #[test]
    fn collapsed_window(
        completed in 0..1u64 << 40,
        in_flight in prop_oneof![0..4u64, 0..=0x8000u64],
        off_by in prop_oneof![0..3u16, any::<u16>()],
        from_end: bool,
    ) {
        let published = completed + in_flight;
        let edge = if from_end { published } else { completed };
        let counter = (edge as u16).wrapping_add(off_by).wrapping_sub(1);
        let brute = (completed..published).find(|&index| index as u16 == counter);
        prop_assert_eq!(collapsed_index(counter, completed, published), brute);
    }

    #[test]
    fn owner_alternates(ci in 0..1u64 << 40, log in 0u8..24) {
        let n = 1u64 << log;
        prop_assert_eq!(owner_bit(ci, log), ci & n != 0);
        let tail = |owner| CqeTail::new(CqeOpcode::Req, SendOpcode::Send, Qpn::MAX, 0, owner);
        prop_assert!(owned_by_software(tail(owner_bit(ci, log)), ci, log));
        prop_assert!(!owned_by_software(tail(owner_bit(ci, log)), ci + n, log));
        prop_assert!(!owned_by_software(CqeTail::from_ne(CqeTail::UNWRITTEN), ci, log));
    }

    /// However many entries a poller takes at a time, it keeps less than a quarter of the ring, and gives
    /// them back no oftener than that.
    #[test]
    fn entries_are_given_back_once_in_a_quarter(
        start in 0..1u64 << 40,
        batches in proptest::collection::vec(1..9u64, 1..200),
        log in 0u8..12,
    ) {
        let quarter = ((1u64 << log) / 4).max(1);
        let (mut ci, mut record) = (start, start);
        for taken in batches {
            let from = ci;
            ci += taken;
            if gives_back(from, ci, log) {
                prop_assert!(ci / quarter > record / quarter);
                record = ci;
            }
            prop_assert!(ci - record < quarter, "{record} is in the record at {ci}");
        }
    }

    #[test]
    fn error_word(cause in select(CAUSES), syndrome: u8, vendor: u8, wqe: u8, counter: u16) {
        let word = ErrorWord::failed(cause, syndrome, vendor, wqe, counter);
        let fields = word.fields();
        prop_assert_eq!(word.outcome(), Some(cause));
        prop_assert_eq!((fields.syndrome(), fields.vendor()), (syndrome, vendor));
        prop_assert_eq!((fields.wqe_opcode(), word.wqe_counter()), (wqe, counter));
        prop_assert_ne!(word.0, 0);
    }
}

#[test]
fn widths() {
    assert_eq!(Qpn::new(0x100_0000), None);
    assert_eq!(Qpn::new(0xff_ffff), Some(Qpn::MAX));
    assert_eq!(Be24::new(0xab12_3456).get(), 0x12_3456);
    assert_eq!([1, 4, 5, 8, 63].map(wqebbs), [1, 1, 2, 2, 16]);
    assert_eq!(WqeIndex(0xffff).advance(2), WqeIndex(1));
}

#[test]
fn every_byte_has_one_opcode_and_one_syndrome() {
    for value in 0..=u8::MAX {
        assert_eq!(SendOpcode::from_value(value).value(), value);
        assert_eq!(Syndrome::from_value(value).value(), value);
        assert_eq!(CqeOpcode::from_nibble(value).nibble(), value & 0xf);
    }
    let named = |unknown: &dyn Fn(u8) -> bool| (0..=u8::MAX).filter(|&v| !unknown(v)).count();
    let opcodes = named(&|v| matches!(SendOpcode::from_value(v), SendOpcode::Unknown(_)));
    let syndromes = named(&|v| matches!(Syndrome::from_value(v), Syndrome::Unknown(_)));
    assert_eq!((opcodes, syndromes), (SendOpcode::ALL.len(), Syndrome::ALL.len()));
    let names: HashSet<_> = SendOpcode::ALL.iter().map(|o| o.name()).collect();
    assert_eq!(names.len(), SendOpcode::ALL.len());
}

#[test]
fn flags_bytes() {
    let valid: Vec<u8> = (0..=u8::MAX).filter(|&b| Flags::from_byte(b).is_some()).collect();
    // 5 fence modes × 4 completion modes × solicited or not.
    assert_eq!(valid.len(), 40);
    for byte in valid {
        assert_eq!(Flags::from_byte(byte).map(Flags::to_byte), Some(byte));
    }
}
