//! How kernels of a GPU would use an RDMA device: every choice of this crate is tried, and those that
//! are refused come with the reason.

use super::VerbsProvider;
use super::nic::{VerbsNic, registered};
use crate::endpoint::check_order;
use crate::provider::Nic as _;
use crate::{Error, RegisterOptions, Way};
use std::sync::Arc;
use warpverbs_gpu::{Buffer, Gpu, Place};
use warpverbs_mem::{Access, RegistrationChoice};
use warpverbs_verbs as verbs;

/// Offers of an RDMA device to kernels of a GPU. Reasons are for people.
#[derive(Clone, Debug)]
pub struct Survey {
    /// Whether kernels may post to it at all.
    pub kernels: Result<(), String>,
    /// Whether the device makes queues that it reads itself, as [`Way::Direct`] needs.
    pub queues: Result<(), String>,
    /// Whether kernels can ring the device's register, likewise; not tried without such queues.
    pub register: Option<Result<(), String>>,
    /// How the device reaches the GPU's memory for both sides of a transfer.
    pub memory: Result<RegistrationChoice, String>,
    /// Without that: whether [`RegisterOptions::bounce`] helps the own side; `None` if it was not tried.
    pub bounce: Option<bool>,
}

/// Enough for any GPU's page.
const BYTES: usize = 64 << 10;

impl Survey {
    /// Nothing could be tried.
    pub fn refused(why: &str) -> Self {
        let no = || Err(why.to_owned());
        let memory = Err(why.to_owned());
        Self { kernels: no(), queues: no(), register: None, memory, bounce: None }
    }

    /// The best reader of kernels' queues that is possible; `None` if kernels cannot post.
    pub fn best(&self) -> Option<Way> {
        self.kernels.as_ref().ok()?;
        Some(match (&self.queues, &self.register) {
            (Ok(()), Some(Ok(()))) => Way::Direct,
            _ => Way::Proxy,
        })
    }
}

fn words(error: impl Into<Error>) -> String {
    error.into().to_string()
}

impl VerbsProvider {
    /// Tries how kernels of `gpu` would use a device. All that it makes is gone afterwards.
    pub fn survey(&self, device: &str, gpu: &Arc<dyn Gpu>) -> Survey {
        let opened = self.opened(device).map_err(words);
        let nic =
            opened.clone().and_then(|opened| VerbsNic::new(opened, Way::Direct).map_err(words));
        let register = nic.as_ref().ok().map(|nic| gpu.map(nic.doorbells()).map(drop));
        let kernels = opened.map(drop).and_then(|()| check_order(gpu.info()).map_err(words));
        let mut found = Survey {
            kernels,
            queues: nic.map(drop),
            register: register.map(|mapped| mapped.map_err(words)),
            ..Survey::refused("")
        };
        let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let own = RegisterOptions::new(Access::LOCAL_WRITE).bounce(true);
        match self.memory(device, gpu) {
            Err(error) => found.memory = Err(words(error)),
            Ok((pd, buffer)) => {
                let try_with = |options| registered(self.root(), &pd, buffer.region(), &options);
                found.memory = try_with(rights.into()).map(|made| made.how).map_err(words);
                found.bounce = found.memory.is_err().then(|| try_with(own).is_ok());
            }
        }
        found
    }

    /// Memory of the GPU, and a protection domain to register it in, whatever the ports' states.
    fn memory(&self, device: &str, gpu: &Arc<dyn Gpu>) -> Result<(verbs::Pd, Buffer), Error> {
        let buffer = gpu.alloc(BYTES, Place::Device)?;
        let library = self.library().map_err(verbs::VerbsError::from)?;
        let context = library.device(device)?.open()?;
        Ok((verbs::Pd::new(&context)?, buffer))
    }
}
