//! Answers to what peers ask of an agent by a connection.

use crate::AgentError;
use crate::control::{Control, Link, Remote, Revoked, Service, Services};
use crate::memories::{Memories, Registration};
use crate::metadata::{Content, Secret};
use crate::names::Owner;
use crate::path::answering::Answering;
use crate::path::network::Nics;
use crate::path::tcp::{Serving, Tcp};
use crate::peers::Peers;
use crate::proof;
use crate::stream::Offered;
use std::sync::Arc;

/// The agent as its control loop sees it.
pub(crate) struct Desk {
    pub(crate) control: Arc<Control>,
    pub(crate) memories: Arc<Memories>,
    pub(crate) peers: Arc<Peers>,
    pub(crate) nics: Arc<Nics>,
    pub(crate) answering: Answering,
    pub(crate) tcp: Arc<Tcp>,
    pub(crate) serving: Serving,
    pub(crate) streams: Arc<Offered>,
}

impl Services for Desk {
    fn control(&self) -> &Control {
        &self.control
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
            self.answering.fence(link, &from.name);
        }
        let answer = match service {
            Service::Fetch => return self.memories.tell_all().map_err(|error| say(error.into())),
            Service::Load => self.peers.load_brought(bytes, from).map(|_| Vec::new()).map_err(say),
            Service::Pairs => self.answering.accept(&self.nics, link, from, bytes),
            Service::Tcp => self.serving.invite(&self.tcp, (link, &from.name), bytes),
            Service::TcpKey => {
                let id = bytes
                    .try_into()
                    .map_err(|_| format!("{} bytes name no memory", bytes.len()))?;
                let memory = self.memories.memory(u32::from_le_bytes(id)).map_err(say)?;
                memory.tcp_key(|region| self.serving.register(region))
            }
            Service::Prove => proof::answer(&self.memories, link, from, bytes),
            Service::EndPairs => self.answering.end(from, bytes),
            Service::Stream => {
                let tell = |ring: &Registration| {
                    let its = ring.memory().info().into_iter().collect();
                    Ok(self.memories.tell(Content::Partial, its)?)
                };
                self.streams.open(tell, link, from, bytes)
            }
        };
        answer.map(Into::into)
    }

    fn live(&self) -> Vec<u32> {
        self.memories.registered()
    }

    fn secret_of(&self, peer: &Owner) -> Option<Secret> {
        self.peers.peer_of(peer).ok().map(|peer| peer.contact.secret.clone())
    }

    fn lost(&self, link: &Link) {
        self.serving.forget(link);
        self.answering.forget(link);
    }

    fn closed(&self, link: &Link) {
        self.answering.forget(link);
    }

    fn take_memories(&self) -> Vec<Arc<dyn Revoked>> {
        self.memories.end_all()
    }

    fn end_peers(&self, why: &AgentError) -> Vec<Arc<dyn Remote>> {
        self.peers.end_all(why)
    }
}

#[cfg(test)]
mod drops;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod tests;
