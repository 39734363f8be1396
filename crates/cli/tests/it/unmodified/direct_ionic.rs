//! Queues that an ionic device reads by itself, which rdma-core's libionic makes in memory of our provider's, and AMD's
//! own tells of.

use super::direct_vendor::Vendor;

const IONIC: Vendor = Vendor {
    device: "ionic",
    // Devices take no SEND_INVAL of ordinary registrations.
    differ: &["send_invalidate", "kernel_receives_invalidate"],
    program: "dv_ionic",
    library: "libionic",
    variable: "WARPVERBS_LIBIONIC",
    functions: ["ionic_dv_get_ctx", "ionic_dv_get_cq"],
    calls: &["ibv_create_cq_ex", "ibv_create_qp", "ibv_modify_qp"],
};

#[test]
fn the_conformance_suite_passes_by_the_vendors_functions() {
    IONIC.passes_the_conformance_suite();
}

#[test]
fn objects_of_the_vendors_functions_are_given_back() {
    IONIC.gives_everything_back();
}

#[test]
fn queues_as_gpu_libraries_lay_them_out_are_executed() {
    IONIC.executes_queues_of_gpu_libraries();
}

#[test]
fn a_library_without_the_functions_is_named() {
    IONIC.names_a_library_without_the_functions();
}

#[test]
fn a_step_that_fails_leaves_nothing_of_the_vendors_objects() {
    IONIC.leaves_nothing_of_a_step_that_fails();
}
