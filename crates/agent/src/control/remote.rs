//! A peer with a connection, as two traits: for callers that ask it something, and for its session.

use super::link::Link;
use crate::AgentError;
use crate::deadline::Deadline;
use crate::made::Made;
use crate::metadata::Secret;
use crate::names::Owner;
use std::net::SocketAddr;
use std::sync::Arc;

/// A peer that can be asked.
pub(crate) trait Asked: Send + Sync {
    /// Which agent it is.
    fn owner(&self) -> &Owner;
    /// Whether it can be used at all.
    fn check(&self) -> Result<(), AgentError>;
    /// Marks it as lost. The first reason stays.
    fn lose(&self, why: AgentError);
    /// Whether there is a connection to it already, or it is this agent itself.
    fn is_connected(&self) -> bool;
    /// The connection to it, which is made if there is none.
    fn link(self: Arc<Self>, deadline: &Deadline) -> Result<Arc<Link>, AgentError>;
}

/// The same peer as its connection and its session see it.
pub(crate) trait Remote: Asked {
    /// Where it listens.
    fn addresses(&self) -> &[SocketAddr];
    /// The secret whose possession a connection to it must prove.
    fn secret(&self) -> &Secret;
    /// The connection to it.
    fn slot(&self) -> &Made<Arc<Link>>;
    /// Marks all of its memory but this as deregistered.
    fn only(&self, live: &[u32]);
    /// Marks memory as deregistered: no new copy begins.
    fn revoke(&self, id: u32);
    /// Whether nothing is copied to or from this memory.
    fn is_idle_at(&self, id: u32) -> bool;
    /// Whether nothing is copied to or from any of its memory.
    fn is_idle(&self) -> bool;
}
