//! Whether each RDMA device can reach each GPU's memory, found out by registering some.

use super::rdma::{Device, Rdma};
use super::root::Root;
use serde::Serialize;
use std::sync::Arc;
use warpverbs::gpu::{self, Found, Gpu, Place};
use warpverbs::raw::mem::Access;
use warpverbs::raw::transport::pci::{Distance, Slot};
use warpverbs::raw::verbs::{
    Context, GpuWays, Pd, Registered, Registration, RegistrationPath, Verbs, peer_module,
};

/// One GPU and one RDMA device.
#[derive(Debug, Serialize)]
pub(crate) struct FabricAddress {
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
    /// If it could not be: whether it can be when copies through host memory are allowed.
    pub(crate) bounce: Option<bool>,
    /// Nothing stands between the memory and the device.
    #[serde(skip)]
    pub(crate) direct: bool,
}

/// Enough for any GPU's page.
const BYTES: usize = 64 << 10;

/// Every device that libibverbs drives, for every GPU.
pub(crate) fn reach(root: &Root, gpus: &[Found], rdma: &Rdma) -> Vec<FabricAddress> {
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
                (Err(why), _) => Err(Refused { why: why.clone(), bounce: None }),
                (_, Err(error)) => Err(Refused::because(error)),
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
    registered: Result<Registered, Refused>,
) -> FabricAddress {
    let mut bounce = None;
    let (how, why, direct) = match registered {
        Ok(made) => {
            let direct = matches!(made.how.by, RegistrationPath::Host | RegistrationPath::Dmabuf);
            let why = (!made.how.not_taken.is_empty()).then(|| made.how.why());
            (Some(made.how.by.to_string()), why, direct)
        }
        Err(refused) => {
            bounce = refused.bounce;
            (None, Some(refused.why), false)
        }
    };
    let (gpu, distance) = (gpu.name.clone(), distance(root, gpu, device));
    FabricAddress { gpu, nic: nic.to_owned(), distance, how, why, bounce, direct }
}

/// How far a GPU and an RDMA device are from each other.
pub(crate) fn distance(root: &Root, gpu: &Found, device: Option<&Device>) -> Distance {
    let gpu = gpu.info.as_ref().and_then(|info| Slot::at(root.path(), info.pci.as_deref()?));
    match (gpu, device.and_then(|device| device.pci.as_ref())) {
        (Some(gpu), Some(nic)) => gpu.distance(nic),
        _ => Distance::Unknown,
    }
}

/// Why memory is not registered.
struct Refused {
    why: String,
    /// Whether copies would do.
    bounce: Option<bool>,
}

impl Refused {
    fn because(why: impl ToString) -> Self {
        Self { why: why.to_string(), bounce: None }
    }
}

fn register(root: &Root, gpu: &Arc<dyn Gpu>, context: &Context) -> Result<Registered, Refused> {
    let buffer = gpu.alloc(BYTES, Place::Device).map_err(Refused::because)?;
    let pd = Pd::new(context).map_err(Refused::because)?;
    let peer_module = peer_module(&root.join(""), buffer.region().kind());
    let direct = GpuWays { peer_module, bounce: false };
    let copied = GpuWays { bounce: true, ..direct };
    let own = Registration::new(Access::LOCAL_WRITE);
    let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
    let register = |asked, ways| Registered::new(&pd, buffer.region(), asked, ways);
    register(Registration::new(rights), &direct).map_err(|error| Refused {
        why: error.to_string(),
        bounce: Some(register(own, &copied).is_ok()),
    })
}
