//! A symmetric heap, for jobs whose ranks share memory: the same offsets in every rank's memory,
//! reached by kernels with loads and stores where that is possible and by RDMA elsewhere.
//!
//! [`Heap::create`] makes one on all ranks of a [`World`](warpverbs_rendezvous::World) together;
//! [`Heap::alloc`] gives places in it, and [`Heap::device`] is what kernels take. How each rank is
//! reached is decided once, by trying, and [`Heap::report`] says why. [`layout`] is what kernels read
//! (`kernels/include/warpverbs/heap.h`), and [`Export`] makes it.
#![deny(unsafe_code)]

mod agreement;
mod alarms;
mod allocator;
mod config;
mod create;
mod error;
mod export;
mod grow;
mod health;
mod heap;
pub mod layout;
mod local;
mod places;
mod registered;
mod regroup;
mod remote;
mod report;
mod run;
mod steps;
mod sym;
mod team;

pub use allocator::{AllocError, Allocation, Allocator, GRANULE, MOST_ALIGN};
pub use config::{HeapConfig, ROUTE_ENV, RoutePolicy};
pub use error::ShmemError;
pub use export::{Export, ExportError, ExportWindow, Rank, RdmaRoute, WindowRank};
pub use health::{HeapFaultReport, HeapHealth};
pub use heap::Heap;
pub use layout::Signal;
pub use registered::Registered;
pub use report::{HeapReport, PeerReport};
pub use sym::Sym;
pub use team::Team;
pub use warpverbs_peer::{Decision, Reason, Route};
