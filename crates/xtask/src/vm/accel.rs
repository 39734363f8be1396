//! How guests are executed: by the processor, or emulated.

use super::guest::{Guest, Spec};
use clap::ValueEnum;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// The user's choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Choice {
    /// KVM if a guest boots with it, else emulation.
    Auto,
    /// The processor's virtualisation.
    Kvm,
    /// Emulation.
    Tcg,
}

/// The way that is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Accel {
    /// The processor's virtualisation.
    Kvm,
    /// Emulation.
    Tcg,
}

impl Accel {
    pub(crate) fn args(self) -> &'static [&'static str] {
        match self {
            Self::Kvm => &["-accel", "kvm", "-cpu", "host,-arch-capabilities"],
            // One processor, and room for another: where there can be one only, QEMU translates
            // atomic instructions without a barrier. The guest and QEMU's own threads then miss each
            // other's notifications of virtio queues, and a queue stands still for good.
            Self::Tcg => &["-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "1,maxcpus=2"],
        }
    }

    /// Decides. Machines exist that offer KVM and in which no guest boots, so one is booted; what
    /// became of it is remembered in `memory`.
    pub(crate) fn choose(choice: Choice, memory: &Path, mut spec: Spec<'_>) -> Self {
        match choice {
            Choice::Kvm => return Self::Kvm,
            Choice::Tcg => return Self::Tcg,
            Choice::Auto => {}
        }
        let opened = fs::OpenOptions::new().read(true).write(true).open("/dev/kvm");
        if let Err(error) = opened {
            println!("guests are emulated: /dev/kvm: {error}");
            return Self::Tcg;
        }
        let known = fs::read_to_string(memory).unwrap_or_default();
        let boots = match known.trim() {
            "boots" => true,
            "does not boot" => false,
            _ => {
                spec.accel = Self::Kvm;
                let boots = Guest::start(&spec)
                    .and_then(|mut guest| guest.ready_within(Duration::from_secs(10)))
                    .is_ok();
                // If it cannot be written it is tried again.
                let _ = fs::write(memory, if boots { "boots\n" } else { "does not boot\n" });
                boots
            }
        };
        if boots {
            return Self::Kvm;
        }
        println!(
            "guests are emulated: /dev/kvm is there, but a guest did not boot with it in 10 s"
        );
        Self::Tcg
    }
}
