//! Offers of each RDMA device to kernels of each GPU: the choices of `transport`, tried.

use super::rdma::{Device, Rdma};
use super::root::Root;
use serde::Serialize;
use warpverbs::gpu::{self, Found};
use warpverbs::raw::transport::DeviceSurvey;
use warpverbs::raw::transport::pci::{Distance, Slot};
use warpverbs::transport::{RegistrationPath, VerbsProvider};

/// One GPU and one RDMA device.
#[derive(Debug, Serialize)]
pub(crate) struct Pairing {
    pub(crate) gpu: String,
    pub(crate) nic: String,
    pub(crate) distance: Distance,
    /// How its memory was registered; absent if it could not be.
    pub(crate) how: Option<String>,
    /// Why not, or why not in a better way.
    pub(crate) why: Option<String>,
    /// If it could not be: whether it can be when copies through host memory are allowed.
    pub(crate) bounce: Option<bool>,
    /// The answers behind this, and those about queues.
    #[serde(skip)]
    pub(crate) survey: DeviceSurvey,
}

/// Every device that libibverbs drives, for every GPU.
pub(crate) fn pairings(root: &Root, gpus: &[Found], rdma: &Rdma) -> Vec<Pairing> {
    let provider = VerbsProvider::default().with_root(root.path());
    let nics = &rdma.library.devices;
    let mut out = Vec::new();
    // A GPU is opened only if there is a device to register its memory with.
    for found in gpus.iter().filter(|gpu| gpu.info.is_some() && !nics.is_empty()) {
        let choice = found.name.parse().map_err(|e: gpu::ChoiceError| e.to_string());
        let opened = choice.and_then(|choice| gpu::open(choice).map_err(|e| e.to_string()));
        for nic in nics {
            let survey = match &opened {
                Ok(gpu) => provider.survey(nic, gpu),
                Err(why) => DeviceSurvey::refused(why),
            };
            let device = rdma.devices.iter().find(|device| device.name == *nic);
            out.push(Pairing::new(&found.name, nic, distance(root, found, device), survey));
        }
    }
    out
}

impl Pairing {
    pub(crate) fn new(gpu: &str, nic: &str, distance: Distance, survey: DeviceSurvey) -> Self {
        let (how, why) = match &survey.memory {
            Ok(taken) => {
                let worse = !taken.not_better.is_empty();
                (Some(taken.route.to_string()), worse.then(|| taken.explain()))
            }
            Err(why) => (None, Some(why.why.clone())),
        };
        let (gpu, nic, bounce) = (gpu.to_owned(), nic.to_owned(), survey.bounce);
        Self { gpu, nic, distance, how, why, bounce, survey }
    }

    /// Something stands between the memory and the device.
    pub(crate) fn is_indirect(&self) -> bool {
        let direct = [RegistrationPath::Host, RegistrationPath::Dmabuf];
        self.survey.memory.as_ref().is_ok_and(|taken| !direct.contains(&taken.route))
    }
}

pub(crate) fn distance(root: &Root, gpu: &Found, device: Option<&Device>) -> Distance {
    let gpu = gpu.info.as_ref().and_then(|info| Slot::at(root.path(), info.pci.as_deref()?));
    match (gpu, device.and_then(|device| device.pci.as_ref())) {
        (Some(gpu), Some(nic)) => gpu.distance(nic),
        _ => Distance::Unknown,
    }
}
