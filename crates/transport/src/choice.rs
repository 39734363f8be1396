//! Which NIC to use.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

/// A NIC by name, as on a command line: `auto`, `soft` (or `soft0`, its name in lists), or the name of
/// an RDMA device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum NicChoice {
    /// The best there is.
    #[default]
    Auto,
    /// The software NIC.
    Soft,
    /// The device with this name.
    Named(String),
}

impl FromStr for NicChoice {
    type Err = Infallible;

    fn from_str(name: &str) -> Result<Self, Infallible> {
        Ok(match name {
            "auto" => Self::Auto,
            // The first is what it is, the second its name in every list.
            "soft" | "soft0" => Self::Soft,
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
            Self::Soft => "soft",
            Self::Named(name) => name,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::NicChoice;

    #[test]
    fn choices_print_as_they_are_read() {
        for name in ["auto", "soft", "mlx5_0"] {
            assert_eq!(NicChoice::from(name).to_string(), name);
        }
        assert_eq!(NicChoice::from("soft0"), NicChoice::Soft);
    }
}
