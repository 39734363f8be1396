//! Ways to move the bytes.

use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// Way to move received bytes to their places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum UnpackWay {
    /// The best for each batch: few large moves by copy engine, many small ones by kernel, and what
    /// lies on the host at both ends by the host.
    #[default]
    Auto,
    /// One copy of the device's driver for each move.
    CopyEngine,
    /// Through host memory: gathered there, then written to the device.
    Host,
    /// One launch for each batch.
    Kernel,
}

/// The environment variable that chooses a way.
pub const UNPACK_ENV: &str = "WARPVERBS_UNPACK";

/// The first name of a way is the one that is printed.
const NAMES: [(&str, UnpackWay); 5] = [
    ("auto", UnpackWay::Auto),
    ("copy-engine", UnpackWay::CopyEngine),
    ("d2d", UnpackWay::CopyEngine),
    ("host", UnpackWay::Host),
    ("kernel", UnpackWay::Kernel),
];

/// An unknown name of a way.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("no way to unpack is called {given:?}; expected auto, copy-engine (d2d), host or kernel")]
pub struct UnknownWay {
    /// The name given.
    pub given: String,
}

impl FromStr for UnpackWay {
    type Err = UnknownWay;

    fn from_str(given: &str) -> Result<Self, UnknownWay> {
        let found = NAMES.iter().find(|(name, _)| *name == given);
        found.map(|(_, way)| *way).ok_or_else(|| UnknownWay { given: given.to_owned() })
    }
}

impl fmt::Display for UnpackWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = NAMES.iter().find(|(_, way)| way == self).map(|(name, _)| *name);
        f.write_str(name.unwrap_or_default())
    }
}

impl UnpackWay {
    /// The way that [`UNPACK_ENV`] names; [`UnpackWay::Auto`] if it is not set.
    ///
    /// # Errors
    /// It is set to something else.
    pub fn from_env() -> Result<Self, UnknownWay> {
        match std::env::var_os(UNPACK_ENV) {
            None => Ok(Self::Auto),
            Some(given) => given.to_string_lossy().parse(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_understood_and_every_way_has_one() {
        for (name, way) in NAMES {
            assert_eq!(name.parse(), Ok(way));
            assert_eq!(way.to_string().parse(), Ok(way));
        }
        let unknown = "gpu".parse::<UnpackWay>().unwrap_err().to_string();
        assert!(unknown.contains("\"gpu\"") && unknown.contains("copy-engine"), "{unknown}");
    }
}
