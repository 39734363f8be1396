//! From a ticket to memory.

use crate::descriptor::{self, Address, Trust, Way};
use crate::{DescriptorServer, Identity, Reason, Ticket};
use serde::{Deserialize, Serialize};
use std::time::Instant;
use warpverbs_gpu::{Arena, Segment};

/// Facts of a process that a peer needs before it attaches its memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Introduction {
    /// The process.
    pub identity: Identity,
    /// Address of the server of its descriptors.
    pub server: Address,
}

impl Introduction {
    /// Of this process.
    pub fn new(identity: Identity, server: &DescriptorServer) -> Self {
        Self { identity, server: server.address().clone() }
    }

    /// Without the secrets of the server, for peers that are granted secrets of their own.
    #[must_use]
    pub fn without_secrets(self) -> Self {
        Self { server: self.server.without_secrets(), ..self }
    }
}

/// Memory of a peer, mapped here.
#[derive(Debug)]
pub struct Attached {
    /// The memory.
    pub segment: Segment,
    /// How its descriptor came.
    pub by: Way,
    /// The ways that failed, with reasons.
    pub tried: Vec<Reason>,
}

/// Maps the memory behind `ticket`, of `peer`, at `offset` of `arena`. `own` is this process. The peer is
/// trusted to speak only of itself ([`Trust::Launch`]).
///
/// # Errors
/// Every reason why it cannot be reached by loads and stores.
pub fn attach(
    arena: &Arena,
    offset: u64,
    own: &Identity,
    peer: &Introduction,
    ticket: &Ticket,
    deadline: Instant,
) -> Result<Attached, Vec<Reason>> {
    own.may_share(&peer.identity).map_err(|reason| vec![reason])?;
    let fetched = descriptor::fetch(own, peer, Trust::Launch, ticket, deadline)?;
    let (by, mut tried) = (fetched.by, fetched.tried);
    match arena.attach(offset, ticket.len, fetched.fd) {
        Ok(segment) => Ok(Attached { segment, by, tried }),
        Err(error) => {
            tried.push(Reason::new(format!("attaching what came by {by}"), error));
            Err(tried)
        }
    }
}
