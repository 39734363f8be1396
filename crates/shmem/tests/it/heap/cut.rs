//! A rank whose connection to the store ends, as that of a killed process does, at any moment of the
//! making and growing of a heap.

use crate::heap::ranks::{PATIENCE, Rank, config, serve, simt, world_config};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};
use warpverbs_rendezvous::{Server, World};
use warpverbs_shmem::ShmemError;

/// Passes on what a rank and the store say, until the rank has said `pieces`, and does `then` before
/// the rank is cut off. Returns its address.
pub(crate) fn cutting(
    store: SocketAddr,
    pieces: usize,
    then: impl FnOnce() + Send + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let Ok((near, _)) = listener.accept() else { return };
        let far = TcpStream::connect(store).unwrap();
        let (mut from, mut to) = (far.try_clone().unwrap(), near.try_clone().unwrap());
        let replies = thread::spawn(move || std::io::copy(&mut from, &mut to));
        forward(&near, &far, pieces);
        then();
        for stream in [&near, &far] {
            let _ = stream.shutdown(Shutdown::Both);
        }
        let _ = replies.join();
    });
    address
}

fn forward(mut near: &TcpStream, mut far: &TcpStream, pieces: usize) {
    let mut bytes = [0; 1 << 16];
    for _ in 0..pieces {
        match near.read(&mut bytes) {
            Ok(len) if len > 0 && far.write_all(&bytes[..len]).is_ok() => {}
            _ => return,
        }
    }
}

pub(crate) fn make_and_grow(mut rank: Rank) -> Result<(), ShmemError> {
    let mut heap = rank.heap(&config())?;
    heap.grow(&mut rank.world)?;
    rank.meet_if_possible();
    Ok(())
}

/// Results of the two ranks if rank 1's connection ends after `pieces`; None if it could not join.
fn ends_after(server: &Server, pieces: usize) -> Option<[Result<(), ShmemError>; 2]> {
    let configs = [0, 1].map(|rank| {
        let mut config = world_config(rank, 2, server.local_addr().port());
        config.generation = pieces as u64;
        config.timeout = Duration::from_secs(5);
        if rank == 1 {
            config.master_port = cutting(server.local_addr(), pieces, || {}).port();
        }
        config
    });
    let outcomes = thread::scope(|scope| {
        let start = |config| {
            scope.spawn(move || {
                let world = World::join(config).ok()?;
                Some(make_and_grow(Rank { world, gpu: simt(), nic: None }))
            })
        };
        let threads = configs.iter().map(start).collect::<Vec<_>>();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    let outcomes: Option<Vec<_>> = outcomes.into_iter().collect();
    outcomes.map(|outcomes| outcomes.try_into().unwrap())
}

#[test]
fn a_rank_that_is_gone_at_any_moment_is_named_and_nobody_hangs() {
    let server = serve();
    let (mut steps, mut whole) = (Vec::new(), 0);
    for pieces in 4..200 {
        let begun = Instant::now();
        let Some([first, second]) = ends_after(&server, pieces) else { continue };
        // A loss that nobody saw would be ended by the deadline of the heap, minutes from here.
        assert!(begun.elapsed() < PATIENCE, "cut after {pieces}");
        if let Err(error) = &first {
            let text = error.to_string();
            assert!(text.contains("rank 1"), "cut after {pieces}: {text}");
            if let ShmemError::Meet { step, .. } = error {
                steps.push(*step);
            }
        }
        if first.is_ok() && second.is_ok() {
            whole += 1;
            if whole == 2 {
                break;
            }
        }
    }
    assert_eq!(whole, 2, "a connection that lasts is enough");
    steps.dedup();
    println!("cut in {steps:?}");
    // How many pieces a step takes is the system's choice, so one or the other may be missed.
    let wanted =
        ["introduce", "offer", "attach", "probe", "connect", "grow: offer", "grow: switch"];
    let met = wanted.iter().filter(|step| steps.contains(step)).count();
    assert!(met >= 4, "{steps:?}");
}
