//! For machines without RDMA: payload from the network into GPU memory over plain TCP.
//!
//! [`transport`] connects two programs and moves messages; [`unpack`] puts what arrived where it
//! belongs, by copy engine, host or kernel.
//!
//! ```
//! use std::time::Duration;
//! use warpverbs::devmem::transport::{Config, Endpoint};
//! use warpverbs::gpu::{self, GpuChoice, Place};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! const WAIT: Duration = Duration::from_secs(10);
//! let gpu = gpu::open(GpuChoice::Simt)?;
//! let (server, client) = (Endpoint::new(Config::default())?, Endpoint::new(Config::default())?);
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

/// Connections: messages, one-sided writes and reads, over several sockets.
pub mod transport {
    #[doc(inline)]
    pub use warpverbs_devmem::transport::{
        BoundQueues, Closer, Config, Connection, DeviceMemory, Endpoint, Listener, Operation,
        Payload, QUEUES_ENV, QueueChoice, Receive, Registration, RemoteMemory, TransportError,
    };
}

/// Batches of moves from where bytes landed to where they belong.
pub mod unpack {
    #[doc(inline)]
    pub use warpverbs_devmem::unpack::{
        AreaId, Move, Moves, Place, Ticket, UNPACK_ENV, UnknownWay, UnpackConfig, UnpackError,
        Unpacker, Way,
    };
}
