//! Any RDMA device that libibverbs finds, as a provider.
//!
//! The host posts to its QPs by calls. Every open device also gets a software NIC of its own, whose
//! QPs are proxied to it: the software NIC owns the rings, doorbells and CQEs that kernels know, and
//! the device executes the work.
//!
//! ```text
//! nic             a protection domain: memory, QPs, shared queues
//! ├─ direct_queues  QPs whose rings the device reads itself, if asked for
//! │  ├─ mlx5      of an mlx5 device
//! │  ├─ vendor_qp    a QP that a vendor's library makes
//! │  ├─ bnxt      of a bnxt_re device
//! │  └─ ionic     of an ionic device
//! ├─ direct       a QP of the device alone, which the host posts to by calls
//! ├─ qp           a QP of the device with one of the software NIC before it
//! ├─ proxy_device lists of work to ibv_post_send, ibv_wc to completions
//! ├─ inline       inline data, of which devices take more or less
//! ├─ survey       what a device offers to kernels of a GPU, tried
//! └─ opened       the device, its port and address
//!    └─ events    asynchronous events of the device
//! ```

mod bnxt;
mod direct;
mod direct_queues;
mod events;
mod inline;
mod ionic;
mod mlx5;
mod nic;
mod opened;
mod proxy_device;
mod qp;
mod survey;
mod vendor_qp;

pub use survey::{DeviceSurvey, Reader};

use super::{Nic, NicInfo, Offer, Provider};
use crate::pci::Slot;
use crate::{TransportError, Way};
use nic::VerbsNic;
use opened::{Opened, info, is_emulated, sysfs};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use warpverbs_rdma::{Decision, Reason};
use warpverbs_verbs as verbs;

/// The RDMA devices of this machine. libibverbs is loaded when they are first asked for; without it
/// there are none.
#[derive(Default)]
pub struct VerbsProvider {
    library: Option<verbs::Verbs>,
    /// Where sysfs is looked for, if not at the root.
    root: Option<PathBuf>,
    way: Way,
    /// Devices that are open, by name.
    open: Mutex<BTreeMap<String, Arc<Opened>>>,
}

impl VerbsProvider {
    /// Those of a library that was loaded by hand.
    pub fn over(library: verbs::Verbs) -> Self {
        Self { library: Some(library), ..Self::default() }
    }

    /// Looks at sysfs below this folder, as tests do: for the kernel's peer memory modules, and for
    /// where devices sit.
    #[must_use]
    pub fn with_root(self, root: impl Into<PathBuf>) -> Self {
        Self { root: Some(root.into()), ..self }
    }

    /// Lets queues be read in this way.
    #[must_use]
    pub fn with_way(self, way: Way) -> Self {
        Self { way, ..self }
    }

    fn root(&self) -> &Path {
        self.root.as_deref().unwrap_or(Path::new("/"))
    }

    fn library(&self) -> Result<verbs::Verbs, verbs::LoadError> {
        self.library.map_or_else(verbs::Verbs::load, Ok)
    }

    /// The selected devices, or why there are none: on a machine without, whatever the reason, the
    /// software NIC is used. A selection that cannot be followed is an error.
    fn list(&self) -> Result<Result<Vec<verbs::Device>, Reason>, TransportError> {
        let library = match self.library() {
            Ok(library) => library,
            Err(verbs::LoadError::NotFound { file }) => {
                return Ok(Err(Reason::new("libibverbs", format!("there is no {file}"))));
            }
            Err(error) => return Ok(Err(Reason::new("libibverbs", error))),
        };
        match library.devices() {
            Ok(devices) => Ok(Ok(devices)),
            Err(error @ verbs::VerbsError::Selection(_)) => Err(error.into()),
            Err(error) => {
                tracing::debug!(%error, "no RDMA device");
                Ok(Err(Reason::new("RDMA devices", "this machine has none")))
            }
        }
    }

    fn opened(&self, name: &str) -> Result<Arc<Opened>, TransportError> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        // One whose device has gone is opened anew.
        if let Some(opened) = open.get(name).filter(|opened| !opened.is_gone()) {
            return Ok(opened.clone());
        }
        let device = self.library().map_err(verbs::VerbsError::from)?.device(name)?;
        let opened = Arc::new(Opened::new(&device, self.root().to_owned())?);
        open.insert(name.to_owned(), opened.clone());
        Ok(opened)
    }
}

impl Provider for VerbsProvider {
    fn devices(&self) -> Result<Vec<NicInfo>, TransportError> {
        let devices = self.list()?.unwrap_or_default();
        Ok(devices.iter().map(|device| info(device, is_emulated(self.root(), device))).collect())
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Nic>, TransportError> {
        Ok(Arc::new(VerbsNic::new(self.opened(name)?, self.way)?))
    }

    /// The first device that is hardware and has a port in use, or the nearest one to a GPU. An
    /// emulated one is slower than the software NIC and is taken by name only.
    fn offer(&self, near: Option<&str>) -> Result<Offer, TransportError> {
        let mut devices = match self.list()? {
            Ok(devices) => devices,
            Err(why) => return Ok(Err(vec![why])),
        };
        let root = self.root();
        let gpu = near.and_then(|address| Slot::at(root, address));
        let slot =
            |device: &verbs::Device| Slot::behind(root, &format!("{}/device", sysfs(device)));
        if let Some(gpu) = &gpu {
            // A stable sort: of those that are equally near, the first.
            devices.sort_by_key(|device| {
                let slot = slot(device);
                (slot.is_none(), slot.map(|slot| gpu.nearness(&slot)))
            });
        }
        let mut reasons = Vec::new();
        for device in devices {
            let name = device.name().to_owned();
            if is_emulated(root, &device) {
                let why = "emulated by the kernel, and taken by name only";
                reasons.push(Reason::new(name, why));
                continue;
            }
            match self.opened(&name) {
                Ok(opened) => {
                    let far = gpu.as_ref().zip(slot(&device)).map(|(gpu, nic)| gpu.distance(&nic));
                    let far = far.map(|far| format!("; from the GPU {}", far.words()));
                    let by = opened.why().to_owned() + &far.unwrap_or_default();
                    return Ok(Ok(Decision { route: name, by, not_better: reasons }));
                }
                Err(error) => reasons.push(Reason::new(name, error)),
            }
        }
        if reasons.is_empty() {
            reasons.push(Reason::new("RDMA devices", "libibverbs finds none here"));
        }
        Ok(Err(reasons))
    }
}
