//! A transfer over TCP.

use super::sockets::{Connected, Sockets, key};
use crate::AgentError;
use crate::control::{Asked, Service};
use crate::deadline::Deadline;
use crate::names::Op;
use crate::path::wired::{Fault, Window, Wire, Wired};
use crate::path::{Cursor, Found, Job, Limit, Path, Started};
use crate::remote::{Lease, PeerMemory};
use std::collections::VecDeque;
use std::sync::Arc;
use warpverbs_devmem::causes;
use warpverbs_mem::Region;
use warpverbs_tcp::protocol::{PostError, Refusal};
use warpverbs_tcp::{RemoteKey, Request, TcpError};

/// Bytes of one read or write at most: a piece may be longer.
const SLICE: u64 = 8 << 20;

struct ByTcp(Arc<Sockets>);

impl Path for ByTcp {
    fn is_ready(&self, job: &Job) -> bool {
        self.0.made.get().is_some() && job.remote.tcp_key.get().is_some()
    }

    fn start(
        &self,
        peer: &Arc<dyn Asked>,
        job: &Arc<Job>,
        limit: &Limit<'_>,
    ) -> Result<Started, AgentError> {
        let lease = job.remote.lease(&**peer)?;
        let made = self.0.get(peer, &limit.deadline)?;
        let remote = key(peer, &job.remote, &limit.deadline)?;
        // Making it took time: an agent that ends has the peer confirm nothing that begins later.
        limit.control.check()?;
        let local = job.local.hold()?.region().clone();
        Started::by(Wired::new(Work {
            peer: peer.clone(),
            job: job.clone(),
            local,
            sockets: self.0.clone(),
            made,
            remote,
            under_way: VecDeque::new(),
            window: Window::default(),
            cursor: Cursor::default(),
            _lease: lease,
        }))
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

/// A transfer under way: reads or writes of at most [`SLICE`] bytes.
struct Work {
    peer: Arc<dyn Asked>,
    job: Arc<Job>,
    local: Region,
    sockets: Arc<Sockets>,
    made: Arc<Connected>,
    remote: RemoteKey,
    /// Slices that are posted, with their lengths.
    under_way: VecDeque<(Request, u64)>,
    window: Window,
    /// How far pieces have been posted.
    cursor: Cursor,
    _lease: Lease,
}

impl Work {
    /// Posts as many slices as the connection takes. Whether there are no more.
    fn post(&mut self) -> Result<bool, TcpError> {
        let pieces = &self.job.pieces;
        if !self.window.is_open() || self.cursor.next(pieces, SLICE).is_none() {
            return Ok(self.cursor.next(pieces, SLICE).is_none());
        }
        let mut posting = self.made.connection.posting();
        while let Some(next) = self.cursor.next(pieces, SLICE) {
            if !self.window.is_open() {
                return Ok(false);
            }
            let local = self.local.slice(next.local, next.len as usize)?;
            let remote = self.remote.at(next.remote);
            let posted = match self.job.op {
                Op::Read => posting.read(local, remote),
                Op::Write => posting.write(local, remote),
            };
            match posted {
                Ok(operation) => self.under_way.push_back((operation, next.len)),
                // Other transfers may have taken all.
                Err(TcpError::Post(PostError::TooMany { .. })) => return Ok(false),
                Err(error) => return Err(error),
            }
            self.window.begun(next.len);
            self.cursor.pass(pieces, next.len);
        }
        Ok(true)
    }

    fn fault(&self, error: &TcpError) -> Fault {
        let ends_all = error.ends_link();
        let error = match error {
            TcpError::Refused(Refusal::UnknownKey) => self.job.remote.extent.deregistered(),
            error => self.job.failed(&causes(error)),
        };
        Fault { error, ends_all }
    }
}

impl Wire for Work {
    fn advance(&mut self, stopping: bool) -> Result<bool, Fault> {
        while let Some(&(first, len)) = self.under_way.front() {
            let ended = self.made.connection.test(first);
            if matches!(ended, Ok(None)) {
                break;
            }
            self.under_way.pop_front();
            self.window.ended(len);
            let _ = ended.map_err(|error| self.fault(&error))?;
            self.job.advance(len);
        }
        let posted = stopping || self.post().map_err(|error| self.fault(&error))?;
        Ok(self.under_way.is_empty() && posted)
    }

    /// Ends the connection, and with it the other transfers on it.
    fn break_off(&mut self) {
        self.sockets.made.discard(|made| Arc::ptr_eq(made, &self.made));
        self.made.connection.abort();
        self.made.end.ask(Service::Tcp, self.made.connection.secret());
    }

    fn ended(&self) -> Option<Result<(), AgentError>> {
        self.made.end.result(&*self.peer, "a TCP connection")
    }
}
