//! From a WQE to a work request of the device: what the device can do and its queues take, and under
//! which key it knows the own side's memory. One set of checks, for what the engine reads in rings
//! and for what a poster hands to the device by itself.

use super::{ProxyLimits, SendList};
use crate::violation::{KeySide, Rule};
use arrayvec::ArrayVec;
use warpverbs_mem::{Access, KeyHint, KeyTable, Span};
use warpverbs_mlx5::num::{Lkey, MAX_MESSAGE};
use warpverbs_mlx5::syndrome::Syndrome;
use warpverbs_mlx5::wqe::{Op, Payload, SendWith, Sges};
use warpverbs_rdma as rdma;
use warpverbs_rdma::{Data, SendFlags, Sge, WorkRequest};

/// Entries of a receive at most.
pub const MAX_RECEIVE_SGES: usize = 64;

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

/// What a QP of the device takes.
#[derive(Clone, Copy, Debug)]
pub struct Bounds<'a> {
    /// Of its queues.
    pub limits: &'a ProxyLimits,
    /// It may have READs and atomics outstanding.
    pub fetches: bool,
}

impl SendList {
    /// Adds the request of a WQE. False: the device has nothing to do for it, which is so for a NOP.
    ///
    /// # Errors
    /// The rule that the WQE breaks; the list is as it was.
    #[inline]
    pub fn translate(
        &mut self,
        op: &Op<'_>,
        (id, flags): (u64, SendFlags),
        bounds: Bounds<'_>,
        memory: &mut impl OwnMemory,
    ) -> Result<bool, Box<Rule>> {
        let done = self.add_request(op, (id, flags), bounds, memory);
        if done.is_err() {
            self.forget();
        }
        done
    }

    #[inline]
    fn add_request(
        &mut self,
        op: &Op<'_>,
        (id, flags): (u64, SendFlags),
        bounds: Bounds<'_>,
        memory: &mut impl OwnMemory,
    ) -> Result<bool, Box<Rule>> {
        let (request, payload) = match *op {
            Op::Write { remote, payload, imm } => match imm {
                None => (rdma::Op::Write(remote), payload),
                Some(imm) => (rdma::Op::WriteImm(remote, imm), payload),
            },
            Op::Send { with, payload } => match with {
                SendWith::Nothing => (rdma::Op::Send, payload),
                SendWith::Imm(imm) => (rdma::Op::SendImm(imm), payload),
                SendWith::Invalidate(rkey) => (rdma::Op::SendInvalidate(rkey), payload),
            },
            Op::Nop => return Ok(false),
            _ => return self.add_fetching(op, (id, flags), bounds, memory).map(|()| true),
        };
        match payload {
            Payload::Sges(sges) => {
                self.add_all(&sges, Access::empty(), bounds.limits.send_sges, memory)?;
                self.close(id, request, flags, sges.len());
            }
            Payload::Inline(bytes) => {
                let (found, max) = (bytes.len() as u64, u64::from(bounds.limits.inline_bytes));
                if found > max {
                    return broken(Rule::DeviceLimit { what: "inline bytes", found, max });
                }
                self.push(WorkRequest { id, op: request, data: Data::Inline(bytes), flags });
            }
        }
        Ok(true)
    }

    /// READs and atomics.
    fn add_fetching(
        &mut self,
        op: &Op<'_>,
        (id, flags): (u64, SendFlags),
        bounds: Bounds<'_>,
        memory: &mut impl OwnMemory,
    ) -> Result<(), Box<Rule>> {
        let proxied = matches!(op, Op::Read { .. } | Op::CompareSwap { .. } | Op::FetchAdd { .. });
        if proxied && !bounds.fetches {
            return broken(Rule::NoReadResources { attr: "max_rd_atomic" });
        }
        let (request, result) = match *op {
            Op::Read { remote, local } => {
                self.add_all(&local, Access::LOCAL_WRITE, bounds.limits.send_sges, memory)?;
                self.close(id, rdma::Op::Read(remote), flags, local.len());
                return Ok(());
            }
            Op::CompareSwap { remote, compare, swap, result } => {
                (rdma::Op::CompareSwap { remote, compare, swap }, result)
            }
            Op::FetchAdd { remote, add, result } => (rdma::Op::FetchAdd { remote, add }, result),
            _ => return broken(Rule::NotProxied { opcode: op.opcode() }),
        };
        let result = Sge { len: 8, ..result };
        self.add(memory.at_device(KeySide::Local, 0, result, Access::LOCAL_WRITE)?);
        self.close(id, request, flags, 1);
        Ok(())
    }

    /// The requester's own segments, under the device's keys.
    #[inline]
    fn add_all(
        &mut self,
        sges: &Sges<'_>,
        needed: Access,
        max: u32,
        memory: &mut impl OwnMemory,
    ) -> Result<(), Box<Rule>> {
        let (len, found) = (sges.byte_len(), sges.len() as u64);
        if len > MAX_MESSAGE {
            return broken(Rule::MessageLength { len, max: MAX_MESSAGE });
        }
        if found > u64::from(max) {
            return broken(Rule::DeviceLimit { what: "segments", found, max: max.into() });
        }
        for (segment, sge) in sges.iter().enumerate() {
            self.add(memory.at_device(KeySide::Local, segment as u8, sge, needed)?);
        }
        Ok(())
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

/// The syndrome with which a receive completes that breaks `rule`.
pub fn receive_syndrome(rule: &Rule) -> Syndrome {
    match rule {
        Rule::Key { .. } | Rule::KeyNotProxied { .. } | Rule::Bounced { .. } => Syndrome::LocalProt,
        _ => Syndrome::LocalQpOp,
    }
}
