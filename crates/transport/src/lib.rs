//! Reliable connections, for programs that own their queues: a GPU kernel, or the host, drives them by
//! itself.
//!
//! # Tour
//!
//! A [`Context`] knows the NICs of the machine, real or software. A [`Device`] is an open NIC with
//! a protection domain: it registers memory ([`MemoryRegion`]) and makes [`Endpoint`]s. Peers
//! exchange an [`EndpointHandle`] and their [`RemoteRegion`]s as bytes, by any means they like, and
//! connect. Work is then posted by the host through a [`Poster`], or by kernels through what
//! [`Endpoint::device_qp`] gives.
//!
//! ```
//! use warpverbs_transport::{Access, Context, EndpointConfig, TransportError, SendFlags};
//!
//! fn main() -> Result<(), TransportError> {
//!     let device = Context::new()?.open("auto")?;
//!     let src = device.alloc_host(4096, Access::empty())?;
//!     let dst = device.alloc_host(4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
//!     src.write(0, b"one write, from here to there")?;
//!
//!     let a = device.endpoint(&EndpointConfig::host())?;
//!     let b = device.endpoint(&EndpointConfig::host())?;
//!     a.connect(&b.handle())?;
//!     b.connect(&a.handle())?;
//!
//!     let host = a.host()?;
//!     let work = host.post_write(src.local(), dst.remote(), SendFlags::SIGNALED)?;
//!     host.wait(work)?;
//!
//!     let mut arrived = [0; 29];
//!     dst.read(0, &mut arrived)?;
//!     assert_eq!(&arrived, b"one write, from here to there");
//!     Ok(())
//! }
//! ```
//!
//! # What holds
//!
//! - Nothing waits for ever: every wait has a deadline, and says which queue stood at which index.
//! - Nothing is freed under the NIC: whatever it may touch lives until it lets go, in whatever
//!   order values are dropped.
//! - The first error stays. Every later call on the endpoint returns it, [`Endpoint::health`]
//!   explains it, and [`Endpoint::reset`] begins anew.
//! - [`TransportError::kind`] classifies an error by its origin: the caller, the peer, or the environment.
//!
//! # Features
//!
//! Both are on by default.
//!
//! - `verbs`: RDMA devices by libibverbs, which is loaded when it is first needed.
//! - `udp`: a link of the software NIC to other hosts. Without it the software NIC is loopback.
#![deny(unsafe_code)]

mod alloc;
mod choice;
mod config;
mod context;
mod device;
mod endpoint;
mod error;
mod fabric;
mod handle;
mod health;
mod limits;
mod memory;
pub mod pci;
mod post;
mod provider;
mod region;
mod register;
mod sges;
mod shared;
mod srq;
mod status;
mod wire;

pub use choice::{NicChoice, NotAWay, Way};
pub use config::{EndpointConfig, QueuePlacement};
pub use context::{Context, ContextBuilder};
pub use device::Device;
pub use endpoint::Endpoint;
pub use error::{
    ErrorKind, HandleError, KernelError, TransportError, UsageError, WaitError, WorkError,
};
pub use fabric::FabricAddress;
pub use handle::{EndpointHandle, NicId};
pub use health::{FaultReport, Health, Outcome, Progress, WaitFor};
pub use post::{Posted, Poster, Received};
pub use provider::NicInfo;
#[cfg(feature = "verbs")]
pub use provider::{DeviceSurvey, Reader, VerbsProvider};
pub use region::{LocalRegion, MemoryRegion, RemoteRegion};
pub use register::RegisterOptions;
pub use srq::SharedReceiveQueue;
pub use status::KernelStatus;

pub use warpverbs_mem::{Access, RegistrationPath};
pub use warpverbs_mlx5::amo::{MaskedCompareSwap, MaskedCs, MaskedFa, MaskedFetchAdd};
pub use warpverbs_mlx5::export::{CqMode, NicFormat};
pub use warpverbs_mlx5::syndrome::Syndrome;
pub use warpverbs_nic::FirstError;
#[cfg(feature = "udp")]
pub use warpverbs_nic::LinkKind;
pub use warpverbs_rdma::{
    AsyncEvent, Decision, Mtu, PortChange, QpState, QueueKind, Reason, ReceivedKind, Rkey,
    SendFlags, Status,
};
