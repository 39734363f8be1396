//! Limits of a device and its queues, and the keys under which it knows the own side's memory:
//! one set of checks, for the WQEs that the engine reads in rings and for the requests that a
//! poster gives to the device itself.

use super::{ProxyLimits, ProxySends};
use crate::format::{Lkey, MAX_MESSAGE, Op, Payload, SendWith};
use crate::violation::{KeySide, Rule};
use arrayvec::ArrayVec;
use std::iter::once;
use warpverbs_mem::{Access, KeyHint, KeyTable, Span};
use warpverbs_rdma as rdma;
use warpverbs_rdma::{Data, SendFlags, Sge, Status, WorkRequest};

/// Entries of a receive at most.
const MAX_RECEIVE_SGES: usize = 64;

/// The own side's memory, by the keys that WQEs name.
pub trait OwnMemory {
    /// `sge`, which `needed` is to be done with, as the device knows it: under its key, and perhaps
    /// in another place.
    ///
    /// # Errors
    /// The key, the range or the right that is not there.
    fn at_device(
        &mut self,
        side: KeySide,
        segment: u8,
        sge: Sge,
        needed: Access,
    ) -> Result<Sge, Box<Rule>>;
}

/// The keys of one protection domain.
pub(crate) struct InTable<'a> {
    pub(crate) keys: &'a KeyTable,
    pub(crate) hint: &'a mut KeyHint,
    pub(crate) pd: u32,
}

impl OwnMemory for InTable<'_> {
    #[inline]
    fn at_device(
        &mut self,
        side: KeySide,
        segment: u8,
        sge: Sge,
        needed: Access,
    ) -> Result<Sge, Box<Rule>> {
        let Sge { addr, len, lkey: Lkey(key) } = sge;
        match self.keys.find(self.hint, self.pd, key, addr, len, needed) {
            Some(Span { proxy_lkey: Some(lkey), .. }) => {
                Ok(Sge { addr, len, lkey: Lkey(lkey.get()) })
            }
            _ => Err(self.unfit(side, segment, sge, needed)),
        }
    }
}

impl InTable<'_> {
    /// Why a piece of memory will not do.
    #[cold]
    fn unfit(&mut self, side: KeySide, segment: u8, sge: Sge, needed: Access) -> Box<Rule> {
        let Sge { addr, len, lkey: Lkey(key) } = sge;
        Box::new(match self.keys.lookup(self.hint, self.pd, key, addr, len, needed) {
            Err(error) => Rule::Key { side, segment, error },
            Ok(_) => Rule::KeyNotProxied { key },
        })
    }
}

/// The limits of a QP of the device.
#[derive(Clone, Copy, Debug)]
pub struct Bounds<'a> {
    /// Of its queues.
    pub limits: &'a ProxyLimits,
    /// It may have READs and atomics outstanding.
    pub fetches: bool,
}

impl Bounds<'_> {
    /// Checks inline data.
    ///
    /// # Errors
    /// [`Rule::DeviceLimit`].
    #[inline]
    pub fn check_inline(&self, bytes: &[u8]) -> Result<(), Box<Rule>> {
        let (found, max) = (bytes.len() as u64, u64::from(self.limits.inline_bytes));
        match found <= max {
            true => Ok(()),
            false => broken(Rule::DeviceLimit { what: "inline bytes", found, max }),
        }
    }

    /// Checks `sges`, the own side's memory of a request `op`, and gives `take` each as the device
    /// knows it.
    ///
    /// # Errors
    /// The rule that the request breaks; `take` may have got the first ones.
    #[inline]
    pub fn translate(
        &self,
        op: rdma::Op,
        sges: impl ExactSizeIterator<Item = Sge> + Clone,
        memory: &mut impl OwnMemory,
        mut take: impl FnMut(Sge),
    ) -> Result<(), Box<Rule>> {
        let needed = match op.is_rd_atomic() {
            true if !self.fetches => {
                return broken(Rule::NoReadResources { attr: "max_rd_atomic" });
            }
            true => Access::LOCAL_WRITE,
            false => Access::empty(),
        };
        let (found, max) = (sges.len() as u64, self.limits.send_sges.into());
        let len = sges.clone().map(|sge| u64::from(sge.len)).sum();
        if len > MAX_MESSAGE {
            return broken(Rule::MessageLength { len, max: MAX_MESSAGE });
        }
        if found > max {
            return broken(Rule::DeviceLimit { what: "segments", found, max });
        }
        for (segment, sge) in sges.enumerate() {
            take(memory.at_device(KeySide::Local, segment as u8, sge, needed)?);
        }
        Ok(())
    }
}

impl ProxySends {
    /// Adds the request of a WQE. False: the device has nothing to do for it, which is so for a
    /// NOP.
    ///
    /// # Errors
    /// The rule that the WQE breaks; the list is as it was.
    #[inline]
    pub(crate) fn translate(
        &mut self,
        op: &Op<'_>,
        (id, flags): (u64, SendFlags),
        bounds: Bounds<'_>,
        memory: &mut impl OwnMemory,
    ) -> Result<bool, Box<Rule>> {
        let opcode = op.opcode();
        let (op, payload) = match *op {
            Op::Write { remote, payload, imm } => match imm {
                None => (rdma::Op::Write(remote), payload),
                Some(imm) => (rdma::Op::WriteImm(remote, imm), payload),
            },
            Op::Send { with, payload } => match with {
                SendWith::Nothing => (rdma::Op::Send, payload),
                SendWith::Imm(imm) => (rdma::Op::SendImm(imm), payload),
                SendWith::Invalidate(rkey) => (rdma::Op::SendInvalidate(rkey), payload),
            },
            Op::Read { remote, local } => (rdma::Op::Read(remote), Payload::Sges(local)),
            Op::CompareSwap { remote, compare, swap, result } => {
                let op = rdma::Op::CompareSwap { remote, compare, swap };
                return self.add_sges(op, (id, flags), once(result), bounds, memory);
            }
            Op::FetchAdd { remote, add, result } => {
                let op = rdma::Op::FetchAdd { remote, add };
                return self.add_sges(op, (id, flags), once(result), bounds, memory);
            }
            Op::Nop => return Ok(false),
            _ => return broken(Rule::NotProxied { opcode: op.opcode() }),
        };
        match payload {
            Payload::Sges(sges) => self.add_sges(op, (id, flags), sges.iter(), bounds, memory),
            // The other device's requests have one or the other.
            Payload::Mixed(_) => broken(Rule::NotProxied { opcode }),
            Payload::Inline(bytes) => {
                bounds.check_inline(bytes)?;
                self.push(WorkRequest { id, op, data: Data::Inline(bytes), flags });
                Ok(true)
            }
        }
    }

    #[inline]
    fn add_sges(
        &mut self,
        op: rdma::Op,
        (id, flags): (u64, SendFlags),
        sges: impl ExactSizeIterator<Item = Sge> + Clone,
        bounds: Bounds<'_>,
        memory: &mut impl OwnMemory,
    ) -> Result<bool, Box<Rule>> {
        let count = sges.len();
        match bounds.translate(op, sges, memory, |sge| self.add(sge)) {
            Ok(()) => self.close(id, op, flags, count),
            Err(rule) => {
                self.forget();
                return Err(rule);
            }
        }
        Ok(true)
    }
}

#[cold]
fn broken<T>(rule: Rule) -> Result<T, Box<Rule>> {
    Err(Box::new(rule))
}

/// A receive's entries, of which the device takes `max`, under its keys.
///
/// # Errors
/// The rule that the receive breaks.
pub fn translate_receive(
    sges: impl ExactSizeIterator<Item = Sge>,
    max: u32,
    memory: &mut impl OwnMemory,
) -> Result<ArrayVec<Sge, MAX_RECEIVE_SGES>, Box<Rule>> {
    let most = max.min(MAX_RECEIVE_SGES as u32);
    if sges.len() > most as usize {
        let (found, max) = (sges.len() as u64, most.into());
        return broken(Rule::DeviceLimit { what: "segments", found, max });
    }
    let pieces = sges.enumerate().map(|(segment, sge)| {
        memory.at_device(KeySide::Receive, segment as u8, sge, Access::LOCAL_WRITE)
    });
    pieces.collect()
}

/// The status with which a receive completes that breaks `rule`.
pub fn receive_status(rule: &Rule) -> Status {
    match rule {
        Rule::Key { .. } | Rule::KeyNotProxied { .. } | Rule::Bounced { .. } => {
            Status::LocalProtection
        }
        _ => Status::LocalQpOperation,
    }
}
