//! Whether each RDMA device can reach each GPU's memory, found out by registering some.

use super::pci::{Distance, Slot};
use super::rdma::{Device, Rdma};
use super::root::Root;
use serde::Serialize;
use std::sync::Arc;
use warpverbs::gpu::{self, Found, Gpu, Place};
use warpverbs::mem::Access;
use warpverbs::verbs::{
    Context, GpuWays, HowRegistered, Pd, Registered, Registration, Verbs, peer_module,
};

/// One GPU and one RDMA device.
#[derive(Debug, Serialize)]
pub(crate) struct Reach {
    /// Where kernels run.
    pub(crate) gpu: String,
    /// The RDMA device.
    pub(crate) nic: String,
    /// How far they are from each other.
    pub(crate) distance: Distance,
    /// How its memory was registered; absent if it could not be.
    pub(crate) how: Option<String>,
    /// Why not, or why not in a better way.
    pub(crate) why: Option<String>,
    /// Nothing stands between the memory and the device.
    #[serde(skip)]
    pub(crate) direct: bool,
}

/// Enough for any GPU's page.
const BYTES: usize = 64 << 10;

/// Every device that libibverbs drives, for every GPU.
pub(crate) fn reach(root: &Root, gpus: &[Found], rdma: &Rdma) -> Vec<Reach> {
    let Ok(verbs) = Verbs::load() else { return Vec::new() };
    let devices = rdma.library.devices.iter();
    let contexts: Vec<_> =
        devices.map(|name| (name, verbs.device(name).and_then(|device| device.open()))).collect();
    let mut out = Vec::new();
    // A GPU is opened only if there is a device to register its memory with.
    for found in gpus.iter().filter(|gpu| gpu.info.is_some() && !contexts.is_empty()) {
        let choice = found.name.parse().map_err(|e: gpu::ChoiceError| e.to_string());
        let opened = choice.and_then(|choice| gpu::open(choice).map_err(|e| e.to_string()));
        for (nic, context) in &contexts {
            let registered = match (&opened, context) {
                (Ok(gpu), Ok(context)) => register(root, gpu, context),
                (Err(why), _) => Err(why.clone()),
                (_, Err(error)) => Err(error.to_string()),
            };
            let device = rdma.devices.iter().find(|device| &device.name == *nic);
            out.push(row(root, found, nic, device, registered));
        }
    }
    out
}

fn row(
    root: &Root,
    gpu: &Found,
    nic: &str,
    device: Option<&Device>,
    registered: Result<Registered, String>,
) -> Reach {
    let (how, why, direct) = match registered {
        Ok(made) => {
            let direct = matches!(made.how, HowRegistered::Host | HowRegistered::Dmabuf);
            let why = (!made.not_taken.is_empty()).then(|| made.why());
            (Some(made.how.to_string()), why, direct)
        }
        Err(why) => (None, Some(why), false),
    };
    let (gpu, distance) = (gpu.name.clone(), distance(root, gpu, device));
    Reach { gpu, nic: nic.to_owned(), distance, how, why, direct }
}

/// How far a GPU and an RDMA device are from each other.
pub(crate) fn distance(root: &Root, gpu: &Found, device: Option<&Device>) -> Distance {
    let gpu = gpu.info.as_ref().and_then(|info| Slot::at(root, info.pci.as_deref()?));
    match (gpu, device.and_then(|device| device.pci.as_ref())) {
        (Some(gpu), Some(nic)) => gpu.distance(nic),
        _ => Distance::Unknown,
    }
}

fn register(root: &Root, gpu: &Arc<dyn Gpu>, context: &Context) -> Result<Registered, String> {
    let buffer = gpu.alloc(BYTES, Place::Device).map_err(|e| e.to_string())?;
    let pd = Pd::new(context).map_err(|e| e.to_string())?;
    let ways = GpuWays {
        export: &|| gpu.export_dmabuf(&buffer).map_err(|e| e.to_string()),
        peer_module: peer_module(&root.join(""), buffer.region().kind()),
        bounce: false,
    };
    let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
    Registered::new(&pd, buffer.region(), Registration::new(rights), &ways)
        .map_err(|e| e.to_string())
}
