//! Agents, for services whose peers come and go: register memory, exchange metadata, READ or WRITE
//! lists of blocks by the best path there is, be notified. The model is that of NIXL's agent.
//!
//! # One process, two agents
//!
//! ```
//! use std::time::Duration;
//! use warpverbs_agent::{Agent, AgentConfig, AgentError, Op, PostOptions, State};
//!
//! fn main() -> Result<(), AgentError> {
//!     let target = Agent::new("target", AgentConfig::default())?;
//!     let initiator = Agent::new("initiator", AgentConfig::default())?;
//!
//!     // Memory of any owner is registered under a label; `alloc` gives memory that other processes
//!     // of this machine can map.
//!     let theirs = target.register(vec![7; 512], "cache")?;
//!     let ours = initiator.alloc(512, "ours")?;
//!
//!     // Metadata and descriptor lists are bytes, which travel by any means.
//!     let name = initiator.load_metadata(&target.metadata()?)?;
//!     let published = theirs.blocks(0, 256, 2)?.to_bytes();
//!
//!     // READ both blocks: one call.
//!     let from = warpverbs_agent::BlockList::from_bytes(&published)?;
//!     let into = ours.blocks(0, 256, 2)?;
//!     let read = initiator.transfer(Op::Read, &into, &from)?;
//!     read.post(PostOptions::new().notify(b"UUID1"))?;
//!     read.wait(Duration::from_secs(10))?;
//!     target.wait_remote_done("initiator", b"UUID1", Duration::from_secs(10))?;
//!
//!     // WRITE them back crossed: lists are prepared once, transfers are made of them by index.
//!     let (local, remote) = (initiator.prepare(&into)?, initiator.prepare(&from)?);
//!     let write = initiator.prepared_transfer(Op::Write, &local, &[0, 1], &remote, &[1, 0])?;
//!     write.post(PostOptions::new())?;
//!     assert_eq!(write.wait(Duration::from_secs(10))?, State::Done);
//!     println!("{name}: {}", initiator.explain(&ours, &initiator.remote(&name, "cache")?)?);
//!     Ok(())
//! }
//! ```
//!
//! # Guarantees
//!
//! - A transfer accesses registered ranges and no other bytes: ranges are checked when a list is made
//!   from memory and again when it is prepared.
//! - Registered memory lives as long as a transfer of this process or of a peer may access it.
//!   Deregistering refuses new transfers and ends none.
//! - A terminal [`State`] stays until the transfer is posted again. After it, no byte of the local
//!   memory is touched, and over TCP none of the peer's; the first cause of a failure is kept.
//! - A notification is delivered once, after all data of its transfer is visible, and in the order
//!   of posts to a peer; or its transfer fails.
//! - Every wait has a deadline.
//! - The end of a peer's process fails its transfers at once, with the peer's name. One that starts again
//!   under the same name is another [`Generation`]: transfers to the one before fail and say so.
#![forbid(unsafe_code)]

mod agent;
mod at_hand;
mod codec;
mod config;
mod control;
mod counters;
mod deadline;
mod device;
mod error;
mod exchange;
mod gone;
mod kernel_access;
mod locks;
mod made;
mod memories;
mod memory;
mod metadata;
mod metrics;
mod names;
mod numbers;
mod panics;
mod parts;
mod path;
mod peer;
mod peers;
mod phase;
mod plan;
mod prepared;
mod proof;
mod quota;
#[doc(hidden)]
pub mod raw;
mod remote;
mod remote_memory;
mod route;
mod router;
mod run;
mod sent;
mod serve;
mod stream;
mod tally;
mod task;
mod transfer;
mod wakers;

pub(crate) use locks::{lock, try_lock};

pub use agent::Agent;
pub use at_hand::at_hand;
pub use codec::EncodingError;
pub use config::{AgentConfig, CopyBy};
pub use control::Notification;
pub use counters::{Counters, Moved, Undone};
pub use device::Views;
pub use error::AgentError;
pub use exchange::{Exchange, LocalExchange};
pub use kernel_access::KernelAccess;
pub use memories::Registration;
pub use memory::Memory;
pub use metrics::MetricsTo;
pub use names::{Generation, Op, Owner, PathKind, State, Telemetry};
pub use plan::list::{BlockList, Run};
pub use prepared::Prepared;
pub use remote_memory::{PeerMemories, RemoteMemory};
pub use route::{Estimate, Explanation};
pub use run::PostOptions;
pub use sent::Sent;
pub use stream::{Message, StreamConfig, StreamReceiver, StreamSender, StreamStats, StreamStop};
pub use tally::Cause;
pub use transfer::{Completion, Transfer};
pub use warpverbs_gpu::views::WaitRecord;
pub use warpverbs_peer::{Decision, Reason};
pub use warpverbs_transport::ErrorKind;

/// Why a path is not tried.
pub(crate) const EXCLUDED: &str = "excluded by the configuration";
