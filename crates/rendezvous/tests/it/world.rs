//! Ranks that meet, and what is said of those that do not come.

use std::collections::HashSet;
use std::thread;
use std::time::{Duration, Instant};

use warpverbs_rendezvous::{BindError, Host, Limits, Loss, Server, World, WorldConfig, WorldError};

use crate::{PATIENCE, connect, dial, eventually, free_port, serve};

fn config(rank: u32, world_size: u32, port: u16) -> WorldConfig {
    WorldConfig::at(rank, world_size, "127.0.0.1", port).job("test").timeout(PATIENCE)
}

/// At a store that outlives the world.
fn guest(rank: u32, world_size: u32, server: &Server) -> WorldConfig {
    config(rank, world_size, server.local_addr().port()).host(Host::Elsewhere)
}

/// Runs `act` as every rank at once, and gives the results by rank.
fn all_ranks<T: Send>(configs: Vec<WorldConfig>, act: impl Fn(World) -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let act = &act;
        let start = |config: WorldConfig| scope.spawn(move || act(World::join(&config).unwrap()));
        let threads: Vec<_> = configs.into_iter().map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn ranks_exchange_in_either_order_of_start() {
    for reversed in [false, true] {
        let port = free_port();
        let mut configs: Vec<_> = (0..4).map(|rank| config(rank, 4, port)).collect();
        if reversed {
            configs.reverse();
        }
        let seen = all_ranks(configs, |mut world| {
            let mine = vec![world.rank() as u8; 10 * world.rank() as usize];
            let all = world.exchange("handle", &mine).unwrap();
            world.barrier("between").unwrap();
            let root = world.rank() == 2;
            let word = world.broadcast("word", 2, root.then_some(b"hello")).unwrap();
            world.leave().unwrap();
            (all, word)
        });
        let expected: Vec<_> = (0..4).map(|rank| vec![rank; 10 * usize::from(rank)]).collect();
        assert!(seen.iter().all(|(all, word)| *all == expected && word == b"hello"), "{seen:?}");
    }
}

#[test]
fn what_a_rank_announced_is_there_for_whoever_asks() {
    let port = free_port();
    all_ranks((0..2).map(|rank| config(rank, 2, port)).collect(), |mut world| {
        if world.rank() == 0 {
            assert_eq!(world.announced("step", 0).unwrap(), None);
            world.announce("step", b"one").unwrap();
            world.announce("step", b"two").unwrap();
        }
        world.barrier("said").unwrap();
        assert_eq!(world.announced("step", 0).unwrap().as_deref(), Some(&b"two"[..]));
        assert_eq!(world.announced("step", 1).unwrap(), None);
        assert_eq!(world.announced("other", 0).unwrap(), None);
        assert!(matches!(world.announce("", b""), Err(WorldError::Name { size: 0, .. })));
        world.leave().unwrap();
    });
}

#[test]
fn names_may_be_used_again_and_leave_nothing() {
    let server = serve(Limits::default());
    let configs = (0..3).map(|rank| guest(rank, 3, &server)).collect();
    all_ranks(configs, |mut world| {
        for round in 0..20_u8 {
            let mine = [round, world.rank() as u8];
            let all = world.exchange("again", &mine).unwrap();
            assert_eq!(all, (0..3).map(|rank| vec![round, rank]).collect::<Vec<_>>());
            world.barrier("again").unwrap();
        }
        world.leave().unwrap();
    });
    // Of each kind the last use remains, and of each rank its claim and its leave.
    // Also the key "world", and PyTorch's count of workers.
    assert_eq!(connect(&server).num_keys().unwrap(), 3 * (1 + 1 + 1 + 2) + 2);
}

#[test]
fn ranks_that_do_not_come_are_named() {
    let server = serve(Limits::default());
    let short = Duration::from_millis(800);
    let error = World::join(&guest(1, 4, &server).timeout(short)).unwrap_err();
    assert!(
        matches!(&error, WorldError::Missing { call: "barrier", ranks, .. } if *ranks == [0, 2, 3]),
        "{error}"
    );
    assert!(error.to_string().contains("3 of 4 ranks: 0, 2, 3"), "{error}");
}

#[test]
fn a_rank_that_is_late_is_named_by_the_others() {
    let server = serve(Limits::default());
    let configs = (0..3).map(|rank| guest(rank, 3, &server)).collect();
    let done = std::sync::Barrier::new(3);
    let errors = all_ranks(configs, |mut world| {
        world.exchange("first", b"").unwrap();
        if world.rank() == 1 {
            done.wait();
            return None;
        }
        world.set_timeout(Duration::from_millis(300));
        let error = world.exchange("second", b"").unwrap_err();
        let root = world.broadcast("word", 1, None).unwrap_err();
        assert!(matches!(root, WorldError::Missing { ranks, .. } if ranks == [1]));
        done.wait();
        Some(error)
    });
    for error in errors.into_iter().flatten() {
        assert!(matches!(&error, WorldError::Missing { ranks, .. } if *ranks == [1]), "{error}");
    }
}

/// Errors of three ranks in `wait` when rank 1 ends by `end`, at a store of rank 0's.
fn after_the_end_of_rank_1(
    end: impl Fn(World) + Sync,
    wait: impl Fn(&mut World) -> Result<(), WorldError> + Sync,
) -> Vec<WorldError> {
    let port = free_port();
    let configs = (0..3).map(|rank| config(rank, 3, port)).collect();
    let errors = all_ranks(configs, |mut world| {
        world.exchange("first", b"").unwrap();
        if world.rank() == 1 {
            end(world);
            return None;
        }
        // A rank that was waited for until the end of the time is missing, not lost.
        let error = wait(&mut world).unwrap_err();
        world.fail(&error.to_string());
        Some(error)
    });
    errors.into_iter().flatten().collect()
}

type Wait = dyn Fn(&mut World) -> Result<(), WorldError> + Sync;

#[test]
fn a_rank_shows_signs_of_life_whatever_it_does() {
    // So long that no rank is silent, and a beat each half second.
    let (server, silence) = (serve(Limits::default()), PATIENCE - Duration::from_secs(1));
    let configs = (0..2).map(|rank| guest(rank, 2, &server).silence(silence)).collect();
    let ours = guest(1, 2, &server);
    let key = format!("warpverbs/{}/{}/alive/1", ours.job, ours.generation);
    all_ranks(configs, |mut world| {
        if world.rank() == 1 {
            // No call of the world, as of one that computes.
            let (mut watcher, mut seen) = (connect(&server), HashSet::new());
            eventually("two further beats", || {
                seen.insert(watcher.get(&key).unwrap());
                seen.len() > 2
            });
        }
        world.exchange("result", b"").unwrap();
        world.leave().unwrap();
    });
}

#[test]
fn a_rank_without_signs_of_life_is_lost() {
    let (server, silence) = (serve(Limits::default()), Duration::from_millis(800));
    let ours = guest(0, 2, &server).silence(silence);
    let prefix = format!("warpverbs/{}/{}", ours.job, ours.generation);
    // A rank that joins, beats once, and keeps its connection.
    let mut stopped = connect(&server);
    for (key, value) in [("rank/1", "me"), ("alive/1", "1"), ("barrier/join/0/1", "1")] {
        stopped.set(&format!("{prefix}/{key}"), value.as_bytes()).unwrap();
    }
    let mut world = World::join(&ours).unwrap();
    let start = Instant::now();
    let error = world.exchange("result", b"").unwrap_err();
    let waited = start.elapsed();
    let lost = matches!(
        &error,
        WorldError::Lost { rank: 1, loss: Loss::Silent(time) } if *time == silence
    );
    assert!(lost, "{error}");
    // At least: the time of silence is what is tried.
    assert!(waited >= silence, "{waited:?}");
    // One that has left is silent with good reason.
    stopped.set(&format!("{prefix}/left/1"), b"1").unwrap();
    let lost = world.loss_within(2 * silence);
    assert!(lost.is_none(), "{lost:?}");
    stopped.delete_key(&format!("{prefix}/left/1")).unwrap();
    // The others hear whose silence it is, and not that this rank has failed.
    let error = world.loss_within(PATIENCE).unwrap();
    world.fail(&error.to_string());
    assert_eq!(stopped.get(&format!("{prefix}/lost")).unwrap(), b"1 silent 800");
}

#[test]
fn a_rank_whose_connection_ends_is_named_at_once() {
    let waits: [&Wait; 4] = [
        &|world| world.exchange("second", b"").map(drop),
        &|world| world.barrier("second"),
        &|world| world.broadcast("word", 1, None).map(drop),
        &|world| match world.loss_within(PATIENCE) {
            Some(error) => Err(error),
            None => Ok(()),
        },
    ];
    for wait in waits {
        let errors = after_the_end_of_rank_1(drop, wait);
        assert_eq!(errors.len(), 2);
        for error in errors {
            assert!(matches!(error, WorldError::Lost { rank: 1, loss: Loss::Gone }), "{error}");
        }
    }
}

#[test]
fn a_rank_that_fails_tells_the_others_why() {
    let barrier = |world: &mut World| world.barrier("second");
    for error in after_the_end_of_rank_1(|world| world.fail("no such GPU"), barrier) {
        assert_eq!(error.to_string(), "rank 1 failed: no such GPU");
    }
}

#[test]
fn a_store_that_goes_is_rank_zero_that_goes() {
    let port = free_port();
    let configs = (0..3).map(|rank| config(rank, 3, port)).collect();
    // Rank 0 has all answers before the others have theirs.
    let met = std::sync::Barrier::new(3);
    let errors = all_ranks(configs, |mut world| {
        world.exchange("first", b"").unwrap();
        met.wait();
        (world.rank() != 0).then(|| world.barrier("second").unwrap_err())
    });
    for error in errors.into_iter().flatten() {
        assert!(matches!(error, WorldError::Lost { rank: 0, loss: Loss::Gone }), "{error}");
    }
}

#[test]
fn a_rank_that_is_not_let_in_says_so_to_those_who_wait() {
    let port = free_port();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| World::join(&config(0, 3, port)).unwrap_err());
        // Rank 0 is the first to say how many they are.
        let mut early = dial(port, PATIENCE).unwrap();
        early.get("warpverbs/test/0/world").unwrap();
        let error = World::join(&config(1, 4, port)).unwrap_err();
        assert!(matches!(error, WorldError::Size { ours: 4, theirs: 3, .. }), "{error}");
        // The store stays for those who are connected.
        drop(early);
        let waiting = waiting.join().unwrap();
        assert!(matches!(waiting, WorldError::Refused { .. }), "{waiting}");
        assert!(
            waiting.to_string().contains("rank 1 was started for a world of 4 ranks"),
            "{waiting}"
        );
    });
    // Once all have met, nobody is disturbed by a stranger.
    let server = serve(Limits::default());
    let configs = (0..2).map(|rank| guest(rank, 2, &server)).collect();
    all_ranks(configs, |mut world| {
        world.barrier("met").unwrap();
        if world.rank() == 1 {
            assert!(matches!(
                World::join(&guest(1, 2, &server)).unwrap_err(),
                WorldError::RankTaken { rank: 1, .. }
            ));
        }
        world.barrier("undisturbed").unwrap();
        world.leave().unwrap();
    });
}

#[test]
fn a_restart_does_not_meet_what_an_earlier_one_left() {
    let server = serve(Limits::default());
    for generation in 0..2 {
        let configs = (0..2).map(|rank| guest(rank, 2, &server).generation(generation)).collect();
        let mine = generation.to_string();
        let seen = all_ranks(configs, |mut world| world.exchange("x", mine.as_bytes()).unwrap());
        assert!(seen.iter().flatten().all(|bytes| bytes == mine.as_bytes()), "{seen:?}");
    }
    let error = World::join(&guest(0, 2, &server)).unwrap_err();
    assert!(matches!(error, WorldError::RankTaken { rank: 0, generation: 0, .. }), "{error}");
    let error = World::join(&guest(0, 3, &server)).unwrap_err();
    assert!(matches!(error, WorldError::Size { ours: 3, theirs: 2, .. }), "{error}");
    connect(&server).set("warpverbs/future/0/world", b"2 sixteen ranks").unwrap();
    let mixed = guest(0, 2, &server).job("future");
    let error = World::join(&mixed).unwrap_err();
    assert!(matches!(error, WorldError::Layout { .. }), "{error}");
}

#[test]
fn what_cannot_be_is_refused_before_anybody_waits() {
    let server = serve(Limits::default());
    let port = server.local_addr().port();
    let error = World::join(&config(0, 2, port)).unwrap_err();
    assert!(matches!(error, WorldError::Bind(BindError::InUse { .. })), "{error}");
    let error = World::join(&config(2, 2, port)).unwrap_err();
    assert!(matches!(error, WorldError::Rank { rank: 2, world_size: 2 }), "{error}");
    let job = config(0, 1, port).job("a/b");
    assert!(matches!(World::join(&job), Err(WorldError::Job { .. })));
    let mut world = World::join(&guest(0, 1, &server)).unwrap();
    assert!(matches!(world.barrier(""), Err(WorldError::Name { size: 0, .. })));
    assert!(matches!(world.broadcast("b", 1, None), Err(WorldError::Root { root: 1, .. })));
    assert!(matches!(world.broadcast("b", 0, None), Err(WorldError::Root { given: false, .. })));
    assert!(world.server().is_none() && world.client().num_keys().unwrap() > 0);
}

#[test]
fn rank_zero_may_listen_elsewhere_and_stays_for_the_last() {
    let port = free_port();
    let host = Host::RankZeroAt(([0, 0, 0, 0], port).into());
    let configs = (0..2).map(|rank| config(rank, 2, port).host(host.clone())).collect();
    all_ranks(configs, |mut world| {
        if world.rank() == 1 {
            // Rank 0 is likely to leave first, and nothing fails if it does not.
            thread::sleep(Duration::from_millis(50));
            world.broadcast("late", 1, Some(b"still there")).unwrap();
        }
        world.leave().unwrap();
    });
}
