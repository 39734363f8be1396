//! How guests are made.

use super::accel;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// Flags of every task.
#[derive(Args, Clone)]
pub(crate) struct Options {
    /// Path MTU in bytes; without it, all that the task knows.
    #[arg(long, value_enum)]
    pub(super) mtu: Option<Mtu>,
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

/// Path MTUs that are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mtu {
    #[value(name = "1024")]
    B1024,
    #[value(name = "4096")]
    B4096,
}

impl Mtu {
    pub(super) fn bytes(self) -> u32 {
        match self {
            Self::B1024 => 1024,
            Self::B4096 => 4096,
        }
    }
}
