//! Tests of the crate as a whole.

mod again;
#[path = "../../../test-kernels/tests/it/bed.rs"]
#[allow(dead_code, reason = "some of it is for the tests of test-kernels")]
mod bed;
mod case;
mod cases;
mod data;
mod faults;
mod killed;
mod launches;
mod layers;
mod layout;
mod members;
#[path = "../../../test-kernels/tests/it/model.rs"]
#[allow(dead_code, reason = "some of it is for the tests of test-kernels")]
mod model;
mod network;
mod numbers;
mod payloads;
mod posted;
mod pulled;
#[path = "../../../shmem/tests/it/device/ranks.rs"]
#[allow(dead_code, reason = "some of it is for the tests of shmem")]
mod ranks;
mod regroup;
mod replays;
#[path = "../../../shmem/tests/it/heap/ranks.rs"]
#[allow(dead_code, reason = "some of it is for the tests of shmem")]
mod threads;
