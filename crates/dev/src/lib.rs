//! Helpers for the tests of several crates: queues in host memory or where only a copy engine reaches
//! them, two connected QPs on one NIC or two, a fake device that executes proxied QPs, posting by
//! hand, processes of their own, a PCI bus, the GPU of tests, and seeds.
//!
//! The posting here is the plain one of a single thread: WQE, record, doorbell. It checks nothing,
//! so that tests can post what no correct poster would.
#![forbid(unsafe_code)]

mod bytes;
mod child;
mod config;
mod consumer;
mod device;
mod fake;
mod format;
mod gpu;
pub mod machine;
mod net;
mod pair;
mod port;
mod poster;
mod proxied;
mod rest;
mod seeds;

pub use bytes::pattern;
pub use child::{Child, await_stopped, is_alone, say};
pub use config::{PortConfig, QueueMemory, Receives};
pub use consumer::Reported;
pub use device::Device;
pub use fake::{FakeDevice, FakePlan, FakeProxyDevice, FakeSrq, FakeStats};
pub use format::QueueFormat;
pub use gpu::gpu;
pub use net::{Host, Net, addresses};
pub use pair::{
    Pair, PairConfig, bytes, connect, connect_over, connect_proxied, local, remote, sge,
};
pub use port::Port;
pub use poster::Poster;
pub use proxied::{ProxiedConfig, ProxiedPair, ProxiedSide};
pub use rest::{rest, until};
pub use seeds::{number, runs, seed, seeds, simt_seeds};
