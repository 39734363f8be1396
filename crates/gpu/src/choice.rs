//! Names of devices, and what is there under them.

use crate::{GpuInfo, GpuKind};
use serde::Serialize;
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// Which device to open: `auto`, `simt`, `cuda`, `cuda:1`, `hip`, `hip:1`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum GpuChoice {
    /// The best that is there.
    #[default]
    Auto,
    /// The host SIMT device.
    Simt,
    /// The NVIDIA GPU with this ordinal.
    Cuda(u32),
    /// The AMD GPU with this ordinal.
    Hip(u32),
}

impl fmt::Display for GpuChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Simt => f.write_str("simt"),
            Self::Cuda(ordinal) => write!(f, "cuda:{ordinal}"),
            Self::Hip(ordinal) => write!(f, "hip:{ordinal}"),
        }
    }
}

/// A device name that means nothing.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("no device is called {given:?}; expected auto, simt, cuda[:N] or hip[:N]")]
pub struct ChoiceError {
    /// The name that was given.
    pub given: String,
}

impl FromStr for GpuChoice {
    type Err = ChoiceError;

    fn from_str(text: &str) -> Result<Self, ChoiceError> {
        let unknown = || ChoiceError { given: text.to_owned() };
        let (kind, ordinal) = match text.split_once(':') {
            // `u32::from_str` would also take a sign.
            Some((kind, digits)) if digits.bytes().all(|b| b.is_ascii_digit()) => {
                (kind, Some(digits.parse().map_err(|_| unknown())?))
            }
            Some(_) => return Err(unknown()),
            None => (text, None),
        };
        match (kind, ordinal) {
            ("auto", None) => Ok(Self::Auto),
            ("simt", None) => Ok(Self::Simt),
            ("cuda", ordinal) => Ok(Self::Cuda(ordinal.unwrap_or(0))),
            ("hip", ordinal) => Ok(Self::Hip(ordinal.unwrap_or(0))),
            _ => Err(unknown()),
        }
    }
}

/// One kind of device, or one device, as found on this machine.
#[derive(Clone, Debug, Serialize)]
pub struct Found {
    /// Its name for `--gpu`.
    pub name: String,
    /// Kind.
    pub kind: GpuKind,
    /// The device, if it is there.
    pub info: Option<GpuInfo>,
    /// Why it cannot be used, if so.
    pub unusable: Option<String>,
    /// Facts about the software it needs: what, and which version or why not.
    pub software: Vec<(&'static str, String)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_and_print() {
        let names = [
            ("auto", GpuChoice::Auto),
            ("simt", GpuChoice::Simt),
            ("cuda:0", GpuChoice::Cuda(0)),
            ("cuda:17", GpuChoice::Cuda(17)),
            ("hip:3", GpuChoice::Hip(3)),
        ];
        for (name, choice) in names {
            assert_eq!(name.parse(), Ok(choice));
            assert_eq!(choice.to_string(), name);
        }
        assert_eq!("cuda".parse(), Ok(GpuChoice::Cuda(0)));
        assert_eq!("hip".parse(), Ok(GpuChoice::Hip(0)));
    }

    #[test]
    fn other_names_are_refused_with_what_was_given() {
        let wrong = ["", "CUDA", "cuda:", "cuda:+1", "cuda:-1", "cuda:1:2", "cuda:4294967296"];
        for name in wrong.into_iter().chain(["simt:0", "auto:1", " cuda", "gpu"]) {
            let refused = name.parse::<GpuChoice>();
            assert_eq!(refused, Err(ChoiceError { given: name.to_owned() }));
        }
    }
}
