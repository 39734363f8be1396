//! Ways of this process to share memory with another of this machine, tried with itself.

use crate::descriptor::{Trust, Way, fetch_by};
use crate::{DescriptorServer, Identity, Introduction, Ticket, attach, read_back, write_word};
use serde::Serialize;
use std::time::{Duration, Instant};
use warpverbs_gpu::{Gpu, Segment};

const LEN: u64 = 1 << 16;
/// Everything here takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(5);

/// One way of passing a descriptor.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct WayTried {
    /// Which.
    pub way: String,
    /// Why it does not work; absent if it does.
    pub why_not: Option<String>,
}

/// Which ways descriptors can take, and whether memory that came so can be used.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct SharingSurvey {
    /// This process.
    pub identity: Identity,
    /// The ways, best first. Two processes need the same namespaces as well, and the last way needs
    /// the right to trace, which a process always has for itself.
    pub ways: Vec<WayTried>,
    /// Why memory that was passed cannot be attached and written by a kernel; absent if it can.
    pub why_not: Option<String>,
}

/// Tries every way, and attaches and probes memory of `gpu`.
pub fn survey(gpu: &dyn Gpu) -> SharingSurvey {
    let identity = Identity::of_this_process(gpu);
    let (ways, why_not) = match offered(gpu) {
        Err(why) => (Vec::new(), Some(why)),
        Ok((segment, server, ticket)) => {
            let peer = Introduction::new(identity.clone(), &server);
            let deadline = Instant::now() + PATIENCE;
            let ways = [Way::AbstractSocket, Way::PathSocket, Way::PidfdGetfd].map(|way| {
                let why_not =
                    fetch_by(way, &identity, &peer, Trust::Launch, &ticket, deadline).err();
                WayTried { way: way.to_string(), why_not }
            });
            (ways.into(), tried(gpu, &segment, &identity, &peer, &ticket).err())
        }
    };
    SharingSurvey { identity, ways, why_not }
}

fn say(error: impl ToString) -> String {
    error.to_string()
}

fn offered(gpu: &dyn Gpu) -> Result<(Segment, DescriptorServer, Ticket), String> {
    let arena = gpu.arena(LEN).map_err(say)?;
    let segment = arena.commit(0, arena.len()).map_err(say)?;
    let mut server = DescriptorServer::start().map_err(say)?;
    let ticket = server.offer(segment.export().map_err(say)?, segment.len()).map_err(say)?;
    Ok((segment, server, ticket))
}

fn tried(
    gpu: &dyn Gpu,
    own: &Segment,
    identity: &Identity,
    peer: &Introduction,
    ticket: &Ticket,
) -> Result<(), String> {
    let arena = gpu.arena(ticket.len).map_err(say)?;
    let deadline = Instant::now() + PATIENCE;
    let attached = attach(&arena, 0, identity, peer, ticket, deadline)
        .map_err(|why| crate::Reason::list(&why))?;
    write_word(gpu, attached.segment.buffer(), 8, u64::MAX / 3, PATIENCE).map_err(say)?;
    read_back(gpu, own.buffer(), 8, u64::MAX / 3).map_err(say)
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpverbs_gpu::GpuChoice;

    #[test]
    fn this_machine_passes_its_own_memory() {
        let gpu = warpverbs_gpu::open(GpuChoice::Simt).unwrap();
        let found = survey(&*gpu);
        assert_eq!(found.why_not, None);
        let names: Vec<_> = found.ways.iter().map(|tried| &*tried.way).collect();
        assert_eq!(names, ["abstract socket", "path socket", "pidfd_getfd"]);
        assert!(found.ways.iter().any(|tried| tried.why_not.is_none()), "{:?}", found.ways);
    }
}
