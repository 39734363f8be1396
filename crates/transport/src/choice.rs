//! Which NIC to use.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;
use thiserror::Error;
use warpverbs_mlx5::export::NicFormat;

/// A NIC by name, as on a command line: `auto`, `soft` (or `soft0`, its name in lists), `soft-bnxt`,
/// `soft-ionic`, or the name of an RDMA device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum NicChoice {
    /// The best there is.
    #[default]
    Auto,
    /// The software NIC.
    Soft,
    /// The software NIC, with queues of this format; `Soft` has mlx5's. Endpoints of all of them reach each
    /// other.
    SoftAs(NicFormat),
    /// The device with this name.
    Named(String),
}

impl NicChoice {
    /// The format of the queues, if it is the software NIC.
    pub fn soft(&self) -> Option<NicFormat> {
        match self {
            Self::Soft => Some(NicFormat::Mlx5),
            Self::SoftAs(format) => Some(*format),
            Self::Auto | Self::Named(_) => None,
        }
    }
}

impl FromStr for NicChoice {
    type Err = Infallible;

    fn from_str(name: &str) -> Result<Self, Infallible> {
        Ok(match name {
            "auto" => Self::Auto,
            // The first is what it is, the second its name in every list.
            "soft" | "soft0" => Self::Soft,
            "soft-bnxt" => Self::SoftAs(NicFormat::Bnxt),
            "soft-ionic" => Self::SoftAs(NicFormat::Ionic),
            other => Self::Named(other.to_owned()),
        })
    }
}

impl From<&str> for NicChoice {
    fn from(name: &str) -> Self {
        let Ok(choice) = name.parse();
        choice
    }
}

impl From<&NicChoice> for NicChoice {
    fn from(choice: &NicChoice) -> Self {
        choice.clone()
    }
}

impl fmt::Display for NicChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Soft | Self::SoftAs(NicFormat::Mlx5) => "soft",
            Self::SoftAs(NicFormat::Bnxt) => "soft-bnxt",
            Self::SoftAs(NicFormat::Ionic) => "soft-ionic",
            Self::Named(name) => name,
        })
    }
}

/// Reader of the queues that kernels post to, where a NIC allows a choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Way {
    /// The best there is. Today the proxy: the direct way was not tried with hardware yet.
    #[default]
    Auto,
    /// A software NIC in this process, which passes work on to the device.
    Proxy,
    /// The device itself: of mlx5 where libmlx5 and firmware let programs make queues by firmware commands, of
    /// bnxt_re and ionic where there is the vendor's own library.
    Direct,
}

/// A word that names no [`Way`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0:?} is not a way to drive a NIC, expected auto, proxy or direct")]
pub struct NotAWay(String);

impl FromStr for Way {
    type Err = NotAWay;

    fn from_str(name: &str) -> Result<Self, NotAWay> {
        match name {
            "auto" => Ok(Self::Auto),
            "proxy" => Ok(Self::Proxy),
            "direct" => Ok(Self::Direct),
            other => Err(NotAWay(other.to_owned())),
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Proxy => "proxy",
            Self::Direct => "direct",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{NicChoice, Way};

    #[test]
    fn ways_print_as_they_are_read() {
        for name in ["auto", "proxy", "direct"] {
            assert_eq!(name.parse::<Way>().unwrap().to_string(), name);
        }
        let error = "Direct".parse::<Way>().unwrap_err().to_string();
        assert!(error.contains("\"Direct\"") && error.contains("proxy or direct"), "{error}");
    }

    #[test]
    fn choices_print_as_they_are_read() {
        for name in ["auto", "soft", "soft-bnxt", "soft-ionic", "mlx5_0"] {
            assert_eq!(NicChoice::from(name).to_string(), name);
        }
        assert_eq!(NicChoice::from("soft0"), NicChoice::Soft);
    }
}
