//! Tests of the crate as a whole.

#[path = "../../../test-kernels/tests/it/bed.rs"]
#[allow(dead_code, reason = "some of it is for the tests of test-kernels")]
mod bed;
mod calls;
mod device;
mod heap;
mod layout;
#[path = "../../../test-kernels/tests/it/model.rs"]
mod model;
