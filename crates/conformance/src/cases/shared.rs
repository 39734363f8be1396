//! Shared receive queues.

use crate::Setup;
use crate::outcome::{Stop, check};
use crate::peer::{PeerEndpoint, PeerQueue, Shape, Trouble};
use crate::rig::{End, SIGNALED, all_access, bytes, same};
use std::time::Duration;
use warpverbs::transport::Endpoint;

/// After which a message that was acknowledged has been reported to its receiver as well.
const SETTLED: Duration = Duration::from_millis(100);

/// A sender and a receiver that takes from `queue`.
fn connected(setup: &Setup, queue: &PeerQueue) -> Result<(Endpoint, PeerEndpoint), Stop> {
    let sender = setup.endpoint(&Shape::host())?;
    let receiver = setup.b.endpoint(&Shape::host().recv_depth(64).srq(queue.number()))?;
    sender.connect(&receiver.handle())?;
    receiver.connect(&sender.handle())?;
    Ok((sender, receiver))
}

pub(super) fn shared_receives(setup: &Setup) -> End {
    let memory = setup.b.region(64, all_access())?;
    let queue = setup.b.srq(8, 1)?;
    let place = |n: u64| memory.local().slice(n % 8 * 8, 8);
    let pairs = [connected(setup, &queue)?, connected(setup, &queue)?, connected(setup, &queue)?];
    queue.post_recv(place(0)?)?;
    for n in 0..setup.times(300) {
        let (sender, receiver) = &pairs[(n * n % 3) as usize];
        let sender = sender.host()?;
        sender.wait(sender.post_send_inline(&n.to_le_bytes(), SIGNALED)?)?;
        let got = receiver.wait_recv()?;
        check!(got.byte_len == 8, "{got:?}, expected 8 bytes");
        same(&bytes(&memory, (n % 8 * 8) as usize, 8)?, &n.to_le_bytes(), "message")?;
        queue.post_recv(place(n + 1)?)?;
    }
    Ok(())
}

pub(super) fn shared_receives_return(setup: &Setup) -> End {
    let memory = setup.b.region(64, all_access())?;
    let queue = setup.b.srq(4, 1)?;
    let fill = || -> Result<usize, Stop> {
        for posted in 0..8 {
            match queue.post_recv(memory.local()) {
                Ok(()) => {}
                Err(Trouble::SharedQueueFull(_)) => return Ok(posted),
                Err(error) => return Err(error.into()),
            }
        }
        Err(Stop::Failed("a queue of 4 took 8 receives".into()))
    };
    let posted = fill()?;
    check!(posted == 3, "a queue of 4 took {posted} receives, expected 3");
    for how in ["a message that nobody asked for", "a message before a reset"] {
        let (sender, receiver) = connected(setup, &queue)?;
        let host = sender.host()?;
        host.wait(host.post_send_inline(&[1; 8], SIGNALED)?)?;
        // The sender's completion does not say yet that the receiver has one.
        std::thread::sleep(SETTLED);
        match how.contains("reset") {
            true => receiver.reset()?,
            false => drop(receiver),
        }
        let free = fill()?;
        check!(free == 1, "{how}: {free} receives are free again, expected 1");
    }
    Ok(())
}
