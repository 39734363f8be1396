//! Tests of the crate as a whole.

mod common;
mod control_data;
mod sockets;
mod stream;
