//! Changes of state of a QP whose peer is on the network, applied to its connection.

use super::{Connections, CurrentReceive, End, Network, Requests};
use crate::link::Link;
use crate::qp::{Path, QpAttrs};
use crate::slots::{QpSlot, Slot};
use crate::{ModifyError, Mtu};
use std::net::SocketAddr;
use std::time::Duration;
use warpverbs_rc::{AckTimeout, Config, Connection, State};
use warpverbs_rdma::QpState;
use warpverbs_wire::{Psn, Qpn, RnrTimer};

/// Work requests that a connection holds at most; later ones wait in the ring.
const DEPTH: u64 = 1024;
/// Packets under way of one connection, at most.
const WINDOW: u32 = 2048;
/// Packets of response to one request for a READ.
const READ_CHUNK: u32 = 16;
/// Packets of a WRITE that goes as messages of one packet each, over a link that takes trains of
/// one length. The packet with the RETH is longer than those behind it, and would end a train at
/// once; for longer WRITEs one train more does not count.
const WRITE_SPLIT: u32 = 32;
const ACK_INTERVAL: u32 = 32;
/// Before this time no packet is taken for lost, however short round trips are: either end may be
/// a thread that sleeps.
const EARLY_RESEND: Duration = Duration::from_millis(2);

impl Network {
    /// The path can be gone. Changes nothing.
    pub(crate) fn check_path(&self, attrs: &QpAttrs) -> Result<(), ModifyError> {
        let Some(Path::Network(peer)) = attrs.path else { return Ok(()) };
        let link = self.link.as_ref().ok_or(ModifyError::NoLink { peer })?;
        let local = link.local();
        if peer.is_ipv4() != local.is_ipv4() || peer.ip().is_unspecified() || peer.port() == 0 {
            return Err(ModifyError::Unreachable { peer, local });
        }
        let (mtu, max) = (attrs.mtu.unwrap_or(Mtu::B4096), link.max_mtu());
        if mtu > max {
            return Err(ModifyError::MtuTooLarge { mtu, max });
        }
        Ok(())
    }
}

impl Connections {
    /// Attributes in the connection's terms. Ranges were checked.
    fn config(&self, attrs: &QpAttrs, depth: u64) -> Config {
        let mtu = attrs.mtu.unwrap_or(Mtu::B4096);
        let psn = |psn: Option<u32>| Psn::from_low_bits(psn.unwrap_or(0));
        Config {
            mtu,
            sq_psn: psn(attrs.sq_psn),
            rq_psn: psn(attrs.rq_psn),
            timeout: AckTimeout::from_code(attrs.timeout.unwrap_or(0)).unwrap_or(AckTimeout::NEVER),
            retry: attrs.retry.unwrap_or(0),
            rnr_retry: attrs.rnr_retry.unwrap_or(0),
            min_rnr_timer: RnrTimer::from_code(attrs.min_rnr_timer.unwrap_or(0)),
            max_rd_atomic: attrs.max_rd_atomic.unwrap_or(0),
            max_dest_rd_atomic: attrs.max_dest_rd_atomic.unwrap_or(0),
            send_depth: depth.min(DEPTH) as u32,
            window: WINDOW,
            window_bytes: self.room as u64,
            read_chunk: READ_CHUNK,
            write_split: if self.trains { WRITE_SPLIT } else { 0 },
            ack_interval: ACK_INTERVAL,
            early_resend: Some(EARLY_RESEND),
            ..Config::new(Qpn::from_low_bits(attrs.dest_qpn.unwrap_or(0)))
        }
    }

    /// The connection of a QP goes along from `from` to `to`. What is left of it in the end.
    pub(crate) fn follow(
        &mut self,
        (slot, qpn, depth): (QpSlot, u32, u64),
        (from, to): (QpState, QpState),
        attrs: &QpAttrs,
    ) -> Option<Box<End>> {
        let config = self.config(attrs, depth);
        match (from, to) {
            (QpState::Init, QpState::Rtr) => {
                if let (Some(Path::Network(peer)), Ok(conn)) =
                    (attrs.path, Connection::new(&config))
                {
                    self.insert((slot, qpn), peer, conn);
                }
            }
            (QpState::Rtr, QpState::Rts) => self.change(slot, |conn| {
                // The state was RTR, and every attribute is in range.
                let _ = conn.start_with(&config);
            }),
            (_, QpState::Sqd) => self.change(slot, |conn| {
                let _ = conn.drain();
            }),
            (QpState::Sqd, QpState::Rts) => self.change(slot, |conn| {
                let _ = conn.resume();
            }),
            (_, QpState::Reset) => return self.remove(slot),
            _ => {}
        }
        if matches!(to, QpState::Rts | QpState::Sqd) {
            self.change(slot, |conn| {
                // Every attribute is in range.
                let _ = conn.modify(&config);
            });
        }
        None
    }

    fn change(&mut self, slot: QpSlot, change: impl FnOnce(&mut Connection)) {
        if let Some(end) = self.end_mut(slot) {
            change(&mut end.conn);
            self.enqueue(slot);
        }
    }

    fn insert(&mut self, (slot, qpn): (QpSlot, u32), peer: SocketAddr, conn: Connection) {
        // RESET has removed what was there.
        self.remove(slot);
        let at = slot.at();
        if self.ends.len() <= at {
            self.ends.resize_with(at + 1, || None);
        }
        let (receive_in_use, refusal, bounce, armed) =
            (CurrentReceive::default(), None, None, None);
        let (queued, sending, awaiting_receives, failed) = (false, false, false, false);
        let requests = Requests::default();
        let end = End {
            conn,
            qpn,
            requests,
            peer,
            receive_in_use,
            refusal,
            bounce,
            armed,
            queued,
            sending,
            awaiting_receives,
            unplaced: None,
            failed,
        };
        self.ends[at] = Some(Box::new(end));
        self.live += 1;
    }

    /// The connection goes. It may have copies under way, so it is dropped without a lock held.
    pub(crate) fn remove(&mut self, slot: QpSlot) -> Option<Box<End>> {
        let mut end = self.ends.get_mut(slot.at()).and_then(Option::take)?;
        self.live -= 1;
        self.sending -= usize::from(end.sending);
        self.awaiting_receives.retain(|awaiting_receives| *awaiting_receives != slot);
        self.queue.retain(|queued| *queued != slot);
        self.bouncing.retain(|bouncing| *bouncing != slot);
        if let Some(bounce) = &mut end.bounce {
            bounce.release_all(&mut self.pool);
        }
        Some(end)
    }

    /// Nothing that was begun is outstanding in SQD.
    pub(crate) fn is_drained(&self, slot: QpSlot) -> bool {
        let drained = |end: &End| end.conn.state() == State::Drained && end.has_reported();
        self.end(slot).is_some_and(drained)
    }

    /// The counters of a connection.
    pub(crate) fn conn_stats(&self, slot: QpSlot) -> Option<&warpverbs_rc::Stats> {
        self.end(slot).map(|end| end.conn.stats())
    }

    /// PSN of the next new packet of a connection, and of the next one expected.
    pub(crate) fn psns(&self, slot: QpSlot) -> Option<(u32, u32)> {
        let (next, expected) = self.end(slot)?.conn.psns();
        Some((next.get(), expected.get()))
    }

    /// The QP in `slot` is in ERR: so is its connection. What it held is flushed.
    pub(crate) fn fail(&mut self, slot: QpSlot) {
        if let Some(end) = self.end_mut(slot) {
            end.failed = true;
            end.conn.fail();
            self.enqueue(slot);
            self.settle(slot);
        }
    }
}
