//! Progress of a queue after unusual waits: `completed` never goes back, and no completion is lost.

use crate::device::world::{World, pointer};
use warpverbs::gpu::Dim;
use warpverbs::raw::nic::DoorbellPolicy;
use warpverbs::transport::{CqMode, Endpoint, MemoryRegion, Outcome};
use warpverbs_test_kernels::progress as k;

const MODES: [CqMode; 2] = [CqMode::Ring, CqMode::Collapsed];
const TIMEOUT: u64 = 1;
const STRAY_CQE: u64 = 8;

struct Case {
    world: World,
    a: Endpoint,
    b: Endpoint,
    local: MemoryRegion,
    cell: MemoryRegion,
    out: MemoryRegion,
}

impl Case {
    fn new(seed: u64, mode: CqMode) -> Self {
        let world = World::seeded(seed, DoorbellPolicy::DoorbellFirst);
        let (a, b) = world.pair(&world.config(128).send_cq(mode).recv_depth(16));
        let (local, cell, out) = (world.memory(64), world.memory(64), world.memory(64));
        Self { world, a, b, local, cell, out }
    }

    fn out(&self) -> Vec<u64> {
        self.world.words(&self.out)
    }
}

#[test]
fn a_wait_for_old_work_leaves_completed_alone() {
    for (seed, mode) in (0..).zip(MODES) {
        for read in [0, 1] {
            let case = Case::new(0x90 + seed, mode);
            let kernel = k::WaitAgain {
                qp: case.a.device_qp(),
                local: case.local.local().into(),
                remote: case.cell.remote().into(),
                cell: pointer(&case.cell),
                read,
                out: pointer(&case.out),
            };
            case.world.run(&kernel, Dim::new(1, 32));
            let out = case.out();
            assert_eq!(out[..5], [0, 1, 0, 0, 1 << 16], "{mode:?}, {read}: {}", case.world.what);
        }
    }
}

#[test]
fn a_completion_that_cannot_be_counted_yet_stays_in_the_cq() {
    for (seed, mode) in (0..).zip(MODES) {
        let case = Case::new(0xa0 + seed, mode);
        let kernel = k::SeenEarly {
            qp: case.a.device_qp(),
            local: case.local.local().into(),
            remote: case.cell.remote().into(),
            cell: pointer(&case.cell),
            out: pointer(&case.out),
        };
        case.world.run(&kernel, Dim::new(1, 1));
        assert_eq!(case.out()[..4], [TIMEOUT, 0, 0, 1], "{mode:?}: {}", case.world.what);
    }
}

#[test]
fn a_completion_of_no_work_in_flight_fails_the_queue() {
    let case = Case::new(0xb0, CqMode::Ring);
    let kernel = k::ReportedTwice {
        qp: case.a.device_qp(),
        local: case.local.local().into(),
        remote: case.cell.remote().into(),
        cell: pointer(&case.cell),
        out: pointer(&case.out),
    };
    case.world.run(&kernel, Dim::new(1, 1));
    assert_eq!(case.out()[0] & 0xff, STRAY_CQE, "{}", case.world.what);
    let health = case.a.health().expect("health");
    let error = health.error.expect("an error word").to_string();
    assert!(error.contains("not in flight"), "{error}");
    assert_eq!(Outcome::from_code(case.out()[0] as u32), Outcome::StrayCqe);
}

#[test]
fn messages_that_arrived_before_an_error_are_delivered() {
    for seed in 0..4 {
        let case = Case::new(0xc0 + seed, CqMode::Ring);
        let kernel = k::ArrivedBefore {
            from: case.a.device_qp(),
            to: case.b.device_qp(),
            source: case.local.local().into(),
            target: case.cell.local().into(),
            bad_rkey: case.cell.rkey() ^ 0x5500,
            out: pointer(&case.out),
        };
        case.world.run(&kernel, Dim::new(1, 1));
        let out = case.out();
        assert_eq!((out[0], out[1], out[3], out[4]), (0, 0, 3, 0), "{}", case.world.what);
        assert_ne!(out[2], 0, "{}", case.world.what);
    }
}
