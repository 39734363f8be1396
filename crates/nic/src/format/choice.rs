//! Whose format a queue has, and the calls that depend on it.

use super::bnxt::{self, BnxtQueues};
use super::{At, FormatViolation, Head, Sges, Short, TakesPayload, ionic, mlx5};
use crate::NicError;
use crate::violation::Rule;
use warpverbs_bnxt::doorbell::Kind;
use warpverbs_bnxt::ring::Library;
use warpverbs_bnxt::slot::SLOT;
use warpverbs_ionic::opcode::Protocol;
use warpverbs_mem::{Block, QueueRecord, SendRing};
use warpverbs_mlx5::num::WqeIndex;
use warpverbs_rdma::{Mtu, Qpn, QueueKind};
use zerocopy::IntoBytes;

/// Whose format the entries of a CQ or an SRQ have. QPs use those of their own format alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// NVIDIA's ConnectX.
    #[default]
    Mlx5,
    /// Broadcom's Thor, as this version of its library has it.
    Bnxt(Library),
    /// AMD Pensando's Pollara.
    Ionic,
}

impl Dialect {
    /// Whether a doorbell asks for an event at solicited CQEs alone; `None`: it asks for none.
    pub(crate) fn armed(self, word: u64) -> Option<bool> {
        match self {
            Self::Mlx5 => None,
            Self::Bnxt(_) => bnxt::armed(word),
            Self::Ionic => ionic::armed(word),
        }
    }
}

/// Whose format the queues of a QP have.
#[derive(Clone, Debug, Default)]
pub enum QpFormat {
    /// NVIDIA's ConnectX.
    #[default]
    Mlx5,
    /// Broadcom's Thor.
    Bnxt(BnxtQueues),
    /// AMD Pensando's Pollara. `dbr` is 8 bytes, the last doorbell of the receive queue.
    Ionic {
        /// The firmware's protocol.
        protocol: Protocol,
        /// log2 of the bytes of a send WQE, 6 to 10.
        log_wqe: u8,
    },
}

impl QpFormat {
    /// Of its CQs and its SRQ.
    pub fn dialect(&self) -> Dialect {
        match self {
            Self::Mlx5 => Dialect::Mlx5,
            Self::Bnxt(queues) => Dialect::Bnxt(queues.library),
            Self::Ionic { .. } => Dialect::Ionic,
        }
    }

    /// The send queue of 2^`log_sq` units at the beginning of `sq`, or of another number if the format says
    /// so.
    pub(crate) fn open(
        &self,
        sq: &warpverbs_mem::Region,
        log_sq: u8,
    ) -> Result<(SendRing, u64, SendFormat), NicError> {
        let memory = |what| move |cause| NicError::Memory { what, cause };
        let (units, log_unit, format) = match self {
            Self::Mlx5 => {
                let ring = SendRing::new(sq, log_sq).map_err(memory("SQ buffer"))?;
                return Ok((ring, 1 << log_sq, SendFormat::Mlx5));
            }
            Self::Bnxt(queues) => {
                let (units, log_unit) = queues.units(log_sq)?;
                let sends = bnxt::Sends::new(queues, units);
                let sends = sends.map_err(memory("table of packet numbers"))?;
                (units, log_unit, SendFormat::Bnxt(Box::new(sends)))
            }
            &Self::Ionic { protocol, log_wqe } => {
                if !(6..=10).contains(&log_wqe) {
                    let (what, value) = ("log_wqe", u64::from(log_wqe));
                    return Err(NicError::OutOfRange { what, value, min: 6, max: 10 });
                }
                let sends = ionic::Sends { protocol, log_depth: log_sq, log_wqe };
                (1 << log_sq, log_wqe, SendFormat::Ionic(sends))
            }
        };
        let ring = SendRing::of_units(sq, units, log_unit).map_err(memory("SQ buffer"))?;
        Ok((ring, units.into(), format))
    }
}

/// The format of a send queue, with what it keeps of it.
#[derive(Debug)]
pub(crate) enum SendFormat {
    Mlx5,
    Bnxt(Box<bnxt::Sends>),
    Ionic(ionic::Sends),
}

impl SendFormat {
    #[inline]
    pub(crate) fn is_mlx5(&self) -> bool {
        matches!(self, Self::Mlx5)
    }

    /// The device writes a CQE for each WQE and each receive that is flushed. For others the library does so by itself, once
    /// it knows that the QP has failed.
    pub(crate) fn flushes_each(&self) -> bool {
        self.is_mlx5()
    }

    /// A QP that goes to ERR has a CQE that says so in each of its CQs, and not in that of sends alone.
    pub(crate) fn ends_both_sides(&self) -> bool {
        matches!(self, Self::Ionic(_))
    }

    /// A CQE with a failure is about the oldest WQE that no CQE has reported.
    pub(crate) fn fails_oldest(&self) -> bool {
        matches!(self, Self::Bnxt(_))
    }

    /// The number of a QP in its doorbells. Those of one NIC differ in their low 18 bits.
    #[inline]
    pub(crate) fn number(&self, qpn: u32) -> u32 {
        if let Self::Bnxt(_) = self { bnxt::number(qpn) } else { qpn }
    }

    /// The queue that a doorbell without a record names, and how far it is announced.
    #[inline]
    pub(crate) fn rung(&self, bytes: [u8; 8], before: u64) -> Result<(u32, u64), FormatViolation> {
        let word = u64::from_le_bytes(bytes);
        match self {
            Self::Mlx5 => {
                let bell = mlx5::announced(bytes);
                Ok((bell.qpn.get(), bell.next.widen(before)))
            }
            Self::Bnxt(sends) => sends.rung(word, before),
            Self::Ionic(sends) => sends.rung(word, before),
        }
    }

    /// The header of the WQE at `index`.
    pub(crate) fn head(&self, ring: &SendRing, index: u64) -> Head {
        match self {
            Self::Mlx5 => mlx5::head(&ring.load(index)),
            Self::Bnxt(sends) => sends.head(ring, index),
            Self::Ionic(sends) => sends.head(ring, index),
        }
    }

    /// The connection's first packet, and its path MTU.
    pub(crate) fn start(&mut self, psn: u32, mtu: Mtu) {
        if let Self::Bnxt(sends) = self {
            sends.start(psn, mtu);
        }
    }

    /// A WQE of `len` bytes was started.
    #[inline]
    pub(crate) fn passed(&mut self, len: u64) {
        if let Self::Bnxt(sends) = self {
            sends.passed(len as u32);
        }
    }
}

/// The way in which a format reads plain WRITEs; each has its own code of the short ways.
pub(crate) trait Plain {
    /// Each takes one unit of its queue.
    const ONE_UNIT: bool = true;

    /// The first 64 bytes of the WQE at `index`.
    #[inline(always)]
    fn load(ring: &SendRing, index: u64) -> Block {
        ring.load(index)
    }

    /// The WQE of these bytes, if it is a WRITE without immediate that its bytes alone allow, and if `payload`
    /// takes its payload.
    fn short<'a, S>(
        format: &SendFormat,
        qpn: Qpn,
        at: At,
        block: &'a Block,
        payload: impl TakesPayload<'a, S>,
    ) -> Option<Short<S>>;

    /// It was started, and the next begins with packet `psn`, where posters count packets.
    #[inline(always)]
    fn passed(_format: &mut SendFormat, _psn: u32) {}
}

/// mlx5's.
pub(crate) struct OfMlx5;
/// bnxt_re's.
pub(crate) struct OfBnxt;
/// ionic's.
pub(crate) struct OfIonic;

impl Plain for OfMlx5 {
    #[inline(always)]
    fn short<'a, S>(
        _: &SendFormat,
        qpn: Qpn,
        at: At,
        block: &'a Block,
        payload: impl TakesPayload<'a, S>,
    ) -> Option<Short<S>> {
        mlx5::short(block, (qpn, at.index), payload)
    }
}

impl Plain for OfBnxt {
    const ONE_UNIT: bool = false;

    #[inline(always)]
    fn load(ring: &SendRing, index: u64) -> Block {
        ring.read_block(index)
    }

    #[inline(always)]
    fn short<'a, S>(
        format: &SendFormat,
        _: Qpn,
        at: At,
        block: &'a Block,
        payload: impl TakesPayload<'a, S>,
    ) -> Option<Short<S>> {
        let SendFormat::Bnxt(sends) = format else { return None };
        sends.short(at, block, payload)
    }

    #[inline(always)]
    fn passed(format: &mut SendFormat, psn: u32) {
        if let SendFormat::Bnxt(sends) = format {
            sends.go_on(psn);
        }
    }
}

impl Plain for OfIonic {
    #[inline(always)]
    fn short<'a, S>(
        format: &SendFormat,
        _: Qpn,
        at: At,
        block: &'a Block,
        payload: impl TakesPayload<'a, S>,
    ) -> Option<Short<S>> {
        let SendFormat::Ionic(sends) = format else { return None };
        sends.short(at, block, payload)
    }
}

/// The format of a receive queue or of an SRQ.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RecvFormat {
    Mlx5,
    Bnxt(bnxt::Receives),
    Ionic { log_depth: u8 },
}

impl RecvFormat {
    /// Of an SRQ of 2^`log` receives.
    pub(crate) fn new(dialect: Dialect, log: u8) -> Self {
        match dialect {
            Dialect::Mlx5 => Self::Mlx5,
            Dialect::Bnxt(library) => Self::Bnxt(bnxt::Receives::new(log, 1, library)),
            Dialect::Ionic => Self::Ionic { log_depth: log },
        }
    }

    /// Of a QP's own queue of 2^`log` receives, and the bytes of one, if its format says so.
    pub(crate) fn own(format: &QpFormat, log: u8) -> Result<(Self, Option<usize>), NicError> {
        let &QpFormat::Bnxt(BnxtQueues {
            library,
            receive_slots: Some(slots),
            counts_receive_slots,
            ..
        }) = format
        else {
            return Ok((Self::new(format.dialect(), log), None));
        };
        if !(3..=64).contains(&slots) {
            let (what, value) = ("slots of a receive", u64::from(slots));
            return Err(NicError::OutOfRange { what, value, min: 3, max: 64 });
        }
        let units = if counts_receive_slots { slots } else { 1 };
        let receives = bnxt::Receives::new(log, units, library);
        Ok((Self::Bnxt(receives), Some(usize::from(slots) * SLOT)))
    }

    /// Receives posted so far by the record of the QP or SRQ `number`, of which there were `before`.
    #[inline]
    pub(crate) fn posted(
        &self,
        record: &QueueRecord,
        before: u64,
        (queue, number): (QueueKind, u32),
    ) -> Result<u64, Rule> {
        let ((found, posted), expected) = match self {
            Self::Mlx5 => return Ok(WqeIndex(record.receive()).widen(before)),
            // It was never rung.
            _ if record.word() == 0 => return Ok(before),
            Self::Bnxt(receives) => {
                let kind = if queue == QueueKind::Shared { Kind::Shared } else { Kind::Receive };
                (receives.told(record.word(), kind, before)?, bnxt::number(number))
            }
            Self::Ionic { log_depth } => (ionic::told(record.word(), before, *log_depth)?, number),
        };
        match found == expected {
            true => Ok(posted),
            false => Err(FormatViolation::DoorbellQueue { found, expected }.into()),
        }
    }

    /// The segments of the receive at `index` of a QP's own queue, in `wqe`.
    #[inline]
    pub(crate) fn receive<'a>(&self, wqe: &'a mut [u64], index: u64) -> Result<Sges<'a>, Rule> {
        let bytes = wqe.as_mut_bytes();
        match self {
            Self::Mlx5 => mlx5::parse_receive(bytes),
            Self::Bnxt(_) => bnxt::receive(bytes, QueueKind::Receive).map(|(_, sges)| sges),
            Self::Ionic { log_depth } => {
                ionic::receive(bytes, index, *log_depth, QueueKind::Receive)
            }
        }
    }

    /// Of the receive in `place` of an SRQ: its number, the next one if it names that, and its segments.
    pub(crate) fn shared<'a>(
        &self,
        wqe: &'a mut [u64],
        place: u16,
    ) -> Result<(u32, Option<u16>, Sges<'a>), Rule> {
        let bytes = wqe.as_mut_bytes();
        match self {
            Self::Mlx5 => {
                let (link, sges) = mlx5::parse_shared_receive(bytes)?;
                Ok((place.into(), Some(link), sges))
            }
            Self::Bnxt(_) => {
                let (id, sges) = bnxt::receive(bytes, QueueKind::Shared)?;
                Ok((id, None, sges))
            }
            Self::Ionic { log_depth } => {
                let (at, queue) = (place.into(), QueueKind::Shared);
                Ok((place.into(), None, ionic::receive(bytes, at, *log_depth, queue)?))
            }
        }
    }
}
