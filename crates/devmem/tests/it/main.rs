//! Tests of the crate as a whole.

mod common;
mod control_data;
mod probes;
mod sockets;
mod stream;
mod unpack;
