//! Tests of the crate as a whole: the protocol between two ends that a test drives, links over
//! loopback, and hostile peers.

mod aborts;
mod bounce;
mod device;
mod ends;
mod floods;
mod handshake;
mod hostile;
#[path = "../../../devmem/tests/it/common/kernel.rs"]
#[allow(dead_code, reason = "shared with another test program")]
mod kernel;
mod killed;
mod model;
mod modelled;
mod packets;
mod posting;
mod reach;
mod sockets;
mod zerocopy;
