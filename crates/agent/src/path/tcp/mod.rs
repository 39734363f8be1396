//! TCP sockets of `warpverbs-devmem`: for peers of other hosts that no NIC reaches.
//!
//! ```text
//! initiator                                   target
//!   Call Tcp       ── control connection ──▶  ends the connections of this control connection, if
//!                                             there are any; listens, from the first such call on
//!                  ◀───── port, secret        a secret for one connection
//!   sockets, secret ────────────────────────▶ accepts; a thread serves the connection
//!   Call TcpKey    ── control connection ──▶  the memory's key
//!   write, read     ────────────────────────▶ checks key and bounds, places bytes
//!   Call Tcp, secret ─ control connection ─▶  ends that connection
//!                  ◀───── nothing is placed or read any more
//! ```
//!
//! The initiator moves bytes while its transfers are looked at, so it needs no thread.
//!
//! A target that was lost ends what is left of a connection before it answers the first question of
//! another control connection of this agent (`Serving::fence`), so nothing that comes later is
//! overwritten.

mod server;
mod sockets;
mod work;

pub(crate) use server::Serving;
pub(crate) use sockets::{Sockets, Tcp};

use super::wired::Wired;
use super::{Found, Job, Limit, Path, Started};
use crate::AgentError;
use crate::control::Asked;
use crate::deadline::Deadline;
use crate::remote::PeerMemory;
use sockets::key;
use std::sync::Arc;
use work::Work;

struct ByTcp(Arc<Sockets>);

impl Path for ByTcp {
    fn start(
        &self,
        peer: &Arc<dyn Asked>,
        job: &Arc<Job>,
        limit: &Limit<'_>,
    ) -> Result<Started, AgentError> {
        let lease = job.remote.lease(&**peer)?;
        let made = self.0.get(peer, &limit.deadline)?;
        let remote = key(peer, &job.remote, &limit.deadline)?;
        let shared = (self.0.clone(), made);
        Started::by(Wired::new(Work::new((peer.clone(), lease), job.clone(), shared, remote)))
    }
}

/// To memory of any peer that lets itself be reached so.
pub(crate) fn tcp(
    sockets: &Arc<Sockets>,
    remote: &PeerMemory,
    (peer, deadline): (&Arc<dyn Asked>, &Deadline),
) -> Found {
    let no = |why: AgentError| vec![why.to_string()];
    let made = sockets.get(peer, deadline).map_err(no)?;
    key(peer, remote, deadline).map_err(no)?;
    Ok((Box::new(ByTcp(sockets.clone())), made.connection.explain()))
}
