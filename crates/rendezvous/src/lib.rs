//! Where the ranks of a job meet.
//!
//! ```text
//! env::Launch   who am I: flags, torchrun, Open MPI, Slurm
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
//! * [`Store`] and [`protocol::Decoder`] do no IO; [`Server`] is their only thread.
//!
//! Not here: encryption and authentication. The protocol has neither, so bind to a network that
//! only the job can reach.
#![forbid(unsafe_code)]

pub mod client;
pub mod env;
pub mod protocol;
pub mod server;
pub mod store;

mod deadline;
mod limits;
mod resolve;
mod socket;
mod world;

pub use client::{Client, ClientError, ConnectError};
pub use deadline::Deadline;
pub use env::{EnvError, Flags, Launch};
pub use limits::Limits;
pub use resolve::ResolveError;
pub use server::{BindError, Server};
pub use store::Store;
pub use world::{Host, Loss, MAX_WORLD_SIZE, World, WorldConfig, WorldError};
