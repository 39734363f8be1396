//! One QP with its queues and CQs in host memory.

use crate::config::{PortConfig, Receives};
use crate::consumer::Consumer;
use std::sync::atomic::Ordering;
use warpverbs_mem::Region;
use warpverbs_mlx5::cqe::{Cqe, ErrorSide};
use warpverbs_mlx5::doorbell::{Doorbell, record_word};
use warpverbs_mlx5::num::{MAX_WQE, Qpn, WqeIndex};
use warpverbs_mlx5::recv;
use warpverbs_mlx5::syndrome::Syndrome;
use warpverbs_mlx5::wqe::{Position, Sge, WqeBuilder};
use warpverbs_nic::{
    Cq, CqMode, Dialect, NicError, Pd, ProxyDevice, Qp, QpAttrs, QpFormat, QpState, RqConfig,
    SoftNic,
};

/// A QP and what a poster needs to use it.
#[derive(Debug)]
pub struct Port {
    /// The QP.
    pub qp: Qp,
    /// Its send queue.
    pub sq: Region,
    /// Its own receive queue, WQEs of 64 bytes; empty without.
    pub rq: Region,
    /// Its doorbell record.
    pub dbr: Region,
    doorbells: Region,
    log_sq: u8,
    log_rq: u8,
    send: Consumer,
    recv: Consumer,
    /// Next free WQEBB.
    pub posted: u64,
    /// Receives posted.
    pub receives_posted: u64,
    last: [u8; 8],
}

impl Port {
    /// Makes the queues, the CQs and the QP, in RESET.
    pub fn new(nic: &SoftNic, pd: &Pd, config: &PortConfig) -> Result<Self, NicError> {
        Self::make(nic, pd, config, None)
    }

    /// As [`Self::new`], proxied by another device.
    pub fn proxied(
        nic: &SoftNic,
        pd: &Pd,
        config: &PortConfig,
        proxy_device: Box<dyn ProxyDevice>,
    ) -> Result<Self, NicError> {
        Self::make(nic, pd, config, Some(proxy_device))
    }

    fn make(
        nic: &SoftNic,
        pd: &Pd,
        config: &PortConfig,
        proxy_device: Option<Box<dyn ProxyDevice>>,
    ) -> Result<Self, NicError> {
        let send = Consumer::new(nic, Dialect::Mlx5, config.cq_mode, config)?;
        let recv = Consumer::new(nic, Dialect::Mlx5, CqMode::Ring, config)?;
        let alloc = |len| config.memory.alloc(len);
        let ((its_sq, sq), (its_dbr, dbr)) = (alloc(64 << config.log_sq)?, alloc(64)?);
        let (rq, log_rq, rq_config) = match &config.receives {
            Receives::Own { log } => {
                let (buf, rq) = alloc(64 << log)?;
                (rq, *log, RqConfig::Own { buf, log_rq: *log, log_stride: 6 })
            }
            Receives::Shared(srq) => (alloc(64)?.1, 0, RqConfig::Srq(srq.clone())),
            Receives::None => (alloc(64)?.1, 0, RqConfig::None),
        };
        let of = [&send.cq, &recv.cq];
        let qp = config.qp(QpFormat::Mlx5, of, its_sq, rq_config, its_dbr);
        let qp = match proxy_device {
            Some(proxy_device) => nic.create_proxied_qp(pd, qp, proxy_device)?,
            None => nic.create_qp(pd, qp)?,
        };
        Ok(Self {
            qp,
            sq,
            rq,
            dbr,
            doorbells: nic.doorbells().clone(),
            log_sq: config.log_sq,
            log_rq,
            send,
            recv,
            posted: 0,
            receives_posted: 0,
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

    /// Where the next WQE goes.
    pub fn position(&self) -> Position {
        let qpn = Qpn::new(self.qp.qpn()).unwrap_or_default();
        Position { qpn, index: WqeIndex::of(self.posted) }
    }

    /// Puts a WQE into the ring without announcing it; its index.
    pub fn put_wqe(
        &mut self,
        build: impl for<'b> FnOnce(&'b mut [u8], Position) -> WqeBuilder<'b>,
    ) -> u64 {
        let mut bytes = [0; MAX_WQE];
        let wqe = build(&mut bytes, self.position()).finish();
        let len = wqe.expect("the test's WQE can be built").len();
        self.put_bytes(&bytes[..len])
    }

    /// Puts whole WQEBBs into the ring, whatever they hold; the index of the first.
    pub fn put_bytes(&mut self, bytes: &[u8]) -> u64 {
        let index = self.posted;
        for (i, block) in (index..).zip(bytes.chunks(64)) {
            let at = (i & ((1 << self.log_sq) - 1)) * 64;
            self.sq.write(at, block).expect("the slot is inside the ring");
        }
        self.posted += bytes.len().div_ceil(64) as u64;
        if let Some(first) = bytes.first_chunk() {
            self.last = *first;
        }
        index
    }

    /// Writes the doorbell record.
    pub fn record(&self) {
        let word = self.dbr.atomic_u32(4).expect("a record has 8 bytes");
        word.store(record_word(self.posted), Ordering::Release);
    }

    /// Rings with the index after the last WQE.
    pub fn ring(&self) {
        self.ring_at(self.posted);
    }

    /// Rings with any index.
    pub fn ring_at(&self, next: u64) {
        let (qpn, next) = (self.position().qpn, WqeIndex::of(next));
        self.ring_bytes(Doorbell::Next { qpn, next }.bytes());
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

    /// Rings by a register of a page, with the first 8 bytes of the last WQE.
    pub fn ring_register(&self, page: &Region, register: u64) {
        let cell = page.atomic_u64(0x800 + register * 0x100).expect("a page has four registers");
        cell.store(u64::from_ne_bytes(self.last), Ordering::Release);
    }

    /// Writes the record and rings.
    pub fn announce(&self) {
        self.record();
        self.ring();
    }

    /// Puts a WQE and announces it; its index.
    pub fn post_wqe(
        &mut self,
        build: impl for<'b> FnOnce(&'b mut [u8], Position) -> WqeBuilder<'b>,
    ) -> u64 {
        let index = self.put_wqe(build);
        self.announce();
        index
    }

    /// Brings the QP to RESET; counters and record begin anew.
    pub fn reset(&mut self) {
        self.qp.modify(QpState::Reset, &QpAttrs::default()).expect("RESET from anywhere");
        (self.posted, self.receives_posted) = (0, 0);
        self.dbr.fill(0, 8, 0).expect("a record has 8 bytes");
    }

    /// Posts a receive.
    pub fn post_recv(&mut self, sges: &[Sge]) {
        let mut slot = [0; 64];
        recv::build(&mut slot, sges).expect("a receive of at most 4 entries");
        self.post_recv_bytes(&slot);
    }

    /// Posts a receive WQE of any 64 bytes.
    pub fn post_recv_bytes(&mut self, slot: &[u8; 64]) {
        let at = (self.receives_posted & ((1 << self.log_rq) - 1)) * 64;
        self.rq.write(at, slot).expect("the slot is inside the ring");
        self.receives_posted += 1;
        let word = self.dbr.atomic_u32(0).expect("a record has 8 bytes");
        word.store(record_word(self.receives_posted), Ordering::Release);
    }

    /// The next completion of a send.
    pub fn poll_send(&mut self) -> Option<Cqe> {
        self.send.poll_mlx5()
    }

    /// The next completion of a receive.
    pub fn poll_recv(&mut self) -> Option<Cqe> {
        self.recv.poll_mlx5()
    }

    /// Goes on with a send CQ of 2^`log_size` entries.
    ///
    /// # Errors
    /// The NIC's.
    pub fn resize_send_cq(&mut self, log_size: u8) -> Result<(), NicError> {
        self.send.resize(log_size)
    }

    /// The payload that the CQEs polled last carried in place of memory, of a send and of a
    /// receive: 32 or 64 bytes, or none.
    pub fn payload(&self) -> [&[u8]; 2] {
        [&self.send.payload, &self.recv.payload]
    }

    /// Reports of the send queue since the last call: index, and syndrome of an error.
    pub fn sent(&mut self) -> Vec<(u16, Option<Syndrome>)> {
        std::iter::from_fn(|| self.poll_send())
            .map(|cqe| match cqe {
                Cqe::Requester { wqe_counter, .. } => (wqe_counter, None),
                Cqe::Error { wqe_counter, syndrome, .. } => (wqe_counter, Some(syndrome)),
                Cqe::Receive { .. } => panic!("{cqe:?} in a send CQ"),
            })
            .collect()
    }

    /// The same of receives.
    pub fn received(&mut self) -> Vec<(u16, Option<Syndrome>)> {
        std::iter::from_fn(|| self.poll_recv())
            .map(|cqe| match cqe {
                Cqe::Receive { wqe_counter, .. } => (wqe_counter, None),
                Cqe::Error { wqe_counter, syndrome, side: ErrorSide::Responder, .. } => {
                    (wqe_counter, Some(syndrome))
                }
                _ => panic!("{cqe:?} in a receive CQ"),
            })
            .collect()
    }

    /// The only report of the send queue since the last call, if there is one: its error.
    ///
    /// # Panics
    /// There are more.
    #[track_caller]
    pub fn only_sent(&mut self) -> Option<Option<Syndrome>> {
        match self.sent()[..] {
            [] => None,
            [(_, error)] => Some(error),
            ref more => panic!("{more:?}"),
        }
    }

    /// The bytes of the send CQ's first entry: all there is in collapsed mode.
    pub fn collapsed(&self) -> [u8; 64] {
        let mut bytes = [0; 64];
        self.send.buf.read(0, &mut bytes).expect("a CQ has an entry");
        bytes
    }
}
