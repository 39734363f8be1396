//! A QP with queues of any format in host memory, and a poster to it that knows them all.

use crate::config::{PortConfig, Receives};
use crate::consumer::{Consumer, Reported};
use crate::format::{LOG_PACKETS, QueueFormat};
use std::sync::atomic::Ordering;
use warpverbs_bnxt::doorbell::Kind;
use warpverbs_bnxt::packets::{Packets, Table};
use warpverbs_bnxt::ring::Ring;
use warpverbs_bnxt::{recv as bnxt_recv, wqe as bnxt_wqe};
use warpverbs_ionic::opcode::{Protocol, WqeFlags};
use warpverbs_ionic::ring::Position as Place;
use warpverbs_ionic::{recv as ionic_recv, wqe as ionic_wqe};
use warpverbs_mem::Region;
use warpverbs_mlx5::doorbell::{Doorbell, record_word};
use warpverbs_mlx5::num::{MAX_WQE, WqeIndex};
use warpverbs_mlx5::wqe::{Local, Position, WqeBuilder};
use warpverbs_nic::{
    Cq, CqMode, Dialect, Mtu, NicError, Pd, Qp, QpAttrs, QpState, RqConfig, SoftNic,
};
use warpverbs_rdma::{Addressed, Data, Op, Qpn, QueueKind, SendFlags, Sge, WorkRequest};

/// A QP and its poster. It checks nothing, so that tests can post what no correct poster would.
#[derive(Debug)]
pub struct Poster {
    /// The QP.
    pub qp: Qp,
    /// The format of its queues.
    pub format: QueueFormat,
    /// Path MTU and first packet, by which packet numbers are counted.
    pub mtu: Mtu,
    log_sq: u8,
    log_rq: u8,
    /// Its send queue.
    pub sq: Region,
    /// Its own receive queue, if it has one.
    pub rq: Region,
    /// Its doorbell record; of other formats than mlx5's the last doorbell of receives.
    pub dbr: Region,
    packets: Region,
    doorbells: Region,
    send: Consumer,
    recv: Consumer,
    /// Next free unit.
    pub posted: u64,
    /// WQEs posted.
    pub wqes: u64,
    /// Of the next WQE.
    pub psn: u32,
    receives: u64,
    last: [u8; 8],
}

impl Poster {
    /// Makes queues, CQs and QP, in RESET; CQs of 2^`log_cq` entries, that of sends of this mode.
    pub fn new(
        nic: &SoftNic,
        pd: &Pd,
        format: QueueFormat,
        (cq_mode, log_cq): (CqMode, u8),
    ) -> Result<Self, NicError> {
        let receives = Receives::Own { log: 5 };
        let config = PortConfig { cq_mode, log_cq, receives, ..PortConfig::default() };
        Self::with(nic, pd, [format; 2], &config)
    }

    /// As `config` says, with CQs of any format.
    pub fn with(
        nic: &SoftNic,
        pd: &Pd,
        [format, cqs]: [QueueFormat; 2],
        config: &PortConfig,
    ) -> Result<Self, NicError> {
        let alloc = |len| config.memory.alloc(len);
        let send = Consumer::new(nic, cqs.dialect(), config.cq_mode, config)?;
        let recv = Consumer::new(nic, cqs.dialect(), CqMode::Ring, config)?;
        let (units, bytes) = format.units(config.log_sq);
        let ((its_sq, sq), (its_dbr, dbr)) = (alloc(units as usize * bytes)?, alloc(64)?);
        let (its_packets, packets) = alloc(16 << LOG_PACKETS)?;
        let log_rq = if let Receives::Own { log } = config.receives { log } else { 0 };
        let (buf, rq) = alloc(128 << log_rq)?;
        let rq_config = match &config.receives {
            Receives::Own { .. } => RqConfig::Own { buf, log_rq, log_stride: format.log_stride() },
            Receives::Shared(srq) => RqConfig::Srq(srq.clone()),
            Receives::None => RqConfig::None,
        };
        let of = [&send.cq, &recv.cq];
        let qp =
            config.qp(format.of_qp(&its_packets, config.log_sq), of, its_sq, rq_config, its_dbr);
        Ok(Self {
            qp: nic.create_qp(pd, qp)?,
            format,
            mtu: Mtu::B1024,
            log_sq: config.log_sq,
            log_rq,
            sq,
            rq,
            dbr,
            packets,
            doorbells: nic.doorbells().clone(),
            send,
            recv,
            posted: 0,
            wqes: 0,
            psn: 0,
            receives: 0,
            last: [0; 8],
        })
    }

    /// The CQ of sends.
    pub fn send_cq(&self) -> &Cq {
        &self.send.cq
    }

    /// The CQ of receives.
    pub fn recv_cq(&self) -> &Cq {
        &self.recv.cq
    }

    /// Units of the send queue.
    pub fn units(&self) -> u64 {
        self.format.units(self.log_sq).0
    }

    /// RESET; everything is counted anew.
    pub fn reset(&mut self) {
        self.qp.modify(QpState::Reset, &QpAttrs::default()).expect("RESET from anywhere");
        (self.posted, self.wqes, self.receives, self.psn) = (0, 0, 0, 0);
        self.send.restart();
        self.dbr.fill(0, 64, 0).expect("inside");
    }

    /// [`Self::reset`], and RTS again by `rtr` and `rts`.
    pub fn connect(&mut self, init: &QpAttrs, rtr: &QpAttrs, rts: &QpAttrs) {
        self.reset();
        (self.mtu, self.psn) = (rtr.mtu.unwrap_or(Mtu::B1024), rts.sq_psn.unwrap_or(0));
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
        let len = self.build_any(to, request, &mut bytes).expect("the test's WQE can be built");
        self.put_bytes(&bytes[..len], payload(request));
    }

    /// The bytes of a WQE that would be next.
    pub fn build(&self, request: &WorkRequest<'_>, bytes: &mut [u8; MAX_WQE]) -> usize {
        self.try_build(request, bytes).expect("the test's WQE can be built").0
    }

    /// The same, if the request can be built, and the bytes of its payload.
    pub fn try_build(
        &self,
        request: &WorkRequest<'_>,
        bytes: &mut [u8; MAX_WQE],
    ) -> Option<(usize, u32)> {
        Some((self.build_any(None, request, bytes)?, payload(request)))
    }

    fn build_any(
        &self,
        to: Option<Addressed>,
        request: &WorkRequest<'_>,
        bytes: &mut [u8; MAX_WQE],
    ) -> Option<usize> {
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
                let len = wqe.ok()?.len();
                if let (QueueFormat::BnxtEarly, Op::FetchAdd { add, .. }) =
                    (self.format, request.op)
                {
                    bytes[24..32].copy_from_slice(&add.to_le_bytes());
                }
                return Some(len);
            }
        };
        let at = Place { counter: self.posted, log_depth: self.log_sq };
        let wqe = &mut bytes[..64];
        let built = match to {
            Some(to) => ionic_wqe::build_datagram(wqe, at, protocol, to, request),
            None => ionic_wqe::build(wqe, at, protocol, request),
        };
        built.is_ok().then_some(64)
    }

    /// Writes into a WQE or a receive that it is the queue's next, where its format says so.
    pub fn place(&self, wqe: &mut [u8; 64], queue: QueueKind) {
        let (counter, log_depth) = match queue {
            QueueKind::Send => (self.posted, self.log_sq),
            _ => (self.receives, self.log_rq),
        };
        match (self.format.dialect(), queue) {
            (Dialect::Mlx5, QueueKind::Send) => {
                let Position { qpn, index: next } = self.position();
                let place = Doorbell::Next { qpn, next }.bytes();
                wqe[1..3].copy_from_slice(&place[1..3]);
                wqe[4..7].copy_from_slice(&place[4..7]);
            }
            (Dialect::Mlx5, _) | (Dialect::Bnxt(_), _) => {}
            (Dialect::Ionic, _) => {
                let at = Place { counter, log_depth };
                let color = WqeFlags::COLOR.bits().to_be_bytes()[1];
                wqe[..8].copy_from_slice(&u64::from(at.index()).to_le_bytes());
                wqe[11] = if at.color() { wqe[11] | color } else { wqe[11] & !color };
            }
        }
    }

    /// Puts a WQE of any bytes, and packet numbers for `len` bytes of payload.
    pub fn put_bytes(&mut self, bytes: &[u8], len: u32) {
        let (units, unit) = self.format.units(self.log_sq);
        for (i, part) in (self.posted..).zip(bytes.chunks(unit)) {
            self.sq.write(i % units * unit as u64, part).expect("inside the ring");
        }
        let start = (self.posted % units) as u16;
        self.put_packets(Packets::of(self.psn, len, self.mtu, start));
        self.posted += bytes.len().div_ceil(unit) as u64;
        self.psn = self.psn.wrapping_add(self.mtu.packets(len)) & 0xff_ffff;
        self.wqes += 1;
        if let Some(first) = bytes.first_chunk() {
            self.last = *first;
        }
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
                let ring =
                    Ring::new(self.format.units(self.log_sq).0 as u32, library).expect("a ring");
                ring.doorbell(Kind::Send, qpn.get(), posted).word().to_le_bytes()
            }
            Dialect::Ionic => {
                let index = Place { counter: posted, log_depth: self.log_sq }.index();
                ionic_bell(qpn, index).to_le_bytes()
            }
        }
    }

    /// Announces everything.
    pub fn ring(&self) {
        self.record();
        self.ring_bytes(self.doorbell(self.posted));
    }

    /// Writes the record, if the format has one.
    pub fn record(&self) {
        if self.format == QueueFormat::Mlx5 {
            let word = self.dbr.atomic_u32(4).expect("a record has 8 bytes");
            word.store(record_word(self.posted), Ordering::Release);
        }
    }

    /// Rings with the first 8 bytes of the last WQE.
    pub fn ring_last(&self) {
        self.ring_bytes(self.last);
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
        let wqe = self.build_recv(sges).expect("a receive that fits");
        self.post_recv_bytes(&wqe);
    }

    /// The bytes of a receive that would be next, if it can be built.
    pub fn build_recv(&self, sges: &[Sge]) -> Option<[u8; 128]> {
        let mut wqe = [0; 128];
        let built = match self.format.dialect() {
            Dialect::Mlx5 => {
                let slot = wqe.first_chunk_mut::<64>().expect("long enough");
                warpverbs_mlx5::recv::build(slot, sges).is_ok()
            }
            Dialect::Bnxt(_) => {
                let id = (self.receives % (1 << self.log_rq)) as u32;
                bnxt_recv::build(&mut wqe, id, sges).is_ok()
            }
            Dialect::Ionic => {
                let at = Place { counter: self.receives, log_depth: self.log_rq };
                ionic_recv::build(&mut wqe[..64], at, sges).is_ok()
            }
        };
        built.then_some(wqe)
    }

    /// Posts a receive of any bytes, of which those count that its format has.
    pub fn post_recv_bytes(&mut self, wqe: &[u8; 128]) {
        let stride = self.format.receive_bytes();
        let at = self.receives % (1 << self.log_rq) * stride as u64;
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
                let ring = Ring::new(units << self.log_rq, library).expect("a ring");
                ring.doorbell(Kind::Receive, qpn.get(), self.receives * u64::from(units)).word()
            }
            Dialect::Ionic => {
                let index = Place { counter: self.receives, log_depth: self.log_rq }.index();
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

    /// Goes on with a send CQ of 2^`log_size` entries.
    ///
    /// # Errors
    /// The NIC's.
    pub fn resize_send_cq(&mut self, log_size: u8) -> Result<(), NicError> {
        self.send.resize(log_size)
    }

    fn qpn(&self) -> Qpn {
        Qpn::truncate(self.qp.qpn())
    }

    /// Where the next WQE of mlx5 goes.
    pub fn position(&self) -> Position {
        Position { qpn: self.qpn(), index: WqeIndex::of(self.posted) }
    }
}

fn ionic_bell(queue: Qpn, index: u16) -> u64 {
    warpverbs_ionic::doorbell::Doorbell { queue, index, arm: None }.word()
}

/// Bytes that a request moves, as its poster counts them.
fn payload(request: &WorkRequest<'_>) -> u32 {
    match request.data {
        Data::Inline(bytes) => bytes.len() as u32,
        Data::Sges(sges) => sges.iter().fold(0, |sum: u32, sge| sum.saturating_add(sge.len)),
    }
}

fn build_mlx5(request: &WorkRequest<'_>, at: Position, buf: &mut [u8]) -> Option<usize> {
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
    wqe.finish().ok().map(<[u8]>::len)
}
