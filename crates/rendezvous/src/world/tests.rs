//! Waits at a store or beside a rank that is stopped: they do not add up. Each test allows one of them so
//! long that only a hang takes it.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::spawn;
use std::time::{Duration, Instant};

use super::loss::encode;
use super::{Loss, World, WorldConfig, WorldError};
use crate::{Client, Limits, Server};

/// Ends a hang.
const HANG: Duration = Duration::from_secs(240);
const SILENCE: Duration = Duration::from_millis(800);

fn serve() -> Server {
    Server::bind(([127, 0, 0, 1], 0).into(), Limits::default()).unwrap()
}

fn config(rank: u32, port: u16) -> WorldConfig {
    WorldConfig::at(rank, 2, "127.0.0.1", port).timeout(HANG).silence(SILENCE)
}

/// A rank that joins, beats once, and keeps its connection.
fn stopped(rank: u32, port: u16) -> Client {
    let mut client = Client::connect("127.0.0.1", port, HANG, Limits::default()).unwrap();
    for key in ["rank", "alive", "barrier/join/0"] {
        client.set(&format!("warpverbs/default/0/{key}/{rank}"), b"1").unwrap();
    }
    client
}

/// The behaviour of a connection after its last request.
#[derive(Clone, Copy, PartialEq)]
enum Then {
    Silence,
    End,
}

/// Where a store is reached that answers this many requests of its first connection as the number says.
fn relay(store: &Server, then: Then) -> (u16, Arc<AtomicUsize>) {
    let (listener, store) = (TcpListener::bind("127.0.0.1:0").unwrap(), store.local_addr());
    let port = listener.local_addr().unwrap().port();
    let left = Arc::new(AtomicUsize::new(usize::MAX));
    let first = left.clone();
    spawn(move || {
        for (number, client) in listener.incoming().flatten().enumerate() {
            let store = TcpStream::connect(store).unwrap();
            let (mut answers, mut back) = (store.try_clone().unwrap(), client.try_clone().unwrap());
            spawn(move || std::io::copy(&mut answers, &mut back));
            let first = (number == 0).then(|| first.clone());
            spawn(move || pass_on(client, store, first, then));
        }
    });
    (port, left)
}

fn pass_on(
    mut client: TcpStream,
    mut store: TcpStream,
    left: Option<Arc<AtomicUsize>>,
    then: Then,
) {
    let mut bytes = [0; 4096];
    while let Ok(read @ 1..) = client.read(&mut bytes) {
        let less = |left: usize| left.checked_sub(1);
        let take = |left: Arc<AtomicUsize>| {
            left.fetch_update(Ordering::AcqRel, Ordering::Acquire, less).is_ok()
        };
        if left.clone().is_none_or(take) {
            store.write_all(&bytes[..read]).unwrap();
        } else if then == Then::End {
            return client.shutdown(Shutdown::Both).unwrap();
        }
    }
}

/// Rank 0 is stopped after it has said that a value is there, and before it is asked for it.
#[test]
fn a_store_that_is_stopped_between_two_requests_is_waited_for_once() {
    let store = serve();
    let (port, left) = relay(&store, Then::Silence);
    let _rank_0 = stopped(0, store.local_addr().port());
    let mut world = World::join(&config(1, port)).unwrap();
    world.announce("step", b"one").unwrap();
    assert_eq!(world.announced("step", 1).unwrap().as_deref(), Some(&b"one"[..]));
    world.client.set_grace(HANG);
    left.store(1, Ordering::Release);
    let begun = Instant::now();
    let error = world.announced("step", 1).unwrap_err();
    assert!(matches!(error, WorldError::Lost { rank: 0, loss: Loss::Silent(SILENCE) }), "{error}");
    assert!(begun.elapsed() < HANG, "it asks once more, and waits again");
}

/// Rank 0 is killed while another rank joins, after each of that one's requests.
#[test]
fn a_store_that_ends_while_a_rank_joins_is_rank_0() {
    // After the first it is known as a store.
    for requests in 1..100 {
        let store = serve();
        let (port, left) = relay(&store, Then::End);
        let _rank_0 = stopped(0, store.local_addr().port());
        left.store(requests, Ordering::Release);
        match World::join(&config(1, port).silence(HANG / 2)) {
            Ok(_) => return assert!(requests > 4, "{requests} requests"),
            Err(WorldError::Lost { rank: 0, loss: Loss::Gone }) => {}
            Err(error) => panic!("after {requests} requests: {error}"),
        }
    }
    panic!("a rank needs 100 requests to join");
}

/// The store stops before a rank leaves, and the rank's connection stays open.
#[test]
fn a_store_that_is_stopped_at_the_end_is_named_after_the_silence() {
    let store = serve();
    let (port, left) = relay(&store, Then::Silence);
    let _rank_0 = stopped(0, store.local_addr().port());
    let world = World::join(&config(1, port)).unwrap();
    left.store(0, Ordering::Release);
    let begun = Instant::now();
    let error = world.leave().unwrap_err();
    assert!(matches!(error, WorldError::Lost { rank: 0, loss: Loss::Silent(SILENCE) }), "{error}");
    assert!(begun.elapsed() < HANG, "it waits for the timeout");
}

/// One rank finds the silence, and another hears of it from that one.
#[test]
fn a_stopped_rank_keeps_nobody_at_the_end() {
    for heard in [false, true] {
        let port = serve().local_addr().port();
        let stopped = spawn(move || stopped(1, port));
        let mut world = World::join(&config(0, port)).unwrap();
        let mut stopped = stopped.join().unwrap();
        if heard {
            let lost = encode(1, &Loss::Silent(SILENCE));
            stopped.set("warpverbs/default/0/lost", lost.as_bytes()).unwrap();
        }
        let error = world.barrier("result").unwrap_err();
        let known = matches!(error, WorldError::Lost { rank: 1, loss: Loss::Silent(SILENCE) });
        assert!(known, "{error}");
        world.farewell = HANG;
        let begun = Instant::now();
        world.fail(&error.to_string());
        assert!(begun.elapsed() < HANG, "it waits for a stopped rank to end its connection");
    }
}
