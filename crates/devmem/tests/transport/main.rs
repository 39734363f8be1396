//! The transport's protocol between two ends that a test drives, and against hostile peers.

mod ends;
mod handshake;
mod hostile;
mod model;
mod sockets;
