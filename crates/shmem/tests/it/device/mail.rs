//! Mail: every byte of every message, credits, sequence numbers that begin anew, and what ends a
//! wait.

use crate::calls::Move;
use crate::device::ranks::{Pace, Ranks, Routes, pointer};
use warpverbs::gpu::Dim;
use warpverbs::transport::Outcome;
use warpverbs_dev::simt_seeds;
use warpverbs_shmem::layout::mail_block_bytes;
use warpverbs_test_kernels::shm_mail as k;

const BOX: u64 = 1 << 14;
const DESK: u64 = 256;

/// `count` messages of up to `bytes` from rank 0 to rank 1, in launches of `each`.
fn letters(
    ranks: &Ranks,
    (group, threads): (u32, u32),
    (r#box, bytes, log_slots): (u64, u32, u32),
    (count, each): (u32, u32),
    look: u32,
) {
    let wrong = ranks.buffer(8);
    for skip in (0..count).step_by(each as usize) {
        let members = ranks.members([0, 1], |heap| k::Member { heap });
        ranks.run(Dim::new(2, threads), |status| k::ShmLetters {
            members,
            sender: 0,
            receiver: 1,
            group,
            r#box,
            bytes,
            log_slots,
            log_period: 4,
            desk: DESK,
            count: each,
            skip: u64::from(skip),
            look,
            wrong: pointer(&wrong),
            status,
        });
        let who = format!("group {group} of {threads} threads");
        assert_eq!(ranks.read(&wrong), [0; 8], "{}, {who}, {bytes} bytes", ranks.what);
    }
}

#[test]
fn every_byte_of_every_message_arrives() {
    for seed in simt_seeds(0x600, 5) {
        for routes in Routes::APART {
            // Whole warps share out wide lines; of a block of 40, its threads do.
            for group in [(0, 1), (1, 32), (2, 40), (2, 64)] {
                // The longer ones come in lines of both kinds, in the same slots.
                for (bytes, log_slots) in [(8, 1), (50, 2), (1500, 3), (9000, 1)] {
                    let size = 1 << 18;
                    assert!(BOX + mail_block_bytes(bytes, log_slots as u8) <= size);
                    let ranks = Ranks::new(2, size, routes, Pace::Seeded(seed));
                    // Several times round the numbers, and on in a second kernel.
                    let look = u32::from(seed % 2 == 0);
                    letters(&ranks, group, (BOX, bytes, log_slots), (60, 30), look);
                }
            }
        }
    }
}

#[test]
fn long_messages_arrive() {
    for routes in Routes::APART {
        let (bytes, r#box) = (1 << 16, BOX + (1 << 17));
        let ranks = Ranks::new(2, r#box + mail_block_bytes(bytes, 1), routes, Pace::Real);
        letters(&ranks, (2, 96), (r#box, bytes, 1), (20, 20), 0);
    }
}

#[test]
fn values_go_round_a_ring() {
    for seed in simt_seeds(0x700, 5) {
        for routes in Routes::ALL {
            for group in [0, 1, 2] {
                let ranks = Ranks::new(4, 1 << 15, routes, Pace::Seeded(seed));
                let wrong = ranks.buffer(8);
                let members = ranks.members(0..4, |heap| k::Member { heap });
                ranks.run(Dim::new(4, 40), |status| k::ShmRound {
                    members,
                    group,
                    r#box: BOX,
                    rounds: 40,
                    wrong: pointer(&wrong),
                    status,
                });
                assert_eq!(ranks.read(&wrong), [0; 8], "{}", ranks.what);
            }
        }
    }
}

struct Lone {
    receives: u32,
    r#box: u64,
    bytes: u32,
    log_slots: u32,
    size: u32,
    peer: u32,
}

const LONE: Lone = Lone { receives: 0, r#box: BOX, bytes: 64, log_slots: 2, size: 64, peer: 1 };

/// How it ended, and how many calls succeeded before.
fn lone(ranks: &Ranks, lone: Lone) -> (Outcome, u64) {
    let done = ranks.buffer(8);
    let Lone { receives, r#box, bytes, log_slots, size, peer } = lone;
    let outcome = ranks.launch_on(0, Dim::new(1, 40), |heap, status| k::ShmLoneMail {
        heap,
        receives,
        r#box,
        bytes,
        log_slots,
        size,
        peer,
        ns: 1_000_000,
        done: pointer(&done),
        status,
    });
    let done = ranks.read(&done).try_into().expect("8 bytes");
    (outcome.expect_err("nobody answers"), u64::from_le_bytes(done))
}

#[test]
fn a_peer_that_does_nothing_is_named() {
    for routes in Routes::APART {
        let ranks = Ranks::new(2, 1 << 15, routes, Pace::Seeded(8));
        // All slots, and no more.
        assert_eq!(lone(&ranks, LONE), (Outcome::Timeout, 4));
        let fault = ranks.fault(0);
        assert_eq!((fault.what, fault.peer, fault.expected, fault.actual), (9, 1, 1, 0));
        let ranks = Ranks::new(2, 1 << 15, routes, Pace::Seeded(8));
        assert_eq!(lone(&ranks, Lone { receives: 1, ..LONE }), (Outcome::Timeout, 0));
        let fault = ranks.fault(0);
        assert_eq!((fault.what, fault.peer, fault.expected, fault.actual), (8, 1, 1, 0));
        ranks.raise_alarm(0, 2);
        assert_eq!(lone(&ranks, Lone { receives: 1, ..LONE }).0, Outcome::PeerLost);
    }
}

#[test]
fn an_empty_message_has_to_be_sent_to_be_received() {
    for routes in Routes::APART {
        // Boxes of several messages' sizes, and one for empty messages alone.
        for bytes in [64, 0] {
            let ranks = Ranks::new(2, 1 << 15, routes, Pace::Seeded(8));
            let empty = Lone { bytes, size: 0, ..LONE };
            assert_eq!(lone(&ranks, Lone { receives: 1, ..empty }), (Outcome::Timeout, 0));
            let ranks = Ranks::new(2, 1 << 15, routes, Pace::Seeded(8));
            assert_eq!(lone(&ranks, empty), (Outcome::Timeout, 4), "no credit comes back");
        }
    }
}

/// Writes message 0 of a box into rank 0's memory, as it arrives.
fn arrive(ranks: &Ranks, message: &[u8]) {
    let lines = message.chunks(8).flat_map(|word| {
        let (low, high) = word.split_at(4);
        [low, &1u32.to_le_bytes(), high, &1u32.to_le_bytes()].concat()
    });
    ranks.fill(0, BOX + 128, &lines.collect::<Vec<_>>());
}

#[test]
fn a_message_that_has_come_is_received_even_if_its_credit_cannot_be_given() {
    let ranks = Ranks::new(2, 1 << 15, Routes::Rdma, Pace::Seeded(8));
    let message: Vec<u8> = (0..64u8).map(|i| i.wrapping_mul(151) ^ 0x5a).collect();
    arrive(&ranks, &message);
    ranks.endpoints.iter().for_each(|endpoint| endpoint.fail().expect("an error state"));
    // Rank 0 finds out that its queue pair is of no use.
    let put = Move { group: 2, to: 0, from: 1 << 12, bytes: 8, pe: 1 };
    let cause = ranks.launch_on(0, Dim::new(1, 40), put.put()).expect_err("a failed queue pair");
    // One slot is half of the box, so each message is followed by a credit.
    let receive = Lone { receives: 1, log_slots: 1, ..LONE };
    assert_eq!(lone(&ranks, receive), (cause, 1));
    assert_eq!(ranks.bytes(0)[..64], message);
}

#[test]
fn boxes_and_messages_that_cannot_be_are_refused() {
    let ranks = Ranks::new(2, 1 << 15, Routes::Direct, Pace::Seeded(8));
    let refused = |what| lone(&ranks, what).0;
    assert_eq!(refused(Lone { size: 65, ..LONE }), Outcome::TooLong);
    assert_eq!(refused(Lone { receives: 1, size: 65, ..LONE }), Outcome::TooLong);
    assert_eq!(refused(Lone { peer: 2, ..LONE }), Outcome::NoPeer);
    assert_eq!(refused(Lone { peer: u32::MAX, ..LONE }), Outcome::NoPeer);
    for bad in [
        Lone { r#box: BOX + 8, ..LONE },
        Lone { r#box: (1 << 15) - mail_block_bytes(64, 2) + 16, ..LONE },
        Lone { bytes: u32::MAX, ..LONE },
        Lone { log_slots: 0, ..LONE },
        Lone { log_slots: 17, ..LONE },
    ] {
        assert_eq!(refused(bad), Outcome::BadAddress);
    }
}
