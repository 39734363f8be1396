//! The agent as its control loop sees it: the loop handles connections and frames, not memory, paths or
//! peers.

use super::frame::Service;
use super::link::{Link, Revoked};
use super::remote::Remote;
use super::shared::Control;
use crate::AgentError;
use crate::metadata::Secret;
use crate::names::Owner;
use std::sync::Arc;

/// The agent of a control loop. No call waits for a peer: the control thread makes all of them.
pub(crate) trait Services: Send + Sync {
    /// The part that other threads share with the loop.
    fn control(&self) -> &Control;
    /// Answers a call of a peer.
    fn answer(
        &self,
        link: &Arc<Link>,
        from: &Owner,
        service: Service,
        bytes: &[u8],
    ) -> Result<Arc<[u8]>, String>;
    /// Numbers of all registered memory.
    fn live(&self) -> Vec<u32>;
    /// The secret in the metadata of this start of a peer, if that is loaded.
    fn secret_of(&self, peer: &Owner) -> Option<Secret>;
    /// A connection that a peer has made is lost: its queue pairs and sockets end. The peer may still
    /// copy.
    fn lost(&self, link: &Link);
    /// A connection is closed. Its maker no longer accesses memory through it.
    fn closed(&self, link: &Link);
    /// Ends all registrations.
    fn take_memories(&self) -> Vec<Arc<dyn Revoked>>;
    /// Ends the use of all peers that are known.
    fn end_peers(&self, why: &AgentError) -> Vec<Arc<dyn Remote>>;
}
