//! How guests are made.

use super::accel;
use clap::Args;
use std::path::PathBuf;

/// Flags of every task.
#[derive(Args, Clone)]
pub(crate) struct Options {
    /// Path MTU in bytes; without it, all that the task knows.
    #[arg(long, value_parser = ["1024", "4096"])]
    pub(super) mtu: Option<String>,
    /// How guests are executed.
    #[arg(long, value_enum, default_value = "auto")]
    pub(super) accel: accel::Choice,
    /// Fails where guests cannot be booted, instead of a warning.
    #[arg(long)]
    pub(super) require: bool,
    /// Keeps the consoles of the guests.
    #[arg(long)]
    pub(super) keep_logs: bool,
    /// Captures what guest 1 sends and receives, for Wireshark.
    #[arg(long, value_name = "FILE")]
    pub(super) pcap: Option<PathBuf>,
}
