//! Queues that a bnxt_re device reads by itself, which our provider makes by functions of Broadcom's own libbnxt_re.

use super::direct_vendor::Vendor;

const BNXT: Vendor = Vendor {
    device: "bnxt_re",
    // Devices take no SEND_INVAL of ordinary registrations.
    differ: &["send_invalidate", "kernel_receives_invalidate"],
    program: "dv",
    library: "libbnxt_re",
    variable: "WARPVERBS_LIBBNXT_RE",
    functions: ["bnxt_re_dv_umem_reg", "bnxt_re_dv_umem_dereg"],
    calls: &["bnxt_re_dv_"],
};

#[test]
fn the_conformance_suite_passes_by_the_vendors_functions() {
    BNXT.passes_the_conformance_suite();
}

#[test]
fn objects_of_the_vendors_functions_are_given_back() {
    BNXT.gives_everything_back();
}

#[test]
fn queues_as_gpu_libraries_lay_them_out_are_executed() {
    BNXT.executes_queues_of_gpu_libraries();
}

#[test]
fn a_library_without_the_functions_is_named() {
    BNXT.names_a_library_without_the_functions();
}

#[test]
fn a_step_that_fails_leaves_nothing_of_the_vendors_objects() {
    BNXT.leaves_nothing_of_a_step_that_fails();
}
