//! Tests of the crate as a whole.

#[path = "../../../test-kernels/tests/it/bed.rs"]
#[allow(dead_code, reason = "some of it is for the tests of test-kernels")]
mod bed;
mod cases;
mod data;
mod faults;
mod launches;
mod layers;
mod layout;
#[path = "../../../test-kernels/tests/it/model.rs"]
#[allow(dead_code, reason = "some of it is for the tests of test-kernels")]
mod model;
mod posted;
#[path = "../../../shmem/tests/it/device/ranks.rs"]
#[allow(dead_code, reason = "some of it is for the tests of shmem")]
mod ranks;
#[path = "../../../shmem/tests/it/heap/ranks.rs"]
#[allow(dead_code, reason = "some of it is for the tests of shmem")]
mod threads;
