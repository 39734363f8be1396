//! What the control loop needs of the agent above it, and nothing else: the loop knows connections and
//! frames, not memory, paths and peers.

use super::Control;
use super::frame::Service;
use super::link::Link;
use super::slot::Slot;
use crate::AgentError;
use crate::list::Owner;
use crate::metadata::Secret;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The agent of a control loop. No call waits for a peer: the control thread makes all of them.
pub(crate) trait Services: Send + Sync {
    /// What other threads share with the loop.
    fn control(&self) -> &Control;
    /// Which agent it is.
    fn owner(&self) -> &Owner;
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
    /// A connection that a peer has made is lost. The peer may still copy.
    fn lost(&self, link: &Link);
    /// A connection is closed. Its maker touches no memory by its means any more.
    fn closed(&self, link: &Link);
    /// Ends all registrations.
    fn take_memories(&self) -> Vec<Arc<dyn Revoked>>;
}

/// A peer to which a connection leads.
pub(crate) trait Remote: Send + Sync {
    /// Which agent it is.
    fn owner(&self) -> &Owner;
    /// Where it listens.
    fn addresses(&self) -> &[SocketAddr];
    /// What a connection to it must show.
    fn secret(&self) -> &Secret;
    /// The connection to it.
    fn slot(&self) -> &Slot;
    /// Whether it can be used at all.
    fn check(&self) -> Result<(), AgentError>;
    /// It has no other memory registered than this.
    fn only(&self, live: &[u32]);
    /// It has deregistered memory: no copy begins any more.
    fn revoke(&self, id: u32);
    /// Whether nothing is copied to or from this memory.
    fn is_idle_at(&self, id: u32) -> bool;
    /// Whether nothing is copied to or from any of its memory.
    fn is_idle(&self) -> bool;
    /// Ends its use. The first reason stays.
    fn lose(&self, why: AgentError);
}

/// Deregistered memory, which is kept until a peer has confirmed that it does not touch it.
pub(crate) trait Revoked: Send + Sync {
    fn id(&self) -> u32;
    fn label(&self) -> &str;
}

/// A transfer that the control thread moves on.
pub(crate) trait Watched: Send + Sync {
    /// Looks whether it is over. Never waits.
    fn progress(&self);
    fn is_over(&self) -> bool;
    /// Whether a thread that waits for it moves it on, too.
    fn is_waited_for(&self) -> bool;
    /// Fails it: its agent ends.
    fn abort(&self, why: AgentError);
    /// Whether it is on the list. Changed under the lock of that.
    fn watched(&self) -> &AtomicBool;
}
