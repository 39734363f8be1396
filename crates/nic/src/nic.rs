//! The NIC as its users hold it.

use crate::ah::{AddressHandle, AhInner};
use crate::cq::{Cq, CqInner};
use crate::engine::{Core, Step, control, monitor, registry};
use crate::fault::Faults;
use crate::format::Dialect;
use crate::objects::cq::{CompletionQueue, CqConfig};
use crate::objects::srq::{SharedReceiveQueue, SrqConfig};
use crate::pd::{Mr, MrInner, Pd, PdInner};
use crate::proxy_device::{ProxyDevice, ProxyReceiver};
use crate::qp::{Qp, QpConfig, check_host_memory};
use crate::shared::Shared;
use crate::srq::{Srq, SrqInner};
use crate::thread::EngineThread;
use crate::uar::{UarInner, UarPage};
use crate::{
    AsyncEvent, Config, Link, Mtu, NicError, NicStats, StopWatcher, Violation, VirtualClock,
};
use crossbeam::channel::Receiver;
use rand::SeedableRng;
use rand::rngs::{StdRng, SysRng};
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;
use warpverbs_link::QpnPart;
use warpverbs_mem::{Access, DoorbellPage, HostBuf, KeyError, KeyTable, Kind, Region};

/// A software NIC. Clones share it. All calls may come from any thread at any time.
#[derive(Clone)]
pub struct SoftNic(Arc<Shared>);

impl fmt::Debug for SoftNic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl SoftNic {
    /// A NIC without objects. Nothing is executed until [`Self::step`] is called, by
    /// [`Self::spawn`]'s thread or by hand.
    ///
    /// # Errors
    /// A parameter out of range; a link or capture that cannot be opened, or a capture or faults
    /// without a link.
    pub fn new(config: Config) -> Result<Self, NicError> {
        let link = config.open_link()?;
        Self::build(config, link)
    }

    /// As [`Self::new`], on a given link, instead of [`Config::link`]'s.
    ///
    /// # Errors
    /// A parameter out of range.
    pub fn with_link(config: Config, link: Box<dyn Link>) -> Result<Self, NicError> {
        Self::build(config, Some(link))
    }

    fn build(config: Config, link: Option<Box<dyn Link>>) -> Result<Self, NicError> {
        config.check()?;
        let bytes = config.max_qps as usize * 8;
        let memory = |cause| NicError::Memory { what: "doorbell page", cause };
        let doorbells = HostBuf::region(bytes.next_multiple_of(4096)).map_err(memory)?;
        let page = DoorbellPage::new(&doorbells, config.max_qps as usize).map_err(memory)?;
        let keys = KeyTable::new(config.seed)?;
        let rng = match config.seed {
            // Another stream than that of the keys.
            Some(seed) => StdRng::seed_from_u64(seed ^ 0x5eed),
            None => StdRng::try_from_rng(&mut SysRng).map_err(|_| KeyError::NoEntropy)?,
        };
        let core = Core::new(&config, page, keys, rng, link);
        Ok(Self(Arc::new(Shared::new(config, doorbells, core))))
    }

    /// Starts a thread that calls [`Self::step`] until the returned value is dropped.
    pub fn spawn(&self) -> Result<EngineThread, NicError> {
        EngineThread::start(&self.0)
    }

    /// One bounded slice of work; nothing once the NIC has [stopped](Self::stopped).
    #[inline(never)]
    pub fn step(&self) -> Step {
        let mut core = self.0.lock();
        if self.0.stopped().is_some() { Step::Idle } else { core.step() }
    }

    /// Why the NIC executes nothing any more: [`NicError::Stopped`]. A panic of the engine, in the
    /// NIC's own code or in a link's or proxy device's, stops it for good: what was under way is
    /// not completed, [`AsyncEvent::DeviceFatal`] is raised, and calls that would change something
    /// are refused. `None`: it works.
    pub fn stopped(&self) -> Option<NicError> {
        self.0.notice_panic();
        self.0.stopped().cloned()
    }

    /// Calls `watcher` when the NIC stops, as long as the watcher lives; at once if it has stopped.
    pub fn watch(&self, watcher: Weak<dyn StopWatcher>) {
        self.0.watch(watcher);
    }

    /// Time until a timer or a held completion is due, on the NIC's clock, if one is waited for.
    pub fn next_timer(&self) -> Option<Duration> {
        self.0.lock().next_timer().map(Duration::from_nanos)
    }

    /// The NIC's configuration.
    pub fn config(&self) -> &Config {
        self.0.config()
    }

    /// Where peers reach the NIC, if it has a link.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        monitor::network(&self.0.lock()).local()
    }

    /// Where the numbers of its QPs lie. NICs that share an address and port have different parts.
    pub fn qpn_part(&self) -> QpnPart {
        monitor::qpn_part(&self.0.lock())
    }

    /// A description of the link and of its use so far, for users; `None` without one.
    pub fn describe_link(&self) -> Option<String> {
        monitor::network(&self.0.lock()).describe()
    }

    /// The largest path MTU of the link, if there is one.
    pub fn max_mtu(&self) -> Option<Mtu> {
        monitor::network(&self.0.lock()).max_mtu()
    }

    /// The doorbells of all QPs, 8 bytes each; see [`Qp::doorbell_offset`]. Whole pages, page
    /// aligned, so that they can be mapped into a GPU.
    pub fn doorbells(&self) -> &Region {
        self.0.doorbells()
    }

    /// Polls the doorbell registers of `page`, 4096 bytes of host memory: 8-byte words at 0x800,
    /// 0x900, 0xa00 and 0xb00, as in mlx5's pages. For [`Announcement::Uar`](crate::Announcement).
    pub fn add_uar(&self, page: &Region) -> Result<UarPage, NicError> {
        let slot = registry::insert_uar(&mut *self.0.lock_running()?, page)?;
        Ok(UarPage(Arc::new(UarInner { nic: self.0.clone(), slot })))
    }

    /// From now on, or until `on` is false, the NIC only consumes: work announced to a connected
    /// QP counts as executed, with one CQE for the newest WQEBB; no WQE is read, nothing is moved
    /// and nothing is sent. WQEs announced before are executed, and so are those announced until
    /// the QP has nothing under way. With `false`, WQEs announced before are complete, and later
    /// ones are executed. Receives, datagrams and QPs that another device executes are not
    /// affected. For measuring posters.
    pub fn consume_only(&self, on: bool) -> Result<(), NicError> {
        control::consume_only(&mut *self.0.lock_running()?, on);
        Ok(())
    }

    /// A new protection domain.
    pub fn alloc_pd(&self) -> Pd {
        Pd(Arc::new(PdInner { nic: self.0.clone(), number: self.0.next_pd() }))
    }

    /// Registers memory; work requests name it by its own addresses.
    pub fn reg_mr(&self, pd: &Pd, region: &Region, access: Access) -> Result<Mr, NicError> {
        self.reg_mr_at(pd, region, access, region.addr())
    }

    /// As [`Self::reg_mr`]; work requests name the first byte by the address `start`.
    pub fn reg_mr_at(
        &self,
        pd: &Pd,
        region: &Region,
        access: Access,
        start: u64,
    ) -> Result<Mr, NicError> {
        self.0.check_own("protection domain", &pd.0.nic)?;
        let mut core = self.0.lock_running()?;
        let key = registry::insert_key(&mut core, pd.number(), region, access, start)?;
        drop(core);
        Ok(Mr(Arc::new(MrInner { pd: pd.clone(), region: region.clone(), start, key })))
    }

    /// As [`Self::reg_mr`], for memory that is also registered, under the same addresses, with the
    /// device that executes proxied QPs of the domain: `device_lkey` is its key there, not 0.
    pub fn reg_proxied_mr(
        &self,
        pd: &Pd,
        region: &Region,
        access: Access,
        device_lkey: u32,
    ) -> Result<Mr, NicError> {
        self.0.check_own("protection domain", &pd.0.nic)?;
        let (mut core, pd_number) = (self.0.lock_running()?, pd.number());
        let key = registry::insert_proxied_key(&mut core, pd_number, region, access, device_lkey)?;
        drop(core);
        let (region, start) = (region.clone(), region.addr());
        Ok(Mr(Arc::new(MrInner { pd: pd.clone(), region, start, key })))
    }

    /// As [`Self::reg_proxied_mr`], for memory that the device does not reach: `bounce_buffer`
    /// stands in for it: host memory of the same length, which the device knows as `device_lkey`.
    /// The memory's copy engine copies between the two before or after each request of a proxied
    /// QP. The NIC does not see when peers access the bounce buffer, so peers get no rights.
    pub fn reg_bounced_mr(
        &self,
        pd: &Pd,
        region: &Region,
        access: Access,
        bounce_buffer: &Region,
        device_lkey: u32,
    ) -> Result<Mr, NicError> {
        let unseen = Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
        if access.intersects(unseen) {
            return Err(NicError::BouncedRights { rights: access & unseen });
        }
        let fits = bounce_buffer.kind() == Kind::Host && bounce_buffer.len() == region.len();
        if !fits || region.kind() == Kind::Host || region.copier().is_none() {
            return Err(NicError::UnfitBounceBuffer);
        }
        // The key table holds no key of the device: a poster that does not use the bounce buffer
        // has the key refused.
        let mr = self.reg_proxied_mr(pd, region, access, 0)?;
        let mut core = self.0.lock();
        registry::insert_bounce_buffer(&mut core, mr.lkey(), bounce_buffer, device_lkey);
        drop(core);
        Ok(mr)
    }

    /// A new CQ.
    pub fn create_cq(&self, config: &CqConfig) -> Result<Cq, NicError> {
        let cq = CompletionQueue::new(config)?;
        let mut core = self.0.lock_running()?;
        let (slot, cqn) = registry::insert_cq(&mut core, cq, config.notice.is_some())?;
        drop(core);
        let (cqe_size, dialect) = (config.cqe_size, config.dialect);
        Ok(Cq(Arc::new(CqInner { nic: self.0.clone(), slot, cqn, cqe_size, dialect })))
    }

    /// An address handle for the NIC with this GID: an IPv6 address, or one of IPv4 as `::ffff:a.b.c.d`.
    pub fn create_ah(&self, pd: &Pd, gid: [u8; 16]) -> Result<AddressHandle, NicError> {
        self.0.check_own("protection domain", &pd.0.nic)?;
        let slot = registry::insert_ah(&mut *self.0.lock_running()?, pd.number(), gid)?;
        Ok(AddressHandle(Arc::new(AhInner { pd: pd.clone(), slot })))
    }

    /// A new SRQ.
    pub fn create_srq(&self, pd: &Pd, config: &SrqConfig) -> Result<Srq, NicError> {
        self.make_srq(pd, config, None)
    }

    /// A new SRQ whose receives go to another device, for QPs that it executes.
    pub fn create_proxied_srq(
        &self,
        pd: &Pd,
        config: &SrqConfig,
        proxy_device: Box<dyn ProxyReceiver>,
    ) -> Result<Srq, NicError> {
        self.make_srq(pd, config, Some(proxy_device))
    }

    fn make_srq(
        &self,
        pd: &Pd,
        config: &SrqConfig,
        proxy_device: Option<Box<dyn ProxyReceiver>>,
    ) -> Result<Srq, NicError> {
        self.0.check_own("protection domain", &pd.0.nic)?;
        let proxied = proxy_device.is_some();
        if proxied {
            check_host_memory(&[&config.buf, &config.dbr])?;
            if config.dialect != Dialect::Mlx5 {
                return Err(NicError::NotOfFormat { what: "receives at another device" });
            }
        }
        let srq = SharedReceiveQueue::new(pd.number(), config)?;
        let mut core = self.0.lock_running()?;
        let (slot, srqn) = registry::insert_srq(&mut core, srq, proxy_device)?;
        drop(core);
        let (nic, pd, dialect) = (self.0.clone(), pd.clone(), config.dialect);
        Ok(Srq(Arc::new(SrqInner { nic, pd, slot, srqn, proxied, dialect })))
    }

    /// A new QP, in RESET.
    pub fn create_qp(&self, pd: &Pd, config: QpConfig) -> Result<Qp, NicError> {
        Qp::create(&self.0, pd, config, None)
    }

    /// A new QP, in RESET, whose work another device executes. It has the proxy device's QP
    /// number, and its path is [`Path::Proxied`](crate::Path::Proxied).
    pub fn create_proxied_qp(
        &self,
        pd: &Pd,
        config: QpConfig,
        proxy_device: Box<dyn ProxyDevice>,
    ) -> Result<Qp, NicError> {
        Qp::create(&self.0, pd, config, Some(proxy_device))
    }

    /// Raises an asynchronous event of a device that executes proxied QPs. A QP that it says has failed, and that
    /// has, goes to ERR: a device may report a failure after the QP was reset.
    pub fn raise(&self, event: AsyncEvent) {
        monitor::raise(&mut self.0.lock(), event);
    }

    /// The oldest event not yet polled.
    pub fn poll_event(&self) -> Option<AsyncEvent> {
        monitor::diagnostics(&mut self.0.lock()).events.pop()
    }

    /// Calls `handler` for every event from now on, and at once for those not yet polled;
    /// [`Self::poll_event`] has none any more. A later handler replaces it. It is called with the
    /// NIC's lock held: it must not wait, must not call the NIC and must not hold it.
    pub fn on_event(&self, handler: impl Fn(AsyncEvent) + Send + 'static) {
        monitor::diagnostics(&mut self.0.lock()).events.hand_to(Box::new(handler));
    }

    /// The violations kept since the last call, oldest first.
    pub fn take_violations(&self) -> Vec<Violation> {
        monitor::diagnostics(&mut self.0.lock()).log.take()
    }

    /// How many violations of each field there were.
    pub fn violation_counts(&self) -> BTreeMap<&'static str, u64> {
        monitor::diagnostics(&mut self.0.lock()).log.counts()
    }

    /// Receives every violation from now on; with `capacity` unread ones, further ones are lost.
    pub fn subscribe(&self, capacity: usize) -> Receiver<Violation> {
        monitor::diagnostics(&mut self.0.lock()).log.subscribe(capacity)
    }

    /// Counters.
    pub fn stats(&self) -> NicStats {
        monitor::nic_stats(&self.0.lock())
    }

    /// Faults that a test may switch on.
    pub fn faults(&self) -> Faults<'_> {
        Faults(&self.0)
    }
}

impl VirtualClock {
    /// One slice of the work of `nic`, which uses this clock; or, if it is idle, the clock goes
    /// forward to its next timer. False: no timer is running either.
    pub fn drive(&self, nic: &SoftNic) -> bool {
        if let Step::Busy(_) = nic.step() {
            return true;
        }
        let wait = nic.next_timer();
        wait.into_iter().for_each(|wait| self.expire(wait));
        wait.is_some()
    }
}
