//! An open NIC: where memory is registered and endpoints are made.

use crate::provider::{Nic, NicInfo};
use crate::shared::DeviceShared;
use crate::{
    Endpoint, EndpointConfig, MemoryRegion, NicId, RegisterOptions, SharedReceiveQueue,
    TransportError,
};
use std::fmt;
use std::sync::Arc;
use warpverbs_gpu::Buffer;
use warpverbs_gpu::layout::NicFormat;
use warpverbs_mem::{Access, HostBuf, Region};
use warpverbs_rdma::{Decision, Reason};

/// An open NIC with a protection domain of its own. Cloning shares it.
#[derive(Clone)]
#[doc(alias = "RdmaDevice")]
#[doc(alias = "RdmaDeviceContext")]
pub struct Device {
    shared: Arc<DeviceShared>,
    /// The choice, and a line about it.
    choice: Arc<(Decision<String>, String)>,
}

impl Device {
    pub(crate) fn new(nic: Arc<dyn Nic>, mut choice: Decision<String>) -> Self {
        if let Some(way) = nic.way() {
            choice.by += &format!("; {way}");
        }
        let Decision { route, by, not_better } = &choice;
        let mut why = format!("{route}: {by}");
        if !not_better.is_empty() {
            why += &format!(" ({})", Reason::list(not_better));
        }
        tracing::info!(%why, "NIC opened");
        let shared = Arc::new(DeviceShared::new(nic));
        Self { shared, choice: Arc::new((choice, why)) }
    }

    /// Description of the NIC.
    pub fn info(&self) -> &NicInfo {
        self.shared.nic.info()
    }

    /// The name of the NIC that was chosen, the reason, and why none of the better ones was.
    pub fn choice(&self) -> &Decision<String> {
        &self.choice.0
    }

    /// The same in one line.
    pub fn why(&self) -> &str {
        &self.choice.1
    }

    /// Link of a software NIC to its peers, and the means it has used so far, such as `shared
    /// memory at 127.0.0.1:50000`; `None` without a link, and of other NICs.
    pub fn link(&self) -> Option<String> {
        self.shared.nic.link()
    }

    /// The format of its endpoints' queues, in which kernels post.
    pub fn format(&self) -> NicFormat {
        self.shared.nic.format()
    }

    /// Its identity, as in its endpoints' handles.
    pub fn id(&self) -> NicId {
        self.shared.nic.id()
    }

    /// Registers a buffer with the NIC, and keeps it alive. `options` are the rights, or those and more;
    /// reading by the own side is always allowed.
    #[doc(alias = "RegisterRdmaMemoryRegion")]
    pub fn register(
        &self,
        buffer: Buffer,
        options: impl Into<RegisterOptions>,
    ) -> Result<MemoryRegion, TransportError> {
        MemoryRegion::new(self.shared.clone(), buffer, options.into())
    }

    /// Allocates `len` zeroed bytes of host memory and registers them.
    pub fn alloc_host(&self, len: usize, access: Access) -> Result<MemoryRegion, TransportError> {
        self.register_region(HostBuf::region(len)?, access)
    }

    /// Registers memory of another owner.
    pub fn register_region(
        &self,
        region: Region,
        options: impl Into<RegisterOptions>,
    ) -> Result<MemoryRegion, TransportError> {
        self.register(Buffer::of_region(region), options)
    }

    /// Makes an endpoint: a QP with its CQs, ready to be connected.
    #[doc(alias = "CreateRdmaEndpoint")]
    pub fn endpoint(&self, config: &EndpointConfig) -> Result<Endpoint, TransportError> {
        Endpoint::new(self.shared.clone(), config)
    }

    /// Makes two endpoints of this NIC that are connected to each other.
    ///
    /// # Errors
    /// As those of [`Self::endpoint`] and [`Endpoint::connect`].
    pub fn pair(&self, config: &EndpointConfig) -> Result<(Endpoint, Endpoint), TransportError> {
        let (a, b) = (self.endpoint(config)?, self.endpoint(config)?);
        a.connect(&b.handle())?;
        b.connect(&a.handle())?;
        Ok((a, b))
    }

    /// Makes a shared receive queue of `depth` receives (a power of two; one of them is kept
    /// back), each of up to `sges` pieces of memory.
    pub fn srq(&self, depth: u32, sges: u32) -> Result<Arc<SharedReceiveQueue>, TransportError> {
        SharedReceiveQueue::new(self.shared.clone(), depth, sges).map(Arc::new)
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({:?})", self.shared.nic)
    }
}
