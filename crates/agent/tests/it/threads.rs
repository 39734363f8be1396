//! Many threads on one agent.

use crate::bed::{SOON, tell, transfer};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{TryRecvError, channel};
use warpverbs_agent::{Agent, AgentConfig, AgentError, Op, PathKind, PostOptions};
use warpverbs_transport::Context;

const THREADS: u8 = 16;
const ROUNDS: u8 = 20;

/// Every thread registers, makes, posts, notifies and deregisters, all at once, by two paths.
#[test]
fn sixteen_threads_use_one_agent() {
    let nic = Context::new().unwrap().open("soft").unwrap();
    let network = || AgentConfig::default().token("the job's").nic(&nic).require(PathKind::Network);
    let copies = || AgentConfig::default().token("the job's");
    let configs: [&dyn Fn() -> AgentConfig; 2] = [&copies, &network];
    for config in configs {
        let [one, other] = ["one", "other"].map(|name| Agent::new(name, config()).unwrap());
        let theirs = other.register(vec![0; 4096 * usize::from(THREADS)], "theirs").unwrap();
        one.fetch_metadata(other.address(), SOON).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (one, other) = (&one, &other);
                scope.spawn(move || {
                    let remote = one.remote("other", "theirs").unwrap();
                    let to = remote.blocks(4096 * u64::from(thread), 512, 8).unwrap();
                    for round in 1..=ROUNDS {
                        let ours = one.register(vec![thread ^ round; 4096], "ours").unwrap();
                        let from = ours.blocks(0, 512, 8).unwrap();
                        let write = one.transfer(Op::Write, &from, &to).unwrap();
                        write.post(PostOptions::new().notify([thread, round])).unwrap();
                        write.wait(SOON).unwrap();
                        other.wait_remote_done("one", &[thread, round], SOON).unwrap();
                    }
                });
            }
        });
        for (thread, part) in theirs.to_vec().unwrap().chunks(4096).enumerate() {
            assert!(part.iter().all(|byte| *byte == thread as u8 ^ ROUNDS));
        }
        assert_eq!(other.next_notification(), None);
    }
}

#[test]
fn one_handle_posted_by_many_threads_is_posted_once_at_a_time() {
    let nic = Context::new().unwrap().open("soft").unwrap();
    let config = || AgentConfig::default().token("the job's").nic(&nic).require(PathKind::Network);
    let [one, other] = ["one", "other"].map(|name| Agent::new(name, config()).unwrap());
    let theirs = other.register(vec![7; 1 << 18], "theirs").unwrap();
    let ours = one.register(vec![0; 1 << 18], "ours").unwrap();
    tell(&one, &other);
    let read = transfer(&one, Op::Read, ours.blocks(0, 64, 4096), theirs.blocks(0, 64, 4096));
    let posted = AtomicUsize::new(0);
    let (posting, ended) = channel::<()>();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            let (posting, read, posted) = (posting.clone(), &read, &posted);
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    match read.post(PostOptions::new().notify(b"n")) {
                        Ok(_) => posted.fetch_add(1, Ordering::Relaxed),
                        Err(AgentError::InProgress) => continue,
                        Err(error) => panic!("{error}"),
                    };
                    // Another thread may post it again before this one has looked.
                    read.wait(SOON).unwrap();
                }
                drop(posting);
            });
        }
        drop(posting);
        // Until the last poster has ended: there may be more posts than the receiver has room for.
        let other = &other;
        scope.spawn(move || {
            while ended.try_recv() == Err(TryRecvError::Empty) {
                while other.next_notification().is_some() {}
                std::thread::yield_now();
            }
        });
    });
    read.wait(SOON).unwrap();
    assert!(
        posted.load(Ordering::Relaxed) > 0 && ours.to_vec().unwrap().iter().all(|byte| *byte == 7)
    );
}
