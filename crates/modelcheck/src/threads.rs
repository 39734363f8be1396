//! Threads of a scenario: lanes, and host threads, each at its place.

use crate::fiber::{Body, Kernel, Lane};
use crate::memory::Place;
use crate::scenario::ThreadSpec;
use crate::world::{Shape, World};
use std::rc::Rc;
use warpverbs_mlx5::export::Qp;

/// Device of the kernels, and of the host where it posts with them.
const GPU: u8 = 0;
/// Device of a peer's kernels.
const FAR_GPU: u8 = 1;
/// Device of a host that does not post.
const HOST: u8 = 2;

/// One lane of the first warp of block `block` that runs `entry`.
pub fn lane(entry: Kernel, world: &World, block: u32, lane: u32, argument: u64) -> ThreadSpec {
    let place =
        Lane { lane, warp: 0, thread: lane, block, block_dim: 32, grid_dim: 2, lockstep: 0 };
    lane_at(entry, world.qp(), GPU, place, argument)
}

/// Thread `thread` of a block of `threads`, all of one warp or (`warps`) each in one of its own.
pub fn member(entry: Kernel, world: &World, thread: u32, threads: u32, warps: bool) -> ThreadSpec {
    let (lane, warp) = if warps { (0, thread) } else { (thread, 0) };
    let place = Lane { lane, warp, thread, block: 0, block_dim: threads, grid_dim: 2, lockstep: 0 };
    lane_at(entry, world.qp(), GPU, place, thread.into())
}

/// The same thread, in a warp whose lanes run in lockstep.
pub fn in_lockstep(mut thread: ThreadSpec) -> ThreadSpec {
    if let Body::Kernel { lane, .. } = &mut thread.body {
        lane.lockstep = 1;
    }
    thread
}

/// A lane of another GPU, with a queue pair of its own.
pub fn far_lane(entry: Kernel, world: &World, argument: u64) -> ThreadSpec {
    let place = Lane { block_dim: 32, grid_dim: 1, ..Lane::default() };
    ThreadSpec { name: "peer".into(), ..lane_at(entry, world.far_qp(), FAR_GPU, place, argument) }
}

/// The only thread of block `block` on GPU `device`, of a kernel that takes no queue pair but an argument.
pub fn block_of(entry: Kernel, device: u8, block: u32, argument: u64) -> ThreadSpec {
    let place = Lane { block, block_dim: 1, grid_dim: 4, ..Lane::default() };
    let unused = World { shape: Shape::default() }.qp();
    let thread = lane_at(entry, unused, device, place, argument);
    ThreadSpec { name: format!("gpu{device} {}", thread.name), ..thread }
}

fn lane_at(entry: Kernel, qp: Qp, device: u8, lane: Lane, argument: u64) -> ThreadSpec {
    ThreadSpec {
        name: format!("b{}t{}", lane.block, lane.thread),
        body: Body::Kernel { entry, qp: Rc::new(qp), argument, lane },
        place: Place { device, block: lane.block as u8 },
        daemon: false,
    }
}

/// A host thread that does not post: only scope `System` reaches it.
pub fn watcher(name: &str, run: impl Fn() + 'static) -> ThreadSpec {
    let place = Place { device: HOST, block: 0 };
    ThreadSpec { place, ..host_thread(name, run) }
}

/// A host thread on the device of the kernels: both post to state in host memory.
pub fn host_thread(name: &str, run: impl Fn() + 'static) -> ThreadSpec {
    ThreadSpec {
        name: name.into(),
        body: Body::Host(Rc::new(run)),
        place: Place { device: GPU, block: u8::MAX },
        daemon: false,
    }
}
