//! Two sides that reach each other.

use crate::peer::{About, Peer, Shape, Trouble};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use warpverbs::gpu::{Gpu, Place};
use warpverbs::raw::nic::{Config, LinkConfig, UdpConfig};
use warpverbs::transport::{
    Access, Context, Device, Endpoint, EndpointConfig, MemoryRegion, NicChoice, SharedReceiveQueue,
    TransportError,
};

/// The two sides that the cases run on.
pub struct Setup {
    /// The side that posts, in this process.
    pub a: Side,
    /// The side that is written to, read and sent to.
    pub b: Peer,
}

/// A NIC, opened twice, and where kernels run beside it.
pub struct Side {
    /// With the protection domain that the cases work in.
    pub device: Device,
    /// With another.
    pub stranger: Device,
    /// Where kernels run; without it, only the host posts.
    pub gpu: Option<Arc<dyn Gpu>>,
    /// Where memory lies that kernels reach.
    pub place: Place,
    /// Changes every endpoint's configuration, last of all.
    pub configure: fn(EndpointConfig) -> EndpointConfig,
}

/// One of the two sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Which {
    /// The side that posts.
    A,
    /// Its peer.
    B,
}

/// Kinds of sides, which differ in behaviour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// One software NIC.
    SoftLoopback,
    /// Two software NICs and the network between them.
    SoftNetwork,
    /// RDMA devices behind libibverbs.
    Verbs,
    /// Devices behind libibverbs that read the queues themselves.
    Direct,
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::SoftLoopback => "software NIC, loopback",
            Self::SoftNetwork => "software NICs, RoCEv2",
            Self::Verbs => "RDMA device",
            Self::Direct => "RDMA device that reads the queues itself",
        })
    }
}

impl Setup {
    /// Of a side of this process, and a peer that it reaches.
    pub fn new(a: Side, b: Peer) -> Self {
        Self { a, b }
    }

    /// A NIC of `context`, connected to itself.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn on(context: &Context, nic: impl Into<NicChoice>) -> Result<Self, TransportError> {
        let nic = nic.into();
        Ok(Self::new(Side::open(context, &nic)?, Peer::here(Side::open(context, &nic)?)))
    }

    /// A software NIC, connected to itself, opened with queues of either format.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn loopback(config: Config, nics: [NicChoice; 2]) -> Result<Self, TransportError> {
        let context = Context::builder().soft_config(config).build()?;
        let [a, b] = nics;
        Ok(Self::new(Side::open(&context, &a)?, Peer::here(Side::open(&context, &b)?)))
    }

    /// Two software NICs, whose queues have the formats of `nics`, with RoCEv2 between two ports of
    /// `address`.
    ///
    /// # Errors
    /// They cannot be made.
    pub fn network(
        config: &Config,
        address: IpAddr,
        nics: [NicChoice; 2],
    ) -> Result<Self, TransportError> {
        let [a, b] = nics;
        let side = |process, nic: &NicChoice| {
            let udp = UdpConfig::at(SocketAddr::new(address, 0));
            let config = Config { link: LinkConfig::Udp(udp), ..config.clone() };
            let context = Context::builder().soft_config(config.for_process(process)).build()?;
            Side::open(&context, nic)
        };
        Ok(Self::new(side(0, &a)?, Peer::here(side(1, &b)?)))
    }

    /// Adds a device that runs kernels, at both sides of this process.
    pub fn with_gpu(self, gpu: Arc<dyn Gpu>) -> Self {
        self.changed(|side| side.gpu = Some(gpu.clone()))
    }

    /// With the memory of both sides of this process in this place, where there are kernels.
    pub fn placed(self, place: Place) -> Self {
        self.changed(|side| side.place = place)
    }

    /// With a change to every configuration of an endpoint of this process.
    pub fn configured(self, configure: fn(EndpointConfig) -> EndpointConfig) -> Self {
        self.changed(|side| side.configure = configure)
    }

    fn changed(mut self, change: impl Fn(&mut Side)) -> Self {
        change(&mut self.a);
        self.b.change(change);
        self
    }

    /// Descriptions of the side that posts, and of its peer.
    pub fn abouts(&self) -> [About; 2] {
        [self.a.about(), self.b.about()]
    }

    /// The kind of a side.
    pub fn kind(&self, which: Which) -> Kind {
        let [a, b] = self.abouts();
        let loopback = a.id == b.id;
        let side = if which == Which::A { a } else { b };
        match (side.provider.as_str(), loopback) {
            ("soft", true) => Kind::SoftLoopback,
            ("soft", false) => Kind::SoftNetwork,
            ("mlx5" | "bnxt_re" | "ionic", _) => Kind::Direct,
            _ => Kind::Verbs,
        }
    }
}

impl Side {
    /// Opens a NIC twice.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open(context: &Context, nic: &NicChoice) -> Result<Self, TransportError> {
        let (device, stranger) = (context.open(nic)?, context.open(nic)?);
        Ok(Self { device, stranger, gpu: None, place: Place::Shared, configure: |config| config })
    }

    /// Adds a device that runs kernels.
    pub fn with_gpu(self, gpu: Arc<dyn Gpu>) -> Self {
        Self { gpu: Some(gpu), ..self }
    }

    /// With its memory in this place, where there are kernels.
    pub fn placed(self, place: Place) -> Self {
        Self { place, ..self }
    }

    /// Its NIC, and where kernels run beside it.
    pub fn about(&self) -> About {
        let info = self.device.info();
        About {
            provider: info.provider.to_string(),
            nic: info.name.clone(),
            description: info.description.clone(),
            id: self.device.id().0,
            gpu: self.gpu.as_ref().map(|gpu| gpu.info().name.clone()),
        }
    }

    /// Zeroed memory, which kernels reach if there are any.
    pub(crate) fn region(
        &self,
        device: &Device,
        len: usize,
        access: Access,
    ) -> Result<MemoryRegion, Trouble> {
        Ok(match &self.gpu {
            Some(gpu) => device.register(gpu.alloc(len, self.place)?, access)?,
            None => device.alloc_host(len, access)?,
        })
    }

    /// An endpoint; `queue` knows shared receive queues by number.
    pub(crate) fn endpoint(
        &self,
        shape: &Shape,
        queue: impl FnOnce(u32) -> Result<Arc<SharedReceiveQueue>, Trouble>,
    ) -> Result<Endpoint, Trouble> {
        let config = shape.config(self.gpu.as_ref(), queue)?;
        Ok(self.device.endpoint(&(self.configure)(config))?)
    }
}
