//! How kernels of a GPU would use an RDMA device: every choice of this crate is tried, and those that
//! are refused come with the reason.

use super::VerbsProvider;
use super::nic::{VerbsNic, registered};
use crate::endpoint::check_order;
use crate::provider::Nic as _;
use crate::{RegisterOptions, TransportError, Way};
use serde::Serialize;
use std::fmt;
use std::sync::Arc;
use warpverbs_gpu::{Buffer, Gpu, Place};
use warpverbs_mem::{Access, RegistrationPath};
use warpverbs_rdma::{Decision, Reason};
use warpverbs_verbs as verbs;

/// Offers of an RDMA device to kernels of a GPU.
#[derive(Clone, Debug)]
pub struct DeviceSurvey {
    /// Whether kernels may post to it at all.
    pub kernels: Result<(), Reason>,
    /// Whether the device makes queues that it reads itself, as [`Way::Direct`] needs.
    pub queues: Result<(), Reason>,
    /// Whether kernels can ring the device's register, likewise; not tried without such queues.
    pub register: Option<Result<(), Reason>>,
    /// How the device reaches the GPU's memory for both sides of a transfer.
    pub memory: Result<Decision<RegistrationPath>, Reason>,
    /// Without that: whether [`RegisterOptions::bounce`] helps the own side; `None` if it was not tried.
    pub bounce: Option<bool>,
}

/// The reader of the queues that kernels post to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Reader {
    /// The device itself.
    Direct,
    /// A CPU thread, which posts for them.
    Proxy,
    /// A CPU thread, which also copies the payload through host memory.
    Bounce,
}

impl fmt::Display for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Direct => "direct",
            Self::Proxy => "proxy",
            Self::Bounce => "bounce",
        })
    }
}

/// Enough for any GPU's page.
const BYTES: usize = 64 << 10;
/// The attempts, as reasons name them.
const KERNELS: &str = "posting by kernels";
const QUEUES: &str = "queues that the device reads itself";
const REGISTER: &str = "the doorbell register in the GPU";
const MEMORY: &str = "the GPU's memory";

impl DeviceSurvey {
    /// Nothing could be tried.
    pub fn refused(why: &str) -> Self {
        let [kernels, queues, memory] =
            [KERNELS, QUEUES, MEMORY].map(|what| Reason::new(what, why));
        Self {
            kernels: Err(kernels),
            queues: Err(queues),
            register: None,
            memory: Err(memory),
            bounce: None,
        }
    }

    /// The best reader of kernels' queues that is possible, and why not a better one.
    ///
    /// # Errors
    /// Kernels cannot post to the device.
    pub fn reader(&self) -> Result<Decision<Reader>, Reason> {
        self.kernels.clone()?;
        let register = self.register.as_ref().and_then(|tried| tried.as_ref().err());
        let refused = [self.queues.as_ref().err(), register, self.memory.as_ref().err()];
        let route = match (&self.queues, &self.register, self.bounce) {
            (_, _, Some(true)) => Reader::Bounce,
            (Ok(()), Some(Ok(())), _) => Reader::Direct,
            _ => Reader::Proxy,
        };
        let not_better = refused.into_iter().flatten().cloned().collect();
        Ok(Decision { not_better, ..Decision::best(route) })
    }
}

fn because<E: Into<TransportError>>(what: &str) -> impl Fn(E) -> Reason {
    move |error| Reason::new(what, error.into())
}

impl VerbsProvider {
    /// Tries how kernels of `gpu` would use a device. All that it makes is gone afterwards.
    pub fn survey(&self, device: &str, gpu: &Arc<dyn Gpu>) -> DeviceSurvey {
        let opened = match self.opened(device) {
            Ok(opened) => opened,
            Err(error) => return DeviceSurvey::refused(&error.to_string()),
        };
        let nic = VerbsNic::new(opened, Way::Direct);
        let register = nic.as_ref().ok().map(|nic| gpu.map(nic.doorbells()).map(drop));
        let mut found = DeviceSurvey {
            kernels: check_order(gpu.info()).map_err(because(KERNELS)),
            queues: nic.map(drop).map_err(because(QUEUES)),
            register: register.map(|mapped| mapped.map_err(because(REGISTER))),
            ..DeviceSurvey::refused("")
        };
        let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let own = RegisterOptions::new(Access::LOCAL_WRITE).bounce(true);
        match self.memory(device, gpu) {
            Err(error) => found.memory = Err(because(MEMORY)(error)),
            Ok((pd, buffer)) => {
                let try_with = |options| registered(self.root(), &pd, buffer.region(), &options);
                found.memory =
                    try_with(rights.into()).map(|made| made.how).map_err(because(MEMORY));
                found.bounce = found.memory.is_err().then(|| try_with(own).is_ok());
            }
        }
        found
    }

    /// Memory of the GPU, and a protection domain to register it in, whatever the ports' states.
    fn memory(
        &self,
        device: &str,
        gpu: &Arc<dyn Gpu>,
    ) -> Result<(verbs::Pd, Buffer), TransportError> {
        let buffer = gpu.alloc(BYTES, Place::Device)?;
        let library = self.library().map_err(verbs::VerbsError::from)?;
        let context = library.device(device)?.open()?;
        Ok((verbs::Pd::new(&context)?, buffer))
    }
}
