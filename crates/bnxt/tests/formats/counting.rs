//! Counters by doorbells, phases and packet numbers, against a count of single steps.

use proptest::prelude::*;
use warpverbs_bnxt::doorbell::{Doorbell, DoorbellViolation, Kind};
use warpverbs_bnxt::packets::{Packets, PacketsViolation, Table};
use warpverbs_bnxt::ring::{Library, Mode, Ring, RingSize};
use warpverbs_rdma::Mtu;

/// Position and epoch after so many single steps.
fn steps(size: u32, count: u64) -> (u32, bool) {
    let (mut index, mut epoch) = (0, false);
    for _ in 0..count {
        index += 1;
        if index == size {
            (index, epoch) = (0, !epoch);
        }
    }
    (index, epoch)
}

proptest! {
    #[test]
    fn a_doorbell_tells_the_counter(size in 1..50_u32, before in 0..500_u64, ahead in 0..=50_u64) {
        let counter = before + ahead.min(size.into());
        let (index, epoch) = steps(size, counter);
        for library in [Library::Early, Library::Current] {
            let ring = Ring::new(size, library).expect("a size");
            let doorbell = ring.doorbell(Kind::Send, 7, counter);
            let current = library == Library::Current;
            prop_assert_eq!((doorbell.index, doorbell.valid), (index, current));
            prop_assert_eq!(doorbell.epoch, epoch && current);
            let told = ring.counter(&doorbell, before);
            // A full ring looks empty without epoch.
            let full = !current && counter - before == u64::from(size);
            prop_assert_eq!(told, Ok(if full { before } else { counter }));
            prop_assert_eq!(ring.phase(counter), !epoch);
        }
    }

    #[test]
    fn a_wrong_epoch_is_found(size in 1..50_u32, before in 0..500_u64, ahead in 1..50_u64) {
        prop_assume!(ahead < size.into());
        let ring = Ring::new(size, Library::Current).expect("a size");
        let right = ring.doorbell(Kind::Send, 7, before + ahead);
        let wrong = Doorbell { epoch: !right.epoch, ..right };
        let (value, index) = (wrong.epoch, wrong.index);
        let violation = DoorbellViolation::Epoch { value, index, size, before };
        prop_assert_eq!(ring.counter(&wrong, before), Err(violation));
    }

    #[test]
    fn packets_add_up(first in 0..1_u32 << 24, len in prop_oneof![0..20_000_u32, Just(1 << 30)], code in 1..=5_u8) {
        let mtu = Mtu::from_code(code).expect("a code");
        let (mut packets, mut left) = (1_u32, u64::from(len));
        while left > mtu.bytes() as u64 {
            (packets, left) = (packets + 1, left - mtu.bytes() as u64);
        }
        let of = Packets::of(first, len, mtu, 3);
        prop_assert_eq!(of.next, (first + packets) % (1 << 24));
        for table in [Table::Psn, Table::PsnExt, Table::Msn] {
            let mut entry = vec![0; table.entry()];
            of.write(table, 0xff, &mut entry).expect("the size of an entry");
            let read = Packets::read(table, &entry).expect("an entry");
            prop_assert_eq!(read.check(of), Ok(()));
            let wrong = Packets { first: first ^ 1, ..of };
            let value = (first, first ^ 1);
            let violation = PacketsViolation::First { value: value.0, expected: value.1 };
            prop_assert_eq!(read.check(wrong), Err(violation));
        }
    }
}

#[test]
fn a_wrong_entry_is_named() {
    // 3000 bytes by a path MTU of 4096 in place of 1024, and the same of another WQE.
    let expected = Packets::of(0xff_ffff, 3000, Mtu::B1024, 6);
    let wrong =
        Packets::of(0xff_ffff, 3000, Mtu::B4096, 6).check(expected).expect_err("one packet");
    assert_eq!(wrong, PacketsViolation::Next { value: 0, expected: 2, packets: 3 });
    assert_eq!(wrong.field(), "entry.next");
    assert_eq!(wrong.to_string(), "entry.next is 0x000000, expected 0x000002: 3 packets");
    let moved = Packets { start: Some(9), ..expected };
    let violation = PacketsViolation::Start { value: 9, expected: 6 };
    assert_eq!(moved.check(expected), Err(violation));
    assert_eq!(Packets { start: None, ..expected }.check(expected), Ok(()));
    let size = PacketsViolation::Size { available: 8, expected: 16 };
    assert_eq!(Packets::read(Table::PsnExt, &[0; 8]), Err(size));
    assert_eq!(expected.write(Table::PsnExt, 0, &mut [0; 8]), Err(size));
}

#[test]
fn malformed_doorbells() {
    let ring = Ring::new(256, Library::Current).expect("a size");
    let good = ring.doorbell(Kind::Send, 0x42, 1);
    let violation = |doorbell| ring.counter(&doorbell, 0).expect_err("a violation");
    let index = violation(Doorbell { index: 256, ..good });
    assert_eq!(index.to_string(), "doorbell.index is 256, expected less than 256, the ring's size");
    assert_eq!(violation(Doorbell { valid: false, ..good }), DoorbellViolation::NotValid);
    let epoch = violation(Doorbell { epoch: true, ..good });
    let text = "doorbell.epoch is true with index 1, expected 0 (a ring of 256 at 0)";
    assert_eq!((epoch.field(), epoch.to_string().as_str()), ("doorbell.epoch", text));

    for bit in (26..32).chain(52..58).chain([59]) {
        let violation = Doorbell::parse(good.word() | 1 << bit).expect_err("a reserved bit");
        assert_eq!(violation.field(), "doorbell.reserved", "{bit}");
    }
    for value in [0xa, 0xb, 0xe] {
        let word = good.word() | u64::from(value) << 60;
        assert_eq!(Doorbell::parse(word), Err(DoorbellViolation::Kind { value }));
    }
    for size in [0, (1 << 24) + 1] {
        assert_eq!(Ring::new(size, Library::Early), Err(RingSize { size }));
    }
    assert_eq!((Mode::Static.slot(3), Mode::Variable.slot(3)), (24, 3));
}
