//! The store from both ends, and what stands on it.

#[path = "../common/robust.rs"]
mod robust;

mod client;
mod env;
mod fake;
mod here;
mod mpi;
mod protocol;
mod regroup;
mod server;
mod torch;
mod world;

use std::time::{Duration, Instant};

use warpverbs_rendezvous::{Client, ConnectError, Limits, Server};

/// Ends a hang: nothing that comes at all takes this long, however slow the machine is. Less than the
/// silence after which ranks look for signs of life, whose keys would be counted.
const PATIENCE: Duration = Duration::from_secs(240);

fn serve(limits: Limits) -> Server {
    Server::bind("127.0.0.1:0".parse().unwrap(), limits).unwrap()
}

fn connect(server: &Server) -> Client {
    connect_with(server, PATIENCE)
}

fn connect_with(server: &Server, timeout: Duration) -> Client {
    dial(server.local_addr().port(), timeout).unwrap()
}

fn dial(port: u16, timeout: Duration) -> Result<Client, ConnectError> {
    Client::connect("127.0.0.1", port, timeout, Limits::default())
}

/// A port of this machine where nobody listens.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Waits for what another thread brings about.
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "never: {what}");
        // Leaves the processor to the other thread.
        std::thread::sleep(Duration::from_millis(2));
    }
}
