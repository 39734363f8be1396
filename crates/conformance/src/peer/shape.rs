//! How an endpoint is to be made, wherever that is.

use super::Trouble;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use warpverbs::gpu::Gpu;
use warpverbs::transport::{Access, EndpointConfig, Mtu, SharedReceiveQueue};

/// Ends a hang: a NIC that gives up says so before, however busy the machine is.
const HANG: Duration = Duration::from_secs(60);

/// An [`EndpointConfig`] as plain data. A setting that is not given is as `EndpointConfig` has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    by_kernels: bool,
    send_depth: Option<u32>,
    recv_depth: Option<u32>,
    recv_sges: Option<u32>,
    inline_bytes: Option<u32>,
    srq: Option<u32>,
    access: Option<u32>,
    mtu: Option<u32>,
    rd_atomic: Option<u8>,
    timers: Option<[u8; 2]>,
    retries: Option<[u8; 2]>,
}

/// Sets what [`EndpointConfig`] calls the same.
macro_rules! setters {
    ($($field:ident: $type:ty;)*) => {$(
        pub(crate) fn $field(self, $field: $type) -> Self {
            Self { $field: Some($field), ..self }
        }
    )*};
}

impl Shape {
    /// Posted to by the host.
    pub(crate) fn host() -> Self {
        Self::default()
    }

    /// Posted to by kernels.
    pub(crate) fn kernels() -> Self {
        Self { by_kernels: true, ..Self::default() }
    }

    setters! {
        send_depth: u32;
        recv_depth: u32;
        recv_sges: u32;
        inline_bytes: u32;
        srq: u32;
        rd_atomic: u8;
    }

    pub(crate) fn access(self, access: Access) -> Self {
        Self { access: Some(access.bits()), ..self }
    }

    pub(crate) fn mtu(self, mtu: Mtu) -> Self {
        Self { mtu: Some(mtu.bytes() as u32), ..self }
    }

    pub(crate) fn timers(self, ack_timeout: u8, min_rnr_timer: u8) -> Self {
        Self { timers: Some([ack_timeout, min_rnr_timer]), ..self }
    }

    pub(crate) fn retries(self, retry: u8, rnr_retry: u8) -> Self {
        Self { retries: Some([retry, rnr_retry]), ..self }
    }

    /// The configuration, where kernels run on `gpu` and `queue` knows shared queues by number.
    pub(crate) fn config(
        &self,
        gpu: Option<&Arc<dyn Gpu>>,
        queue: impl FnOnce(u32) -> Result<Arc<SharedReceiveQueue>, Trouble>,
    ) -> Result<EndpointConfig, Trouble> {
        let mut config = match (self.by_kernels, gpu) {
            (false, _) => EndpointConfig::host().timeout(HANG),
            (true, Some(gpu)) => EndpointConfig::for_gpu(gpu),
            (true, None) => return Err(Trouble::no_kernels()),
        };
        macro_rules! apply {
            ($($field:ident)*) => {$(
                if let Some(value) = self.$field {
                    config = config.$field(value);
                }
            )*};
        }
        apply!(send_depth recv_depth recv_sges inline_bytes rd_atomic);
        if let Some(number) = self.srq {
            config = config.srq(&queue(number)?);
        }
        if let Some(bits) = self.access {
            config = config.access(access(bits)?);
        }
        if let Some(bytes) = self.mtu {
            let mtu = Mtu::from_bytes(bytes as usize);
            config = config.mtu(mtu.ok_or_else(|| Trouble::Other(format!("an MTU of {bytes}")))?);
        }
        if let Some([ack_timeout, min_rnr_timer]) = self.timers {
            config = config.timers(ack_timeout, min_rnr_timer);
        }
        if let Some([retry, rnr_retry]) = self.retries {
            config = config.retries(retry, rnr_retry);
        }
        Ok(config)
    }
}

/// The rights that `bits` are.
pub(crate) fn access(bits: u32) -> Result<Access, Trouble> {
    let unknown = || Trouble::Other(format!("rights {bits:#x}, of which some are unknown here"));
    Access::from_bits(bits).ok_or_else(unknown)
}
