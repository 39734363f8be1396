//! The store behind a listening socket: one thread, which never waits for a peer.

mod bind;
mod connection;
mod engine;
mod stats;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;

pub use bind::BindError;
pub use stats::{Cause, Fault, Stats};

use crate::{Deadline, Limits};
use warpverbs_meet::resolve;

/// A running store. Dropping it closes every connection and ends its thread.
#[derive(Debug)]
pub struct Server {
    addr: SocketAddr,
    shared: Arc<stats::Shared>,
    waker: mio::Waker,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens at `addr` and nowhere else. Port 0 takes a free port; [`Server::local_addr`] says
    /// which.
    pub fn bind(addr: SocketAddr, limits: Limits) -> Result<Server, BindError> {
        let listener = bind::listen(addr)?;
        let other = |cause: io::Error| BindError::Io { addr, cause };
        let addr = listener.local_addr().map_err(other)?;
        let shared = Arc::new(stats::Shared::default());
        let engine = engine::Engine::new(listener, limits, shared.clone()).map_err(other)?;
        let waker = engine.waker().map_err(other)?;
        let thread = std::thread::Builder::new()
            .name("rendezvous".into())
            .spawn(move || engine.run())
            .map_err(other)?;
        Ok(Server { addr, shared, waker, thread: Some(thread) })
    }

    /// Listens at the first address of `host` that is this machine's.
    pub fn bind_host(
        host: &str,
        port: u16,
        limits: Limits,
        deadline: Deadline,
    ) -> Result<Server, BindError> {
        let mut last = None;
        for addr in resolve(host, port, deadline)? {
            match Server::bind(addr, limits.clone()) {
                Err(error @ BindError::NotLocal { .. }) => last = Some(error),
                done => return done,
            }
        }
        // `resolve` gives at least one address, so a missing error means that it found none.
        Err(last.unwrap_or_else(|| BindError::NoAddress { host: host.into() }))
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    /// Counts so far.
    pub fn stats(&self) -> Stats {
        self.shared.stats()
    }

    /// The latest connections that were closed for cause, oldest first; each is given once. At most
    /// 64 are kept, [`Stats::faults`] counts all.
    pub fn take_faults(&self) -> Vec<Fault> {
        self.shared.take_faults()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stop();
        if let Err(error) = self.waker.wake() {
            // The thread then sees the request at its next event; nothing is lost by going on.
            tracing::warn!(%error, "store at {} could not be woken to stop", self.addr);
            return;
        }
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("store at {} had panicked", self.addr);
        }
    }
}
