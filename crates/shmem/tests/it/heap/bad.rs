//! Refusals, on all ranks alike.

use crate::heap::ranks::{PATIENCE, SIZE, config, ranks};
use serde_json::{Value, json};
use std::sync::Barrier;
use std::time::{Duration, Instant};
use warpverbs_peer::{Exporter, Introduction};
use warpverbs_shmem::{AllocError, Heap, HeapConfig, RoutePolicy, ShmemError};

/// The errors of three ranks, which must all say the same.
fn refused(make: impl Fn(u32) -> HeapConfig + Sync) -> ShmemError {
    let mut errors = ranks(3, |rank| {
        let error = rank.heap(&make(rank.number())).unwrap_err();
        // Nothing is left behind that the next one would meet.
        let heap = rank.heap(&config()).unwrap();
        rank.meet();
        drop(heap);
        error
    });
    let texts: Vec<_> = errors.iter().map(ToString::to_string).collect();
    assert!(texts.iter().all(|text| *text == texts[0]), "{texts:#?}");
    println!("{}", texts[0]);
    errors.swap_remove(0)
}

#[test]
fn unequal_settings_are_named_with_both_ranks() {
    let error = refused(|rank| if rank == 2 { HeapConfig::new(2 * SIZE) } else { config() });
    assert!(matches!(error, ShmemError::Unequal { rank: 0, other: 2, .. }), "{error}");
    assert!(error.to_string().contains("rank 2 has 2097152"), "{error}");
    let error = refused(|rank| config().qps_per_peer(1 + rank));
    assert!(matches!(error, ShmemError::Unequal { other: 1, .. }), "{error}");
    let error = refused(|rank| match rank {
        0 => config(),
        _ => config().routes(RoutePolicy::Rdma),
    });
    assert!(error.to_string().contains("rank 0 has auto, rank 1 has rdma"), "{error}");
    let error = refused(|_| config().routes(RoutePolicy::RdmaOf(vec![1, 3])));
    assert!(matches!(error, ShmemError::Rank { rank: 3, world: 3 }), "{error}");
}

#[test]
fn one_ranks_failure_is_everybodys_with_its_cause() {
    let seen = ranks(3, |rank| {
        let bad = if rank.number() == 1 { HeapConfig::new(0) } else { config() };
        let error = rank.heap(&bad).unwrap_err();
        rank.heap(&config()).unwrap();
        rank.meet();
        error
    });
    for other in &seen {
        let text = other.to_string();
        assert!(matches!(other, ShmemError::Step { step: "introduce", rank: 1, .. }), "{text}");
        assert!(text.contains("size is \"0\", expected 1 to 2^46 bytes"), "{text}");
    }
}

/// Rank 1 is another version, or no heap at all.
#[test]
fn other_versions_are_named() {
    let hello = |introduction: Introduction| {
        json!({"Ok": {
            "layout": "0 of warpverbs 0.0.1", "sizes": [SIZE, SIZE], "granule": 4096, "plain": null,
            "qps": 1, "queue_pairs": false, "routes": "auto", "introduction": introduction, "id": 1
        }})
    };
    let rows: [(&(dyn Fn(Introduction) -> Value + Sync), _); 2] = [
        (&hello, "rank 1 has 0 of warpverbs 0.0.1"),
        (&|_| json!("greetings"), "step \"introduce\" failed on rank 1: it sent something else"),
    ];
    for (hello, expected) in rows {
        let seen = ranks(2, |rank| {
            if rank.number() == 0 {
                let error = rank.heap(&config()).unwrap_err().to_string();
                return Some(error);
            }
            let exporter = Exporter::start(&*rank.gpu).unwrap();
            let hello = hello(exporter.introduction().clone()).to_string();
            rank.world.exchange("shmem/introduce", hello.as_bytes()).unwrap();
            None
        });
        let text = seen[0].as_ref().unwrap();
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn rdma_without_a_nic_is_refused_with_the_rank_that_needs_it() {
    let seen = ranks(2, |rank| {
        if rank.number() == 1 {
            rank.nic = None;
        }
        rank.heap(&config().routes(RoutePolicy::Rdma)).unwrap_err().to_string()
    });
    for text in &seen {
        assert!(text.contains("rank 1 to rank 0") && text.contains("no NIC was given"), "{text}");
        assert!(text.contains("step \"register\" failed on rank 1"), "{text}");
    }
}

#[test]
fn other_calls_on_other_ranks_are_named_with_their_places() {
    let seen = ranks(3, |rank| {
        let mut heap = rank.heap(&config()).unwrap();
        let first = heap.alloc::<u64>(8).unwrap();
        heap.agree(&mut rank.world).unwrap();
        let len = if rank.number() == 1 { 16 } else { 8 };
        heap.alloc::<u64>(len).unwrap();
        if rank.number() == 2 {
            heap.free(first).unwrap();
        }
        let asked = heap.agree(&mut rank.world).unwrap_err();
        let grown = heap.grow(&mut rank.world).unwrap_err();
        assert_eq!(grown.to_string(), asked.to_string());
        // As before.
        assert_eq!((heap.bytes(), heap.report().segments), (SIZE, 1));
        assert_eq!(heap.write(&first, &[1; 8]).is_ok(), rank.number() != 2);
        rank.meet();
        asked
    });
    for error in &seen {
        let text = error.to_string();
        assert!(matches!(error, ShmemError::Order { rank: 0, other: 1, .. }), "{text}");
        assert!(text.contains("call 1: alloc 64 bytes, align 256 at "), "{text}");
        assert!(text.contains("rank 1 call 1: alloc 128 bytes, align 256 at "), "{text}");
        assert_eq!(text.matches("bad.rs:").count(), 2, "{text}");
    }
}

#[test]
fn a_rank_that_never_comes_is_named_with_its_last_step() {
    let done = Barrier::new(3);
    let short = Duration::from_secs(1);
    let seen = ranks(3, |rank| {
        let asked = Instant::now();
        let mut heap = rank.heap(&config().deadline(short)).ok();
        let error = (rank.number() != 2).then(|| heap.as_mut().unwrap().grow(&mut rank.world));
        // Its own deadline of a second ended it, and not the world's, which is minutes away.
        assert!(asked.elapsed() < PATIENCE);
        done.wait();
        error.map(|grown| grown.unwrap_err().to_string())
    });
    for text in seen.iter().flatten() {
        assert!(text.contains("rank 2: reached step \"connect\""), "{text}");
        assert!(text.starts_with("step \"grow: offer\": "), "{text}");
    }
    assert_eq!(seen[2], None);

    let seen = ranks(2, |rank| {
        let made = (rank.number() == 0).then(|| rank.heap(&config().deadline(short)));
        let error = made.map(|made| made.unwrap_err().to_string());
        // Joined, and not yet gone.
        match &error {
            Some(_) => rank.world.announce("done", b"").unwrap(),
            None => while rank.world.announced("done", 0).unwrap().is_none() {},
        }
        error
    });
    let text = seen[0].as_ref().unwrap();
    assert!(text.contains("rank 1: reached no step"), "{text}");
}

#[test]
fn a_deadline_of_a_millisecond_is_kept() {
    for _ in 0..20 {
        let asked = Instant::now();
        let deadline = Duration::from_millis(1);
        ranks(2, |rank| match rank.heap(&config().deadline(deadline)) {
            Ok(_) => {}
            Err(error) => assert!(error.to_string().contains("step"), "{error}"),
        });
        // As above.
        assert!(asked.elapsed() < PATIENCE);
    }
}

#[test]
fn a_heap_that_is_too_small_says_what_there_is() {
    ranks(1, |rank| {
        let mut heap = rank.heap(&config().max_size(2 * SIZE)).unwrap();
        let half = heap.alloc::<u8>(SIZE / 2).unwrap();
        let error = heap.alloc::<u64>(SIZE / 8).unwrap_err();
        let ShmemError::Alloc(AllocError::NoRoom { asked, free, largest, size, limit, .. }) = error
        else {
            panic!("{error}");
        };
        assert_eq!((asked, size, limit), (SIZE, SIZE, 2 * SIZE));
        assert!(largest < SIZE / 2 && largest <= free && free > SIZE / 4);
        heap.grow(&mut rank.world).unwrap();
        assert!(matches!(heap.grow(&mut rank.world), Err(ShmemError::Full { .. })));
        heap.alloc::<u64>(SIZE / 8).unwrap();
        assert!(matches!(heap.alloc::<u64>(u64::MAX), Err(ShmemError::Alloc(_))));
        // Outside of what was allocated.
        let place = half.slice(10, 20).unwrap();
        assert!(half.slice(SIZE / 2, 1).is_err() && half.slice(u64::MAX, 2).is_err());
        assert!(matches!(heap.write(&place, &[0; 21]), Err(ShmemError::Outside { .. })));
        send_and_sync::<Heap>();
    });
}

#[test]
fn a_place_is_given_back_whole_once_and_to_its_own_heap() {
    ranks(2, |rank| {
        let mut heap = rank.heap(&config()).unwrap();
        let mut other = rank.heap(&config()).unwrap();
        let refused = |freed: Result<(), ShmemError>| match freed.unwrap_err() {
            ShmemError::Alloc(cause) => cause,
            error => panic!("{error}"),
        };
        let whole = heap.alloc::<u64>(100).unwrap();
        let data: [u8; 800] = std::array::from_fn(|i| (i * 37 + 11) as u8);
        heap.write(&whole, &data).unwrap();
        for (first, len) in [(0, 99), (0, 0), (1, 99), (50, 1), (100, 0)] {
            let part = whole.slice(first, len).unwrap();
            let (offset, len) = (part.offset(), part.bytes());
            let (whole_offset, whole_len) = (whole.offset(), 800);
            let expected = AllocError::Part { offset, len, whole_offset, whole_len };
            assert_eq!(refused(heap.free(part)), expected);
        }
        let elsewhere = other.alloc::<u64>(100).unwrap();
        assert_eq!(elsewhere.offset(), whole.offset());
        assert!(matches!(other.free(whole), Err(ShmemError::OtherHeap { .. })));
        assert!(matches!(heap.free(elsewhere), Err(ShmemError::OtherHeap { .. })));
        // Nothing of it was given back.
        assert_eq!((heap.report().allocations, other.report().allocations), (1, 1));
        assert_ne!(heap.alloc::<u64>(100).unwrap().offset(), whole.offset());

        let all = whole.slice(0, 100).unwrap();
        assert_eq!(all, whole);
        heap.free(all).unwrap();
        let next = heap.alloc::<u64>(100).unwrap();
        assert_eq!(next.offset(), whole.offset());
        assert_ne!(next, whole);
        heap.write(&next, &data).unwrap();
        // The allocation that has its bytes now is not touched.
        let freed = AllocError::Freed { offset: whole.offset() };
        let part = whole.slice(0, 50).unwrap();
        assert_eq!(refused(heap.free(whole)), freed);
        assert_eq!(refused(heap.free(part)), freed);
        assert_eq!(refused(heap.write(&whole, &[0; 8])), freed);
        assert_eq!(refused(heap.read(&part, &mut [0; 8])), freed);
        assert_eq!(refused(heap.local(&whole).map(drop)), freed);
        assert_eq!(refused(heap.mapped(&whole, 0).map(drop)), freed);
        let mut seen = [0; 800];
        heap.read(&next, &mut seen).unwrap();
        assert_eq!(seen, data);
        heap.agree(&mut rank.world).unwrap();
        rank.meet();
    });
}

fn send_and_sync<T: Send + Sync>() {}
