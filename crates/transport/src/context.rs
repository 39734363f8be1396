//! Everything there is: the NICs of all providers.

#[cfg(feature = "verbs")]
use crate::provider::VerbsProvider;
use crate::provider::{NicInfo, Offer, Provider, Soft};
use crate::{Device, Error, NicChoice, UsageError};
use warpverbs_gpu::GpuInfo;
use warpverbs_nic::{Config, SoftNic};

/// The NICs of this machine, of every provider.
///
/// The software NIC comes up when it is first opened: one engine thread per context, which ends
/// when the context and everything made from it are gone.
#[doc(alias = "RdmaContext")]
pub struct Context {
    soft: Box<dyn Provider>,
    providers: Vec<Box<dyn Provider>>,
}

/// How a [`Context`] is made.
pub struct ContextBuilder {
    soft: Option<SoftSource>,
    #[cfg(feature = "verbs")]
    verbs: Option<VerbsProvider>,
}

// With the feature `verbs`, the RDMA devices of this machine are searched by default.
#[cfg_attr(not(feature = "verbs"), allow(clippy::derivable_impls))]
impl Default for ContextBuilder {
    fn default() -> Self {
        Self {
            soft: None,
            #[cfg(feature = "verbs")]
            verbs: Some(VerbsProvider::default()),
        }
    }
}

enum SoftSource {
    Config(Box<Config>),
    Stepped(SoftNic),
}

impl ContextBuilder {
    /// Makes the software NIC as `config` says.
    pub fn soft_config(mut self, config: Config) -> Self {
        self.soft = Some(SoftSource::Config(Box::new(config)));
        self
    }

    /// Takes a software NIC whose engine the caller runs, for instance a test step by step.
    pub fn soft_nic(mut self, nic: SoftNic) -> Self {
        self.soft = Some(SoftSource::Stepped(nic));
        self
    }

    /// Takes RDMA devices from `provider` instead of from the libibverbs of this machine.
    #[cfg(feature = "verbs")]
    pub fn verbs(mut self, provider: VerbsProvider) -> Self {
        self.verbs = Some(provider);
        self
    }

    /// Leaves out the RDMA devices that libibverbs finds.
    #[cfg(feature = "verbs")]
    pub fn without_verbs(mut self) -> Self {
        self.verbs = None;
        self
    }

    /// Looks for NICs.
    pub fn build(self) -> Result<Context, Error> {
        let soft = match self.soft {
            Some(SoftSource::Stepped(nic)) => Soft::stepped(nic)?,
            Some(SoftSource::Config(config)) => Soft::new(*config),
            None => Soft::new(Config::default()),
        };
        #[cfg(feature = "verbs")]
        let providers = self.verbs.into_iter().map(|verbs| Box::new(verbs) as _).collect();
        #[cfg(not(feature = "verbs"))]
        let providers = Vec::new();
        Ok(Context { soft: Box::new(soft), providers })
    }
}

impl Context {
    /// With default settings.
    pub fn new() -> Result<Self, Error> {
        Self::builder().build()
    }

    /// With settings.
    pub fn builder() -> ContextBuilder {
        ContextBuilder::default()
    }

    /// Every NIC there is, the software NIC last.
    #[doc(alias = "GetRdmaDeviceList")]
    pub fn devices(&self) -> Result<Vec<NicInfo>, Error> {
        let mut all = Vec::new();
        for provider in self.all() {
            all.extend(provider.devices()?);
        }
        Ok(all)
    }

    /// Opens a NIC: by [`NicChoice`], or by what `--nic` was given.
    pub fn open(&self, choice: impl Into<NicChoice>) -> Result<Device, Error> {
        match choice.into() {
            NicChoice::Soft => self.open_soft("software NIC, as requested"),
            NicChoice::Auto => self.open_best(None),
            NicChoice::Named(name) => self.open_named(&name),
        }
    }

    /// As [`Context::open`]; of several RDMA devices, `auto` is the nearest to this GPU on the PCI
    /// bus.
    pub fn open_near(&self, choice: impl Into<NicChoice>, gpu: &GpuInfo) -> Result<Device, Error> {
        match choice.into() {
            NicChoice::Auto => self.open_best(gpu.pci.as_deref()),
            other => self.open(other),
        }
    }

    fn all(&self) -> impl Iterator<Item = &dyn Provider> {
        self.providers.iter().chain([&self.soft]).map(|provider| &**provider)
    }

    fn open_soft(&self, why: &str) -> Result<Device, Error> {
        let name = self.soft.devices()?.into_iter().next().map(|info| info.name);
        let name = name.unwrap_or_default();
        Ok(Device::new(self.soft.open(&name)?, format!("{name}: {why}")))
    }

    fn open_best(&self, near: Option<&str>) -> Result<Device, Error> {
        let mut reasons = Vec::new();
        for provider in &self.providers {
            match provider.offer(near)? {
                Offer::Take { name, why } => {
                    return Ok(Device::new(provider.open(&name)?, format!("{name}: {why}")));
                }
                Offer::Leave { why } => reasons.push(why),
            }
        }
        match reasons.is_empty() {
            true => self.open_soft("software NIC; RDMA devices were left out"),
            false => self.open_soft(&format!("software NIC: {}", reasons.join("; "))),
        }
    }

    fn open_named(&self, name: &str) -> Result<Device, Error> {
        let mut found = Vec::new();
        for provider in self.all() {
            for info in provider.devices()? {
                if info.name == name {
                    let why = format!("{name}: asked for by name");
                    return Ok(Device::new(provider.open(name)?, why));
                }
                found.push(info.name);
            }
        }
        Err(UsageError::NoSuchNic { asked: name.to_owned(), found: found.join(", ") }.into())
    }
}
