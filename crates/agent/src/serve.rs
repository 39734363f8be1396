//! The agent as its control loop sees it: what peers ask of it by a connection, its peers, its transfers.

use crate::control::frame::Service;
use crate::control::link::Link;
use crate::control::services::{Remote, Revoked, Services, Watched};
use crate::control::slot::Slot;
use crate::control::{self, Control, is_alive};
use crate::inner::Inner;
use crate::list::{BlockList, Owner};
use crate::memory::Kept;
use crate::metadata::{Content, Secret};
use crate::peer::Peer;
use crate::prepared::Plan;
use crate::proof;
use crate::run::Shared;
use crate::stream::{Offered, Sending};
use crate::{Agent, AgentError, Op, PathKind, Registration, RemoteMemory, Transfer};
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use std::time::Duration;

impl Services for Inner {
    fn control(&self) -> &Control {
        &self.control
    }

    fn owner(&self) -> &Owner {
        &self.owner
    }

    fn answer(
        &self,
        link: &Arc<Link>,
        from: &Owner,
        service: Service,
        bytes: &[u8],
    ) -> Result<Arc<[u8]>, String> {
        let say = |error: AgentError| error.to_string();
        if !service.is_of_metadata() {
            self.serving.fence(link, &from.name);
        }
        let answer = match service {
            Service::Fetch => return self.full_metadata().map_err(say),
            Service::Load => self.load_brought(bytes, from).map(|_| Vec::new()).map_err(say),
            Service::Pairs => self.answering.accept(self, link, from, bytes),
            Service::Tcp => self.serving.invite(self, (link, &from.name), bytes),
            Service::TcpKey => {
                let id = bytes
                    .try_into()
                    .map_err(|_| format!("{} bytes name no memory", bytes.len()))?;
                self.memory(u32::from_le_bytes(id)).map_err(say)?.tcp_key(&self.serving)
            }
            Service::Prove => proof::answer(self, link, from, bytes),
            Service::EndPairs => self.answering.end(from, bytes),
            Service::Stream => {
                let tell = |ring: &Registration| {
                    self.tell(Content::Partial, ring.memory().info().into_iter().collect())
                };
                self.streams.open(tell, link, from, bytes)
            }
        };
        answer.map(Into::into)
    }

    fn live(&self) -> Vec<u32> {
        self.registered()
    }

    fn secret_of(&self, peer: &Owner) -> Option<Secret> {
        self.peer_of(peer).ok().map(|peer| peer.contact.secret.clone())
    }

    fn lost(&self, link: &Link) {
        self.serving.forget(link);
    }

    fn closed(&self, link: &Link) {
        self.answering.forget(link);
    }

    fn take_memories(&self) -> Vec<Arc<dyn Revoked>> {
        let all = self.end_registrations();
        all.iter().map(|memory| Kept::new(memory) as Arc<dyn Revoked>).collect()
    }
}

impl Inner {
    /// The connection to a peer, which is made if there is none.
    pub(crate) fn connect(
        &self,
        peer: &Arc<Peer>,
        timeout: Duration,
    ) -> Result<Arc<Link>, AgentError> {
        let remote: Arc<dyn Remote> = peer.clone();
        control::connect(self, &remote, timeout)
    }

    /// Whether this start of a peer is known to run, without asking it.
    pub(crate) fn is_alive(&self, peer: &Peer) -> bool {
        let here = peer.here.as_ref().is_some_and(|agent| Weak::strong_count(agent) > 0);
        let connected = || peer.slot.link().is_some_and(|link| is_alive(&link));
        here || connected() || self.control.is_connected(&peer.owner)
    }

    /// Whether this start of a peer runs. Asks it.
    pub(crate) fn answers(&self, peer: &Arc<Peer>) -> bool {
        peer.check().is_ok()
            && (self.is_alive(peer) || self.connect(peer, self.config.deadline).is_ok())
    }
}

impl Agent {
    /// As senders of streams see it.
    pub(crate) fn sending(&self) -> Arc<dyn Sending> {
        self.inner().clone()
    }

    /// The streams that it offers.
    pub(crate) fn streams(&self) -> &Arc<Offered> {
        &self.inner().streams
    }
}

impl Sending for Inner {
    fn link_to(
        self: Arc<Self>,
        peer: &str,
        timeout: Duration,
    ) -> Result<(Owner, Arc<Link>), AgentError> {
        let peer = self.peer(peer)?;
        Ok((peer.owner.clone(), self.connect(&peer, timeout)?))
    }

    fn ring(&self, peer: &Owner, metadata: &[u8], id: u32) -> Result<RemoteMemory, AgentError> {
        self.load(metadata, Some(peer))?;
        Ok(RemoteMemory(self.peer_of(peer)?.memory(id)?))
    }

    fn path(
        self: Arc<Self>,
        from: &Registration,
        to: &RemoteMemory,
    ) -> Result<PathKind, AgentError> {
        let peer = self.peer_of(&to.0.extent.owner)?;
        Ok(self.route(from.memory(), &peer, &to.0)?.kind)
    }

    fn write(self: Arc<Self>, from: &BlockList, to: &BlockList) -> Result<Transfer, AgentError> {
        Ok(Transfer::new(&self, Op::Write, Plan::of_lists(&self, from, to)?))
    }
}

impl Remote for Peer {
    fn owner(&self) -> &Owner {
        &self.owner
    }

    fn addresses(&self) -> &[SocketAddr] {
        &self.contact.addresses
    }

    fn secret(&self) -> &Secret {
        &self.contact.secret
    }

    fn slot(&self) -> &Slot {
        &self.slot
    }

    fn check(&self) -> Result<(), AgentError> {
        Self::check(self)
    }

    fn only(&self, live: &[u32]) {
        Self::only(self, live);
    }

    fn revoke(&self, id: u32) {
        Self::revoke(self, id);
    }

    fn is_idle_at(&self, id: u32) -> bool {
        Self::is_idle_at(self, id)
    }

    fn is_idle(&self) -> bool {
        Self::is_idle(self)
    }

    fn lose(&self, why: AgentError) {
        Self::lose(self, why);
    }
}

impl Revoked for Kept {
    fn id(&self) -> u32 {
        Self::id(self)
    }

    fn label(&self) -> &str {
        Self::label(self)
    }
}

impl Watched for Shared {
    fn progress(&self) {
        Self::progress(self);
    }

    fn is_over(&self) -> bool {
        Self::is_over(self)
    }

    fn is_waited_for(&self) -> bool {
        Self::is_waited_for(self)
    }

    fn abort(&self, why: AgentError) {
        Self::abort(self, why);
    }

    fn watched(&self) -> &AtomicBool {
        &self.watched
    }
}

#[cfg(test)]
mod hostile;
#[cfg(test)]
mod tests;
