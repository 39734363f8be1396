//! The program that tests start as ranks: the distributed examples with flags and checks that a user's
//! program would not have. The first word says which.

#[path = "../../examples/common/mod.rs"]
mod common;
#[path = "mod.rs"]
mod dist;
mod dist_atomic;
mod dist_send_recv;
mod dist_write;

use clap::Parser;
use std::process::ExitCode;

/// Ranks for tests
#[derive(Parser)]
#[command(version)]
enum Program {
    #[command(name = "dist_atomic")]
    Atomic(dist_atomic::Flags),
    #[command(name = "dist_send_recv")]
    SendRecv(dist_send_recv::Flags),
    #[command(name = "dist_write")]
    Write(dist_write::Flags),
}

fn main() -> ExitCode {
    common::main(|program: Program| match program {
        Program::Atomic(flags) => dist_atomic::run(&flags),
        Program::SendRecv(flags) => dist_send_recv::run(&flags),
        Program::Write(flags) => dist_write::run(&flags),
    })
}
