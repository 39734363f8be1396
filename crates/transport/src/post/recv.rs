//! Receive work requests, and what arrives.

use super::host::{Path, Patience};
use super::poster::Poster;
use super::protocol::Ring;
use super::send::sge;
use super::work::{Posted, Received};
use crate::QueueKind;
use crate::{Error, LocalRegion, UsageError, WaitError};
use warpverbs_mlx5::recv::build;
use warpverbs_mlx5::wqe::Sge;

/// Entries of the longest receive.
pub(crate) const MAX_RECV_SGES: usize = 64;

/// The non-empty parts of `local` as the NIC takes them, and how many they are.
pub(crate) fn recv_sges(
    local: &[LocalRegion],
    max: usize,
) -> Result<([Sge; MAX_RECV_SGES], usize), UsageError> {
    let nothing = Sge { addr: 0, len: 0, lkey: warpverbs_mlx5::num::Lkey(0) };
    let (mut sges, mut count) = ([nothing; MAX_RECV_SGES], 0);
    for part in local.iter().filter(|part| !part.is_empty()) {
        if count == max {
            return Err(UsageError::TooManySges { count: local.len(), max });
        }
        sges[count] = sge(part)?;
        count += 1;
    }
    Ok((sges, count))
}

/// A receive that has completed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    /// Low 16 bits of its index; with an SRQ, the queue's number for it.
    pub(crate) number: u16,
    /// What came, unless it failed.
    pub(crate) received: Option<Received>,
}

impl Poster<'_> {
    /// Gives the NIC memory for one message, filled in order. With no memory at all it takes a
    /// message of no bytes, or the immediate of a WRITE.
    #[doc(alias = "PostRecv")]
    pub fn post_recv(&self, local: impl AsRef<[LocalRegion]>) -> Result<Posted, Error> {
        let q = self.q;
        let no_queue = |why| UsageError::NoReceiveQueue { qpn: q.qpn.get(), why };
        let stride = match (q.log_recv_stride, self.srq) {
            (Some(log), _) => 1usize << log,
            (None, Some(_)) => return Err(no_queue("post to its SharedReceiveQueue").into()),
            (None, None) => return Err(no_queue("it was made with recv_depth 0").into()),
        };
        let (sges, count) = recv_sges(local.as_ref(), stride / 16)?;
        let sges = &sges[..count];
        q.check()?;
        match q.path() {
            Path::Rings(rings) => {
                let mut slot = [0; 16 * MAX_RECV_SGES];
                let slot = &mut slot[..stride];
                build(slot, sges).map_err(UsageError::from)?;
                self.when_room(QueueKind::Receive, || rings.try_post_recv(&q.recv, slot))
            }
            Path::Direct(direct) => {
                self.when_room(QueueKind::Receive, || direct.try_post_recv(q, sges))
            }
        }
    }

    /// Takes one arrived message, if there is one. Never waits. What had arrived before an error
    /// is still delivered.
    pub fn poll_recv(&self) -> Result<Option<Received>, Error> {
        let taken = self.q.take_recv();
        if let (Some(taken), Some(srq)) = (&taken, self.srq) {
            srq.give_back(taken.number);
        }
        match taken {
            Some(Taken { received: Some(received), .. }) => Ok(Some(received)),
            _ => self.q.check().and_then(|()| self.q.check_running()).map(|()| None),
        }
    }

    /// Waits for a message.
    pub fn wait_recv(&self) -> Result<Received, Error> {
        let mut patience = Patience::new(self.timeout);
        loop {
            if let Some(received) = self.poll_recv()? {
                return Ok(received);
            }
            self.q.check_abort()?;
            if !patience.pause() {
                let actual = self.q.recv.completed();
                return Err(WaitError::Timeout {
                    qpn: self.q.qpn.get(),
                    queue: QueueKind::Receive,
                    expected: actual + 1,
                    actual,
                    after: self.timeout,
                }
                .into());
            }
        }
    }
}
