//! The queues of bnxt_re devices.

use super::list::{Request, in_place};
use super::{
    At, Completion, DatagramSource, Done, Ended, ErrorSide, FormatViolation, Head, LONGEST, Names,
    SendOpcode, Sges, Short, TakesPayload, Wqe,
};
use crate::NicError;
use crate::objects::address::Addresses;
use crate::violation::Rule;
use warpverbs_bnxt::cqe::Cqe;
use warpverbs_bnxt::doorbell::{Doorbell, Kind as Bell};
use warpverbs_bnxt::opcode::WqeType;
use warpverbs_bnxt::packets::{Msn, Packets, Table};
use warpverbs_bnxt::recv;
use warpverbs_bnxt::ring::{Library, Mode, Ring};
use warpverbs_bnxt::slot::{HEADERS, SLOT, STATIC_SLOTS, SgeSlot};
use warpverbs_bnxt::status::{RecvStatus, SendStatus};
use warpverbs_bnxt::wqe;
use warpverbs_mem::{Block, Kind, MemError, ReceiveRing, Region, SendRing};
use warpverbs_rdma::{Mtu, Op, Qpn, QueueKind, ReceivedKind, Status};
use zerocopy::IntoBytes;

/// Words of a slot.
const WORDS: usize = SLOT / 8;
/// Slots of the longest WQE that is taken: those that fit where WQEs are copied to.
const MOST: u8 = (LONGEST * size_of::<Block>() / SLOT) as u8;

/// The queues of a QP in the format of bnxt_re. `dbr` is 8 bytes, the last doorbell of its receive queue.
#[derive(Clone, Debug)]
pub struct BnxtQueues {
    /// The version of its poster's library.
    pub library: Library,
    /// How WQEs lie in the send queue.
    pub mode: Mode,
    /// Slots of the send queue in variable mode, at most 65536, any number. In static mode it has
    /// 2^`log_sq` WQEs of 128 bytes.
    pub slots: u32,
    /// Slots of each receive, 3 to 64; `None`: receives have the bytes of their ring.
    pub receive_slots: Option<u8>,
    /// Whether doorbells of receives count the slots of `receive_slots`, as MORI's do, in place of receives.
    pub counts_receive_slots: bool,
    /// The form of its packet numbers.
    pub table: Table,
    /// 2^`log_packets` entries of packet numbers, 16-byte aligned, host memory or memory with a copy
    /// engine: that of WQE `n`, counted from 0, is entry `n` modulo their number.
    pub packets: Region,
    /// log2 of the entries.
    pub log_packets: u8,
    /// The number by which CQEs name the QP.
    pub handle: u64,
}

impl BnxtQueues {
    /// Units of the send queue, and log2 of their bytes.
    pub(crate) fn units(&self, log_sq: u8) -> Result<(u32, u8), NicError> {
        match self.mode {
            Mode::Static => Ok((1 << log_sq, 7)),
            Mode::Variable if (4..=1 << 16).contains(&self.slots) => Ok((self.slots, 4)),
            Mode::Variable => {
                let (what, value) = ("slots of a send queue", self.slots.into());
                Err(NicError::OutOfRange { what, value, min: 4, max: 1 << 16 })
            }
        }
    }
}

/// A send queue, and the packet numbers of its connection.
#[derive(Debug)]
pub(crate) struct Sends {
    library: Library,
    mode: Mode,
    units: u32,
    ring: Ring,
    table: Table,
    entries: ReceiveRing,
    on_host: bool,
    mtu: Mtu,
    psn: u32,
}

impl Sends {
    pub(crate) fn new(queues: &BnxtQueues, units: u32) -> Result<Self, MemError> {
        let &BnxtQueues { library, mode, table, log_packets, .. } = queues;
        let entries = ReceiveRing::new(&queues.packets, log_packets, table.entry())?;
        Ok(Self {
            library,
            mode,
            units,
            ring: ring(units, library),
            table,
            on_host: entries.kind() == Kind::Host,
            entries,
            mtu: Mtu::B1024,
            psn: 0,
        })
    }

    /// The connection's first packet, and its path MTU.
    pub(crate) fn start(&mut self, psn: u32, mtu: Mtu) {
        (self.psn, self.mtu) = (psn, mtu);
    }

    /// Of the next WQE.
    #[inline(always)]
    pub(crate) fn go_on(&mut self, psn: u32) {
        self.psn = psn;
    }

    /// A WQE of `len` bytes was started.
    #[inline]
    pub(crate) fn passed(&mut self, len: u32) {
        self.psn = self.psn.wrapping_add(self.mtu.packets(len)) & 0xff_ffff;
    }

    /// The queue that a doorbell names, and how far it is announced.
    #[inline]
    pub(crate) fn rung(&self, word: u64, before: u64) -> Result<(u32, u64), FormatViolation> {
        told(self.ring, word, Bell::Send, before)
    }

    pub(crate) fn head(&self, ring: &SendRing, index: u64) -> Head {
        let mut words = [0; WORDS];
        ring.read(index, &mut words);
        let bytes: &[u8; SLOT] = zerocopy::transmute_ref!(&words);
        let opcode = match WqeType::from_value(bytes[0]) {
            WqeType::Send => SendOpcode::Send,
            WqeType::SendImm => SendOpcode::SendImm,
            WqeType::SendInvalidate => SendOpcode::SendInval,
            WqeType::Write => SendOpcode::RdmaWrite,
            WqeType::WriteImm => SendOpcode::RdmaWriteImm,
            WqeType::Read => SendOpcode::RdmaRead,
            WqeType::CompareSwap => SendOpcode::AtomicCs,
            WqeType::FetchAdd => SendOpcode::AtomicFa,
            WqeType::LocalInvalidate => SendOpcode::LocalInval,
            _ => SendOpcode::Nop,
        };
        let units = self.mode.units(wqe::peek(bytes)).into();
        Head { units, opcode, completion: Completion::Always }
    }

    /// The packet numbers beside a WQE are those that its connection gives it.
    fn check(&self, at: At, len: u32) -> Result<(), Rule> {
        let kind = self.entries.kind();
        self.entries.fetch(at.nth).map_err(|_| Rule::CopyFailed { kind })?;
        let mut words = [0; 2];
        let entry = self.entries.load(at.nth, &mut words);
        let found = Packets::read(self.table, entry).map_err(FormatViolation::from)?;
        Ok(found.check(self.expected(at, len)).map_err(FormatViolation::from)?)
    }

    /// The same, without a reason: of a table in host memory, the first word says all.
    #[inline(always)]
    fn is_expected(&self, at: At, len: u32, expected: Packets) -> bool {
        if !self.on_host {
            return self.check(at, len).is_ok();
        }
        let Packets { first, next, start } = expected;
        let found = u64::from_le(self.entries.first(at.nth));
        match self.table {
            Table::Msn => found == Msn::new(first, next, start.unwrap_or(0)).0,
            // The opcode and the flags are not looked at.
            Table::Psn | Table::PsnExt => {
                found & 0x00ff_ffff_00ff_ffff == u64::from(first) | u64::from(next) << 32
            }
        }
    }

    #[inline(always)]
    fn expected(&self, at: At, len: u32) -> Packets {
        let start = (at.index % u64::from(self.units)) as u16;
        Packets::of(self.psn, len, self.mtu, start)
    }

    /// A plain WRITE of 3 slots.
    #[inline(always)]
    pub(crate) fn short<'a, S>(
        &self,
        at: At,
        block: &'a Block,
        payload: impl TakesPayload<'a, S>,
    ) -> Option<Short<S>> {
        let bytes = super::mlx5::block_of(block);
        // Of no other is anything more looked at: one entry, or as many inline bytes.
        if bytes[0] != WqeType::Write.value() || bytes[2] != HEADERS + 1 {
            return None;
        }
        let posted = wqe::parse(bytes, self.library).ok()?;
        let units = u64::from(self.mode.units(HEADERS + 1));
        let Op::Write(remote) = posted.op else { return None };
        let (len, flags) = (posted.byte_len() as u32, super::Flags::of(posted.flags));
        let expected = self.expected(at, len);
        let psn = expected.next;
        if units > at.announced || !self.is_expected(at, len, expected) {
            return None;
        }
        let source = match posted.inline {
            [] => payload.piece(posted.local.single()?)?,
            bytes => payload.inline(bytes)?,
        };
        Some(Short { units, remote, source, psn, flags })
    }

    /// The WQE at a place, copied to `long`. Without `addresses` it is a connection's.
    pub(crate) fn wqe<'a>(
        &self,
        ring: &SendRing,
        at: At,
        addresses: Option<Addresses<'_>>,
        long: &'a mut [Block; LONGEST],
    ) -> Result<Wqe<'a>, (u64, Rule)> {
        let words = long.as_flattened_mut();
        ring.read(at.index, &mut words[..8]);
        let value = wqe_slots(&words[..8]);
        let units = u64::from(self.mode.units(value));
        let wrong = |violation| {
            let queue = QueueKind::Send;
            (units, FormatViolation::BnxtWqe { queue, violation }.into())
        };
        let max = if self.mode == Mode::Static { STATIC_SLOTS } else { MOST };
        if value > max {
            let wqe_type = WqeType::from_value(words.as_bytes()[0]);
            return Err(wrong(wqe::WqeViolation::Slots { wqe_type, value, min: HEADERS, max }));
        }
        let words = &mut words[..usize::from(value) * WORDS];
        ring.read(at.index, words);
        let posted = match addresses {
            Some(_) => wqe::parse_datagram(words.as_bytes()),
            None => wqe::parse(words.as_bytes(), self.library),
        };
        let asked = Request::of(&posted.map_err(wrong)?);
        if units > at.announced {
            return Err((units, Rule::BeyondAnnounced { wqebbs: units, announced: at.announced }));
        }
        // Datagrams have no packet numbers in the table.
        if addresses.is_none() {
            self.check(at, asked.len).map_err(|rule| (units, rule))?;
        }
        let to = asked.destination(addresses).map_err(|violation| (units, violation.into()))?;
        Ok(asked.wqe::<SgeSlot>(units, to, words.as_mut_bytes()))
    }
}

/// Slots by what the first of them says.
#[inline]
fn wqe_slots(words: &[u64]) -> u8 {
    words.as_bytes().first_chunk().map_or(HEADERS, wqe::peek)
}

/// A ring of a size that was checked.
pub(super) fn ring(size: u32, library: Library) -> Ring {
    Ring::new(size.clamp(1, 1 << 24), library).expect("a size in range")
}

/// The number of a queue in its doorbells.
#[inline]
pub(super) fn number(queue: u32) -> u32 {
    queue & 0xf_ffff
}

/// The queue that a doorbell names, and its counter.
#[inline]
pub(super) fn told(
    ring: Ring,
    word: u64,
    expected: Bell,
    before: u64,
) -> Result<(u32, u64), FormatViolation> {
    let bell = Doorbell::parse(word)?;
    let found = bell.kind;
    if found != expected {
        return Err(FormatViolation::BnxtKind { found, expected });
    }
    Ok((bell.queue, ring.counter(&bell, before)?))
}

/// The receives of a queue, which doorbells count in units of so many each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Receives {
    ring: Ring,
    units: u32,
}

impl Receives {
    /// 2^`log` receives of so many units each.
    pub(super) fn new(log: u8, units: u8, library: Library) -> Self {
        let units = u32::from(units);
        Self { ring: ring(units << log, library), units }
    }

    /// As [`told`], in receives: one whose last units are not announced is none.
    pub(super) fn told(
        self,
        word: u64,
        kind: Bell,
        before: u64,
    ) -> Result<(u32, u64), FormatViolation> {
        let units = u64::from(self.units);
        let (queue, counter) = told(self.ring, word, kind, before * units)?;
        Ok((queue, counter / units))
    }
}

/// Whether a doorbell asks for an event at solicited CQEs alone; `None`: it asks for none.
pub(super) fn armed(word: u64) -> Option<bool> {
    match Doorbell::parse(word).ok()?.kind {
        Bell::Arm => Some(false),
        Bell::ArmSolicited => Some(true),
        _ => None,
    }
}

/// The number of a receive, and its entries.
pub(super) fn receive(wqe: &mut [u8], queue: QueueKind) -> Result<(u32, Sges<'_>), Rule> {
    let parsed = recv::parse(wqe).map(|(id, sges)| (id, sges.len()));
    let (id, count) = parsed.map_err(|violation| FormatViolation::BnxtWqe { queue, violation })?;
    Ok((id, in_place::<SgeSlot>(wqe, count)))
}

/// The last CQE of the `rings`th ring of a CQ.
pub(super) fn cut_off(rings: u8) -> Cqe {
    Cqe::CutOff { toggle: rings & 3 }
}

/// The CQE of what has ended, of the QP with this handle.
pub(super) fn cqe(done: &Done, names: Names) -> Cqe {
    let (qp_handle, consumed) = (names.handle.unwrap_or(0), done.ended as u16);
    let id = done.index as u32;
    let received = |kind, length, srqn, status, from: Option<DatagramSource>| {
        let (shared, status) = (srqn != 0, RecvStatus::of(status));
        if !names.datagrams {
            return Cqe::Received { qp_handle, id, shared, status, kind, length };
        }
        let imm = if let ReceivedKind::SendImm(imm) = kind { Some(imm) } else { None };
        let (source, ipv6) = from.map_or((Qpn::default(), false), |from| (from.qpn, from.ipv6));
        let length = length as u16;
        Cqe::Datagram { qp_handle, id, shared, status, imm, length, source, ipv6 }
    };
    match done.what {
        Ended::Sent { .. } => Cqe::Sent { qp_handle, consumed, status: SendStatus::Ok },
        Ended::Failed { side: ErrorSide::Requester, status, .. } => {
            Cqe::Sent { qp_handle, consumed, status: SendStatus::of(status) }
        }
        Ended::Failed { side: ErrorSide::Responder, status, srqn, .. } => {
            received(ReceivedKind::Send, 0, srqn, status, None)
        }
        Ended::Received { kind, len, srqn, from, .. } => {
            received(kind, len, srqn, Status::Success, from)
        }
        Ended::Queue { .. } => Cqe::Terminal { qp_handle },
    }
}
