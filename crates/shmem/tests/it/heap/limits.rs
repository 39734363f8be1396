//! A rank that may have few file descriptors: whatever is refused to it, all come to the same end.

use crate::heap::processes::{PART, rank_of_env, said, start};
use crate::heap::ranks::{PATIENCE, Rank, SIZE, serve};
use rustix::process::{Resource, Rlimit, setrlimit};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::time::Instant;
use warpverbs_shmem::{Heap, HeapConfig, Route};

/// How many descriptors more rank 1 may open.
const MORE: &str = "SHMEM_TEST_MORE";

/// The part of one process.
#[test]
fn part() {
    let (Ok(_), Ok(more)) = (std::env::var(PART), std::env::var(MORE)) else { return };
    let mut rank = rank_of_env();
    if rank.number() == 1 {
        let next = File::open("/dev/null").unwrap().as_raw_fd() as u64;
        let most = Some(next + more.parse::<u64>().unwrap());
        setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most }).unwrap();
    }
    let mut made = rank.heap(&HeapConfig::new(SIZE).deadline(PATIENCE));
    let said = match &mut made {
        Err(error) => format!("refused: {error}"),
        Ok(heap) => {
            let other = heap.report().peers[1 - rank.number() as usize].route.clone();
            assert!(other.route == Route::Direct || !other.not_better.is_empty());
            format!("made: {}{}", other.explain(), grown(&mut rank, heap))
        }
    };
    println!("\n> {}", said.replace('\n', " "));
    rank.meet();
    rank.world.leave().unwrap();
}

/// The outcome of growing. The heap is of use afterwards in any case.
fn grown(rank: &mut Rank, heap: &mut Heap) -> String {
    let outcome = heap.grow(&mut rank.world);
    let (factor, segments) = if outcome.is_ok() { (2, 2) } else { (1, 1) };
    assert_eq!((heap.bytes(), heap.report().segments), (factor * SIZE, segments));
    let place = heap.alloc::<u8>(factor * SIZE / 2).unwrap();
    heap.write(&place, &vec![1; place.bytes() as usize]).unwrap();
    heap.agree(&mut rank.world).unwrap();
    outcome.map_or_else(|error| format!("; not grown: {error}"), |()| String::new())
}

#[test]
fn descriptors_that_run_out_make_another_route_or_one_error_for_all() {
    let (mut refused, mut not_grown) = (0, 0);
    for more in 0..60 {
        let (server, begun) = (serve(), Instant::now());
        let port = server.local_addr().port();
        let more = more.to_string();
        let child = |rank| start("heap::limits::part", (rank, 2, port), &[(MORE, &*more)]);
        let [first, second] = [child(0), child(1)].map(said);
        println!("{more} more: {first} | {second}");
        // Ends a hang: no call waits for what cannot come.
        assert!(begun.elapsed() < PATIENCE);
        if first.starts_with("refused") || second.starts_with("refused") {
            assert_eq!(first, second);
            assert!(first.contains("on rank 1"), "{first}");
            refused += 1;
        } else if first == "made: direct by abstract socket" && first == second {
            break;
        } else {
            // By another way, which says why the best one failed, or it could not grow.
            assert!(first.contains(": ") && second.contains(": "), "{first} | {second}");
            let why = [&first, &second].map(|said| said.split_once("; not grown: "));
            assert_eq!(why[0].map(|why| why.1), why[1].map(|why| why.1));
            not_grown += usize::from(why[0].is_some());
        }
    }
    println!("{refused} refused, {not_grown} not grown");
    assert!(refused > 0 && not_grown > 0, "{refused} refused, {not_grown} not grown");
}
