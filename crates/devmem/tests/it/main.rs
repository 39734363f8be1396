//! Tests of the crate as a whole.

mod common;
mod control_data;
mod killed;
mod probes;
mod sockets;
mod stream;
mod transport;
mod unpack;
