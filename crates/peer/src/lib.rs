//! Memory of another process of this machine, for agents and heaps, pair by pair: without a world of
//! ranks, so that peers may come and go.
//!
//! ```text
//! owner                                              attaching process
//! Segment::export ─ DescriptorServer::offer ─ Ticket ─▶ attach ─ Segment
//!                            ▲                            │
//!                            └──── descriptor::fetch ◀────┘
//! read_back ◀──────────── the memory itself ◀──────────── write_word
//! ```
//!
//! An [`Introduction`] says who a process is and where its [`DescriptorServer`] listens; a [`Ticket`]
//! names one descriptor. Both travel by whatever means the program has. [`attach`] tries the ways
//! that a descriptor can take, and gives every reason if none works. [`Exporter`] and [`reach`] do
//! all of this for any buffer, and give its address and key for RDMA where it cannot be mapped.
//!
//! A mapping counts only after
//! [`write_word`] has stored through it by a kernel and the owner's [`read_back`] has seen the value.
#![deny(unsafe_code)]

mod attach;
pub mod descriptor;
mod identity;
mod probe;
mod range;
mod survey;

pub use attach::{Attached, Introduction, attach};
pub use descriptor::{DescriptorServer, Ticket};
pub use identity::Identity;
pub use probe::{ProbeError, load_probe, read_back, write_word};
pub use range::{Exported, Exporter, RangeOffer, RangePlace, RemoteRange, reach};
pub use survey::{SharingSurvey, WayTried, survey};
pub use warpverbs_rdma::{Decision, Reason, Route};

#[allow(unsafe_code, unreachable_pub)]
mod kernels {
    include!(concat!(env!("OUT_DIR"), "/kernels.rs"));
}
