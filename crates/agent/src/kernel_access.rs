//! How kernels of the agent's device access memory of a peer without the host.

use crate::control::Asked;
use crate::deadline::Deadline;
use crate::names::PathKind;
use crate::{Agent, AgentError, Reason, RemoteMemory};
use warpverbs_gpu::{Buffer, KernelPtr, Qp};
use warpverbs_transport::RemoteRegion;

/// How kernels of the agent's device reach memory of a peer.
#[derive(Clone, Debug)]
pub enum KernelAccess {
    /// By loads and stores: the memory belongs to this process, or is mapped into it.
    Direct(Buffer),
    /// Through queue pairs.
    Rdma {
        /// Its place and key.
        region: RemoteRegion,
        /// Connected queue pairs, as many as [`AgentConfig::queue_pairs`](crate::AgentConfig)
        /// says, which all memory of this peer shares.
        pairs: Vec<KernelPtr<Qp>>,
    },
}

impl Agent {
    /// How kernels of this agent's device reach memory of a peer: by loads and stores if that is
    /// possible, else through queue pairs of the agents' NICs.
    ///
    /// The result stays in place, but the peer may deregister its memory: on the direct way its
    /// bytes then live on unused, through queue pairs the kernels' requests fail. Memory of
    /// `cudaMalloc` alone, which is mapped by an IPC handle, must outlive its use by peers' kernels.
    ///
    /// # Errors
    /// The peer is lost, or kernels cannot reach its memory: with every reason.
    pub fn kernel_access(&self, remote: &RemoteMemory) -> Result<KernelAccess, AgentError> {
        let router = &self.shared.router;
        let peer = self.shared.peers.peer_of(remote.owner())?;
        peer.check()?;
        remote.0.check()?;
        let mut tried = Vec::new();
        if router.config.allows(PathKind::SameProcess)
            && let Some(owner) = peer.here.as_ref().and_then(|here| here.upgrade())
        {
            match router.gpu.info().kind == owner.device {
                true => {
                    return Ok(KernelAccess::Direct(
                        owner.memory(remote.id())?.hold()?.buffer.clone(),
                    ));
                }
                false => tried.push(Reason::new("same process", "the agents' devices differ")),
            }
        }
        let deadline = Deadline::after(router.config.deadline);
        let range = router.range(&peer, &remote.0, &deadline)?;
        if let Some(buffer) = range.mapped() {
            return Ok(KernelAccess::Direct(buffer.clone()));
        }
        tried.extend(range.decision().not_better.iter().cloned());
        let Some(region) = range.region().filter(|_| router.config.allows(PathKind::Network))
        else {
            return Err(AgentError::NoPath {
                local: format!("kernels of {}", router.owner),
                remote: format!("{:?} of {}", remote.label(), remote.owner()),
                tried,
            });
        };
        let pairs = peer.kernel_pairs.get(&peer.asked(), &deadline)?;
        let pairs = pairs.iter().map(|endpoint| endpoint.device_qp()).collect();
        Ok(KernelAccess::Rdma { region, pairs })
    }
}
