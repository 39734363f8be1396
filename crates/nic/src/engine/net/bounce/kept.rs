//! Work that a connection keeps until copies have ended, and the purposes of copies.

use super::chunks::Slice;
use crate::engine::atomic::RemoteAtomic;
use crate::violation::Rule;
use warpverbs_mem::MemError;
use warpverbs_rc::{Payload, Transmit, WrId};
use warpverbs_wire::{Bth, Extension, Psn, Transport};

/// The purpose of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Payload of packets that are kept back.
    Packets,
    /// The peer's response to a READ or an atomic of ours.
    Request(WrId),
    /// The peer's requests, from the packet with this PSN on.
    Peer(Psn),
    /// An atomic of the peer.
    Atomic,
}

/// A copy's purpose, and the bytes of a bounce buffer that are free once it has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tag {
    pub(crate) purpose: Purpose,
    pub(super) frees: Option<Slice>,
}

/// A copy that failed.
pub(crate) struct Failed {
    pub(crate) number: u64,
    pub(crate) purpose: Purpose,
    pub(crate) rule: Rule,
}

/// How a packet's payload goes together with that of the packet before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fit {
    /// It begins a message.
    pub(crate) begins: bool,
    /// It is as long as a packet may be. Requesters send one WRITE as several messages of such.
    pub(crate) full: bool,
}

/// A packet kept back.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) transmit: Transmit,
    /// Its payload, if it lies in a bounce buffer.
    pub(crate) payload: Option<Slice>,
    /// Number of the first copy that gathers it.
    pub(super) from: u64,
}

/// A packet that waits behind an atomic.
#[derive(Debug)]
pub(crate) struct Parked {
    pub(super) bth: Bth,
    pub(super) ext: Extension,
    pub(crate) payload: Box<[u8]>,
}

impl Parked {
    pub(crate) fn packet(&self) -> Transport<'_> {
        Transport { bth: self.bth, ext: self.ext, payload: &self.payload }
    }
}

/// An atomic of the peer on memory that only a copy engine reaches. The connection executes no
/// other before it.
#[derive(Debug)]
pub(super) enum Pending {
    /// At this address; the copies that it has asked for are those before this one.
    Running(u64, Box<RemoteAtomic>, u64),
    /// At this address, with what was there.
    Done(u64, Result<u64, MemError>),
}

impl Held {
    /// The request of ours whose payload it has.
    pub(crate) fn request(&self) -> Option<WrId> {
        match self.transmit.payload {
            Payload::Request { id, .. } => Some(id),
            _ => None,
        }
    }
}
