//! The cost of one post: the memory operations of the device library, counted in a run.

use warpverbs_modelcheck::kernels::PUT;
use warpverbs_modelcheck::threads::lane;
use warpverbs_modelcheck::world::{Shape, World};
use warpverbs_modelcheck::{Settings, explore};

/// Of one lane that posts a WRITE alone.
#[derive(Debug, Default, PartialEq, Eq)]
struct Cost {
    atomics: u32,
    loads: u32,
    /// The WQE's, 8 bytes each.
    wqe_stores: u32,
    /// Of the span, the record, `published` and the doorbell.
    other_stores: u32,
    fences: u32,
    /// Stores that release at system scope: on a GPU each is behind such a fence.
    system_releases: u32,
}

fn cost(reads_record: bool) -> Cost {
    let shape = Shape { log_sq: 3, start: 6, log_cq: Some(4), reads_record, ..Shape::default() };
    let w = World { shape };
    // A run that fails tells its steps.
    let scenario = w.scenario("cost", vec![lane(PUT, &w, 0, 0, 0)], |_| Err("told".into()));
    let settings = Settings { walks: 1, exhaustive: false, ..Settings::default() };
    let failure = explore(&scenario, None, &settings).failure.expect("its last check fails");
    assert_eq!(failure.what, "told");
    let mut cost = Cost::default();
    let steps = failure.trace.iter().filter_map(|step| step.trim().strip_prefix("b0t0  "));
    for step in steps {
        match step.split(' ').next().expect("an operation") {
            "fetch_add" | "fetch_xor" | "compare_exchange" => cost.atomics += 1,
            "load" => cost.loads += 1,
            "write" => cost.wqe_stores += u32::from(step.contains(" sq[")),
            "store" => cost.other_stores += 1,
            "fence" => cost.fences += 1,
            "lanes" => {}
            other => panic!("not counted: {other}"),
        }
        cost.system_releases += u32::from(step.starts_with("store Release System"));
    }
    cost
}

#[test]
fn a_device_that_reads_records_costs_a_post_one_fence() {
    let lone = Cost {
        atomics: 4,
        loads: 4,
        wqe_stores: 8,
        other_stores: 4,
        fences: 0,
        system_releases: 1,
    };
    assert_eq!(cost(false), lone);
    assert_eq!(cost(true), Cost { fences: 1, ..lone });
}
