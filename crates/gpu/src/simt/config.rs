//! How a SIMT device schedules.

use crate::GpuError;

/// Which clock `wv::now_ns` and `wv::pause` go by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// The host's monotonic clock: for kernels that wait for other threads (a NIC engine on its own
    /// thread, another launch, the host).
    Real,
    /// Advances with every memory operation and jumps over idle time. Everything the kernel waits
    /// for must happen in the kernel itself or in the stepper.
    Virtual,
}

/// How lanes take turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Warps in turn, switches only where a lane waits or has run for long; real clock.
    Free,
    /// Any memory operation may switch to any lane, as the seed says.
    Seeded {
        /// With [`Clock::Virtual`], the same seed gives the same interleaving.
        seed: u64,
        /// The clock.
        clock: Clock,
    },
}

/// Something that works beside the kernel and is run by the scheduler on the launch's own thread:
/// a software NIC's `step`.
pub trait Stepper: Send + Sync {
    /// Does a bounded piece of work; whether there was any.
    fn step(&self) -> bool;
}

impl<F: Fn() -> bool + Send + Sync> Stepper for F {
    fn step(&self) -> bool {
        self()
    }
}

/// Name of the environment variable that holds a seed, decimal or `0x` hexadecimal.
pub const SEED_VARIABLE: &str = "WARPVERBS_SIMT_SEED";

/// Name of the environment variable that makes lanes of a warp run in lockstep, if it is `1`.
pub const LOCKSTEP_VARIABLE: &str = "WARPVERBS_SIMT_LOCKSTEP";

/// How a SIMT device is made. Fields are set one by one:
///
/// ```
/// use warpverbs_gpu::simt::{SimtConfig, SimtDevice};
///
/// # fn main() -> Result<(), warpverbs_gpu::GpuError> {
/// let config = SimtConfig::seeded(7).stack_bytes(128 << 10).resident_lanes(4096);
/// let device = SimtDevice::new(config)?;
/// # drop(device);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SimtConfig {
    /// Ordinal among the SIMT devices of the process, for messages.
    pub ordinal: u32,
    /// How lanes take turns.
    pub mode: Mode,
    /// Lanes of a warp run in lockstep, as on AMD's GPUs: while one spins, no other of its warp runs, so
    /// that a lane which waits for another lane of its warp waits for ever. Such waits show under seeds.
    pub lockstep: bool,
    /// Stack of a lane in bytes, at least 16 KiB; a guard page comes on top.
    pub stack_bytes: usize,
    /// Lanes of one launch that exist at a time, at least 1024; further blocks queue as on a GPU.
    pub resident_lanes: u32,
    /// Shared memory of a block in bytes. 48 KiB is what CUDA lets a kernel declare.
    pub shared_bytes: u64,
}

impl Default for SimtConfig {
    fn default() -> Self {
        Self {
            ordinal: 0,
            mode: Mode::Free,
            lockstep: false,
            stack_bytes: 64 << 10,
            resident_lanes: 8192,
            shared_bytes: 48 << 10,
        }
    }
}

impl SimtConfig {
    /// Reproducible scheduling under a virtual clock.
    pub fn seeded(seed: u64) -> Self {
        let mode = Mode::Seeded { seed, clock: Clock::Virtual };
        Self { mode, ..Self::default() }
    }

    /// Scheduling by seed under the real clock, for kernels whose peers run on other threads.
    pub fn seeded_real_time(seed: u64) -> Self {
        let mode = Mode::Seeded { seed, clock: Clock::Real };
        Self { mode, ..Self::default() }
    }

    /// Its ordinal, for messages.
    #[must_use]
    pub fn ordinal(self, ordinal: u32) -> Self {
        Self { ordinal, ..self }
    }

    /// Whether lanes of a warp run in lockstep.
    #[must_use]
    pub fn lockstep(self, lockstep: bool) -> Self {
        Self { lockstep, ..self }
    }

    /// Whether [`LOCKSTEP_VARIABLE`] asks for lockstep.
    pub fn lockstep_from_env() -> Result<bool, GpuError> {
        match std::env::var_os(LOCKSTEP_VARIABLE) {
            None => Ok(false),
            Some(text) if text == "0" || text == "1" => Ok(text == "1"),
            Some(text) => Err(GpuError::BadSetting {
                setting: LOCKSTEP_VARIABLE,
                value: text.to_string_lossy().into_owned(),
                expected: "0 or 1",
            }),
        }
    }

    /// Stack of a lane in bytes, 16 KiB to 64 MiB.
    #[must_use]
    pub fn stack_bytes(self, stack_bytes: usize) -> Self {
        Self { stack_bytes, ..self }
    }

    /// Lanes of one launch that exist at a time, 1024 to 1048576.
    #[must_use]
    pub fn resident_lanes(self, resident_lanes: u32) -> Self {
        Self { resident_lanes, ..self }
    }

    /// Shared memory of a block in bytes.
    #[must_use]
    pub fn shared_bytes(self, shared_bytes: u64) -> Self {
        Self { shared_bytes, ..self }
    }

    /// [`SimtConfig::seeded_real_time`] if [`SEED_VARIABLE`] is set, else the default; in lockstep if
    /// [`LOCKSTEP_VARIABLE`] says so.
    pub fn from_env() -> Result<Self, GpuError> {
        let config = match std::env::var(SEED_VARIABLE) {
            Ok(text) => Self::seeded_real_time(parse_seed(&text)?),
            Err(std::env::VarError::NotPresent) => Self::default(),
            Err(std::env::VarError::NotUnicode(raw)) => {
                Self::seeded_real_time(parse_seed(&raw.to_string_lossy())?)
            }
        };
        Ok(config.lockstep(Self::lockstep_from_env()?))
    }

    /// A seed for a test: that of [`SEED_VARIABLE`] if set, else `default`.
    pub fn seed_from_env(default: u64) -> Result<u64, GpuError> {
        std::env::var(SEED_VARIABLE).map_or(Ok(default), |text| parse_seed(&text))
    }

    pub(crate) fn check(&self) -> Result<(), GpuError> {
        let bad = |setting, value: u64, expected| {
            Err(GpuError::BadSetting { setting, value: value.to_string(), expected })
        };
        if !(16 << 10..=64 << 20).contains(&self.stack_bytes) {
            return bad("stack_bytes", self.stack_bytes as u64, "16 KiB to 64 MiB");
        }
        if !(1024..=1 << 20).contains(&self.resident_lanes) {
            return bad("resident_lanes", self.resident_lanes.into(), "1024 to 1048576");
        }
        Ok(())
    }
}

fn parse_seed(text: &str) -> Result<u64, GpuError> {
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| GpuError::BadSetting {
        setting: SEED_VARIABLE,
        value: text.to_owned(),
        expected: "a number of at most 64 bits, decimal or 0x hexadecimal",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_parse_or_say_why_not() {
        assert_eq!(parse_seed("17").unwrap(), 17);
        assert_eq!(parse_seed("0xff").unwrap(), 255);
        let refused = parse_seed("seventeen").unwrap_err().to_string();
        assert!(refused.contains("seventeen") && refused.contains(SEED_VARIABLE), "{refused}");
    }

    #[test]
    fn limits_are_checked() {
        assert!(SimtConfig::default().check().is_ok());
        assert!(SimtConfig { stack_bytes: 4096, ..SimtConfig::default() }.check().is_err());
        assert!(SimtConfig { resident_lanes: 32, ..SimtConfig::default() }.check().is_err());
    }
}
