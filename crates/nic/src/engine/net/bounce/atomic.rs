//! Atomics of the peer on memory that only a copy engine reaches, and the packets that wait behind
//! one.

use super::Bounce;
use super::kept::{Parked, Pending, Purpose, Tag};
use crate::engine::atomic::{Amo, AtomicGate, RemoteAtomic};
use crate::slots::QpSlot;
use warpverbs_mem::{Kind, MemError, Span};
use warpverbs_wire::Transport;

/// Packets that wait behind an atomic at most; later ones count as lost.
const PARKED: usize = 256;
const ATOMIC: Tag = Tag { purpose: Purpose::Atomic, frees: None };

impl Bounce {
    /// Does the atomic at `va`, which is `target`, after everything placed before it. `None`: not
    /// yet. `gate` lets one atomic at a time onto such memory.
    pub(crate) fn atomic(
        &mut self,
        (slot, gate): (QpSlot, &mut AtomicGate),
        (amo, va): (Amo, u64),
        target: Span<'_>,
    ) -> Result<Option<u64>, MemError> {
        match self.atomic.take() {
            Some(Pending::Done(at, result)) if at == va => return result.map(Some),
            Some(running @ Pending::Running(..)) => {
                self.atomic = Some(running);
                return Ok(None);
            }
            _ => {}
        }
        if !self.has_arrived() {
            return Ok(None);
        }
        if target.region.kind() == Kind::Host {
            return amo.on_host(target.region, target.offset).map(|old| Some(old.value()));
        }
        if !gate.is_free() {
            return Ok(None);
        }
        let running = RemoteAtomic::start(amo, &target, None, &mut self.copies, ATOMIC)?;
        gate.take(slot);
        self.atomic = Some(Pending::Running(va, Box::new(running), self.copies.next()));
        Ok(None)
    }

    /// Lets an atomic go on. True when it has ended.
    pub(crate) fn advance_atomic(&mut self) -> bool {
        let (va, result) = match &mut self.atomic {
            Some(Pending::Running(va, running, upto)) if self.copies.has_ended(*upto) => {
                match running.advance(&mut self.copies, ATOMIC) {
                    Ok(false) => {
                        *upto = self.copies.next();
                        return false;
                    }
                    Ok(true) => (*va, Ok(running.found())),
                    Err(error) => (*va, Err(error)),
                }
            }
            _ => return false,
        };
        self.atomic = Some(Pending::Done(va, result));
        true
    }

    /// Packets wait behind an atomic.
    pub(crate) fn is_parked(&self) -> bool {
        !self.parked.is_empty()
    }

    /// Keeps a packet for later, behind those that wait. False if there are too many.
    pub(crate) fn park(&mut self, packet: &Transport<'_>) -> bool {
        if self.parked.len() >= PARKED {
            return false;
        }
        let Transport { bth, ext, payload } = *packet;
        self.parked.push_back(Parked { bth, ext, payload: payload.into() });
        true
    }

    /// The packet that waits longest, once it may be handled.
    pub(crate) fn pop_parked(&mut self) -> Option<Parked> {
        let running = matches!(self.atomic, Some(Pending::Running(..)));
        (!running && self.has_arrived()).then(|| self.parked.pop_front()).flatten()
    }

    /// It could not be handled yet.
    pub(crate) fn park_again(&mut self, parked: Parked) {
        self.parked.push_front(parked);
    }
}
