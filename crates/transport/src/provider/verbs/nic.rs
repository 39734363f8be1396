//! An open RDMA device, and what is made on it.

use super::bnxt::Bnxt;
use super::direct::DirectQp;
use super::direct_queues::DirectQueues;
use super::events::device_number;
use super::inline;
use super::ionic::Ionic;
use super::mlx5::Mlx5;
use super::opened::Opened;
use super::proxy_device::{SharedReceiver, VerbsProxy};
use super::qp::{DeviceQp, ProxiedQp};
use crate::provider::soft::{SoftSrq, srq_config};
use crate::provider::{MemoryKey, Nic, NicInfo, QpSpec, QueuePair, RecvSpec, SharedQueue, SrqSpec};
use crate::{CqMode, FabricAddress, NicId, RegisterOptions, TransportError, Way};
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Weak};
use warpverbs_mem::{Region, RegistrationPath};
use warpverbs_mlx5::export::NicFormat;
use warpverbs_nic::{Cq, Mtu, Pd, ProxyLimits, StopWatcher};
use warpverbs_verbs as verbs;
use warpverbs_verbs::bnxt_dv::BROADCOM;
use warpverbs_verbs::ionic_dv::PENSANDO;

/// The most entries of a send's list that are asked for; a WQE of the host's has no more.
const SEND_SGES: u32 = crate::limits::MAX_SEND_SGES as u32;

/// An open device with a protection domain, of which the software NIC has a twin.
pub(super) struct VerbsNic {
    info: NicInfo,
    pd: Pd,
    device_pd: verbs::Pd,
    /// Maker of queues that the device reads itself; `None` if the software NIC reads them.
    own: Option<Box<dyn DirectQueues>>,
    way: &'static str,
    opened: Arc<Opened>,
}

impl fmt::Debug for VerbsNic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.opened.name(), self.opened.reach)
    }
}

impl VerbsNic {
    pub(super) fn new(opened: Arc<Opened>, way: Way) -> Result<Self, TransportError> {
        let device_pd = verbs::Pd::new(&opened.context)?;
        let (own, way) = match way {
            Way::Direct => {
                let own = direct_queues(&opened, &device_pd)?;
                (Some(own), "direct, as requested: the device reads the queues itself")
            }
            Way::Proxy => (None, "proxy, as requested: the CPU reads kernels' queues"),
            Way::Auto => (
                None,
                "proxy: the CPU reads kernels' queues, since the direct way was not tried with \
                 hardware",
            ),
        };
        let info = match &own {
            Some(own) => own.info(&opened.info),
            None => opened.info.clone(),
        };
        Ok(Self { info, pd: opened.running.nic.alloc_pd(), device_pd, own, way, opened })
    }

    /// Capacity asked for a QP of the device.
    fn caps(&self, spec: &QpSpec<'_>) -> verbs::QpCaps {
        let attr = &self.opened.attr;
        let (recv, recv_sges) = match spec.recv {
            // One piece of 16 bytes each.
            RecvSpec::Own { log_depth, bytes, .. } => (1 << log_depth, u32::from(bytes) / 16),
            _ => (0, 0),
        };
        verbs::QpCaps {
            max_send_wr: (1 << spec.log_sq).min(attr.max_qp_wr),
            max_recv_wr: u32::min(recv, attr.max_qp_wr),
            max_send_sge: SEND_SGES.min(attr.max_sge),
            max_recv_sge: u32::min(recv_sges, attr.max_sge),
            max_inline: spec.inline_bytes as u32,
        }
    }
}

impl VerbsNic {
    /// A QP of the device, and what it takes.
    fn device_qp(
        &self,
        options: &verbs::QpOptions,
    ) -> Result<(DeviceQp, ProxyLimits), TransportError> {
        let (qp, caps) = (Arc::new(inline::create_qp(&self.device_pd, options)?), options.caps);
        // The CQs are made for the limits asked for, not for the larger ones that the device gave.
        let limits = ProxyLimits {
            send_depth: caps.max_send_wr,
            recv_depth: caps.max_recv_wr,
            send_sges: caps.max_send_sge,
            recv_sges: caps.max_recv_sge,
            inline_bytes: caps.max_inline.min(qp.caps().max_inline),
        };
        Ok((DeviceQp { qp, opened: self.opened.clone() }, limits))
    }

    /// One that the host posts to by calls. Its CQs have room for all that may be outstanding; one
    /// send more asks after those before it. `None` if the device does not take the inline data: the
    /// engine does.
    fn direct_qp(&self, spec: &QpSpec<'_>) -> Result<Option<Arc<dyn QueuePair>>, TransportError> {
        let caps = self.caps(spec);
        let cq = |entries: u32| verbs::Cq::new(&self.opened.context, entries);
        let recv_cq = cq(caps.max_recv_wr.max(1))?;
        let sends = verbs::QpOptions::new(&cq(caps.max_send_wr + 1)?);
        let (device, limits) = self.device_qp(&verbs::QpOptions { caps, recv_cq, ..sends })?;
        let (asked, found) = (spec.inline_bytes, limits.inline_bytes);
        if asked > found as usize {
            let device = self.opened.name();
            tracing::info!(device, asked, found, "inline data goes by the engine, so all does");
            return Ok(None);
        }
        let (keys, fetches) = (self.pd.proxy_keys(), Arc::default());
        let events = self.opened.running.subscribe(device.objects());
        Ok(Some(Arc::new(DirectQp { device, limits, keys, fetches, events })))
    }

    /// A QP of the software NIC that is proxied to one of the device, whose CQ has room for all that
    /// may be outstanding.
    fn proxied_qp(
        &self,
        spec: &QpSpec<'_>,
        shared: Option<&VerbsSrq>,
    ) -> Result<Arc<dyn QueuePair>, TransportError> {
        let (opened, caps) = (&self.opened, self.caps(spec));
        let receives = shared.map_or(caps.max_recv_wr, |shared| shared.behind.room.max_wr);
        let cq = verbs::Cq::new(&opened.context, caps.max_send_wr + receives)?;
        let srq = shared.map(|shared| shared.behind.srq.clone());
        let options = verbs::QpOptions { caps, srq, ..verbs::QpOptions::new(&cq) };
        let (device, limits) = self.device_qp(&options)?;
        opened.running.start_engine()?;
        let slots = match spec.inline_bytes > limits.inline_bytes as usize {
            true => Some(inline::slots(&self.device_pd, limits.send_depth, spec.inline_bytes)?),
            false => None,
        };
        let gone = opened.gone.clone();
        let proxy_device = VerbsProxy::new(device.qp.clone(), limits, gone).with_slots(slots);
        let mut objects = device.objects();
        if let Some(SoftSrq { srq, behind }) = shared {
            objects.srqns.extend([srq.srqn(), device_number(behind.srq.id())]);
        }
        let srq = shared.map(|shared| shared.srq.clone());
        let (config, cqs) = opened.running.qp_config(spec, srq)?;
        let qp = opened.running.nic.create_proxied_qp(&self.pd, config, Box::new(proxy_device))?;
        objects.cqns.extend(cqs.iter().map(Cq::cqn));
        let events = opened.running.subscribe(objects);
        Ok(Arc::new(ProxiedQp { qp, cqs, device, events }))
    }
}

impl Nic for VerbsNic {
    fn info(&self) -> &NicInfo {
        &self.info
    }

    fn way(&self) -> Option<&str> {
        Some(self.way)
    }

    fn send_cq(&self, asked: CqMode) -> CqMode {
        if self.own.is_some() { CqMode::Ring } else { asked }
    }

    fn format(&self) -> NicFormat {
        self.own.as_ref().map_or(NicFormat::Mlx5, |own| own.format())
    }

    fn id(&self) -> NicId {
        self.opened.running.id
    }

    fn reach(&self) -> FabricAddress {
        self.opened.reach
    }

    fn max_mtu(&self) -> Option<Mtu> {
        Some(self.opened.mtu)
    }

    fn max_rd_atomic(&self) -> [u8; 2] {
        let attr = &self.opened.attr;
        [attr.max_dest_rd_atomic, attr.max_rd_atomic].map(|count| count.min(16) as u8)
    }

    fn doorbells(&self) -> &Region {
        match &self.own {
            Some(own) => own.register(),
            None => self.opened.running.nic.doorbells(),
        }
    }

    fn register(
        &self,
        region: &Region,
        options: &RegisterOptions,
    ) -> Result<MemoryKey, TransportError> {
        let (opened, access) = (&self.opened, options.access());
        // Nobody would copy what a device reads by itself.
        let options = options.bounce(options.may_bounce() && self.own.is_none());
        let made = registered(&opened.root, &self.device_pd, region, &options)?;
        let (device, opened) = (made.mr, opened.clone());
        let (lkey, rkey, how) = (device.lkey(), device.rkey(), made.how);
        if self.own.is_some() {
            return Ok(MemoryKey { lkey, rkey, how, _made: Box::new((device, opened)) });
        }
        let nic = &opened.running.nic;
        let mr = match how.route {
            RegistrationPath::Bounce => {
                nic.reg_bounced_mr(&self.pd, region, access, device.region(), lkey)
            }
            _ => nic.reg_proxied_mr(&self.pd, region, access, lkey),
        }?;
        // The software NIC's key goes first: nothing is posted with the device's after it.
        Ok(MemoryKey { lkey: mr.lkey(), rkey, how, _made: Box::new((mr, device, opened)) })
    }

    fn create_qp(&self, spec: &QpSpec<'_>) -> Result<Arc<dyn QueuePair>, TransportError> {
        if let Some(own) = &self.own {
            if spec.consume_only {
                let what = "a device executes the work that it is given (consume_only)";
                let device = self.opened.name().to_owned();
                return Err(verbs::VerbsError::Unsupported { device, what }.into());
            }
            return own.create_qp(&self.opened, &self.device_pd, spec);
        }
        let shared = spec.recv.shared()?;
        let direct = match spec.host_only && !spec.consume_only && shared.is_none() {
            true => self.direct_qp(spec)?,
            false => None,
        };
        let pair = match direct {
            Some(pair) => pair,
            None => self.proxied_qp(spec, shared)?,
        };
        pair.init(spec.access)?;
        Ok(pair)
    }

    fn create_srq(&self, spec: &SrqSpec<'_>) -> Result<Arc<dyn SharedQueue>, TransportError> {
        if let Some(own) = &self.own {
            return own.create_srq(&self.opened, spec);
        }
        let attr = &self.opened.attr;
        if attr.max_srq_wr == 0 {
            let (device, what) = (self.opened.name().to_owned(), "shared receive queues");
            return Err(verbs::VerbsError::Unsupported { device, what }.into());
        }
        // One segment is the link.
        let sges = (1u32 << (spec.log_stride - 4)) - 1;
        let room = verbs::SrqOptions {
            max_wr: (1 << spec.log_depth).min(attr.max_srq_wr),
            max_sge: sges.min(attr.max_srq_sge),
        };
        let device = verbs::Srq::new(&self.device_pd, room)?;
        let proxy_device = Box::new(SharedReceiver::new(device.clone(), room));
        self.opened.running.start_engine()?;
        let nic = &self.opened.running.nic;
        let srq = nic.create_proxied_srq(&self.pd, &srq_config(spec), proxy_device)?;
        let behind = DeviceSrq { srq: device, room, _opened: self.opened.clone() };
        Ok(Arc::new(SoftSrq { srq, behind }))
    }

    fn watch(&self, watcher: Weak<dyn StopWatcher>) {
        self.opened.running.nic.watch(watcher);
    }
}

/// The maker of queues that a device reads itself. Devices of other vendors are refused by that of mlx5.
fn direct_queues(opened: &Opened, pd: &verbs::Pd) -> Result<Box<dyn DirectQueues>, TransportError> {
    // The register is memory of the device; elsewhere a release store need not order writes of the rings before
    // one of it (docs/ordering.md).
    if !cfg!(target_arch = "x86_64") {
        let (device, what) = (opened.name().to_owned(), "the direct way is for hosts with x86-64");
        return Err(verbs::VerbsError::Unsupported { device, what }.into());
    }
    Ok(match opened.attr.vendor_id {
        BROADCOM => Box::new(Bnxt::new(opened, pd)?),
        PENSANDO => Box::new(Ionic::new(opened)?),
        _ => Box::new(Mlx5::new(opened, pd)?),
    })
}

/// Registers memory in the best way that the options allow.
pub(super) fn registered(
    root: &Path,
    pd: &verbs::Pd,
    region: &Region,
    options: &RegisterOptions,
) -> Result<verbs::Registered, verbs::VerbsError> {
    let asked = verbs::Registration::new(options.access()).relaxed_ordering(options.is_relaxed());
    let peer_module = verbs::peer_module(root, region.kind());
    let ways = verbs::GpuWays { peer_module, bounce: options.may_bounce() };
    verbs::Registered::new(pd, region, asked, &ways)
}

/// A shared receive queue of the software NIC that takes receives for one of the device.
type VerbsSrq = SoftSrq<DeviceSrq>;

struct DeviceSrq {
    srq: verbs::Srq,
    room: verbs::SrqOptions,
    _opened: Arc<Opened>,
}
