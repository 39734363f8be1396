//! Waits for what never comes end by their deadline, and the host learns who waited for what.

use crate::device::world::{World, pointer};
use std::time::Duration;
use warpverbs::gpu::Dim;
use warpverbs::raw::nic::DoorbellPolicy;
use warpverbs::transport::{Endpoint, FaultReport, MemoryRegion, Outcome, WaitFor};
use warpverbs_dev::simt_seeds;
use warpverbs_test_kernels::waits as k;

const OK: u32 = 0;
const TIMEOUT: u32 = 1;
const ABORTED: u32 = 2;
const NO_ROOM: u32 = 3;
const TOO_LONG: u32 = 6;

/// Deadline of the waits, in nanoseconds of the device's clock.
const PATIENCE: u64 = 2_000_000;
/// A GPU's clock may tick only once a microsecond, and the last look takes its time.
const LATEST: u64 = 50 * PATIENCE;

struct Case {
    a: Endpoint,
    b: Endpoint,
    cell: MemoryRegion,
    status: MemoryRegion,
    took: MemoryRegion,
}

impl Case {
    fn new(world: &World, threads: usize) -> Self {
        let (a, b) = world.pair(&world.config(128).recv_depth(16));
        let (cell, status, took) =
            (world.memory(64), world.memory(threads * 4), world.memory(threads * 8));
        Self { a, b, cell, status, took }
    }

    fn stuck(world: &World, threads: usize) -> Self {
        let case = Self::new(world, threads);
        world.nic.faults().stick(case.a.qpn(), true).expect("a QP of this NIC");
        case
    }

    fn completion(&self, deadline_ns: u64) -> k::Completion {
        k::Completion {
            qp: self.a.device_qp(),
            from: self.cell.local().into(),
            to: self.cell.remote().into(),
            bytes: 8,
            deadline_ns,
            status: pointer(&self.status),
            took: pointer(&self.took),
        }
    }

    fn room(&self, count: u32, deadline_ns: u64) -> k::Room {
        k::Room {
            qp: self.a.device_qp(),
            from: self.cell.local().into(),
            to: self.cell.remote().into(),
            count,
            deadline_ns,
            status: pointer(&self.status),
            took: pointer(&self.took),
        }
    }

    fn old_value(&self, deadline_ns: u64) -> k::OldValue {
        k::OldValue {
            qp: self.a.device_qp(),
            at: self.cell.remote().into(),
            deadline_ns,
            status: pointer(&self.status),
            took: pointer(&self.took),
        }
    }

    fn fault(&self) -> FaultReport {
        let health = self.a.health().expect("health");
        assert!(!health.is_ok(), "a fault is not health");
        health.fault.expect("a failed wait leaves a fault")
    }

    fn in_time(&self, world: &World) {
        let took = world.words(&self.took);
        assert!(took.iter().all(|ns| *ns < LATEST), "{}: {took:?}", world.what);
    }
}

fn completion(world: &World) {
    let case = Case::stuck(world, 64);
    let kernel = case.completion(PATIENCE);
    world.run(&kernel, Dim::new(1, 64));
    assert_eq!(world.statuses(&case.status), [TIMEOUT; 64], "{}", world.what);
    case.in_time(world);
    assert!(world.words(&case.took).iter().all(|ns| *ns >= PATIENCE), "{}", world.what);
    let fault = case.fault();
    assert_eq!((fault.outcome, fault.what), (Outcome::Timeout, WaitFor::Completion));
    assert!((1..=64).contains(&fault.expected) && fault.actual == 0, "{fault:?}");
    assert!(fault.thread < 64, "{fault:?}");
    // Nothing is lost by a wait that gave up: the work is done when the NIC goes on.
    world.nic.faults().stick(case.a.qpn(), false).expect("a QP of this NIC");
    world.run(&kernel, Dim::new(1, 64));
    assert_eq!(world.statuses(&case.status), [OK; 64], "{}", world.what);
}

/// A thread that gives up in a full queue has reserved; everybody behind is told at once.
fn room(world: &World) {
    let case = Case::stuck(world, 256);
    let kernel = case.room(3, PATIENCE);
    world.run(&kernel, Dim::new(2, 128));
    let statuses = world.statuses(&case.status);
    // The queue takes 128 of 768: at most 42 threads got all of their 3 in.
    let failed = |s: &&u32| [TIMEOUT, ABORTED].contains(*s);
    let through = statuses.iter().filter(|s| **s == OK).count();
    assert!(through <= 42, "{}: {statuses:?}", world.what);
    assert_eq!(statuses.iter().filter(failed).count() + through, 256, "{}", world.what);
    assert!(statuses.contains(&TIMEOUT), "{}: {statuses:?}", world.what);
    case.in_time(world);
    let fault = case.fault();
    assert_eq!((fault.outcome, fault.what), (Outcome::Timeout, WaitFor::SendRoom));
    assert!(fault.expected > 0 && fault.actual == 0, "{fault:?}");
    // The queue stays dead: its hole can never be rung over.
    world.nic.faults().stick(case.a.qpn(), false).expect("a QP of this NIC");
    world.run(&kernel, Dim::new(2, 128));
    assert_eq!(world.statuses(&case.status), [ABORTED; 256], "{}", world.what);
}

/// The non-blocking form takes what there is, says no, and harms nothing.
fn no_room(world: &World) {
    let case = Case::stuck(world, 96);
    let kernel = k::NoRoom {
        qp: case.a.device_qp(),
        from: case.cell.local().into(),
        to: case.cell.remote().into(),
        count: 4,
        status: pointer(&case.status),
        took: pointer(&case.took),
    };
    world.run(&kernel, Dim::new(1, 96));
    let posted: u64 = world.words(&case.took).iter().sum();
    assert!((97..=128).contains(&posted), "{}: {posted} posted", world.what);
    assert!(world.statuses(&case.status).contains(&NO_ROOM), "{}", world.what);
    let health = case.a.health().expect("health");
    assert!(health.is_ok() && health.send.reserved == posted, "{health}");
    world.nic.faults().stick(case.a.qpn(), false).expect("a QP of this NIC");
    world.run(&case.completion(0), Dim::new(1, 96));
    assert_eq!(world.statuses(&case.status), [OK; 96], "{}", world.what);
}

fn signal(world: &World) {
    let case = Case::new(world, 32);
    world.fill(&case.cell, &6u64.to_le_bytes());
    let wait = |value| k::SignalWord {
        qp: case.a.device_qp(),
        word: pointer(&case.cell),
        value,
        deadline_ns: PATIENCE,
        status: pointer(&case.status),
        took: pointer(&case.took),
    };
    world.run(&wait(6), Dim::new(1, 32));
    assert_eq!(world.statuses(&case.status), [OK; 32], "{}", world.what);
    world.run(&wait(7), Dim::new(1, 32));
    assert_eq!(world.statuses(&case.status), [TIMEOUT; 32], "{}", world.what);
    case.in_time(world);
    let FaultReport { outcome, what, expected, actual, thread, .. } = case.fault();
    assert_eq!((outcome, what), (Outcome::Timeout, WaitFor::Signal));
    assert_eq!((expected, actual, thread), (7, 6, 0));
}

fn message(world: &World) {
    let case = Case::new(world, 64);
    let kernel = k::Message {
        qp: case.a.device_qp(),
        deadline_ns: PATIENCE,
        status: pointer(&case.status),
        took: pointer(&case.took),
    };
    world.run(&kernel, Dim::new(1, 64));
    assert_eq!(world.statuses(&case.status), [TIMEOUT; 64], "{}", world.what);
    case.in_time(world);
    let fault = case.fault();
    assert_eq!((fault.what, fault.expected, fault.thread), (WaitFor::Receive, 0, 0));
}

/// Receives beyond the queue's depth: a poster that gives up there has taken nothing.
fn offers(world: &World) {
    let case = Case::new(world, 40);
    let kernel = |count| k::Offers {
        qp: case.a.device_qp(),
        to: case.cell.local().into(),
        count,
        deadline_ns: PATIENCE,
        status: pointer(&case.status),
        took: pointer(&case.took),
    };
    world.run(&kernel(2), Dim::new(1, 40));
    let statuses = world.statuses(&case.status);
    // The queue takes 16 of 80: at most 8 threads got both of theirs in.
    let late = statuses.iter().filter(|s| **s == TIMEOUT).count();
    let through = statuses.iter().filter(|s| **s == OK).count();
    assert!(late >= 32 && late + through == 40, "{}: {statuses:?}", world.what);
    case.in_time(world);
    let fault = case.fault();
    assert_eq!((fault.outcome, fault.what), (Outcome::Timeout, WaitFor::ReceiveRoom));
    let health = case.a.health().expect("health");
    assert!(health.error.is_none(), "{health}");
    assert_eq!(health.receive.reserved, health.receive.published, "{health}");
    assert!(health.receive.reserved <= 16, "{health}");
}

/// 65 threads on 64 scratch slots, and a NIC that does nothing: some wait for a result, some for a
/// slot.
fn old_value(world: &World) {
    let case = Case::stuck(world, 96);
    world.run(&case.old_value(PATIENCE), Dim::new(1, 96));
    assert_eq!(world.statuses(&case.status), [TIMEOUT; 96], "{}", world.what);
    case.in_time(world);
    assert_eq!(case.a.health().expect("health").send.reserved, 64, "{}", world.what);
    assert!(matches!(case.fault().what, WaitFor::Completion | WaitFor::Scratch));
}

fn lengths(world: &World) {
    let case = Case::new(world, 6);
    let kernel = k::Lengths {
        qp: case.a.device_qp(),
        local: case.cell.local().into(),
        remote: case.cell.remote().into(),
        status: pointer(&case.status),
    };
    world.run(&kernel, Dim::new(1, 1));
    assert_eq!(world.statuses(&case.status), [TOO_LONG; 6], "{}", world.what);
    let health = case.a.health().expect("health");
    assert!(health.is_ok(), "{health}");
    assert_eq!((health.send.reserved, health.receive.reserved), (0, 0), "{health}");
    assert!(case.b.health().expect("health").is_ok());
}

/// Waits without a deadline of their own, which the host ends.
fn abort(world: &World) {
    let case = Case::stuck(world, 128);
    let kernel = case.room(2, 0);
    let limit = Duration::from_secs(60);
    let launch = world.gpu.launch(&kernel, Dim::new(1, 128), limit).expect("launch");
    case.a.abort().expect("abort");
    launch.wait().unwrap_or_else(|e| panic!("{}: {e}", world.what));
    let statuses = world.statuses(&case.status);
    assert!(statuses.contains(&ABORTED), "{}: {statuses:?}", world.what);
    assert!(statuses.iter().all(|s| [OK, ABORTED].contains(s)), "{}: {statuses:?}", world.what);
    let fault = case.fault();
    assert_eq!((fault.outcome, fault.what), (Outcome::Aborted, WaitFor::SendRoom));
}

const ALL: [fn(&World); 9] =
    [completion, room, no_room, signal, message, offers, old_value, lengths, abort];

#[test]
fn no_wait_outlives_its_deadline() {
    for (i, case) in ALL.into_iter().enumerate() {
        for seed in 0..4 {
            case(&World::seeded(seed << 8 | i as u64, DoorbellPolicy::DoorbellFirst));
        }
    }
}

/// Lanes of a warp that wait on one queue pair for completions, room, and scratch slots: all of them end
/// as soon as the NIC has done its work, also where one lane's loop holds up the other lanes of its warp.
fn together(world: &World) {
    let case = Case::new(world, 96);
    world.run(&case.completion(0), Dim::new(1, 96));
    assert_eq!(world.statuses(&case.status), [OK; 96], "{}", world.what);
    world.run(&case.room(4, 0), Dim::new(1, 96));
    assert_eq!(world.statuses(&case.status), [OK; 96], "{}", world.what);
    world.run(&case.old_value(0), Dim::new(1, 96));
    assert_eq!(world.statuses(&case.status), [OK; 96], "{}", world.what);
    assert!(case.a.health().expect("health").is_ok());
}

#[test]
fn lanes_of_a_warp_do_not_wait_for_one_another() {
    for seed in simt_seeds(0, 8) {
        together(&World::seeded(seed, DoorbellPolicy::DoorbellFirst));
        together(&World::lockstep(seed, DoorbellPolicy::DoorbellFirst));
    }
}

#[test]
#[ignore = "needs a GPU"]
fn on_a_gpu_no_wait_outlives_its_deadline() {
    for case in ALL {
        case(&World::real(&warpverbs_dev::gpu(0), DoorbellPolicy::DoorbellFirst));
    }
}
