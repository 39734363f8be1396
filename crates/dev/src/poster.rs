//! A QP with queues of any format in host memory, and a poster to it that knows them all.

use crate::consumer::{AnyConsumer, Reported};
use crate::format::{LOG_PACKETS, LOG_SQ, QueueFormat};
use std::sync::atomic::Ordering;
use warpverbs_bnxt::doorbell::Kind;
use warpverbs_bnxt::packets::{Packets, Table};
use warpverbs_bnxt::ring::Ring;
use warpverbs_bnxt::{recv as bnxt_recv, wqe as bnxt_wqe};
use warpverbs_ionic::opcode::Protocol;
use warpverbs_ionic::ring::Position as Place;
use warpverbs_ionic::{recv as ionic_recv, wqe as ionic_wqe};
use warpverbs_mem::{HostBuf, Region};
use warpverbs_mlx5::doorbell::{Doorbell, record_word};
use warpverbs_mlx5::num::{MAX_WQE, WqeIndex};
use warpverbs_mlx5::wqe::{Local, Position, WqeBuilder};
use warpverbs_nic::{
    Announcement, CqMode, Dialect, Mtu, NicError, OnSendError, Pd, Qp, QpAttrs, QpConfig, QpState,
    RqConfig, ScatterToCqe, Service, SoftNic, Srq,
};
use warpverbs_rdma::{Addressed, Data, Op, Qpn, SendFlags, Sge, WorkRequest};

/// log2 of the receives.
const LOG_RQ: u8 = 5;

/// A QP and its poster. It checks nothing, so that tests can post what no correct poster would.
#[derive(Debug)]
pub struct Poster {
    /// The QP.
    pub qp: Qp,
    /// The format of its queues.
    pub format: QueueFormat,
    /// Path MTU and first packet, by which packet numbers are counted.
    pub mtu: Mtu,
    sq: Region,
    rq: Region,
    dbr: Region,
    packets: Region,
    doorbells: Region,
    send: AnyConsumer,
    recv: AnyConsumer,
    /// Next free unit.
    pub posted: u64,
    /// WQEs posted.
    pub wqes: u64,
    /// Of the next WQE.
    pub psn: u32,
    receives: u64,
}

impl Poster {
    /// Makes queues, CQs and QP, in RESET; CQs of 2^`log_cq` entries, that of sends of this mode.
    pub fn new(
        nic: &SoftNic,
        pd: &Pd,
        format: QueueFormat,
        cq: (CqMode, u8),
    ) -> Result<Self, NicError> {
        let kind = (Service::Connected, Announcement::Doorbell);
        Self::with(nic, pd, [format; 2], cq, kind, None)
    }

    /// As [`Self::new`], with CQs of any format, any service and announcement, and receives of an SRQ.
    pub fn with(
        nic: &SoftNic,
        pd: &Pd,
        [format, cqs]: [QueueFormat; 2],
        (cq_mode, log_cq): (CqMode, u8),
        (service, announcement): (Service, Announcement),
        srq: Option<Srq>,
    ) -> Result<Self, NicError> {
        let alloc = |len: usize| {
            HostBuf::region(len).map_err(|cause| NicError::Memory { what: "test memory", cause })
        };
        let send = AnyConsumer::new(nic, cqs, cq_mode, log_cq)?;
        let recv = AnyConsumer::new(nic, cqs, CqMode::Ring, log_cq)?;
        let (units, bytes) = format.units();
        let (sq, rq) = (alloc(units as usize * bytes)?, alloc(128 << LOG_RQ)?);
        let (dbr, packets) = (alloc(64)?, alloc(16 << LOG_PACKETS)?);
        let (buf, log_stride) = (rq.clone(), format.log_stride());
        let own = RqConfig::Own { buf, log_rq: LOG_RQ, log_stride };
        let config = QpConfig {
            format: format.of_qp(&packets),
            service,
            user_index: None,
            scatter_to_cqe: ScatterToCqe::default(),
            announcement,
            send_cq: send.cq.clone(),
            recv_cq: recv.cq.clone(),
            sq: sq.clone(),
            log_sq: LOG_SQ,
            rq: srq.map_or(own, RqConfig::Srq),
            dbr: dbr.clone(),
            on_send_error: OnSendError::StopAll,
            consume_only: false,
        };
        let (qp, doorbells, mtu) =
            (nic.create_qp(pd, config)?, nic.doorbells().clone(), Mtu::B1024);
        let (posted, wqes, psn, receives) = (0, 0, 0, 0);
        Ok(Self {
            qp,
            format,
            mtu,
            sq,
            rq,
            dbr,
            packets,
            doorbells,
            send,
            recv,
            posted,
            wqes,
            psn,
            receives,
        })
    }

    /// RESET, and RTS again by `rtr` and `rts`; everything is counted anew.
    pub fn connect(&mut self, init: &QpAttrs, rtr: &QpAttrs, rts: &QpAttrs) {
        self.qp.modify(QpState::Reset, &QpAttrs::default()).expect("RESET from anywhere");
        (self.posted, self.wqes, self.receives) = (0, 0, 0);
        (self.mtu, self.psn) = (rtr.mtu.unwrap_or(Mtu::B1024), rts.sq_psn.unwrap_or(0));
        self.send.restart();
        self.dbr.fill(0, 64, 0).expect("inside");
        for (state, attrs) in [(QpState::Init, init), (QpState::Rtr, rtr), (QpState::Rts, rts)] {
            self.qp.modify(state, attrs).expect("the usual way to RTS");
        }
    }

    /// Puts a WQE, and its packet numbers, without announcing it.
    pub fn put(&mut self, request: &WorkRequest<'_>) {
        self.put_any(None, request);
    }

    fn put_any(&mut self, to: Option<Addressed>, request: &WorkRequest<'_>) {
        let mut bytes = [0; MAX_WQE];
        let len = self.build_any(to, request, &mut bytes);
        let total = match request.data {
            Data::Inline(bytes) => bytes.len() as u32,
            Data::Sges(sges) => sges.iter().map(|sge| sge.len).sum(),
        };
        self.put_bytes(&bytes[..len], total);
    }

    /// The bytes of a WQE that would be next.
    pub fn build(&self, request: &WorkRequest<'_>, bytes: &mut [u8; MAX_WQE]) -> usize {
        self.build_any(None, request, bytes)
    }

    fn build_any(
        &self,
        to: Option<Addressed>,
        request: &WorkRequest<'_>,
        bytes: &mut [u8; MAX_WQE],
    ) -> usize {
        let protocol = match self.format {
            QueueFormat::Mlx5 if to.is_some() => panic!("WQEs of mlx5 hold the address itself"),
            QueueFormat::Mlx5 => return build_mlx5(request, self.position(), bytes),
            QueueFormat::IonicV1 => Protocol::V1,
            QueueFormat::IonicV2 => Protocol::V2,
            QueueFormat::BnxtStatic | QueueFormat::BnxtVariable | QueueFormat::BnxtEarly => {
                let wqe = match to {
                    Some(to) => bnxt_wqe::build_datagram(bytes, to, request),
                    None => bnxt_wqe::build(bytes, request),
                };
                let len = wqe.expect("the test's WQE can be built").len();
                if let (QueueFormat::BnxtEarly, Op::FetchAdd { add, .. }) =
                    (self.format, request.op)
                {
                    bytes[24..32].copy_from_slice(&add.to_le_bytes());
                }
                return len;
            }
        };
        let at = Place { counter: self.posted, log_depth: LOG_SQ };
        let wqe = &mut bytes[..64];
        let built = match to {
            Some(to) => ionic_wqe::build_datagram(wqe, at, protocol, to, request),
            None => ionic_wqe::build(wqe, at, protocol, request),
        };
        built.expect("the test's WQE can be built");
        64
    }

    /// Puts a WQE of any bytes, and packet numbers for `len` bytes of payload.
    pub fn put_bytes(&mut self, bytes: &[u8], len: u32) {
        let (units, unit) = self.format.units();
        for (i, part) in (self.posted..).zip(bytes.chunks(unit)) {
            self.sq.write(i % units * unit as u64, part).expect("inside the ring");
        }
        let start = (self.posted % units) as u16;
        self.put_packets(Packets::of(self.psn, len, self.mtu, start));
        self.posted += bytes.len().div_ceil(unit) as u64;
        self.psn = self.psn.wrapping_add(self.mtu.packets(len)) & 0xff_ffff;
        self.wqes += 1;
    }

    /// Writes the packet numbers of the WQE that is next.
    pub fn put_packets(&self, packets: Packets) {
        let table = if self.format == QueueFormat::BnxtEarly { Table::PsnExt } else { Table::Msn };
        let (mut entry, len) = ([0; 16], table.entry());
        packets.write(table, 0x5a, &mut entry[..len]).expect("an entry");
        let at = self.wqes % (1 << LOG_PACKETS) * len as u64;
        self.packets.write(at, &entry[..len]).expect("inside the table");
    }

    /// The value of the doorbell for so many units.
    pub fn doorbell(&self, posted: u64) -> [u8; 8] {
        let qpn = self.qpn();
        match self.format.dialect() {
            Dialect::Mlx5 => Doorbell::Next { qpn, next: WqeIndex::of(posted) }.bytes(),
            Dialect::Bnxt(library) => {
                let ring = Ring::new(self.format.units().0 as u32, library).expect("a ring");
                ring.doorbell(Kind::Send, qpn.get(), posted).word().to_le_bytes()
            }
            Dialect::Ionic => {
                let index = Place { counter: posted, log_depth: LOG_SQ }.index();
                ionic_bell(qpn, index).to_le_bytes()
            }
        }
    }

    /// Announces everything.
    pub fn ring(&self) {
        if self.format == QueueFormat::Mlx5 {
            let word = self.dbr.atomic_u32(4).expect("a record has 8 bytes");
            word.store(record_word(self.posted), Ordering::Release);
        }
        self.ring_bytes(self.doorbell(self.posted));
    }

    /// Rings with any value.
    pub fn ring_bytes(&self, bytes: [u8; 8]) {
        let cell = self.doorbells.atomic_u64(self.qp.doorbell_offset());
        let cell = cell.expect("every QP has a doorbell");
        cell.store(u64::from_ne_bytes(bytes), Ordering::Release);
    }

    /// Puts and announces.
    pub fn post(&mut self, request: &WorkRequest<'_>) {
        self.put(request);
        self.ring();
    }

    /// The same of a datagram, of formats whose WQEs name an address handle.
    pub fn post_to(&mut self, to: Addressed, request: &WorkRequest<'_>) {
        self.put_any(Some(to), request);
        self.ring();
    }

    /// Posts a receive.
    pub fn post_recv(&mut self, sges: &[Sge]) {
        let mut wqe = [0; 128];
        let built = match self.format.dialect() {
            Dialect::Mlx5 => {
                let slot = wqe.first_chunk_mut::<64>().expect("long enough");
                warpverbs_mlx5::recv::build(slot, sges).is_ok()
            }
            Dialect::Bnxt(_) => {
                let id = (self.receives % (1 << LOG_RQ)) as u32;
                bnxt_recv::build(&mut wqe, id, sges).is_ok()
            }
            Dialect::Ionic => {
                let at = Place { counter: self.receives, log_depth: LOG_RQ };
                ionic_recv::build(&mut wqe[..64], at, sges).is_ok()
            }
        };
        assert!(built, "a receive that fits");
        self.post_recv_bytes(&wqe);
    }

    /// Posts a receive of any bytes, of which those count that its format has.
    pub fn post_recv_bytes(&mut self, wqe: &[u8; 128]) {
        let stride = self.format.receive_bytes();
        let at = self.receives % (1 << LOG_RQ) * stride as u64;
        self.rq.write(at, &wqe[..stride]).expect("inside the ring");
        self.receives += 1;
        let qpn = self.qpn();
        let word = match self.format.dialect() {
            Dialect::Mlx5 => {
                let word = self.dbr.atomic_u32(0).expect("a record has 8 bytes");
                return word.store(record_word(self.receives), Ordering::Release);
            }
            Dialect::Bnxt(library) => {
                let units = self.format.receive_slots().map_or(1, u32::from);
                let ring = Ring::new(units << LOG_RQ, library).expect("a ring");
                ring.doorbell(Kind::Receive, qpn.get(), self.receives * u64::from(units)).word()
            }
            Dialect::Ionic => {
                let index = Place { counter: self.receives, log_depth: LOG_RQ }.index();
                ionic_bell(qpn, index)
            }
        };
        self.ring_recv(word);
    }

    /// Writes any doorbell of receives, of a format without records.
    pub fn ring_recv(&self, word: u64) {
        let cell = self.dbr.atomic_u64(0).expect("a doorbell");
        cell.store(word.to_le(), Ordering::Release);
    }

    /// The next completion of a send.
    pub fn poll_send(&mut self) -> Option<Reported> {
        self.send.poll()
    }

    /// The next completion of a receive.
    pub fn poll_recv(&mut self) -> Option<Reported> {
        self.recv.poll()
    }

    /// The number that the last CQE of bnxt_re gave its receive.
    pub fn received_id(&self) -> u32 {
        self.recv.id
    }

    fn qpn(&self) -> Qpn {
        Qpn::truncate(self.qp.qpn())
    }

    fn position(&self) -> Position {
        Position { qpn: self.qpn(), index: WqeIndex::of(self.posted) }
    }
}

fn ionic_bell(queue: Qpn, index: u16) -> u64 {
    warpverbs_ionic::doorbell::Doorbell { queue, index, arm: None }.word()
}

fn build_mlx5(request: &WorkRequest<'_>, at: Position, buf: &mut [u8]) -> usize {
    let sges = if let Data::Sges(sges) = request.data { sges } else { &[] };
    let first = sges.first().copied().unwrap_or_default();
    let result = Local { addr: first.addr, lkey: first.lkey };
    let (mut wqe, takes) = match request.op {
        Op::Send => (WqeBuilder::send(buf, at), true),
        Op::SendImm(imm) => (WqeBuilder::send_imm(buf, at, imm), true),
        Op::SendInvalidate(rkey) => (WqeBuilder::send_inval(buf, at, rkey), true),
        Op::Write(remote) => (WqeBuilder::write(buf, at, remote), true),
        Op::WriteImm(remote, imm) => (WqeBuilder::write_imm(buf, at, remote, imm), true),
        Op::Read(remote) => (WqeBuilder::read(buf, at, remote), true),
        Op::CompareSwap { remote, compare, swap } => {
            (WqeBuilder::compare_swap(buf, at, remote, compare, swap, result), false)
        }
        Op::FetchAdd { remote, add } => {
            (WqeBuilder::fetch_add(buf, at, remote, add, result), false)
        }
    };
    match request.data {
        Data::Inline(bytes) => wqe = wqe.inline(bytes),
        Data::Sges(sges) if takes => {
            wqe = sges.iter().filter(|sge| sge.len > 0).fold(wqe, |wqe, sge| wqe.sge(*sge));
        }
        Data::Sges(_) => {}
    }
    if request.flags.contains(SendFlags::SIGNALED) {
        wqe = wqe.signaled();
    }
    if request.flags.contains(SendFlags::FENCE) {
        wqe = wqe.fence(warpverbs_mlx5::flags::Fence::FenceAndSmall);
    }
    wqe.finish().expect("the test's WQE can be built").len()
}
