//! Receive work requests, and what arrives.

use super::backoff::Backoff;
use super::host::Path;
use super::poster::Poster;
use super::protocol::Ring;
use super::work::{Posted, Received, Taken};
use crate::QueueKind;
use crate::limits::MAX_RECV_SGES;
use crate::sges::recv_sges;
use crate::{LocalRegion, TransportError, UsageError, WaitError};

impl Poster<'_> {
    /// Gives the NIC memory for one message, filled in order. With no memory at all it takes a
    /// message of no bytes, or the immediate of a WRITE.
    #[doc(alias = "PostRecv")]
    pub fn post_recv(&self, local: impl AsRef<[LocalRegion]>) -> Result<Posted, TransportError> {
        let q = self.q;
        let no_queue = |why| UsageError::NoReceiveQueue { qpn: q.words.qpn.get(), why };
        let stride = match (q.recv_bytes, self.srq) {
            (Some(bytes), _) => usize::from(bytes),
            (None, Some(_)) => return Err(no_queue("post to its SharedReceiveQueue").into()),
            (None, None) => return Err(no_queue("it was made with recv_depth 0").into()),
        };
        let most = match q.path() {
            Path::Rings(rings) => rings.most_recv_sges(),
            Path::Direct(_) => stride / 16,
        };
        let (sges, count) = recv_sges(local.as_ref(), most)?;
        let sges = &sges[..count];
        q.check()?;
        match q.path() {
            Path::Rings(rings) => {
                let mut slot = [0; 32 * MAX_RECV_SGES];
                let slot = &mut slot[..stride];
                rings.encode_recv(slot, sges)?;
                self.when_room(QueueKind::Receive, || rings.try_post_recv(&q.words.recv, slot))
            }
            Path::Direct(direct) => {
                self.when_room(QueueKind::Receive, || direct.try_post_recv(&q.words, sges))
            }
        }
    }

    /// Takes one arrived message, if there is one. Never waits. Messages that had arrived before an
    /// error are still delivered.
    pub fn poll_recv(&self) -> Result<Option<Received>, TransportError> {
        let taken = self.q.take_recv();
        if let (Some(taken), Some(srq)) = (&taken, self.srq) {
            srq.give_back(taken.number);
        }
        match taken {
            Some(Taken { received: Some(received), .. }) => Ok(Some(received)),
            _ => self.q.check_recv().and_then(|()| self.q.words.check_running()).map(|()| None),
        }
    }

    /// Waits for a message.
    pub fn wait_recv(&self) -> Result<Received, TransportError> {
        let mut backoff = Backoff::new(self.timeout);
        loop {
            if let Some(received) = self.poll_recv()? {
                return Ok(received);
            }
            self.q.words.check_abort()?;
            if !backoff.pause() {
                let actual = self.q.words.recv.completed();
                return Err(WaitError::Timeout {
                    qpn: self.q.words.qpn.get(),
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
