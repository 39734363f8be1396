//! How a QP is made, and what of that is refused.

use crate::cq::Cq;
use crate::format::{Dialect, Names, QpFormat, Qpn, RecvFormat, SendFormat};
use crate::objects::payload::{CqePayload, CqeTarget, ScatterToCqe};
use crate::objects::receive::{Counts, Grants, OwnReceives, ReceiveQueue, Receives};
use crate::objects::send::{
    Doorbell, DoorbellOnly, Executor, OnSendError, Peer, Progress, Ring, SendQueue, Source, Turn,
};
use crate::pd::Pd;
use crate::proxy_device::ProxyDevice;
use crate::qp::QpAttrs;
use crate::shared::Shared;
use crate::slots::QpSlot;
use crate::srq::Srq;
use crate::uar::UarPage;
use crate::{NicError, QpStats};
use std::collections::VecDeque;
use warpverbs_mem::{KeyHint, Kind, QueueRecord, ReceiveRing, Region};
use warpverbs_rdma::{QpState, Service};

/// Where a QP takes receives from.
#[derive(Clone, Debug, Default)]
pub enum RqConfig {
    /// None: every SEND and WRITE with immediate data gets "receiver not ready".
    #[default]
    None,
    /// Its own ring.
    Own {
        /// 2^`log_rq` WQEs of 2^`log_stride` bytes, 16-byte aligned, host memory or memory with a
        /// copy engine. Receives that are posted in ERR are flushed if the doorbell record is in
        /// host memory.
        buf: Region,
        /// log2 of the number of WQEs, 0 to 15.
        log_rq: u8,
        /// log2 of the bytes of a WQE, 4 to 10, unless the format says how many.
        log_stride: u8,
    },
    /// An SRQ of the same protection domain.
    Srq(Srq),
}

/// The way in which new work of a QP is announced.
#[derive(Clone, Debug, Default)]
pub enum Announcement {
    /// Its doorbell in [`SoftNic::doorbells`](crate::SoftNic::doorbells), under the
    /// [`DoorbellPolicy`](crate::DoorbellPolicy).
    #[default]
    Doorbell,
    /// A register of a page, which QPs may share: a new value there makes the NIC look at the
    /// doorbell record of the QP that it names, then at those of all QPs of the page. The record
    /// counts, unless the QP has none.
    Uar {
        /// The page.
        page: UarPage,
        /// Whether the QP has no record.
        doorbell_only: DoorbellOnly,
    },
}

/// How a QP is made.
#[derive(Clone, Debug)]
pub struct QpConfig {
    /// The format of its queues, which is that of its CQs and its SRQ. Those of other formats than mlx5's have
    /// no dynamic connections, announce work by their own doorbells, and have no payload in CQEs; datagrams
    /// in them go to an [`AddressHandle`](crate::AddressHandle).
    pub format: QpFormat,
    /// The transport service. Datagrams need a link and use host memory. Ends of dynamic
    /// connections have numbers and states, but no packets: posted work is refused.
    pub service: Service,
    /// Completions of sends.
    pub send_cq: Cq,
    /// Completions of receives.
    pub recv_cq: Cq,
    /// 2^`log_sq` WQEBBs of 64 bytes, 64-byte aligned, or units of another format, 16-byte aligned; host
    /// memory or memory with a copy engine, any unless `consume_only`.
    pub sq: Region,
    /// log2 of the number of WQEBBs, or of units of another format, 0 to 15.
    pub log_sq: u8,
    /// Receives.
    pub rq: RqConfig,
    /// be32 RCV counter, be32 SND counter: 8 bytes, 8-byte aligned, host memory or memory with a copy
    /// engine. One that must be copied is read when a doorbell is rung, not polled.
    pub dbr: Region,
    /// The way in which new work is announced.
    pub announcement: Announcement,
    /// The effect of a failed send on the QP.
    pub on_send_error: OnSendError,
    /// In the place of the SRQ's number in every CQE of the QP: CQEs of version 1. At most 24 bits;
    /// `None`: version 0.
    pub user_index: Option<u32>,
    /// Short payload goes into CQEs in place of memory.
    pub scatter_to_cqe: ScatterToCqe,
    /// The NIC reads no WQE: every announced WQEBB counts as one WQE that succeeded, and the newest
    /// gets a CQE. For measuring posters; see also [`SoftNic::consume_only`](crate::SoftNic::consume_only).
    pub consume_only: bool,
}

fn in_range(what: &'static str, value: u8, min: u8, max: u8) -> Result<(), NicError> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    let (value, min, max) = (u64::from(value), u64::from(min), u64::from(max));
    Err(NicError::OutOfRange { what, value, min, max })
}

/// Another device is told of work as it is posted, which the NIC polls for.
pub(crate) fn check_host_memory(queues: &[&Region]) -> Result<(), NicError> {
    match queues.iter().all(|queue| queue.kind() == Kind::Host) {
        true => Ok(()),
        false => Err(NicError::NotProxied { what: "a queue in a GPU's memory" }),
    }
}

fn memory(what: &'static str) -> impl Fn(warpverbs_mem::MemError) -> NicError {
    move |cause| NicError::Memory { what, cause }
}

impl RqConfig {
    fn open(&self, dbr: &Region, queues: &QpFormat) -> Result<Receives, NicError> {
        Ok(match self {
            Self::None => Receives::None,
            Self::Srq(srq) => Receives::Shared(srq.0.slot),
            Self::Own { buf, log_rq, log_stride } => {
                in_range("log_rq", *log_rq, 0, 15)?;
                in_range("log_stride", *log_stride, 4, 10)?;
                let (format, stride) = RecvFormat::own(queues, *log_rq)?;
                let stride = stride.unwrap_or(1 << log_stride);
                let ring = ReceiveRing::new(buf, *log_rq, stride).map_err(memory("RQ buffer"))?;
                let record = QueueRecord::new(dbr).map_err(memory("QP doorbell record"))?;
                let (taken, posted) = (0, 0);
                let (qpn, broken) = (0, false);
                Receives::Own(OwnReceives { qpn, ring, format, record, taken, posted, broken })
            }
        })
    }
}

impl QpConfig {
    /// Everything given is of this NIC, and of this domain where that matters.
    pub(super) fn check_owner(&self, nic: &Shared, pd: &Pd) -> Result<(), NicError> {
        nic.check_own("protection domain", &pd.0.nic)?;
        nic.check_own("send CQ", &self.send_cq.0.nic)?;
        nic.check_own("receive CQ", &self.recv_cq.0.nic)?;
        if let Announcement::Uar { page, .. } = &self.announcement {
            nic.check_own("page of doorbell registers", &page.0.nic)?;
        }
        if let RqConfig::Srq(srq) = &self.rq {
            nic.check_own("SRQ", &srq.0.nic)?;
            if srq.0.pd.number() != pd.number() {
                return Err(NicError::Foreign { what: "SRQ", owner: "protection domain" });
            }
        }
        Ok(())
    }

    /// A QP that another device executes takes receives of that device, and executes its WQEs.
    pub(super) fn check_proxied(
        &self,
        proxy_device: Option<&dyn ProxyDevice>,
    ) -> Result<(), NicError> {
        let foreign = Err(NicError::Foreign { what: "SRQ", owner: "kind of QP" });
        match &self.rq {
            RqConfig::Srq(srq) if srq.0.proxied != proxy_device.is_some() => return foreign,
            _ => {}
        }
        if proxy_device.is_some() && self.service != Service::Connected {
            return Err(NicError::NotProxied { what: "a QP that is not connected" });
        }
        if self.scatter_to_cqe != ScatterToCqe::default() {
            if proxy_device.is_some() {
                return Err(NicError::NotProxied { what: "payload in CQEs" });
            }
            if self.service == Service::Datagram {
                return Err(NicError::DatagramInCqe);
            }
        }
        if proxy_device.is_some() && self.consume_only {
            return Err(NicError::NotProxied { what: "a QP that only consumes" });
        }
        if proxy_device.is_some() {
            let mut queues = vec![&self.sq, &self.dbr];
            if let RqConfig::Own { buf, .. } = &self.rq {
                queues.push(buf);
            }
            check_host_memory(&queues)?;
        }
        let sends = proxy_device.map_or(1, |proxy_device| proxy_device.limits().send_depth);
        if sends == 0 {
            let (value, min, max) = (0, 1, u64::from(u32::MAX));
            return Err(NicError::OutOfRange {
                what: "send depth of a proxy device",
                value,
                min,
                max,
            });
        }
        Ok(())
    }

    /// The two halves, which have no number yet.
    pub(super) fn halves(
        &self,
        pd: &Pd,
        proxied: bool,
    ) -> Result<(SendQueue, ReceiveQueue), NicError> {
        in_range("log_sq", self.log_sq, 0, 15)?;
        if let Some(index) = self.user_index.filter(|index| index >> 24 != 0) {
            let (what, value, max) = ("user index", u64::from(index), 0xff_ffff);
            return Err(NicError::OutOfRange { what, value, min: 0, max });
        }
        self.check_format(proxied)?;
        let (ring, depth, format) = match self.consume_only {
            true => (None, 1 << self.log_sq, SendFormat::Mlx5),
            false => {
                let (ring, depth, format) = self.format.open(&self.sq, self.log_sq)?;
                (Some(ring), depth, format)
            }
        };
        let executor = match self.service {
            _ if proxied => Executor::Proxy,
            Service::Datagram => Executor::Datagram,
            service if service.is_dynamic() => Executor::Dynamic,
            _ => Executor::Loopback,
        };
        let ring = Ring::new(ring, depth);
        Ok((self.sends(pd, executor, ring, format)?, self.receives(pd, executor)?))
    }

    fn sends(
        &self,
        pd: &Pd,
        executor: Executor,
        ring: Ring,
        format: SendFormat,
    ) -> Result<SendQueue, NicError> {
        let record = QueueRecord::new(&self.dbr).map_err(memory("QP doorbell record"))?;
        let source = match &self.announcement {
            Announcement::Doorbell => Source::Doorbell,
            Announcement::Uar { page, doorbell_only } => {
                Source::Uar { page: page.0.slot, set: *doorbell_only, now: *doorbell_only }
            }
        };
        Ok(SendQueue {
            qpn: Qpn::default(),
            slot: QpSlot::default(),
            pd: pd.number(),
            service: self.service,
            // Of datagrams, only sends stop (IBTA table 91); of formats whose libraries flush by
            // themselves, everything.
            on_error: match self.service {
                _ if self.format.dialect() != Dialect::Mlx5 => OnSendError::StopAll,
                Service::Datagram => OnSendError::StopSends,
                _ => self.on_send_error,
            },
            state: QpState::Reset,
            attrs: QpAttrs::default(),
            executor,
            format,
            ring,
            progress: Progress::default(),
            doorbell: Doorbell::new(record, source),
            turn: Turn::default(),
            peer: Peer::default(),
            psn: 0,
            cqes: self.target(&self.send_cq, self.scatter_to_cqe.requests, self.log_sq),
            local_hint: KeyHint::default(),
            first_error: None,
            stats: QpStats::default(),
        })
    }

    /// CQEs of one half go to `cq`.
    fn target(&self, cq: &Cq, takes_payload: bool, log_depth: u8) -> CqeTarget {
        let payload = CqePayload::new(takes_payload, cq.0.cqe_size.payload());
        let handle = match &self.format {
            QpFormat::Bnxt(queues) => Some(queues.handle),
            _ => self.user_index.map(u64::from),
        };
        let (mask, datagrams) = ((1 << log_depth) - 1, self.service == Service::Datagram);
        CqeTarget { cq: cq.0.slot, names: Names { handle, mask, datagrams }, payload }
    }

    /// Everything has the QP's format, and the format has everything.
    fn check_format(&self, proxied: bool) -> Result<(), NicError> {
        let dialect = self.format.dialect();
        let foreign = |what| Err(NicError::Foreign { what, owner: "format of queues" });
        if self.send_cq.0.dialect != dialect {
            return foreign("send CQ");
        }
        if self.recv_cq.0.dialect != dialect {
            return foreign("receive CQ");
        }
        if matches!(&self.rq, RqConfig::Srq(srq) if srq.0.dialect != dialect) {
            return foreign("SRQ");
        }
        if dialect == Dialect::Mlx5 {
            return Ok(());
        }
        let lacks = [
            (proxied, "work for another device"),
            (self.service.is_dynamic(), "dynamic connections"),
            (self.consume_only, "a QP that only consumes"),
            (self.scatter_to_cqe != ScatterToCqe::default(), "payload in CQEs"),
            // A register that queues share keeps its last value alone.
            (matches!(self.announcement, Announcement::Uar { .. }), "a register that QPs share"),
        ];
        match lacks.into_iter().find(|(asked, _)| *asked) {
            Some((_, what)) => Err(NicError::NotOfFormat { what }),
            None => Ok(()),
        }
    }

    fn receives(&self, pd: &Pd, executor: Executor) -> Result<ReceiveQueue, NicError> {
        let log_rq = if let RqConfig::Own { log_rq, .. } = self.rq { log_rq } else { 16 };
        Ok(ReceiveQueue {
            qpn: 0,
            slot: QpSlot::default(),
            pd: pd.number(),
            state: QpState::Reset,
            peer_qpn: None,
            executor,
            flushing: false,
            grants: Grants::default(),
            source: self.rq.open(&self.dbr, &self.format)?,
            open: VecDeque::new(),
            generation: 0,
            cqes: self.target(&self.recv_cq, self.scatter_to_cqe.receives, log_rq),
            remote_hint: KeyHint::default(),
            scatter_hint: KeyHint::default(),
            refuse: 0,
            counts: Counts::default(),
        })
    }
}
