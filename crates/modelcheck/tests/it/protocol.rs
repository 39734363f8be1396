//! The device library's headers and the host's protocol, over every run of small configurations up
//! to a number of preemptions, and over random ones.

use super::cases::{
    Case, alone, deferring, ending, formats, lock_outside, lockstep, mixed, posting, receiving,
    recording, signalling, together, waiting,
};

#[test]
fn one_lane_posts_and_waits() {
    alone().iter().for_each(Case::check);
}

#[test]
fn several_lanes_post() {
    posting().iter().for_each(Case::check);
}

#[test]
fn several_lanes_wait_and_share_a_full_ring() {
    waiting().iter().for_each(Case::check);
}

#[test]
fn a_deferred_doorbell_is_rung_by_whoever_comes_next() {
    deferring().iter().for_each(Case::check);
}

#[test]
fn host_and_kernels_share_a_queue() {
    mixed().iter().for_each(Case::check);
}

#[test]
fn a_device_may_act_on_the_record_alone() {
    recording().iter().for_each(Case::check);
}

#[test]
fn queues_of_other_formats_are_posted_to() {
    formats().iter().for_each(Case::check);
}

#[test]
fn receives_are_posted_and_taken() {
    receiving().iter().for_each(Case::check);
}

#[test]
fn warps_and_blocks_call_together() {
    together().iter().for_each(Case::check);
}

#[test]
fn payload_comes_before_its_signal() {
    signalling().iter().for_each(Case::check);
}

#[test]
fn waits_end_by_deadline_and_abort() {
    ending().iter().for_each(Case::check);
}

#[test]
fn lanes_in_lockstep_do_not_wait_for_one_another() {
    lockstep().iter().for_each(Case::check);
}

#[test]
fn a_lane_in_lockstep_that_waits_for_another_is_stuck() {
    assert_eq!(lock_outside(false).failure(), None);
    let failure = lock_outside(true).failure().expect("a stall");
    assert!(failure.contains("stuck"), "{failure}");
}
