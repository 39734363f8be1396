//! Everything there is: the NICs of all providers.

use crate::provider::{NicInfo, Offer, Provider, Soft, Verbs};
use crate::{Device, Error, NicChoice, UsageError};
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
#[derive(Default)]
pub struct ContextBuilder {
    soft: Option<SoftSource>,
    providers: Vec<Box<dyn Provider>>,
    without_verbs: bool,
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

    /// Takes a software NIC whose engine somebody else runs, for instance a test step by step.
    pub fn soft_nic(mut self, nic: SoftNic) -> Self {
        self.soft = Some(SoftSource::Stepped(nic));
        self
    }

    /// Adds a provider. `auto` asks providers in the order they were added, then libibverbs, the
    /// software NIC last.
    pub fn provider(mut self, provider: Box<dyn Provider>) -> Self {
        self.providers.push(provider);
        self
    }

    /// Leaves out the RDMA devices that libibverbs finds.
    pub fn without_verbs(mut self) -> Self {
        self.without_verbs = true;
        self
    }

    /// Looks for NICs.
    pub fn build(self) -> Result<Context, Error> {
        let soft = match self.soft {
            Some(SoftSource::Stepped(nic)) => Soft::stepped(nic)?,
            Some(SoftSource::Config(config)) => Soft::new(*config),
            None => Soft::new(Config::default()),
        };
        let mut providers = self.providers;
        if !self.without_verbs {
            providers.push(Box::new(Verbs::default()));
        }
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
            NicChoice::Soft => self.open_soft("the software NIC was asked for"),
            NicChoice::Auto => self.open_best(),
            NicChoice::Named(name) => self.open_named(&name),
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

    fn open_best(&self) -> Result<Device, Error> {
        let mut reasons = Vec::new();
        for provider in &self.providers {
            match provider.offer()? {
                Offer::Take { name, why } => {
                    return Ok(Device::new(provider.open(&name)?, format!("{name}: {why}")));
                }
                Offer::Leave { why } => reasons.push(why),
            }
        }
        match reasons.is_empty() {
            true => self.open_soft("the software NIC; no other was to be looked for"),
            false => self.open_soft(&format!("the software NIC, since {}", reasons.join("; "))),
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
