//! Tests of the software NIC, as one program: one build and one link instead of 25.

mod against_model;
mod consume;
#[path = "../common/conversation.rs"]
mod conversation;
mod corpus;
mod cqes;
mod datagrams;
mod device_memory;
mod device_network;
mod device_queues;
mod dump;
mod dynamic;
mod errors;
mod faults;
mod formats;
mod formats_datagrams;
mod formats_hostile;
mod formats_lossy;
mod hostile;
#[path = "../../../mlx5/tests/formats/ignored.rs"]
mod ignored;
mod long_messages;
mod model;
mod mori;
mod network;
mod network_atomics;
mod network_bounce;
mod network_bounce_ends;
mod network_faults;
mod network_local;
mod network_receives;
mod network_timers;
mod network_trains;
mod operations;
mod pcap;
mod proxied;
mod proxied_bounce;
mod proxied_bounce_by_chance;
mod proxied_errors;
mod queues;
mod receives;
#[path = "../common/requests.rs"]
mod requests;
#[path = "../common/rig.rs"]
mod rig;
mod shared_port;
mod shm;
mod teardown;
mod uar;
mod wait;
mod without_processor;

use rand::SeedableRng;
use rand::rngs::StdRng;

/// A random generator and its seed, which `WARPVERBS_SEED` sets.
fn rng() -> (u64, StdRng) {
    let seed = warpverbs_dev::seed();
    (seed, StdRng::seed_from_u64(seed))
}
