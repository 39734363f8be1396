//! Flags that every command understands.

use clap::Args;
use warpverbs::transport::{Context, ContextBuilder, VerbsProvider, Way};

/// Where kernels run, and which NIC consumes the queues.
#[derive(Args, Clone, Debug)]
pub(crate) struct Common {
    /// Where kernels run: auto, simt, cuda[:N] or hip[:N]
    #[arg(long, default_value = "auto", env = "WARPVERBS_GPU")]
    pub(crate) gpu: String,
    #[command(flatten)]
    pub(crate) nic: NicOnly,
}

/// For measurements that need no device.
#[derive(Args, Clone, Debug)]
pub(crate) struct NicOnly {
    /// The NIC that consumes the queues: auto, soft or a name
    #[arg(long, default_value = "auto", env = "WARPVERBS_NIC")]
    pub(crate) nic: String,
    /// How an RDMA device's queues are read: auto, proxy (by the CPU) or direct (by the device)
    #[arg(long, default_value_t = Way::Auto, env = "WARPVERBS_WAY")]
    pub(crate) way: Way,
    /// Print JSON instead of tables
    #[arg(long)]
    pub(crate) json: bool,
}

impl NicOnly {
    /// With the host SIMT device, whose memory is host memory.
    pub(crate) fn common(&self) -> Common {
        Common { gpu: "simt".to_owned(), nic: self.clone() }
    }
}

impl Common {
    /// Everything there is, RDMA devices in the way that was asked for.
    pub(crate) fn context(&self) -> ContextBuilder {
        Context::builder().verbs(VerbsProvider::default().with_way(self.nic.way))
    }
}
