//! The program as a user runs it, alone and between processes.

mod agent;
mod cli;
mod common;
mod conform;
mod conform_far;
mod network;
mod shmem;
mod tcp;
mod unmodified;
