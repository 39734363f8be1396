//! Receives.

use super::{Direct, GONE, Id, lock, retire, try_lock};
use crate::post::host::HostQueues;
use crate::post::protocol::Ring;
use crate::post::recv::Taken;
use crate::post::rings::error_opcode;
use crate::post::work::{Posted, Received};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use warpverbs_mlx5::cqe::ErrorSide;
use warpverbs_mlx5::export::ErrorWord;
use warpverbs_mlx5::syndrome::Syndrome;
use warpverbs_mlx5::wqe::Sge;
use warpverbs_nic::{
    Gone, ProxyKeys, ProxyReceiver, RecvList, Rule, receive_syndrome, translate_receive,
};

/// The posters' side of a receive queue.
#[derive(Debug)]
pub(super) struct Receiving {
    /// `None` with an SRQ, or without receives.
    port: Option<Box<dyn ProxyReceiver>>,
    keys: ProxyKeys,
    list: RecvList,
}

impl Receiving {
    pub(super) fn new(port: Option<Box<dyn ProxyReceiver>>, keys: ProxyKeys) -> Self {
        Self { port, keys, list: RecvList::default() }
    }

    /// Posts a receive of identity `id`. What is wrong with it, if anything; `None` if the NIC has
    /// no room.
    fn post(&mut self, id: Id, sges: &[Sge], most: u32) -> Option<Result<(), Rule>> {
        let pieces = match translate_receive(sges.iter().copied(), most, &mut self.keys) {
            Ok(pieces) => pieces,
            Err(rule) => return Some(Err(*rule)),
        };
        self.list.clear();
        self.list.push(id.pack(), &pieces);
        let posted = self.port.as_mut()?.post_recv(&self.list);
        match posted.count {
            0 => Some(Err(Rule::DeviceRefused { errno: posted.refused? })),
            _ => Some(Ok(())),
        }
    }
}

impl Direct {
    /// Posts a receive. `None` if there is no room, here or at the NIC.
    pub(in crate::post) fn try_post_recv(&self, q: &HostQueues, sges: &[Sge]) -> Option<Posted> {
        let mut receiving = lock(&self.recv);
        let index = q.recv.reserved().load(Relaxed);
        let end = index + 1;
        let window = q.recv.depth().min(self.limits.recv_depth.into());
        if end > q.recv.completed() + window {
            return None;
        }
        let id = Id { life: self.life.load(Relaxed), indexes: 1, end };
        let failure = match self.failed.load(Acquire) {
            true => Some(Syndrome::WrFlush),
            false => {
                let posted = receiving.post(id, sges, self.limits.recv_sges)?;
                posted.err().map(|rule| {
                    tracing::warn!(%rule, qpn = q.qpn.get(), index, "receive refused");
                    receive_syndrome(&rule)
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
    /// at it.
    pub(in crate::post) fn take_recv(&self, q: &HostQueues) -> Option<Taken> {
        let mut arrived = try_lock(&self.arrived)?;
        loop {
            let completion = match arrived.next() {
                Ok(found) => found?,
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
            if id.life != self.life.load(Relaxed) {
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
    fn fail_recv(&self, q: &HostQueues, index: u64, syndrome: Syndrome, vendor: u8) {
        if syndrome == Syndrome::WrFlush {
            // If a send is the cause, it is known by now.
            self.drain_send(q);
        }
        let side = error_opcode(ErrorSide::Responder);
        q.claim_error(ErrorWord::new(side, syndrome.value(), vendor, 0, index as u16));
        self.end(q);
    }
}
