//! The device library's headers and the host's protocol, over every run of small configurations up
//! to a number of preemptions, and over random ones.

mod common;

use common::{Case, alone, mixed, posting, waiting};

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
fn host_and_kernels_share_a_queue() {
    mixed().iter().for_each(Case::check);
}
