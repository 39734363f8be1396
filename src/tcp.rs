//! For machines without RDMA: payload from the network into GPU memory over plain TCP.
//!
//! A [`Link`] between two programs carries messages, one-sided writes and reads, and notifications over
//! several sockets. [`devmem`](crate::devmem) has the queues that receive into device memory.
//!
//! ```
//! use std::time::Duration;
//! use warpverbs::gpu::{self, GpuChoice, Place};
//! use warpverbs::tcp::{Config, Domain};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! const WAIT: Duration = Duration::from_secs(10);
//! let gpu = gpu::open(GpuChoice::Simt)?;
//! let (server, client) = (Domain::new(Config::default())?, Domain::new(Config::default())?);
//! let mut listener = server.listen(([127, 0, 0, 1], 0).into())?;
//! let address = listener.address();
//! let connecting = std::thread::spawn(move || client.connect(address, WAIT).map(|c| (client, c)));
//! let far = listener.accept(&server, WAIT)?;
//! let (_client, near) = connecting.join().expect("no panic")?;
//!
//! let (from, to) = (gpu.alloc(4096, Place::Device)?, gpu.alloc(4096, Place::Device)?);
//! let received = far.irecv(to.region())?;
//! near.wait(near.isend(from.region())?, WAIT)?;
//! assert_eq!(far.wait(received, WAIT)?, 4096);
//! # Ok(())
//! # }
//! ```

#[doc(inline)]
pub use warpverbs_tcp::{
    Closer, Config, Domain, Link, Listener, PayloadCounts, Receive, RegisteredRegion, RemoteKey,
    Request, TcpError,
};
