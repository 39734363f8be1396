//! The transport's protocol between two ends that a test drives, and against hostile peers.

mod device;
mod ends;
mod handshake;
mod hostile;
#[path = "../it/common/kernel.rs"]
#[allow(dead_code, reason = "shared with another test program")]
mod kernel;
mod model;
mod modelled;
mod packets;
mod posting;
mod sockets;
mod zerocopy;
