//! This end of a connection, and its requests that are not yet complete.

use super::bounce::Bounce;
use crate::engine::outcome::Refusal;
use crate::engine::report::Report;
use crate::format::Sge;
use crate::violation::{QueueKind, Rule, Violation};
use arrayvec::ArrayVec;
use std::collections::VecDeque;
use std::net::SocketAddr;
use warpverbs_mem::{BouncePool, Region};
use warpverbs_rc::{Connection, WrId};

/// Where the payload of a request lies. Keys are looked up again for every packet, so memory may go
/// away at any time.
#[derive(Debug)]
pub(super) enum Outgoing {
    Bytes(Box<[u8]>),
    One(Sge),
    Many(Box<[Sge]>),
    /// Operands of an extended atomic; its result goes to the entry.
    Operands(Box<[u8]>, Sge),
}

impl Outgoing {
    /// Memory whose bytes are sent.
    pub(super) fn sent(&self) -> &[Sge] {
        match self {
            Self::Operands(..) => &[],
            _ => self.sges(),
        }
    }

    /// Memory whose bytes are sent, or that a response goes to.
    pub(super) fn sges(&self) -> &[Sge] {
        match self {
            Self::Bytes(_) => &[],
            Self::One(sge) | Self::Operands(_, sge) => std::slice::from_ref(sge),
            Self::Many(sges) => sges,
        }
    }
}

/// A request of the connection that is not yet complete.
#[derive(Debug)]
pub(super) struct Posted {
    /// Index of its WQE.
    pub(super) index: u64,
    pub(super) outgoing: Outgoing,
    /// Its result goes into its CQE.
    pub(super) inline: bool,
}

/// The requests of a connection in the order in which they were posted. The identity of each is its
/// number, counted from the first of the connection.
#[derive(Debug, Default)]
pub(super) struct Requests {
    pub(super) list: VecDeque<Posted>,
    /// Number of the front.
    pub(super) first: u64,
}

impl Requests {
    /// The identity of the next request.
    pub(super) fn next(&self) -> WrId {
        WrId(self.first + self.list.len() as u64)
    }

    pub(super) fn push(&mut self, posted: Posted) {
        self.list.push_back(posted);
    }

    #[inline]
    pub(super) fn get(&self, id: WrId) -> Option<&Posted> {
        self.list.get(id.0.wrapping_sub(self.first) as usize)
    }

    /// Takes out the oldest `count` requests, which are complete. The index of the last one's WQE.
    #[inline]
    pub(super) fn pop(&mut self, count: usize) -> Option<u64> {
        self.first += count as u64;
        let index = self.list.get(count.checked_sub(1)?)?.index;
        self.list.drain(..count);
        Some(index)
    }
}

/// The receive that a message of the peer goes into, or the one that was checked last.
#[derive(Debug, Default)]
pub(crate) struct CurrentReceive {
    pub(super) index: u64,
    pub(super) link: u16,
    pub(super) sges: ArrayVec<Sge, 64>,
}

/// This end of a connection.
#[derive(Debug)]
pub(crate) struct End {
    pub(super) conn: Connection,
    /// Number of the QP.
    pub(super) qpn: u32,
    pub(super) requests: Requests,
    pub(super) peer: SocketAddr,
    pub(super) receive_in_use: CurrentReceive,
    /// Why a request of the peer ended the connection.
    pub(super) refusal: Option<Refusal>,
    /// Once payload has lain in memory that only a copy engine reaches.
    pub(super) bounce: Option<Box<Bounce>>,
    /// The earliest timer that is set for it.
    pub(super) armed: Option<u64>,
    /// In the list of those to be served.
    pub(super) queued: bool,
    /// Counted among those that are sending.
    pub(super) sending: bool,
    /// In the list of those whose peers wait for receives.
    pub(super) awaiting_receives: bool,
    /// The response to this READ or atomic of ours did not get into its memory.
    pub(super) unplaced: Option<WrId>,
    /// The QP is in ERR, or will be as soon as the engine acts on the report.
    pub(super) failed: bool,
}

impl End {
    /// Of QP `qpn`, whose peer has this address.
    pub(super) fn new(qpn: u32, peer: SocketAddr, conn: Connection) -> Self {
        Self {
            conn,
            qpn,
            requests: Requests::default(),
            peer,
            receive_in_use: CurrentReceive::default(),
            refusal: None,
            bounce: None,
            armed: None,
            queued: false,
            sending: false,
            awaiting_receives: false,
            unplaced: None,
            failed: false,
        }
    }

    /// The next completion to report.
    pub(super) fn poll_completion(&mut self) -> Option<warpverbs_rc::Completion> {
        match &mut self.bounce {
            None => self.conn.poll_completion(),
            Some(bounce) => bounce.poll_completion(&mut self.conn),
        }
    }

    /// No completion is kept back.
    pub(super) fn has_reported(&self) -> bool {
        self.bounce.as_ref().is_none_or(|bounce| bounce.has_reported())
    }

    /// From now on payload may lie in memory such as `region`.
    pub(super) fn bounce_for(&mut self, pool: &BouncePool, region: &Region) -> Result<(), Rule> {
        Bounce::admit(&mut self.bounce, pool, region)
    }

    /// The request of the WQE at `index` broke a rule.
    pub(super) fn broken(&self, index: u64, rule: Rule) -> Report {
        Report::Violation(Violation { qpn: self.qpn, queue: QueueKind::Send, index, rule })
    }
}
