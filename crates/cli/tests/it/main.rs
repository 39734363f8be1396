//! The program as a user runs it, alone and between processes.

mod agent;
mod cli;
mod common;
mod conform;
mod conform_far;
mod network;
mod run;
mod shmem;
mod tcp;
