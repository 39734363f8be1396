//! The transport's protocol between two ends that a test drives, and against hostile peers.

mod aborts;
mod device;
mod ends;
mod floods;
mod handshake;
mod hostile;
mod model;
mod modelled;
mod packets;
mod posting;
mod sockets;
mod zerocopy;

use crate::common::kernel;
