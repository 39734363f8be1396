//! Endpoints on the software NIC, posted to by the host.

mod common;
mod connect;
mod errors;
mod lifetimes;
mod misuse;
mod network;
mod ops;
mod placement;
mod receive;
mod stress;
