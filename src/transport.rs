//! For programs that own their queues: contexts, devices, endpoints and registered memory.
//!
//! A [`Context`] knows the NICs, a [`Device`] is one of them, opened. Peers exchange an
//! [`EndpointHandle`] and [`RemoteRegion`]s as bytes, and connect. Then the host posts through a
//! [`Poster`], or a kernel through what [`Endpoint::device_qp`] gives.
//!
//! ```
//! use warpverbs::transport::{Access, Context, EndpointConfig, TransportError, SendFlags};
//!
//! # fn main() -> Result<(), TransportError> {
//! let nic = Context::new()?.open("soft")?;
//! let src = nic.alloc_host(5, Access::empty())?;
//! let dst = nic.alloc_host(5, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
//! src.write(0, b"bytes")?;
//!
//! // Two endpoints of one NIC; between processes, `connect` takes a handle that has travelled.
//! let (a, _b) = nic.pair(&EndpointConfig::host())?;
//! let host = a.host()?;
//! host.wait(host.post_write(src.local(), dst.remote(), SendFlags::SIGNALED)?)?;
//! assert_eq!(dst.to_vec()?, b"bytes");
//! # Ok(())
//! # }
//! ```

#[cfg(feature = "udp")]
#[doc(inline)]
pub use warpverbs_transport::LinkKind;
#[cfg(feature = "verbs")]
#[doc(inline)]
pub use warpverbs_transport::VerbsProvider;
#[doc(inline)]
pub use warpverbs_transport::{
    Access, AsyncEvent, Context, ContextBuilder, CqMode, Decision, Device, Endpoint,
    EndpointConfig, EndpointHandle, ErrorKind, FaultReport, FirstError, HandleError, Health,
    KernelError, KernelStatus, LocalRegion, MaskedCompareSwap, MaskedCs, MaskedFa, MaskedFetchAdd,
    MemoryRegion, Mtu, NicChoice, NicFormat, NicInfo, NotAWay, Outcome, Posted, Poster, Progress,
    QpState, QueueKind, QueuePlacement, Reason, Received, ReceivedKind, RegisterOptions,
    RegistrationPath, RemoteRegion, Rkey, SendFlags, SharedReceiveQueue, Status, Syndrome,
    TransportError, UsageError, WaitError, WaitFor, Way, WorkError,
};
