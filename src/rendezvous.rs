//! For jobs of several processes: where ranks meet, and the store that they exchange bytes at.
//!
//! The store speaks the protocol of PyTorch's `TCPStore`, so either end may be PyTorch.
//! [`RankInfo::from_env`] reads what a launcher (torchrun, Open MPI, Slurm) says about a process, and
//! [`RankInfo::here`] is one for the ranks of a single machine.
//!
//! ```
//! use warpverbs::rendezvous::{Client, Limits, Server};
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = Server::bind(([127, 0, 0, 1], 0).into(), Limits::default())?;
//! let port = server.local_addr().port();
//! let mut client = Client::connect("127.0.0.1", port, Duration::from_secs(5), Limits::default())?;
//! client.set("key", b"value")?;
//! assert_eq!(client.get("key")?, b"value");
//! # Ok(())
//! # }
//! ```

#[doc(inline)]
pub use warpverbs_rendezvous::{
    BindError, Client, ClientError, ConnectError, Deadline, EnvError, Flags, Host, Limits, Loss,
    RankInfo, Server, StartError, World, WorldConfig, WorldError,
};
