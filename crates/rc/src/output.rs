//! Work that a connection asks for: packets to send, payload to place, completions to report.

use warpverbs_wire::{Bth, Extension, Rkey};

use crate::{ReceivedKind, Status, WrId};

/// A packet to send: headers, and where its payload lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Base transport header.
    pub bth: Bth,
    /// Extension headers, those of the opcode.
    pub ext: Extension,
    /// Payload, at most the path MTU.
    pub payload: Payload,
}

/// Where the payload of a packet to be sent lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// There is none.
    Empty,
    /// In the memory of a posted request.
    Request {
        /// The request.
        id: WrId,
        /// First byte of its payload.
        offset: u32,
        /// Bytes.
        len: u32,
    },
    /// In a region that the peer named and that [`crate::Host::check_rkey`] allowed for this call.
    Region {
        /// The key.
        rkey: Rkey,
        /// Virtual address of the first byte.
        va: u64,
        /// Bytes.
        len: u32,
    },
}

impl Payload {
    /// Bytes.
    #[inline]
    pub const fn len(&self) -> u32 {
        match *self {
            Payload::Empty => 0,
            Payload::Request { len, .. } | Payload::Region { len, .. } => len,
        }
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The place for the payload of the packet just handled, to be filled before the next call.
#[must_use = "payload that is not placed is lost, but acknowledged"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Nothing.
    Nothing,
    /// Write all of it to a region of ours, which was checked.
    Region {
        /// The key.
        rkey: Rkey,
        /// Virtual address.
        va: u64,
    },
    /// Write all of it into a receive, which was checked.
    Receive {
        /// The receive.
        id: u64,
        /// Where in it.
        offset: u32,
    },
    /// Write all of it into the memory of a READ that we posted.
    Request {
        /// The request.
        id: WrId,
        /// Where in it.
        offset: u32,
    },
    /// There is no payload: this is what an atomic of ours found.
    Original {
        /// The request.
        id: WrId,
        /// The value, in native order.
        value: u64,
    },
}

/// Something that was posted is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// A request, in the order of posting.
    Request {
        /// The request.
        id: WrId,
        /// How it ended.
        result: Result<(), Status>,
    },
    /// A receive, in the order in which they were consumed.
    Receive {
        /// The receive.
        id: u64,
        /// How it ended.
        result: Result<Received, Status>,
    },
}

/// A message that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Its kind.
    pub kind: ReceivedKind,
    /// Bytes of the message; those of a write are in the region, not in the receive.
    pub len: u32,
    /// The peer set the solicited-event bit.
    pub solicited: bool,
}

/// Counters since the connection was made, for monitoring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Request packets sent, resent ones included.
    pub requests_sent: u64,
    /// Request packets sent again.
    pub resent: u64,
    /// Times that the acknowledgement timeout passed.
    pub timeouts: u64,
    /// Resends before the timeout because round trips passed without answer.
    pub early_resends: u64,
    /// Timers that ran out while the peer had no processor, and began anew.
    pub pauses: u64,
    /// NAKs that packets are missing, and responses that show it.
    pub losses: u64,
    /// RNR NAKs followed.
    pub rnr_waits: u64,
    /// Responses outside what is outstanding.
    pub ghosts: u64,
    /// Responses that no peer would send for what is outstanding: dropped.
    pub implausible: u64,
    /// Responses sent: ACKs, NAKs, READ responses, atomic answers.
    pub responses_sent: u64,
    /// Requests that had been executed before.
    pub duplicates: u64,
    /// Requests after a gap.
    pub out_of_sequence: u64,
    /// Requests dropped because queues of ours were full.
    pub overruns: u64,
}
