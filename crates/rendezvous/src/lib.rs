//! A meeting place, for the ranks of a job: a store, and worlds that join there.
//!
//! ```text
//! env::RankInfo   who am I: flags, torchrun, Open MPI, PMI, Slurm
//!      │
//!    World      exchange, broadcast, barrier under one prefix per job and generation
//!      │
//!   Client ───── protocol: Request, Decoder, Reply ───── Server ── Store
//! ```
//!
//! The bytes between [`Client`] and [`Server`] are those of `torch.distributed.TCPStore`, so either
//! end may be PyTorch. Fixed-width fields are little-endian, a key or value is its length as `u64`
//! and its bytes, and the protocol has no error reply: a server answers a request that it refuses
//! by closing the connection. `docs/rendezvous.md` has the table of messages.
//!
//! * Everything that grows has a bound in [`Limits`]; no length from a peer is allocated before
//!   that many bytes have arrived.
//! * Every call ends by a [`Deadline`], and its error says what was missing.
//! * The store and the decoder do no IO; [`Server`] is their only thread.
//!
//! Not here: encryption and authentication. The protocol has neither, so bind to a network that
//! only the job can reach.
#![forbid(unsafe_code)]

pub mod env;

mod client;
mod here;
mod job;
mod limits;
mod protocol;
mod server;
mod store;
mod world;

pub use client::{Client, ClientError, ConnectError};
pub use env::{EnvError, Flags, RankInfo};
pub use here::StartError;
pub use job::MAX_WORLD_SIZE;
pub use limits::Limits;
pub use protocol::{Opcode, ProtocolError, ReplyError};
pub use server::{BindError, Cause, Fault, Server, Stats};
pub use store::Refusal;
pub use warpverbs_meet::{Deadline, ResolveError};
pub use world::{Host, Loss, News, View, Watch, World, WorldConfig, WorldError};

/// The store and its messages without sockets, for tests and fuzzing.
#[doc(hidden)]
pub mod raw {
    pub use crate::protocol::{Decoder, MAGIC, Reply, Request, read};
    pub use crate::store::{ClientId, Replies, Store};
}
