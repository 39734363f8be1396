//! A device, once it is open: its port and address, and the software NIC beside it.

use super::events::Listener;
use crate::fabric::gid_of;
use crate::provider::NicInfo;
use crate::provider::soft::Running;
use crate::{FabricAddress, TransportError, UsageError};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use warpverbs_nic::{Config, Idle, Mtu, SoftNic};
use warpverbs_verbs as verbs;
use warpverbs_verbs::{Gid, GidChoice, PortAttr, PortState, VerbsError};

/// A device, once it is open.
pub(super) struct Opened {
    // Dropped first: it speaks to the NIC below.
    _events: Listener,
    pub(super) running: Arc<Running>,
    pub(super) context: verbs::Context,
    pub(super) attr: verbs::DeviceAttr,
    pub(super) port: u8,
    pub(super) gid: GidChoice,
    pub(super) reach: FabricAddress,
    pub(super) grh_required: bool,
    pub(super) mtu: Mtu,
    pub(super) info: NicInfo,
    why: String,
    pub(super) gone: Arc<AtomicBool>,
    /// Where sysfs is looked for.
    pub(super) root: PathBuf,
}

/// Description of a device that is not open.
pub(super) fn info(device: &verbs::Device, emulated: bool) -> NicInfo {
    let kind = if emulated { "emulated RDMA device" } else { "RDMA device" };
    NicInfo {
        name: device.name().to_owned(),
        provider: "verbs",
        description: format!("{kind} {} by libibverbs, queues by the CPU", device.node()),
    }
}

/// The first port that is in use, with what it is.
fn active_port(
    context: &verbs::Context,
    attr: &verbs::DeviceAttr,
) -> Result<(u8, PortAttr), VerbsError> {
    let mut states = Vec::new();
    for port in 1..=attr.ports {
        let found = context.port(port)?;
        if found.state == PortState::Active {
            return Ok((port, found));
        }
        states.push(format!("{port} is {:?}", found.state));
    }
    let device = context.device().name().to_owned();
    tracing::warn!(device, "no port in use: port {}", states.join(", port "));
    Err(VerbsError::Unsupported { device, what: "none of its ports is in the state Active" })
}

impl Opened {
    pub(super) fn new(device: &verbs::Device, root: PathBuf) -> Result<Self, TransportError> {
        let context = device.open()?;
        let attr = context.attr()?;
        let (port, state) = active_port(&context, &attr)?;
        let gid = context.choose_gid(port)?;
        let reach = FabricAddress::of_port(state.link_layer, &gid.entry, state.lid);
        let mtu = state.active_mtu.unwrap_or(Mtu::B256);
        let (name, idle) = (device.name().to_owned(), Idle::proxied());
        let config = Config { name, idle, ..Config::default() };
        // Its engine is started where there are rings to be read.
        let nic = SoftNic::new(config)?;
        let gone = Arc::new(AtomicBool::new(false));
        let events = Listener::start(device.name(), context.clone(), nic.clone(), gone.clone())?;
        Ok(Self {
            _events: events,
            running: Arc::new(Running::new(nic)?),
            context,
            attr,
            port,
            reach,
            grh_required: state.grh_required,
            mtu,
            info: info(device, is_emulated(&root, device)),
            why: format!("port {port}, {}, MTU {mtu}", gid.why),
            gid,
            gone,
            root,
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.info.name
    }

    /// How peers reach it, in words.
    pub(super) fn why(&self) -> &str {
        &self.why
    }

    /// How the device reaches a peer, if it does.
    pub(super) fn path(&self, peer: &FabricAddress) -> Result<verbs::Path, UsageError> {
        let (own, port, index) = (self.reach, self.port, self.gid.entry.index as u8);
        own.check(self.name(), peer)?;
        let routed = |gid| verbs::Path::roce(port, index, Gid(gid));
        Ok(match (own, *peer) {
            (_, FabricAddress::RoceV2 { gid } | FabricAddress::RoceV1 { gid }) => routed(gid),
            (_, FabricAddress::Udp(addr)) => routed(gid_of(addr.ip())),
            (
                FabricAddress::Infiniband { gid: own, .. },
                FabricAddress::Infiniband { gid, lid },
            ) => {
                let local = verbs::Path::infiniband(port, lid);
                // The first half of a GID is the subnet's.
                let same_subnet = own[..8] == gid[..8] && lid != 0 && !self.grh_required;
                let global = (!same_subnet).then_some(routed(gid).global).flatten();
                verbs::Path { global, ..local }
            }
            // The check has refused every other pair.
            (_, peer) => {
                let (nic, why) =
                    (self.name().to_owned(), "they are on networks of different kinds");
                return Err(UsageError::NoWay { nic, own, peer, why });
            }
        })
    }

    pub(super) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }
}

/// A device's folder in sysfs, relative to the root.
pub(super) fn sysfs(device: &verbs::Device) -> String {
    device.sysfs().trim_start_matches('/').to_owned()
}

/// A device that the kernel emulates, as soft-RoCE does.
pub(super) fn is_emulated(root: &Path, device: &verbs::Device) -> bool {
    let folder = root.join(sysfs(device)).canonicalize();
    let emulated = root.join("sys/devices/virtual").canonicalize();
    folder.is_ok_and(|folder| emulated.is_ok_and(|emulated| folder.starts_with(emulated)))
}
