//! Tests of the crate as a whole.

mod alignment;
mod bed;
mod bytes;
mod control;
mod deregister;
mod device_memory;
mod drops;
mod ends;
mod engine;
mod exchange;
mod gpu;
mod kills;
mod known;
mod loopback;
mod model;
mod network;
mod processes;
mod strangers;
mod stream;
mod stream_processes;
mod tcp;
mod terminal;
mod threads;
mod transfer;
mod views;
mod withdrawn;
