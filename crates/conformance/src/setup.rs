//! Two sides that reach each other.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use warpverbs::gpu::Gpu;
use warpverbs::nic::{Config, LinkConfig, UdpConfig};
use warpverbs::transport::{Context, Device, EndpointConfig, Error, NicChoice};

/// What the cases run on.
pub struct Setup {
    /// The side that posts.
    pub a: Side,
    /// The side that is written to, read and sent to.
    pub b: Side,
    /// Where kernels run; without it, only the host posts.
    pub gpu: Option<Arc<dyn Gpu>>,
    /// Changes every endpoint's configuration, last of all.
    pub configure: fn(EndpointConfig) -> EndpointConfig,
}

/// A NIC, opened twice.
pub struct Side {
    /// With the protection domain that the cases work in.
    pub device: Device,
    /// With another.
    pub stranger: Device,
}

/// What there are differences between.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// One software NIC.
    SoftLoopback,
    /// Two software NICs and the network between them.
    SoftNetwork,
    /// RDMA devices behind libibverbs.
    Verbs,
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::SoftLoopback => "software NIC, loopback",
            Self::SoftNetwork => "software NICs, RoCEv2",
            Self::Verbs => "RDMA device",
        })
    }
}

impl Setup {
    /// Of any two sides.
    pub fn new(a: Side, b: Side) -> Self {
        Self { a, b, gpu: None, configure: |config| config }
    }

    /// A NIC of `context`, connected to itself.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn on(context: &Context, nic: impl Into<NicChoice>) -> Result<Self, Error> {
        let nic = nic.into();
        Ok(Self::new(Side::open(context, &nic)?, Side::open(context, &nic)?))
    }

    /// A software NIC, connected to itself.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn loopback(config: Config) -> Result<Self, Error> {
        Self::on(&Context::builder().soft_config(config).build()?, NicChoice::Soft)
    }

    /// Two software NICs with RoCEv2 between two ports of `address`.
    ///
    /// # Errors
    /// They cannot be made.
    pub fn network(config: &Config, address: IpAddr) -> Result<Self, Error> {
        let side = |process| {
            let udp = UdpConfig { bind: SocketAddr::new(address, 0), max_mtu: None };
            let config = Config { link: LinkConfig::Udp(udp), ..config.clone() };
            let context = Context::builder().soft_config(config.for_process(process)).build()?;
            Side::open(&context, &NicChoice::Soft)
        };
        Ok(Self::new(side(0)?, side(1)?))
    }

    /// With a device whose kernels post as well.
    pub fn with_gpu(self, gpu: Arc<dyn Gpu>) -> Self {
        Self { gpu: Some(gpu), ..self }
    }

    /// With a change to every endpoint's configuration.
    pub fn configured(self, configure: fn(EndpointConfig) -> EndpointConfig) -> Self {
        Self { configure, ..self }
    }

    /// What it is made of.
    pub fn kind(&self) -> Kind {
        let (a, b) = (&self.a.device, &self.b.device);
        match (a.info().provider == "soft", a.id() == b.id()) {
            (true, true) => Kind::SoftLoopback,
            (true, false) => Kind::SoftNetwork,
            (false, _) => Kind::Verbs,
        }
    }
}

impl Side {
    /// Opens a NIC twice.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open(context: &Context, nic: &NicChoice) -> Result<Self, Error> {
        Ok(Self { device: context.open(nic)?, stranger: context.open(nic)? })
    }
}
