//! Changes of state of a QP whose peer is on the network, applied to its connection.

use super::end::End;
use super::{Connections, Network};
use crate::qp::{Path, QpAttrs};
use crate::slots::QpSlot;
use crate::{ModifyError, Mtu};
use std::time::Duration;
use warpverbs_link::Link;
use warpverbs_rc::{AckTimeout, Config, Connection};
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
            window_bytes: self.ends.room as u64,
            read_chunk: READ_CHUNK,
            write_split: if self.ends.trains { WRITE_SPLIT } else { 0 },
            ack_interval: ACK_INTERVAL,
            early_resend: Some(EARLY_RESEND),
            ..Config::new(Qpn::from_low_bits(attrs.dest_qpn.unwrap_or(0)))
        }
    }

    /// The connection of a QP goes along from `from` to `to`. At RESET it is removed and returned.
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
                    // RESET has removed what was there.
                    self.remove(slot);
                    self.ends.insert(slot, End::new(qpn, peer, conn));
                }
            }
            (QpState::Rtr, QpState::Rts) => self.ends.change(slot, |conn| {
                // The state was RTR, and every attribute is in range.
                let _ = conn.start_with(&config);
            }),
            (_, QpState::Sqd) => self.ends.change(slot, |conn| {
                let _ = conn.drain();
            }),
            (QpState::Sqd, QpState::Rts) => self.ends.change(slot, |conn| {
                let _ = conn.resume();
            }),
            (_, QpState::Reset) => return self.remove(slot),
            _ => {}
        }
        if matches!(to, QpState::Rts | QpState::Sqd) {
            self.ends.change(slot, |conn| {
                // Every attribute is in range.
                let _ = conn.modify(&config);
            });
        }
        None
    }

    /// The connection goes. It may have copies under way, so it is dropped without a lock held.
    pub(crate) fn remove(&mut self, slot: QpSlot) -> Option<Box<End>> {
        let end = self.ends.remove(slot)?;
        self.bouncing.retain(|bouncing| *bouncing != slot);
        Some(end)
    }

    /// The QP in `slot` is in ERR: so is its connection. Its work is flushed.
    pub(crate) fn fail(&mut self, slot: QpSlot) {
        if let Some(end) = self.ends.get_mut(slot) {
            end.failed = true;
            end.conn.fail();
            self.ends.enqueue(slot);
            self.settle(slot);
        }
    }
}
