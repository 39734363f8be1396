//! Everything there is: the NICs of all providers.

#[cfg(feature = "verbs")]
use crate::provider::VerbsProvider;
use crate::provider::{NicInfo, Provider, Soft};
use crate::{Device, NicChoice, TransportError, UsageError};
#[cfg(feature = "udp")]
use std::net::SocketAddr;
use warpverbs_gpu::GpuInfo;
use warpverbs_mlx5::export::NicFormat;
use warpverbs_nic::{Config, SoftNic};
#[cfg(feature = "udp")]
use warpverbs_nic::{LinkKind, UdpConfig};
use warpverbs_rdma::{Decision, Reason};

/// The NICs of this machine, of every provider.
///
/// The software NIC comes up when it is first opened: one engine thread per context, which ends
/// when the context and everything made from it are gone.
#[doc(alias = "RdmaContext")]
pub struct Context {
    soft: Soft,
    providers: Vec<Box<dyn Provider>>,
}

/// How a [`Context`] is made.
pub struct ContextBuilder {
    soft: Config,
    stepped: Option<SoftNic>,
    #[cfg(feature = "verbs")]
    verbs: Option<VerbsProvider>,
}

// With the feature `verbs`, the RDMA devices of this machine are searched by default.
#[cfg_attr(not(feature = "verbs"), allow(clippy::derivable_impls))]
impl Default for ContextBuilder {
    fn default() -> Self {
        Self {
            soft: Config::default(),
            stepped: None,
            #[cfg(feature = "verbs")]
            verbs: Some(VerbsProvider::default()),
        }
    }
}

impl ContextBuilder {
    /// Makes the software NIC as `config` says.
    pub fn soft_config(mut self, config: Config) -> Self {
        self.soft = config;
        self
    }

    /// Gives the software NIC a link to other processes and hosts, at the address of one interface. Port
    /// 0 is any that is free, 4791 the standard. Without a link, peers are QPs of the same NIC.
    #[cfg(feature = "udp")]
    pub fn soft_link(mut self, kind: LinkKind, at: SocketAddr) -> Self {
        self.soft.link = kind.at(UdpConfig::at(at));
        self
    }

    /// Takes from the environment the kind of the software NIC's link, if it has one, faults on it, and
    /// the file of a capture. Each of several processes with the same environment gives its number:
    /// it gets a capture of its own, and faults with a seed of their own.
    ///
    /// # Errors
    /// A variable's value is no kind of link, or no plan of faults.
    pub fn soft_env(mut self, process: Option<u32>) -> Result<Self, TransportError> {
        let config = self.soft.with_env()?;
        self.soft = match process {
            Some(process) => config.for_process(process),
            None => config,
        };
        Ok(self)
    }

    /// Takes a software NIC whose engine the caller runs, for instance a test step by step; what else
    /// is said of a software NIC has no effect.
    pub fn soft_nic(mut self, nic: SoftNic) -> Self {
        self.stepped = Some(nic);
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
    pub fn build(self) -> Result<Context, TransportError> {
        let soft = match self.stepped {
            Some(nic) => Soft::stepped(nic)?,
            None => Soft::new(self.soft),
        };
        #[cfg(feature = "verbs")]
        let providers = self.verbs.into_iter().map(|verbs| Box::new(verbs) as _).collect();
        #[cfg(not(feature = "verbs"))]
        let providers = Vec::new();
        Ok(Context { soft, providers })
    }
}

impl Context {
    /// With default settings.
    pub fn new() -> Result<Self, TransportError> {
        Self::builder().build()
    }

    /// With settings.
    pub fn builder() -> ContextBuilder {
        ContextBuilder::default()
    }

    /// Every NIC there is, the software NIC last.
    #[doc(alias = "GetRdmaDeviceList")]
    pub fn devices(&self) -> Result<Vec<NicInfo>, TransportError> {
        let mut all = Vec::new();
        for provider in self.all() {
            all.extend(provider.devices()?);
        }
        Ok(all)
    }

    /// Opens a NIC: by [`NicChoice`], or by what `--nic` was given.
    pub fn open(&self, choice: impl Into<NicChoice>) -> Result<Device, TransportError> {
        match choice.into() {
            NicChoice::Soft => {
                self.open_soft(NicFormat::Mlx5, "software NIC, as requested", Vec::new())
            }
            NicChoice::SoftAs(format) => {
                let by = format!("software NIC, as requested, with queues of {format}");
                self.open_soft(format, &by, Vec::new())
            }
            NicChoice::Auto => self.open_best(None),
            NicChoice::Named(name) => self.open_named(&name),
        }
    }

    /// As [`Context::open`]; of several RDMA devices, `auto` is the nearest to this GPU on the PCI
    /// bus.
    pub fn open_near(
        &self,
        choice: impl Into<NicChoice>,
        gpu: &GpuInfo,
    ) -> Result<Device, TransportError> {
        match choice.into() {
            NicChoice::Auto => self.open_best(gpu.pci.as_deref()),
            other => self.open(other),
        }
    }

    fn all(&self) -> impl Iterator<Item = &dyn Provider> {
        let soft: &dyn Provider = &self.soft;
        self.providers.iter().map(|provider| &**provider).chain([soft])
    }

    fn open_soft(
        &self,
        format: NicFormat,
        by: &str,
        not_better: Vec<Reason>,
    ) -> Result<Device, TransportError> {
        let route = self.soft.info().name;
        let nic = self.soft.open_as(format)?;
        Ok(Device::new(nic, Decision { route, by: by.to_owned(), not_better }))
    }

    fn open_best(&self, near: Option<&str>) -> Result<Device, TransportError> {
        let mut not_better = Vec::new();
        for provider in &self.providers {
            match provider.offer(near)? {
                Ok(mut taken) => {
                    taken.not_better.splice(0..0, not_better);
                    return Ok(Device::new(provider.open(&taken.route)?, taken));
                }
                Err(reasons) => not_better.extend(reasons),
            }
        }
        if self.providers.is_empty() {
            not_better.push(Reason::new("RDMA devices", "left out"));
        }
        self.open_soft(NicFormat::Mlx5, "software NIC", not_better)
    }

    fn open_named(&self, name: &str) -> Result<Device, TransportError> {
        let mut found = Vec::new();
        for provider in self.all() {
            for info in provider.devices()? {
                if info.name == name {
                    let by = "asked for by name".to_owned();
                    let asked = Decision { by, ..Decision::best(name.to_owned()) };
                    return Ok(Device::new(provider.open(name)?, asked));
                }
                found.push(info.name);
            }
        }
        Err(UsageError::NoSuchNic { asked: name.to_owned(), found: found.join(", ") }.into())
    }
}
