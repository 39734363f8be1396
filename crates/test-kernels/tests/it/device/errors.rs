//! Work that the NIC refuses: every lane learns the first cause, and so does the host.

use crate::device::world::{World, pointer};
use warpverbs::gpu::{Dim, Local, Remote};
use warpverbs::kernels::loopback;
use warpverbs::raw::nic::DoorbellPolicy;
use warpverbs::transport::{Access, CqMode, EndpointConfig, Syndrome, TransportError};
use warpverbs_test_kernels::waits as k;

/// `wv::outcome` in bits 7..0, syndrome in 15..8, WQE opcode in 31..24.
fn parts(code: u32) -> (u32, Syndrome, u32) {
    (code & 0xff, Syndrome::from_value((code >> 8) as u8), code >> 24)
}
const REQUESTER: u32 = 4;
const WRITE: u32 = 0x08;

struct Bad {
    lkey: u32,
    rkey: u32,
    past_end: u64,
    access: Access,
}

/// 96 lanes write through one queue pair; the WRITE of each breaks one rule.
fn refused(world: &World, mode: CqMode, spoil: impl Fn(&mut Bad)) -> Syndrome {
    let good = world.memory(96 * 8);
    let mut bad =
        Bad { lkey: good.lkey(), rkey: good.rkey(), past_end: 0, access: Access::REMOTE_WRITE };
    spoil(&mut bad);
    let config = world.config(128).send_cq(mode).access(bad.access);
    let (a, _b) = world.pair(&config);
    let (status, took) = (world.memory(96 * 4), world.memory(96 * 8));
    let kernel = k::Completion {
        qp: a.device_qp(),
        from: Local { addr: good.addr(), lkey: bad.lkey },
        to: Remote { addr: good.addr() + bad.past_end, rkey: bad.rkey },
        bytes: 8,
        deadline_ns: 0,
        status: pointer(&status),
        took: pointer(&took),
    };
    world.run(&kernel, Dim::new(3, 32));
    let statuses = world.statuses(&status);
    let health = a.health().expect("health");
    for code in &statuses {
        assert_eq!(*code, statuses[0], "{}: everybody has the same cause; {health}", world.what);
    }
    let (outcome, syndrome, opcode) = parts(statuses[0]);
    assert_eq!((outcome, opcode), (REQUESTER, WRITE), "{}: {health}", world.what);
    match &health.error {
        Some(TransportError::Work(work)) => assert_eq!(work.syndrome, syndrome),
        other => panic!("{}: {other:?}", world.what),
    }
    if mode == CqMode::Ring {
        return syndrome;
    }
    // A flush may have overwritten the first error in a collapsed CQ; the NIC still knows it.
    let first =
        Syndrome::of(health.first_error.expect("the NIC remembers").status).expect("a failure");
    assert!(syndrome == first || syndrome == Syndrome::WrFlush, "{}: {health}", world.what);
    first
}

fn every_cause(world: &World, mode: CqMode) {
    let local = refused(world, mode, |bad| bad.lkey ^= 0x55);
    assert_eq!(local, Syndrome::LocalProt, "{}", world.what);
    let remote = refused(world, mode, |bad| bad.rkey ^= 0x5500);
    assert_eq!(remote, Syndrome::RemoteAccess, "{}", world.what);
    let range = refused(world, mode, |bad| bad.past_end = 96 * 8);
    assert_eq!(range, Syndrome::RemoteAccess, "{}", world.what);
}

#[test]
fn the_first_cause_is_everybodys_answer() {
    for seed in 0..4 {
        for mode in [CqMode::Ring, CqMode::Collapsed] {
            every_cause(&World::seeded(0xe0 + seed, DoorbellPolicy::DoorbellFirst), mode);
        }
    }
}

#[test]
fn a_revoked_key_stops_reads_too() {
    let world = World::seeded(0xe7, DoorbellPolicy::Random);
    let memory = world.memory(64 * 8);
    world.nic.faults().revoke(memory.rkey(), true).expect("a key of this NIC");
    let (a, _b) = world.pair(&world.config(128).send_cq(CqMode::Ring));
    let status = world.memory(4);
    let sink = world.memory(64 * 8);
    let kernel = loopback::Read {
        qp: a.device_qp(),
        to: sink.local().into(),
        from: memory.remote().into(),
        bytes: 8,
        status: pointer(&status),
    };
    world.run(&kernel, Dim::new(1, 64));
    let (outcome, syndrome, opcode) = parts(world.statuses(&status)[0]);
    assert_eq!((outcome, syndrome, opcode), (REQUESTER, Syndrome::RemoteAccess, 0x10));
}

/// A message that is longer than the receive: both sides learn of it, each in its own words.
#[test]
fn a_message_that_does_not_fit_fails_both_ends() {
    let world = World::seeded(0xe8, DoorbellPolicy::DoorbellFirst);
    let config: EndpointConfig = world.config(128).send_cq(CqMode::Ring);
    let (a, b) = world.pair(&config);
    let memory = world.memory(64);
    let status = world.memory(64 * 4);
    let took = world.memory(64 * 8);
    let offer = k::Offers {
        qp: b.device_qp(),
        to: memory.local().into(),
        count: 1,
        deadline_ns: 0,
        status: pointer(&status),
        took: pointer(&took),
    };
    world.run(&offer, Dim::new(1, 1));
    let counts = world.memory(24);
    let send = loopback::SendRecv {
        from: a.device_qp(),
        to: b.device_qp(),
        source: memory.local().into(),
        target: memory.local().into(),
        bytes: 16,
        piece: 16,
        window: 1,
        counts: pointer(&counts),
        status: pointer(&status),
    };
    world.run(&send, Dim::new(1, 2 * world.gpu.info().warp_size));
    assert_ne!(world.statuses(&status)[0], 0);
    let (sent, received) = (a.health().expect("health"), b.health().expect("health"));
    assert_eq!(sent.syndrome(), Some(Syndrome::RemoteInvalReq), "{sent}");
    assert_eq!(received.syndrome(), Some(Syndrome::LocalLength), "{received}");
}
