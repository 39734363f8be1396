//! Ways for bytes inside a device, and who chooses between them.

use crate::GpuError;
use std::fmt;
use std::str::FromStr;

/// Names the [`CopyPolicy`] of devices that are opened without one.
pub const COPY_ENV: &str = "WARPVERBS_CUDA_COPY";

/// How bytes move from one place of a device to another place of it. All but [`CopyPath::Bounce`]
/// wait for kernels that fill the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyPath {
    /// The driver's call for many copies, with the hint to overlap with compute.
    Batch,
    /// The driver's usual call.
    Async,
    /// The driver's call for copies between two devices, with the device as its own peer.
    Peer,
    /// Down to pinned host memory and up again: two DMA copies, on any driver.
    Bounce,
}

/// Which way a copy inside a device goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CopyPolicy {
    /// The driver's own way while the running launches of this crate leave room for it, else
    /// [`CopyPath::Bounce`]. Right unless the program fills the device by other means than this
    /// crate.
    #[default]
    ByRoom,
    /// Always this way. Only [`CopyPath::Bounce`] cannot wait for a kernel.
    Always(CopyPath),
}

/// Name and meaning.
const NAMES: [(&str, CopyPolicy); 5] = [
    ("by-room", CopyPolicy::ByRoom),
    ("bounce", CopyPolicy::Always(CopyPath::Bounce)),
    ("batch", CopyPolicy::Always(CopyPath::Batch)),
    ("async", CopyPolicy::Always(CopyPath::Async)),
    ("peer", CopyPolicy::Always(CopyPath::Peer)),
];

impl fmt::Display for CopyPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = NAMES.iter().find(|(_, policy)| policy == self).map(|(name, _)| *name);
        f.write_str(name.unwrap_or_default())
    }
}

impl FromStr for CopyPolicy {
    type Err = GpuError;

    fn from_str(text: &str) -> Result<Self, GpuError> {
        let found = NAMES.iter().find(|(name, _)| *name == text).map(|(_, policy)| *policy);
        found.ok_or_else(|| GpuError::BadSetting {
            setting: COPY_ENV,
            value: text.to_owned(),
            expected: "by-room, bounce, batch, async or peer",
        })
    }
}

impl CopyPolicy {
    /// The policy that [`COPY_ENV`] names.
    pub fn from_env() -> Result<Self, GpuError> {
        match std::env::var_os(COPY_ENV) {
            None => Ok(Self::ByRoom),
            Some(value) => value.to_string_lossy().parse(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_and_print() {
        for (name, policy) in NAMES {
            assert_eq!(policy.to_string(), name);
            assert_eq!(name.parse::<CopyPolicy>().ok(), Some(policy));
        }
        for wrong in ["", "Bounce", "bounce ", "auto"] {
            let refused = wrong.parse::<CopyPolicy>();
            let named =
                matches!(&refused, Err(GpuError::BadSetting { value, .. }) if value == wrong);
            assert!(named, "{refused:?}");
        }
    }
}
