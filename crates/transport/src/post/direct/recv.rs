//! Receives.

use super::{Direct, GONE, Id, lock, retire, try_lock};
use crate::post::protocol::Ring;
use crate::post::words::Words;
use crate::post::work::{Posted, Received, Taken};
use crate::provider::{NotPosted, RecvPort};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use warpverbs_mlx5::export::{ErrorWord, Outcome};
use warpverbs_mlx5::syndrome::Syndrome;
use warpverbs_nic::{Gone, Rule, receive_status};
use warpverbs_rdma::Sge;

/// The posters' side of a receive queue.
#[derive(Debug)]
pub(super) struct Receiving {
    /// `None` with an SRQ, or without receives.
    port: Option<Box<dyn RecvPort>>,
}

impl Receiving {
    pub(super) fn new(port: Option<Box<dyn RecvPort>>) -> Self {
        Self { port }
    }

    /// Posts a receive of identity `id`. The rule it breaks, if any; `None` if the NIC has no room.
    fn post(&mut self, id: Id, sges: &[Sge]) -> Option<Result<(), Rule>> {
        match self.port.as_mut()?.post_recv(id.pack(), sges) {
            Ok(()) => Some(Ok(())),
            Err(NotPosted::Full) => None,
            Err(NotPosted::Refused(rule)) => Some(Err(*rule)),
        }
    }
}

impl Direct {
    /// Posts a receive. `None` if there is no room, here or at the NIC.
    pub(in crate::post) fn try_post_recv(&self, q: &Words, sges: &[Sge]) -> Option<Posted> {
        let mut receiving = lock(&self.recv);
        let index = q.recv.reserved().load(Relaxed);
        let end = index + 1;
        let window = q.recv.depth().min(self.recv_depth);
        if end > q.recv.completed() + window {
            return None;
        }
        let id = Id { generation: self.generation.load(Relaxed), indexes: 1, end };
        let failure = match self.failed.load(Acquire) {
            true => Some(Syndrome::WrFlush),
            false => {
                let posted = receiving.post(id, sges)?;
                posted.err().map(|rule| {
                    tracing::warn!(%rule, qpn = q.qpn.get(), index, "receive refused");
                    Syndrome::of_failure(receive_status(&rule))
                })
            }
        };
        q.recv.reserved().store(end, Release);
        q.recv.published().store(end, Release);
        drop(receiving);
        if let Some(syndrome) = failure {
            self.fail_recv(q, index, syndrome, syndrome.usual_vendor());
        }
        Some(Posted { index, end, signaled: true })
    }

    /// Takes one completion of a receive, good or bad; `None` if there is none, or somebody else is
    /// polling.
    pub(in crate::post) fn take_recv(&self, q: &Words) -> Option<Taken> {
        let mut arrived = try_lock(&self.arrived)?;
        loop {
            let completion = match arrived.next() {
                Ok(Some(found)) => found,
                Ok(None) => {
                    if self.failed.load(Acquire) {
                        // libbnxt_re flushes receives once it has seen in the CQ of sends that the QP has failed.
                        self.drain_send(q);
                    }
                    return None;
                }
                Err(Gone) => {
                    // Nothing that is at the NIC will come back.
                    let index = q.recv.completed();
                    self.has_failed();
                    if index < q.recv.published().load(Acquire) {
                        self.fail_recv(q, index, GONE, GONE.usual_vendor());
                    }
                    return None;
                }
            };
            let id = Id::unpack(completion.id);
            if id.generation != self.generation.load(Relaxed) {
                continue;
            }
            let (index, number) = (id.index(), id.index() as u16);
            let Some(syndrome) = Syndrome::of(completion.status) else {
                retire(&q.recv, id.end);
                let (byte_len, kind) = (completion.byte_len, completion.kind);
                let received = Received { byte_len, kind, solicited: false, index };
                return Some(Taken { number, received: Some(received) });
            };
            self.fail_recv(q, index, syndrome, completion.vendor as u8);
            return Some(Taken { number, received: None });
        }
    }

    /// The receive at `index` has failed.
    #[cold]
    fn fail_recv(&self, q: &Words, index: u64, syndrome: Syndrome, vendor: u8) {
        if syndrome == Syndrome::WrFlush {
            // If a send is the cause, it is known by now.
            self.drain_send(q);
        }
        q.claim_error(ErrorWord::failed(
            Outcome::Responder,
            syndrome.value(),
            vendor,
            0,
            index as u16,
        ));
        self.end(q);
    }
}
