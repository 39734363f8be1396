//! Drops in any order, with a transfer under way: nothing panics, the remaining objects say why
//! they do not work, and agents of the same names work after it.

use crate::bed::{SOON, pair, run, tell, transfer};
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use std::any::Any;
use warpverbs_agent::{AgentConfig, Op, PathKind, PostOptions, State};
use warpverbs_mem::HostBuf;
use warpverbs_transport::{Context, Device};

const BLOCKS: usize = 512;
const LEN: u64 = 4096;

fn config(nic: &Device, path: PathKind) -> AgentConfig {
    AgentConfig::default().nic(nic).require(path).deadline(SOON)
}

/// Drops all that a transfer needs in some order; another transfer is posted in between.
fn drop_in_any_order(nic: &Device, path: PathKind, numbers: &mut SmallRng) {
    let (initiator, target) = pair(|| config(nic, path));
    let memory = || HostBuf::region(BLOCKS * LEN as usize).unwrap();
    let (here, there) = (memory(), memory());
    there.fill(0, there.len(), 7).unwrap();
    let ours = initiator.register(here.clone(), "ours").unwrap();
    let theirs = target.register(there, "theirs").unwrap();
    tell(&initiator, &target);
    let remote = initiator.remote("target", "theirs").unwrap();
    let lists = (ours.blocks(0, LEN, BLOCKS).unwrap(), remote.blocks(0, LEN, BLOCKS).unwrap());
    let (local, far) = (initiator.prepare(&lists.0).unwrap(), initiator.prepare(&lists.1).unwrap());
    let index: Vec<u32> = (0..BLOCKS as u32).rev().collect();
    let transfer = initiator.prepared_transfer(Op::Read, &local, &index, &far, &index).unwrap();
    transfer.post(PostOptions::new().notify(b"read")).unwrap();

    let watched =
        numbers.random_bool(0.5).then(|| initiator.transfer(Op::Write, &lists.0, &lists.1));
    let watched = watched.map(Result::unwrap);
    let mut values: Vec<Box<dyn Any>> = vec![
        Box::new(initiator),
        Box::new(target),
        Box::new(ours),
        Box::new(theirs),
        Box::new(remote),
        Box::new((local, far)),
        Box::new(transfer),
    ];
    values.shuffle(numbers);
    let posts_at = numbers.random_range(0..values.len());
    for (at, value) in values.into_iter().enumerate() {
        drop(value);
        if let Some(transfer) = watched.as_ref().filter(|_| at == posts_at)
            && let Ok(state) = transfer.post(PostOptions::new())
        {
            // All it needs may be there still.
            assert!(matches!(state, State::Done | State::InProgress), "{state:?}");
        }
    }
    if let Some(transfer) = watched {
        match transfer.wait(SOON) {
            Ok(state) => assert_eq!(state, State::Done),
            Err(why) => assert!(!why.to_string().is_empty()),
        }
    }
    // The bytes that have arrived are whole blocks of the peer's memory.
    let mut bytes = vec![0; BLOCKS * LEN as usize];
    here.read(0, &mut bytes).unwrap();
    assert!(bytes.iter().all(|byte| matches!(byte, 0 | 7)));
}

#[test]
fn anything_may_be_dropped_in_any_order_under_a_transfer() {
    let mut numbers = SmallRng::seed_from_u64(warpverbs_dev::seed());
    let nic = Context::new().unwrap().open("soft").unwrap();
    for path in [PathKind::SameProcess, PathKind::Network, PathKind::Tcp] {
        for _ in 0..12 {
            drop_in_any_order(&nic, path, &mut numbers);
        }
        // The same names again.
        let (initiator, target) = pair(|| config(&nic, path));
        let theirs = target.register(vec![5; 64], "theirs").unwrap();
        let ours = initiator.register(vec![0; 64], "ours").unwrap();
        tell(&initiator, &target);
        let blocks = (ours.blocks(0, 64, 1), theirs.blocks(0, 64, 1));
        run(&transfer(&initiator, Op::Read, blocks.0, blocks.1));
        assert_eq!(ours.to_vec().unwrap(), [5; 64]);
    }
}
