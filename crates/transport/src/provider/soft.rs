//! The software NIC as a provider.

use super::events::{EventLog, Objects, Subscription};
use super::{CqSpec, MemoryKey, Nic, NicInfo, PathSpec, Provider, QpSpec, QueuePair, RecvSpec};
use super::{Events, SharedQueue, SrqSpec};
use crate::error::no_entropy;
use crate::limits::BNXT_SLOTS;
use crate::{FabricAddress, NicId, RegisterOptions, TransportError};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use warpverbs_mem::{Access, Kind, Region, RegistrationPath};
use warpverbs_mlx5::export::{CqMode, NicFormat};
use warpverbs_mlx5::num::WQEBB;
use warpverbs_nic::{
    Announcement, BnxtLibrary, BnxtMode, BnxtQueues, Config, Cq, CqConfig, CqeSize, Dialect,
    EngineThread, FirstError, IonicProtocol, Mtu, NicError, OnSendError, PacketTable, Path, Pd, Qp,
    QpAttrs, QpConfig, QpFormat, QpState, RqConfig, ScatterToCqe, Service, SoftNic, Srq, SrqConfig,
    SrqOrder, StopWatcher,
};
use warpverbs_rdma::Decision;

/// One software NIC, brought up when it is first opened.
pub(crate) struct Soft {
    config: Config,
    up: Mutex<Option<Arc<Running>>>,
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:?})", self.nic.config().name, self.id)
    }
}

/// A software NIC and the thread that is its engine. The thread ends with the last user.
pub(super) struct Running {
    pub(super) nic: SoftNic,
    pub(super) id: NicId,
    engine: Mutex<Option<EngineThread>>,
    events: Mutex<EventLog>,
}

impl Soft {
    pub(crate) fn new(config: Config) -> Self {
        Self { config, up: Mutex::default() }
    }

    /// A NIC whose engine the caller runs.
    pub(crate) fn stepped(nic: SoftNic) -> Result<Self, TransportError> {
        let config = nic.config().clone();
        let running = Running::new(nic)?;
        Ok(Self { config, up: Mutex::new(Some(Arc::new(running))) })
    }

    fn running(&self) -> Result<Arc<Running>, TransportError> {
        let mut up = self.up.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = &*up {
            return Ok(running.clone());
        }
        let nic = SoftNic::new(self.config.clone())?;
        let running = Arc::new(Running::new(nic)?);
        running.start_engine()?;
        *up = Some(running.clone());
        Ok(running)
    }

    /// With queues of this format.
    pub(crate) fn open_as(&self, format: NicFormat) -> Result<Arc<dyn Nic>, TransportError> {
        let running = self.running()?;
        let pd = running.nic.alloc_pd();
        let mut info = self.info();
        if format != NicFormat::Mlx5 {
            info.description += &format!(", queues of {format}");
        }
        Ok(Arc::new(SoftDevice { info, format, pd, running }))
    }

    pub(crate) fn info(&self) -> NicInfo {
        let Config { name, link, faults, capture, .. } = &self.config;
        let mut description = format!("software NIC in this process, {link}");
        if !faults.is_none() {
            description += &format!(", faults {faults}");
        }
        if let Some(capture) = capture {
            description += &format!(", capture in {}", capture.display());
        }
        NicInfo { name: name.clone(), provider: "soft", description }
    }
}

impl Running {
    /// Without an engine; the thread that [`Self::start_engine`] starts is one.
    pub(super) fn new(nic: SoftNic) -> Result<Self, TransportError> {
        let mut id = NicId([0; 16]);
        getrandom::fill(&mut id.0).map_err(|_| no_entropy())?;
        Ok(Self { nic, id, engine: Mutex::default(), events: Mutex::default() })
    }

    /// Starts the engine's thread, if there is none.
    pub(super) fn start_engine(&self) -> Result<(), NicError> {
        let mut engine = self.engine.lock().unwrap_or_else(PoisonError::into_inner);
        if engine.is_none() {
            *engine = Some(self.nic.spawn()?);
        }
        Ok(())
    }

    fn create_cq(&self, dialect: Dialect, spec: &CqSpec<'_>) -> Result<Cq, NicError> {
        self.nic.create_cq(&CqConfig {
            dialect,
            cqe_size: CqeSize::B64,
            mode: spec.mode,
            log_size: spec.log_size,
            buf: spec.buf.clone(),
            dbr: spec.record.clone(),
            ignore_overrun: false,
            notice: None,
        })
    }

    /// A QP's configuration with its two CQs; `shared` is its SRQ, if it is to have one.
    pub(super) fn qp_config(
        &self,
        spec: &QpSpec<'_>,
        shared: Option<Srq>,
    ) -> Result<(QpConfig, [Cq; 2]), NicError> {
        let format = queue_format(spec);
        let cq = |spec| self.create_cq(format.dialect(), spec);
        let cqs = [cq(&spec.send_cq)?, cq(&spec.recv_cq)?];
        let rq = match (shared, spec.recv) {
            (Some(srq), _) => RqConfig::Srq(srq),
            (None, RecvSpec::Own { buf, log_depth: log_rq, bytes }) => {
                let log_stride = bytes.next_power_of_two().ilog2() as u8;
                RqConfig::Own { buf: buf.clone(), log_rq, log_stride }
            }
            (None, _) => RqConfig::None,
        };
        let config = QpConfig {
            format,
            service: Service::Connected,
            user_index: None,
            scatter_to_cqe: ScatterToCqe::default(),
            send_cq: cqs[0].clone(),
            recv_cq: cqs[1].clone(),
            sq: spec.sq.clone(),
            log_sq: spec.log_sq,
            rq,
            dbr: spec.record.clone(),
            announcement: Announcement::Doorbell,
            on_send_error: OnSendError::StopAll,
            consume_only: spec.consume_only,
        };
        Ok((config, cqs))
    }

    /// The log, with all events that the NIC has raised.
    fn log(&self) -> MutexGuard<'_, EventLog> {
        let mut log = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(event) = self.nic.poll_event() {
            log.push(event);
        }
        log
    }

    /// Events that concern `objects` from now on.
    pub(super) fn subscribe(&self, objects: Objects) -> Subscription {
        self.log().subscribe(objects)
    }

    /// Events of a subscription that were not read yet.
    pub(super) fn events(&self, subscription: &Subscription) -> Events {
        self.log().read(subscription)
    }

    /// Forgets the events of a QP that is in RESET.
    pub(super) fn forget_events(&self, subscription: &Subscription) {
        self.log().reset(subscription);
    }
}

/// Queues in which kernels post.
fn queue_format(spec: &QpSpec<'_>) -> QpFormat {
    match (spec.format, spec.packets) {
        (NicFormat::Bnxt, Some(packets)) => QpFormat::Bnxt(BnxtQueues {
            library: BnxtLibrary::Current,
            mode: BnxtMode::Variable,
            slots: BNXT_SLOTS << spec.log_sq,
            receive_slots: match spec.recv {
                RecvSpec::Own { bytes, .. } => Some((bytes / 16) as u8),
                _ => None,
            },
            counts_receive_slots: false,
            table: PacketTable::Msn,
            packets: packets.clone(),
            log_packets: (packets.len() / 8).ilog2() as u8,
            // Of posters nobody looks at it: a CQ has CQEs of one queue alone.
            handle: 0,
        }),
        (NicFormat::Ionic, _) => {
            QpFormat::Ionic { protocol: IonicProtocol::V2, log_wqe: WQEBB.ilog2() as u8 }
        }
        (NicFormat::Mlx5 | NicFormat::Bnxt, _) => QpFormat::Mlx5,
    }
}

impl Provider for Soft {
    fn devices(&self) -> Result<Vec<NicInfo>, TransportError> {
        Ok(vec![self.info()])
    }

    fn open(&self, _name: &str) -> Result<Arc<dyn Nic>, TransportError> {
        self.open_as(NicFormat::Mlx5)
    }
}

struct SoftDevice {
    info: NicInfo,
    format: NicFormat,
    pd: Pd,
    running: Arc<Running>,
}

impl fmt::Debug for SoftDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (software)", self.info.name)
    }
}

impl Nic for SoftDevice {
    fn info(&self) -> &NicInfo {
        &self.info
    }

    fn id(&self) -> NicId {
        self.running.id
    }

    fn reach(&self) -> FabricAddress {
        self.running.nic.local_addr().map_or(FabricAddress::Local, FabricAddress::Udp)
    }

    fn format(&self) -> NicFormat {
        self.format
    }

    fn send_cq(&self, asked: CqMode) -> CqMode {
        // Of an entry of the others that is overwritten, count and status could not be read together.
        if self.format == NicFormat::Mlx5 { asked } else { CqMode::Ring }
    }

    fn max_mtu(&self) -> Option<Mtu> {
        self.running.nic.max_mtu()
    }

    fn link(&self) -> Option<String> {
        self.running.nic.describe_link()
    }

    fn doorbells(&self) -> &Region {
        self.running.nic.doorbells()
    }

    fn register(
        &self,
        region: &Region,
        options: &RegisterOptions,
    ) -> Result<MemoryKey, TransportError> {
        let mr = self.running.nic.reg_mr(&self.pd, region, options.access())?;
        let how = Decision::best(match region.kind() {
            Kind::Host => RegistrationPath::Host,
            _ => RegistrationPath::CopyEngine,
        });
        let (lkey, rkey) = (mr.lkey(), mr.rkey());
        Ok(MemoryKey { lkey, rkey, how, _made: Box::new((mr, self.running.clone())) })
    }

    fn create_qp(&self, spec: &QpSpec<'_>) -> Result<Arc<dyn QueuePair>, TransportError> {
        let shared = spec.recv.shared::<SoftSrq<Arc<Running>>>()?.map(|shared| shared.srq.clone());
        let srqns = shared.iter().map(Srq::srqn).collect();
        let (config, cqs) = self.running.qp_config(spec, shared)?;
        let qp = self.running.nic.create_qp(&self.pd, config)?;
        let cqns = cqs.iter().map(Cq::cqn).collect();
        let events = self.running.subscribe(Objects { qpn: qp.qpn(), cqns, srqns });
        let (info, running) = (self.info.name.clone(), self.running.clone());
        let pair = SoftQp { qp, cqs, events, info, running };
        pair.init(spec.access)?;
        Ok(Arc::new(pair))
    }

    fn create_srq(&self, spec: &SrqSpec<'_>) -> Result<Arc<dyn SharedQueue>, TransportError> {
        let srq = self.running.nic.create_srq(&self.pd, &srq_config(spec))?;
        Ok(Arc::new(SoftSrq { srq, behind: self.running.clone() }))
    }

    fn watch(&self, watcher: Weak<dyn StopWatcher>) {
        self.running.nic.watch(watcher);
    }
}

pub(super) fn srq_config(spec: &SrqSpec<'_>) -> SrqConfig {
    SrqConfig {
        dialect: Dialect::Mlx5,
        order: SrqOrder::Linked,
        buf: spec.buf.clone(),
        log_size: spec.log_depth,
        log_stride: spec.log_stride,
        dbr: spec.record.clone(),
    }
}

/// A shared receive queue of a software NIC, and what is behind it.
pub(super) struct SoftSrq<T> {
    pub(super) srq: Srq,
    // Without libibverbs nothing is read there: it lives as long as the queue.
    #[cfg_attr(not(feature = "verbs"), expect(dead_code))]
    pub(super) behind: T,
}

impl<T: Send + Sync + 'static> SharedQueue for SoftSrq<T> {
    fn srqn(&self) -> u32 {
        self.srq.srqn()
    }

    fn set_limit(&self, limit: u16) {
        self.srq.set_limit(limit);
    }
}

#[derive(Debug)]
struct SoftQp {
    qp: Qp,
    cqs: [Cq; 2],
    events: Subscription,
    info: String,
    running: Arc<Running>,
}

/// Attributes that bring a QP to RTR and to RTS, in range.
pub(super) fn attributes(path: &PathSpec, to: Path) -> Result<[QpAttrs; 2], TransportError> {
    let rtr = QpAttrs {
        path: Some(to),
        mtu: Some(path.mtu),
        rq_psn: Some(path.rq_psn),
        min_rnr_timer: Some(path.min_rnr_timer),
        max_dest_rd_atomic: Some(path.max_dest_rd_atomic),
        ..QpAttrs::rtr(path.dest_qpn)
    };
    let rts = QpAttrs {
        timeout: Some(path.ack_timeout),
        retry: Some(path.retry),
        rnr_retry: Some(path.rnr_retry),
        sq_psn: Some(path.sq_psn),
        max_rd_atomic: Some(path.max_rd_atomic),
        ..QpAttrs::default()
    };
    rtr.check_ranges()?;
    rts.check_ranges()?;
    Ok([rtr, rts])
}

impl QueuePair for SoftQp {
    fn qpn(&self) -> u32 {
        self.qp.qpn()
    }

    fn cqns(&self) -> [u32; 2] {
        [self.cqs[0].cqn(), self.cqs[1].cqn()]
    }

    fn doorbell_offset(&self) -> Option<u64> {
        Some(self.qp.doorbell_offset())
    }

    fn reads_record(&self) -> bool {
        self.running.nic.config().reads_record()
    }

    fn state(&self) -> QpState {
        self.qp.state()
    }

    fn first_error(&self) -> Option<FirstError> {
        self.qp.first_error()
    }

    fn stopped(&self) -> Option<NicError> {
        self.running.nic.stopped()
    }

    fn events(&self) -> Events {
        self.running.events(&self.events)
    }

    fn connect(&self, path: &PathSpec) -> Result<(), TransportError> {
        let own = self.running.nic.local_addr().map_or(FabricAddress::Local, FabricAddress::Udp);
        let to = match path.dest.udp() {
            _ if path.dest_nic == self.running.id => Path::Loopback,
            // The check finds what is in the way.
            addr => {
                own.check(&self.info, &path.dest)?;
                addr.map_or(Path::Loopback, Path::Network)
            }
        };
        // Everything is checked before anything is changed, so that a refusal leaves INIT.
        let [rtr, rts] = attributes(path, to)?;
        self.qp.modify(QpState::Rtr, &rtr)?;
        Ok(self.qp.modify(QpState::Rts, &rts)?)
    }

    fn reset(&self) -> Result<(), TransportError> {
        self.qp.modify(QpState::Reset, &QpAttrs::default())?;
        self.running.forget_events(&self.events);
        Ok(())
    }

    fn init(&self, access: Access) -> Result<(), TransportError> {
        Ok(self.qp.modify(QpState::Init, &QpAttrs::init(access))?)
    }

    fn fail(&self) -> Result<(), TransportError> {
        Ok(self.qp.modify(QpState::Err, &QpAttrs::default())?)
    }
}
