//! Endpoints posted to by the host, on the software NIC and on a device of libibverbs.

mod common;
mod connect;
mod direct;
mod errors;
mod formats;
mod gpu_memory;
mod lifetimes;
mod network;
mod ops;
mod placement;
mod receive;
mod stopped;
mod stress;
mod verbs;
