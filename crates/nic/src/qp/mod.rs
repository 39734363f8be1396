//! QPs: reliable connections, and unreliable datagrams.

mod attrs;
pub(crate) mod payload;
pub(crate) mod receive;
pub(crate) mod send;
pub(crate) mod state;

pub use attrs::{AttrMask, Path, QpAttrs, ack_timeout, rnr_delay};
pub use payload::ScatterToCqe;
pub use send::FirstError;
pub use warpverbs_rdma::{QpState, Service};

use crate::cq::Cq;
use crate::engine::control;
use crate::nic::Shared;
use crate::pd::Pd;
use crate::proxy_device::ProxyDevice;
use crate::slots::QpSlot;
use crate::srq::Srq;
use crate::uar::UarPage;
use crate::{ModifyError, NicError, QpStats};
use payload::CqePayload;
use receive::{OwnReceives, ReceiveQueue, Receives};
use send::{Executor, PendingDoorbell, SendQueue, Source};
use std::collections::VecDeque;
use std::sync::Arc;
use warpverbs_mem::{Access, KeyHint, Kind, QueueRecord, ReceiveRing, Region, SendRing};
use warpverbs_mlx5::num::Qpn;

/// What a failed send does to the QP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnSendError {
    /// The QP goes to ERR, as a reliable connection does.
    #[default]
    StopAll,
    /// The QP goes to SQE: sends are flushed, receives go on, the user may bring it back to RTS.
    StopSends,
}

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
        /// log2 of the bytes of a WQE, 4 to 10.
        log_stride: u8,
    },
    /// An SRQ of the same protection domain.
    Srq(Srq),
}

/// Whether a QP's poster writes doorbells, but no doorbell record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DoorbellOnly {
    /// It does if the record stays 0 for
    /// [`Config::record_polls`](crate::Config::record_polls) polls after its first doorbell.
    #[default]
    Detect,
    /// It does not.
    Never,
    /// It does.
    Always,
}

/// What makes new work of a QP known.
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

/// What [`Qp::query`] answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QpInfo {
    /// The state.
    pub state: QpState,
    /// The attributes as far as they were given since RESET. PSNs are those of the next packet
    /// sent and of the next one expected, where packets are sent.
    pub attrs: QpAttrs,
    /// In SQD, work that was begun is still in flight.
    pub draining: bool,
}

/// How a QP is made.
#[derive(Clone, Debug)]
pub struct QpConfig {
    /// What it exchanges. Datagrams need a link and use host memory. Ends of dynamic connections
    /// have numbers and states, but there are no packets for them: what is posted is refused.
    pub service: Service,
    /// Completions of sends.
    pub send_cq: Cq,
    /// Completions of receives.
    pub recv_cq: Cq,
    /// 2^`log_sq` WQEBBs of 64 bytes, 64-byte aligned; host memory or memory with a copy engine,
    /// any unless `consume_only`.
    pub sq: Region,
    /// log2 of the number of WQEBBs, 0 to 15.
    pub log_sq: u8,
    /// Receives.
    pub rq: RqConfig,
    /// be32 RCV counter, be32 SND counter: 8 bytes, 8-byte aligned, host memory or memory with a copy
    /// engine. One that must be copied is read when a doorbell is rung, not polled.
    pub dbr: Region,
    /// What makes new work known.
    pub announcement: Announcement,
    /// What a failed send does to the QP.
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
    fn open(&self, dbr: &Region) -> Result<Receives, NicError> {
        Ok(match self {
            Self::None => Receives::None,
            Self::Srq(srq) => Receives::Shared(srq.0.slot),
            Self::Own { buf, log_rq, log_stride } => {
                in_range("log_rq", *log_rq, 0, 15)?;
                in_range("log_stride", *log_stride, 4, 10)?;
                let ring =
                    ReceiveRing::new(buf, *log_rq, *log_stride).map_err(memory("RQ buffer"))?;
                let record = QueueRecord::new(dbr).map_err(memory("QP doorbell record"))?;
                Receives::Own(OwnReceives { ring, record, taken: 0, posted: 0, broken: false })
            }
        })
    }
}

impl QpConfig {
    /// Everything given is of this NIC, and of this domain where that matters.
    fn check_owner(&self, nic: &Arc<Shared>, pd: &Pd) -> Result<(), NicError> {
        let same = |what, other: &Arc<Shared>| {
            let foreign = NicError::Foreign { what, owner: "NIC" };
            Arc::ptr_eq(nic, other).then_some(()).ok_or(foreign)
        };
        same("protection domain", &pd.0.nic)?;
        same("send CQ", &self.send_cq.0.nic)?;
        same("receive CQ", &self.recv_cq.0.nic)?;
        if let Announcement::Uar { page, .. } = &self.announcement {
            same("page of doorbell registers", &page.0.nic)?;
        }
        if let RqConfig::Srq(srq) = &self.rq {
            same("SRQ", &srq.0.nic)?;
            if srq.0.pd.number() != pd.number() {
                return Err(NicError::Foreign { what: "SRQ", owner: "protection domain" });
            }
        }
        Ok(())
    }

    /// A QP that another device executes takes receives of that device, and executes its WQEs.
    fn check_proxied(&self, proxy_device: Option<&dyn ProxyDevice>) -> Result<(), NicError> {
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
    fn halves(&self, pd: &Pd, proxied: bool) -> Result<(SendQueue, ReceiveQueue), NicError> {
        in_range("log_sq", self.log_sq, 0, 15)?;
        if let Some(index) = self.user_index.filter(|index| index >> 24 != 0) {
            let (what, value, max) = ("user index", u64::from(index), 0xff_ffff);
            return Err(NicError::OutOfRange { what, value, min: 0, max });
        }
        let ring = match self.consume_only {
            true => None,
            false => Some(SendRing::new(&self.sq, self.log_sq).map_err(memory("SQ buffer"))?),
        };
        let executor = match self.service {
            _ if proxied => Executor::Proxy,
            Service::Datagram => Executor::Datagram,
            service if service.is_dynamic() => Executor::Dynamic,
            _ => Executor::Loopback,
        };
        Ok((self.sends(pd, executor, ring)?, self.receives(pd, executor)?))
    }

    fn sends(
        &self,
        pd: &Pd,
        executor: Executor,
        ring: Option<SendRing>,
    ) -> Result<SendQueue, NicError> {
        Ok(SendQueue {
            qpn: Qpn::default(),
            slot: QpSlot::default(),
            pd: pd.number(),
            state: QpState::Reset,
            // Of datagrams, only sends stop (IBTA table 91).
            on_error: match self.service {
                Service::Datagram => OnSendError::StopSends,
                _ => self.on_send_error,
            },
            psn: 0,
            ring,
            consume_only: self.consume_only,
            record: QueueRecord::new(&self.dbr).map_err(memory("QP doorbell record"))?,
            depth: 1 << self.log_sq,
            cq: self.send_cq.0.slot,
            user_index: self.user_index,
            payload: CqePayload::new(
                self.scatter_to_cqe.requests,
                self.send_cq.0.cqe_size.payload(),
            ),
            posted: 0,
            next: 0,
            retired: 0,
            reported: 0,
            in_flight: VecDeque::new(),
            queued: false,
            wake: None,
            waits: None,
            stuck: false,
            drained: false,
            deferred_error: None,
            peer_qpn: 0,
            service: self.service,
            executor,
            peer_slot: QpSlot::default(),
            retries_left: 0,
            rnr_left: 0,
            attrs: QpAttrs::default(),
            local_hint: KeyHint::default(),
            source: match &self.announcement {
                Announcement::Doorbell => Source::Doorbell,
                Announcement::Uar { page, doorbell_only } => {
                    Source::Uar { page: page.0.slot, set: *doorbell_only, now: *doorbell_only }
                }
            },
            refused_record: None,
            pending_doorbell: PendingDoorbell::None,
            lose: 0,
            lose_recovery: None,
            snapshot: Vec::new(),
            first_error: None,
            stats: QpStats::default(),
        })
    }

    fn receives(&self, pd: &Pd, executor: Executor) -> Result<ReceiveQueue, NicError> {
        Ok(ReceiveQueue {
            qpn: 0,
            slot: QpSlot::default(),
            pd: pd.number(),
            state: QpState::Reset,
            peer_qpn: None,
            executor,
            qkey: 0,
            flushing: false,
            access: Access::empty(),
            min_rnr_timer: 0,
            max_dest_rd_atomic: 0,
            source: self.rq.open(&self.dbr)?,
            open: VecDeque::new(),
            generation: 0,
            cq: self.recv_cq.0.slot,
            user_index: self.user_index,
            payload: CqePayload::new(
                self.scatter_to_cqe.receives,
                self.recv_cq.0.cqe_size.payload(),
            ),
            remote_hint: KeyHint::default(),
            scatter_hint: KeyHint::default(),
            refuse: 0,
            receives: 0,
            received_bytes: 0,
            flushed: 0,
        })
    }
}

/// A QP. Clones share it; it is destroyed with the last one, at any time, even with work in flight:
/// copies that were started end, no other work is executed, and peers get no more answers.
#[derive(Clone, Debug)]
pub struct Qp(Arc<QpInner>);

#[derive(Debug)]
struct QpInner {
    nic: Arc<Shared>,
    slot: QpSlot,
    qpn: u32,
    /// What the QP works with outlives it.
    _keep: (Pd, QpConfig),
}

impl Qp {
    pub(crate) fn create(
        nic: &Arc<Shared>,
        pd: &Pd,
        config: QpConfig,
        proxy_device: Option<Box<dyn ProxyDevice>>,
    ) -> Result<Self, NicError> {
        config.check_owner(nic, pd)?;
        config.check_proxied(proxy_device.as_deref())?;
        // Not under the lock: for queues in a GPU's memory, calls of its driver are made, which may wait
        // for kernels that wait for the NIC.
        let (mut send, mut receive) = config.halves(pd, proxy_device.is_some())?;
        let mut core = nic.lock_running()?;
        let qpn = match &proxy_device {
            Some(proxy_device) => core.queues.tables.claim_qpn(proxy_device.qpn())?,
            None => core.draw_qpn(),
        };
        (send.qpn, receive.qpn) = (Qpn::new(qpn).unwrap_or_default(), qpn);
        let slot = core.insert_qp(send, receive)?;
        if let Some(proxy_device) = proxy_device {
            core.proxy.insert(slot, proxy_device);
        }
        drop(core);
        Ok(Self(Arc::new(QpInner { nic: nic.clone(), slot, qpn, _keep: (pd.clone(), config) })))
    }

    /// The QP's number, 24 bits.
    pub fn qpn(&self) -> u32 {
        self.0.qpn
    }

    /// Byte offset of the QP's doorbell in [`SoftNic::doorbells`](crate::SoftNic::doorbells).
    pub fn doorbell_offset(&self) -> u64 {
        u64::from(self.0.slot.0) * 8
    }

    /// The QP's state; ERR once the NIC has stopped.
    pub fn state(&self) -> QpState {
        if self.0.nic.stopped().is_some() {
            return QpState::Err;
        }
        self.0.nic.lock().queues.tables.sends.live(self.0.slot).map_or(QpState::Reset, |q| q.state)
    }

    /// Brings the QP to another state. A refusal changes nothing and names what was wrong.
    pub fn modify(&self, to: QpState, attrs: &QpAttrs) -> Result<(), ModifyError> {
        // Work in flight is dropped after the lock.
        let mut core = self.0.nic.lock_running().map_err(|_| ModifyError::Stopped)?;
        let released = control::modify(&mut core, self.0.slot, to, attrs)?;
        drop(core);
        drop(released);
        Ok(())
    }

    /// The QP's attributes, as far as they were given since RESET.
    pub fn attrs(&self) -> QpAttrs {
        self.0
            .nic
            .lock()
            .queues
            .tables
            .sends
            .live(self.0.slot)
            .map_or(QpAttrs::default(), |q| q.attrs)
    }

    /// The QP as it is now.
    pub fn query(&self) -> QpInfo {
        let mut info = control::query(&self.0.nic.lock(), self.0.slot);
        if self.0.nic.stopped().is_some() {
            info.state = QpState::Err;
        }
        info
    }

    /// Counters.
    pub fn stats(&self) -> QpStats {
        control::qp_stats(&self.0.nic.lock(), self.0.slot)
    }

    /// The first error of the send queue since RESET. A collapsed CQ shows only the newest CQE, a
    /// flush; this is the cause.
    pub fn first_error(&self) -> Option<FirstError> {
        self.0.nic.lock().queues.tables.sends.live(self.0.slot)?.first_error
    }
}

impl Drop for QpInner {
    fn drop(&mut self) {
        // Memory is freed, and copies in flight are waited for, after the lock.
        let released = self.nic.take_down(|core| core.remove_qp(self.slot));
        drop(released);
    }
}
