//! The choice of a link, and the link that comes of it.

#[cfg(feature = "udp")]
use crate::{Auto, Shm, Udp, UdpConfig};
use crate::{Link, LinkError};
use std::fmt;

/// Link of a NIC to its peers. QPs of the same NIC are reached without it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkConfig {
    /// Nothing.
    #[default]
    Loopback,
    /// Other processes and hosts, by UDP.
    #[cfg(feature = "udp")]
    Udp(UdpConfig),
    /// Other processes of this host, by shared memory.
    #[cfg(feature = "udp")]
    Shm(UdpConfig),
    /// Processes of this host by shared memory, others by UDP.
    #[cfg(feature = "udp")]
    Auto(UdpConfig),
}

impl fmt::Display for LinkConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Loopback => f.write_str("loopback"),
            #[cfg(feature = "udp")]
            Self::Udp(at) => write!(f, "RoCEv2 at {}", at.bind),
            #[cfg(feature = "udp")]
            Self::Shm(at) => write!(f, "RoCEv2 through shared memory at {}", at.bind),
            #[cfg(feature = "udp")]
            Self::Auto(at) => {
                write!(f, "RoCEv2 at {}, through shared memory to this host's processes", at.bind)
            }
        }
    }
}

impl LinkConfig {
    /// The link, if there is to be one.
    ///
    /// # Errors
    /// The system refuses, or the address is none that peers can send to.
    pub fn open(&self) -> Result<Option<Box<dyn Link>>, LinkError> {
        Ok(match self {
            Self::Loopback => None,
            #[cfg(feature = "udp")]
            Self::Udp(at) => Some(Box::new(Udp::bind(at)?)),
            #[cfg(feature = "udp")]
            Self::Shm(at) => Some(Box::new(Shm::bind(at)?)),
            #[cfg(feature = "udp")]
            Self::Auto(at) => Some(Box::new(Auto::bind(at)?)),
        })
    }
}

#[cfg(feature = "udp")]
impl LinkConfig {
    /// Where the link is, if there is one.
    pub fn address(&self) -> Option<UdpConfig> {
        match *self {
            Self::Loopback => None,
            Self::Udp(config) | Self::Shm(config) | Self::Auto(config) => Some(config),
        }
    }
}

/// The carrier of packets to other processes and hosts.
#[cfg(feature = "udp")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkKind {
    /// UDP.
    #[default]
    Udp,
    /// Shared memory, which reaches processes of this host and user alone.
    Shm,
    /// Shared memory to those who have it, UDP to others.
    Auto,
}

#[cfg(feature = "udp")]
impl LinkKind {
    /// Such a link.
    pub fn at(self, config: UdpConfig) -> LinkConfig {
        match self {
            Self::Udp => LinkConfig::Udp(config),
            Self::Shm => LinkConfig::Shm(config),
            Self::Auto => LinkConfig::Auto(config),
        }
    }
}

#[cfg(feature = "udp")]
impl std::str::FromStr for LinkKind {
    type Err = UnknownLink;

    fn from_str(text: &str) -> Result<Self, UnknownLink> {
        match text {
            "udp" => Ok(Self::Udp),
            "shm" => Ok(Self::Shm),
            "auto" => Ok(Self::Auto),
            _ => Err(UnknownLink(text.to_owned())),
        }
    }
}

#[cfg(feature = "udp")]
impl fmt::Display for LinkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Udp => "udp",
            Self::Shm => "shm",
            Self::Auto => "auto",
        })
    }
}

/// No kind of link has this name.
#[cfg(feature = "udp")]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a link, expected udp, shm (shared memory, processes of one host) or auto")]
pub struct UnknownLink(String);
