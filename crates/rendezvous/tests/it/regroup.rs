//! Ranks that leave a world and come back.

use std::net::SocketAddr;
use std::sync::{Barrier, mpsc};
use std::thread;
use std::time::Duration;

use warpverbs_rendezvous::{
    Host, Limits, Loss, News, Server, Watch, World, WorldConfig, WorldError,
};

use crate::{PATIENCE, serve};

const WORLD: u32 = 4;

fn config(rank: u32, server: &Server) -> WorldConfig {
    let port = server.local_addr().port();
    let config = WorldConfig::at(rank, WORLD, "127.0.0.1", port).host(Host::Elsewhere);
    config.job("test").timeout(PATIENCE)
}

/// Runs `act` as every rank at once, with a store.
fn ranks(act: impl Fn(&Server, World) + Sync) {
    let server = serve(Limits::default());
    thread::scope(|scope| {
        for rank in 0..WORLD {
            let (server, act) = (&server, &act);
            scope.spawn(move || act(server, World::join(&config(rank, server)).unwrap()));
        }
    });
}

fn exchanged(world: &mut World, word: u8) {
    let all = world.exchange("word", &[word, world.rank() as u8]).unwrap();
    for (rank, value) in (0..).zip(all) {
        let expected =
            if world.members().contains(&rank) { vec![word, rank as u8] } else { vec![] };
        assert_eq!(value, expected, "of rank {rank}");
    }
}

/// A rank of the middle is gone, the others are in different calls; it comes back as another process.
#[test]
fn others_go_on_without_a_rank_and_with_it_again() {
    ranks(|server, mut world| {
        exchanged(&mut world, 1);
        let me = world.rank();
        if me == 1 {
            drop(world);
            let mut world = World::rejoin(&config(1, server)).unwrap();
            assert_eq!((world.members(), world.view().newcomers()), (&[0, 1, 2, 3][..], vec![1]));
            exchanged(&mut world, 3);
            return world.leave().unwrap();
        }
        let call = if me == 0 { "one" } else { "another" };
        let error = world.barrier(call).unwrap_err();
        assert!(matches!(error, WorldError::Lost { rank: 1, loss: Loss::Gone }), "{error}");
        world.regroup(&[0, 2, 3]).unwrap();
        assert_eq!((world.members(), world.view().number()), (&[0, 2, 3][..], 1));
        exchanged(&mut world, 2);
        world.regroup(&[0, 1, 2, 3]).unwrap();
        assert_eq!(world.view().newcomers(), [1]);
        exchanged(&mut world, 3);
        world.leave().unwrap();
    });
}

/// Members that propose different views get the same one.
#[test]
fn the_first_proposal_holds_for_all() {
    ranks(|_, mut world| {
        let me = world.rank();
        // Ranks 0 and 1 each without rank 3, which does not notice, and 2 with it.
        let proposed: &[u32] = if me < 2 { &[0, 1, 2] } else { &[0, 1, 2, 3] };
        match world.regroup(proposed) {
            Ok(()) => exchanged(&mut world, 7),
            Err(WorldError::Excluded { rank: 3, members }) => assert_eq!(members, [0, 1, 2]),
            Err(error) => panic!("rank {me}: {error}"),
        }
    });
}

/// A member that is lost before it has entered the view is named at once.
#[test]
fn a_rank_that_was_lost_before_a_view_with_it_is_named() {
    ranks(|_, mut world| {
        if world.rank() == 2 {
            return;
        }
        let error = world.barrier("wait").unwrap_err();
        assert!(matches!(error, WorldError::Lost { rank: 2, .. }), "{error}");
        let error = world.regroup(&[0, 1, 2, 3]).unwrap_err();
        assert!(matches!(error, WorldError::Lost { rank: 2, loss: Loss::Gone }), "{error}");
        world.regroup(&[0, 1, 3]).unwrap();
        exchanged(&mut world, 1);
    });
}

#[test]
fn a_watch_tells_of_a_loss_and_of_a_regroup() {
    let watching = Barrier::new(WORLD as usize);
    ranks(|_, mut world| {
        let (tell, told) = mpsc::channel();
        let _watch = Watch::start(&world, move |news| drop(tell.send(news))).unwrap();
        watching.wait();
        if world.rank() == 3 {
            return;
        }
        assert_eq!(told.recv_timeout(PATIENCE).unwrap(), News::Lost(3, Loss::Gone));
        if world.rank() != 0 {
            assert_eq!(told.recv_timeout(PATIENCE).unwrap(), News::Regrouping);
        }
        world.regroup(&[0, 1, 2]).unwrap();
        world.leave().unwrap();
    });
}

#[test]
fn a_rank_that_is_not_let_in_says_so() {
    let server = serve(Limits::default());
    let error = World::rejoin(&config(0, &server).timeout(Duration::from_millis(200))).unwrap_err();
    assert!(matches!(error, WorldError::NotLetIn { rank: 0, .. }), "{error}");
}

/// A loopback address that no other test has, and a port that the system gives to nobody.
fn free_address() -> SocketAddr {
    let [a, b, c, d, e] = getrandom::u64().unwrap().to_le_bytes()[..5].try_into().unwrap();
    ([127, 1 + a % 250, b, 1 + c % 250], 20_000 + u16::from_le_bytes([d, e]) % 10_000).into()
}

/// A world of which rank 0 runs the store.
fn own_store(rank: u32, addr: SocketAddr) -> WorldConfig {
    WorldConfig::at(rank, WORLD, addr.ip().to_string(), addr.port()).job("test").timeout(PATIENCE)
}

/// The rank that runs the store is gone, then the one that has run it since; each comes back.
#[test]
fn others_go_on_without_the_rank_that_runs_the_store() {
    let addr = free_address();
    let ended = Barrier::new(WORLD as usize);
    thread::scope(|scope| {
        for rank in 0..WORLD {
            let ended = &ended;
            scope.spawn(move || {
                let config = own_store(rank, addr);
                let mut world = World::join(&config).unwrap();
                let mut before = (0..WORLD).collect::<Vec<_>>();
                for life in 1..=3 {
                    exchanged(&mut world, life);
                    let (tell, told) = mpsc::channel();
                    let watch = Watch::start(&world, move |news| drop(tell.send(news))).unwrap();
                    let serves = world.server().is_some();
                    let keeper = world.exchange("serves", &[serves.into()]).unwrap();
                    let keeper = keeper.iter().position(|one| one == &[1]).unwrap() as u32;
                    assert_eq!(world.members(), before);
                    ended.wait();
                    if serves {
                        drop(watch);
                        drop(world);
                        world = World::rejoin(&config).unwrap();
                        assert_eq!(world.view().newcomers(), [rank]);
                    } else {
                        let error = world.barrier("without").unwrap_err();
                        let WorldError::Lost { rank: lost, loss: Loss::Gone } = error else {
                            panic!("{error}")
                        };
                        assert_eq!(lost, keeper);
                        let news = told.recv_timeout(PATIENCE).unwrap();
                        assert_eq!(news, News::Lost(keeper, Loss::Gone));
                        before.retain(|rank| *rank != keeper);
                        world.regroup(&before).unwrap();
                        exchanged(&mut world, 100 + life);
                        before = (0..WORLD).collect();
                        world.regroup(&before).unwrap();
                        assert_eq!(world.view().newcomers(), [keeper]);
                    }
                }
                exchanged(&mut world, 200);
                world.leave().unwrap();
            });
        }
    });
}

/// Members in different views, or calls, when the store goes, and one that does not know of it.
#[test]
fn members_of_different_views_meet_at_the_next_store() {
    let addr = free_address();
    let ended = Barrier::new(WORLD as usize);
    thread::scope(|scope| {
        for rank in 0..WORLD {
            let ended = &ended;
            scope.spawn(move || {
                let mut world = World::join(&own_store(rank, addr)).unwrap();
                if rank == 1 {
                    // Enters the next view alone.
                    let error = world.regroup(&[0, 1, 2, 3]).unwrap_err();
                    assert!(matches!(error, WorldError::Lost { rank: 0, .. }), "{error}");
                    assert_eq!(world.view().number(), 1);
                }
                if rank == 0 {
                    let entered = "warpverbs/test/0/view/1/barrier/join/0/1";
                    while !world.client().check(&[entered]).unwrap() {
                        thread::sleep(Duration::from_millis(10));
                    }
                    drop(world);
                    ended.wait();
                    return;
                }
                ended.wait();
                world.regroup(&[1, 2, 3]).unwrap();
                exchanged(&mut world, 9);
                world.leave().unwrap();
            });
        }
    });
}

/// The rank that runs the store is excluded and goes later: the others regroup once more.
#[test]
fn the_store_of_an_excluded_rank_is_followed_by_another() {
    let addr = free_address();
    let meet = Barrier::new(WORLD as usize);
    thread::scope(|scope| {
        for rank in 0..WORLD {
            let meet = &meet;
            scope.spawn(move || {
                let mut world = World::join(&own_store(rank, addr)).unwrap();
                if rank == 0 {
                    meet.wait();
                    drop(world);
                    meet.wait();
                    return;
                }
                world.regroup(&[1, 2, 3]).unwrap();
                exchanged(&mut world, 1);
                meet.wait();
                meet.wait();
                let error = world.barrier("after").unwrap_err();
                assert!(matches!(error, WorldError::Lost { rank: 0, loss: Loss::Gone }), "{error}");
                world.regroup(&[1, 2, 3]).unwrap();
                assert_eq!(world.members(), [1, 2, 3]);
                exchanged(&mut world, 2);
                world.leave().unwrap();
            });
        }
    });
}

/// Of another machine nobody takes the store over: a typed error within the timeout.
#[test]
fn without_a_member_that_can_run_the_store_there_is_an_error() {
    let addr = SocketAddr::from(([0, 0, 0, 0], free_address().port()));
    let there = Barrier::new(2);
    thread::scope(|scope| {
        for rank in 0..2 {
            let there = &there;
            scope.spawn(move || {
                let config = WorldConfig::at(rank, 2, "127.0.0.1", addr.port());
                // All of a machine's addresses: those of another machine look the same.
                let config = config.host(Host::RankZeroAt(addr)).timeout(PATIENCE);
                let mut world = World::join(&config).unwrap();
                there.wait();
                if rank == 0 {
                    return;
                }
                let error = world.barrier("gone").unwrap_err();
                assert!(matches!(error, WorldError::Lost { rank: 0, .. }), "{error}");
                world.set_timeout(Duration::from_millis(300));
                for _ in 0..2 {
                    let error = world.regroup(&[1]).unwrap_err();
                    assert!(matches!(error, WorldError::StoreGone { rank: 0, .. }), "{error}");
                    println!("{error}");
                }
            });
        }
    });
}
