//! Heaps that come to be.

use crate::heap::processes::{put_to_next, raised};
use crate::heap::ranks::{PATIENCE, Rank, SIZE, config, ranks};
use std::time::Duration;
use warpverbs_gpu::Dim;
use warpverbs_peer::write_word;
use warpverbs_shmem::{Heap, Route, RoutePolicy, ShmemError, Signal, Sym};
use warpverbs_transport::{Outcome, WaitFor};

/// Stores a word of its own into every rank that is mapped here, by a kernel.
fn store_to_all(rank: &Rank, heap: &Heap, words: &Sym<u64>) {
    for peer in 0..heap.world() {
        let Some(mapped) = heap.mapped(words, peer).unwrap() else { continue };
        let (at, value) = (8 * u64::from(heap.rank()), 100 + u64::from(heap.rank()));
        write_word(&*rank.gpu, &mapped, at, value, Duration::from_secs(20)).unwrap();
    }
}

fn words(heap: &Heap, words: &Sym<u64>) -> Vec<u64> {
    let mut bytes = vec![0; words.bytes() as usize];
    heap.read(words, &mut bytes).unwrap();
    bytes.chunks(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap())).collect()
}

#[test]
fn every_rank_reaches_every_other_by_stores() {
    for count in [1, 2, 4] {
        let seen = ranks(count, |rank| {
            let mut heap = rank.heap(&config()).unwrap();
            let place = heap.alloc::<u64>(count.into()).unwrap();
            store_to_all(rank, &heap, &place);
            rank.meet();
            let seen = words(&heap, &place);
            rank.meet();
            assert!(heap.health().unwrap().is_ok());
            (heap.routes(), place.offset(), seen)
        });
        let expected: Vec<_> = (100..100 + u64::from(count)).collect();
        for (rank, (routes, offset, words)) in seen.iter().enumerate() {
            assert_eq!((offset, words), (&seen[0].1, &expected), "rank {rank}");
            let own = routes.iter().position(|route| *route == Route::Own);
            assert_eq!(own, Some(rank));
            let direct = routes.iter().filter(|route| **route == Route::Direct).count();
            assert_eq!(direct, count as usize - 1);
        }
    }
}

#[test]
fn routes_may_be_forced_and_the_report_says_so() {
    let rows = [
        (RoutePolicy::Direct, [Route::Direct; 3]),
        (RoutePolicy::Rdma, [Route::Rdma; 3]),
        // From and to rank 2.
        (RoutePolicy::RdmaOf(vec![2]), [Route::Direct, Route::Rdma, Route::Rdma]),
    ];
    for (policy, [near, far, last]) in rows {
        let config = config().routes(policy.clone()).qps_per_peer(2);
        let reports = ranks(3, |rank| {
            let heap = rank.heap(&config).unwrap();
            rank.meet();
            assert!(heap.health().unwrap().is_ok());
            (heap.routes(), heap.report())
        });
        let (own, none) = (Route::Own, Route::None);
        let expected = [[own, near, far], [near, own, far], [far, last, own]];
        for ((routes, report), expected) in reports.iter().zip(expected) {
            assert_eq!(routes[..], expected, "{policy}");
            assert!(!routes.contains(&none));
            let text = report.to_string();
            assert!(text.contains(&format!("routes: {policy}")), "{text}");
            let forced = format!("loads and stores: forced: {policy}");
            assert_eq!(text.contains(&forced), expected.contains(&Route::Rdma), "{text}");
            assert_eq!(text.contains("NIC: soft0"), policy != RoutePolicy::Direct, "{text}");
            // All memory is reached by RDMA from somewhere.
            assert_eq!(text.contains("atomics by rdma"), policy != RoutePolicy::Direct, "{text}");
            let json: serde_json::Value = serde_json::from_str(&report.to_json()).unwrap();
            assert_eq!(json["bytes"], SIZE);
            assert_eq!(json["peers"][0]["route"]["route"], routes[0].to_string());
            assert_eq!(json["steps"][0][0], "introduce");
        }
    }
}

#[test]
fn it_grows_on_all_ranks_and_keeps_what_was_there() {
    for policy in [RoutePolicy::Auto, RoutePolicy::Rdma] {
        let config = config().routes(policy);
        ranks(3, |rank| {
            let mut heap = rank.heap(&config).unwrap();
            let first = heap.alloc::<u64>(3).unwrap();
            store_to_all(rank, &heap, &first);
            let before = heap.device();
            assert!(heap.alloc::<u8>(SIZE).is_err());
            heap.grow(&mut rank.world).unwrap();
            heap.grow(&mut rank.world).unwrap();
            assert_ne!(heap.device().addr(), before.addr());
            assert_eq!((heap.bytes(), heap.report().segments), (4 * SIZE, 3));
            // Over the border of two segments.
            let second = heap.alloc::<u64>(SIZE / 8 + 3).unwrap();
            let last = second.slice(SIZE / 8, 3).unwrap();
            store_to_all(rank, &heap, &last);
            rank.meet();
            for place in [first, last] {
                let seen = words(&heap, &place);
                let expected = [0, 1, 2].map(|peer| match heap.routes()[peer] {
                    Route::Rdma => 0,
                    _ => 100 + peer as u64,
                });
                assert_eq!(seen, expected);
            }
            assert!(heap.health().unwrap().is_ok());
            rank.meet();
        });
    }
}

#[test]
fn teams_and_mailboxes_begin_with_zeros_on_all_ranks() {
    ranks(4, |rank| {
        let mut heap = rank.heap(&config()).unwrap();
        let used = heap.alloc::<u8>(SIZE / 2).unwrap();
        heap.write(&used, &vec![7; SIZE as usize / 2]).unwrap();
        heap.free(used).unwrap();
        let all = heap.team(&mut rank.world, 0, 1, 4).unwrap();
        let odd = heap.split(&mut rank.world, &all, (1, 2, 2)).unwrap();
        assert_eq!((odd.rank(1), odd.member(3), odd.member(2)), (Some(3), Some(1), None));
        assert_eq!((odd.first(), odd.stride(), odd.len()), (1, 2, 2));
        assert_ne!(all.block(), odd.block());
        let mail = heap.mail_block(&mut rank.world, 100, 3).unwrap();
        for place in [all.block(), odd.block(), mail] {
            assert!(words(&heap, &place).iter().all(|word| *word == 0));
            heap.free(place).unwrap();
        }
        assert!(heap.team(&mut rank.world, 0, 1, 5).is_err());
        assert!(heap.mail_block(&mut rank.world, 8, 0).is_err());
        assert!(heap.mail_block(&mut rank.world, 8, 17).is_err());
        // More than there is: all fail, and agree.
        assert!(heap.alloc_zeroed::<u8>(&mut rank.world, SIZE).is_err());
        heap.agree(&mut rank.world).unwrap();
        rank.meet();
    });
}

#[test]
fn several_heaps_of_a_process_know_their_own_places() {
    ranks(2, |rank| {
        let mut one = rank.heap(&config()).unwrap();
        let mut two = rank.heap(&config()).unwrap();
        let (a, b) = (one.alloc::<u32>(10).unwrap(), two.alloc::<u32>(10).unwrap());
        assert_eq!(a.offset(), b.offset());
        one.write(&a, &[1; 40]).unwrap();
        two.write(&b, &[2; 40]).unwrap();
        let mut bytes = [0; 40];
        one.read(&a, &mut bytes).unwrap();
        assert_eq!(bytes, [1; 40]);
        let wrong = two.read(&a, &mut bytes).unwrap_err().to_string();
        assert!(wrong.contains("another heap"), "{wrong}");
        assert!(two.free(a).is_err() && one.mapped(&b, 0).is_err());
        // Dropping waits for nobody, and the other goes on.
        if rank.number() == 0 {
            drop(one);
        }
        rank.meet();
        two.agree(&mut rank.world).unwrap();
    });
}

#[test]
fn a_wait_that_failed_shows_in_the_health_and_the_host_ends_others() {
    ranks(2, |rank| {
        let mut heap = rank.heap(&config()).unwrap();
        let signal = heap.alloc_zeroed::<Signal>(&mut rank.world, 1).unwrap();
        let other = 1 - rank.number();
        let wait = |heap: &Heap, limit| rank.start(heap, raised(&signal, other, limit).kernel());
        assert_eq!(wait(&heap, Duration::from_millis(1)).end(), Err(Outcome::Timeout));
        let fault = heap.health().unwrap().fault.unwrap();
        assert_eq!((fault.outcome, fault.what), (Outcome::Timeout, WaitFor::Signal));
        assert_eq!((fault.peer, fault.offset), (Some(other), signal.offset()));
        assert_eq!((fault.expected, fault.actual), (1, 0));
        let text = fault.to_string();
        assert!(text.contains(&format!("for Signal from rank {other}")), "{text}");
        let waiting = wait(&heap, PATIENCE);
        heap.mark_lost(other).unwrap();
        assert_eq!(waiting.end(), Err(Outcome::PeerLost));
        assert_eq!(heap.health().unwrap().lost, [other]);
        heap.abort().unwrap();
        assert_eq!(wait(&heap, PATIENCE).end(), Err(Outcome::Aborted));
        rank.meet();
    });
}

#[test]
fn a_rank_that_is_given_up_and_an_abort_show_in_the_health() {
    ranks(2, |rank| {
        let mut heap = rank.heap(&config().routes(RoutePolicy::Rdma)).unwrap();
        rank.meet();
        let other = 1 - rank.number();
        heap.mark_lost(other).unwrap();
        let health = heap.health().unwrap();
        assert_eq!((health.aborted, &health.lost[..]), (false, &[other][..]));
        assert_eq!(health.queue_pairs.first().map(|pair| pair.0), Some(other));
        assert!(heap.mark_lost(2).is_err());
        heap.abort().unwrap();
        let text = heap.health().unwrap().to_string();
        assert!(text.contains("aborted by the host") && text.contains("given up"), "{text}");
        assert!(heap.report().peers[other as usize].lost);
        rank.meet();
    });
}

/// A bad status of a kernel, while all ranks are there, comes with what the heap knows.
#[test]
fn a_kernel_that_fails_is_told_with_the_health() {
    ranks(2, |rank| {
        let mut heap = rank.heap(&config()).unwrap();
        let signal = heap.alloc_zeroed::<Signal>(&mut rank.world, 1).unwrap();
        let from = 1 - rank.number();
        let wait = raised(&signal, from, Duration::from_nanos(1)).kernel();
        let ended = heap.run(&mut rank.world, Dim::new(1, 64), PATIENCE, wait);
        let error = ended.unwrap_err();
        assert!(matches!(error, ShmemError::Kernel { .. }), "{error:?}");
        assert!(error.to_string().contains(&format!("for Signal from rank {from}")), "{error}");
        rank.meet();
    });
}

/// Memory that nobody maps, of all ranks or of one: everything goes by RDMA there, with the reason.
#[test]
fn memory_that_is_not_shared_is_reached_by_rdma() {
    for plain in [vec![0, 1, 2], vec![1]] {
        let shared = |rank: u32| !plain.contains(&rank);
        let reports = ranks(3, |rank| {
            let config = config().shared(shared(rank.number()));
            let mut heap = rank.heap(&config).unwrap();
            let (me, last) = (heap.rank(), (heap.rank() + 2) % 3);
            let place = heap.alloc_aligned::<u8>(16, 4096).unwrap();
            let signal = heap.alloc_zeroed::<Signal>(&mut rank.world, 1).unwrap();
            assert_eq!(heap.local(&place).unwrap().kernel_addr() % 4096, 0);
            let from = place.slice(8, 8).unwrap();
            heap.write(&from, &[100 + me as u8; 8]).unwrap();
            rank.meet();
            put_to_next(rank, &heap, (&from, &place), &signal, last);
            let mut seen = [0; 16];
            heap.read(&place, &mut seen).unwrap();
            let expected = [[100 + last as u8; 8], [100 + me as u8; 8]];
            assert_eq!(seen, *expected.as_flattened());
            let size = heap.bytes();
            let full = heap.grow(&mut rank.world).unwrap_err().to_string();
            let expected = format!("the heap has {size} bytes and does not grow: memory of rank ");
            assert!(full.starts_with(&expected) && full.contains("not wanted"), "{full}");
            rank.meet();
            heap.report()
        });
        for (own, report) in reports.iter().enumerate() {
            let text = report.to_string();
            let own_shared = shared(own as u32);
            assert_eq!(text.contains("reached by RDMA alone, and does not grow"), !own_shared);
            for (rank, peer) in report.peers.iter().enumerate().filter(|(rank, _)| *rank != own) {
                let direct = own_shared && shared(rank as u32);
                assert_eq!(peer.route.route == Route::Direct, direct, "{own} to {rank}: {text}");
                let why = peer.route.explain();
                assert_eq!(why.contains("not wanted: HeapConfig::shared"), !direct, "{why}");
            }
        }
    }
    let seen = ranks(2, |rank| {
        rank.nic = None;
        rank.heap(&config().shared(false)).unwrap_err().to_string()
    });
    assert!(
        seen[0].contains("memory of rank") && seen[0].contains("no NIC was given"),
        "{}",
        seen[0]
    );
}
