//! Which receive queues are bound to device memory.

use crate::bound::BoundQueues;
use crate::kernel::{Ethtool, Interface};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use thiserror::Error;
use warpverbs_gpu::Gpu;

/// Receive queues of an interface, written `eth0:7` or `eth0:6,7`. Binding takes them from all other
/// sockets: only flows that are steered there may use them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queues {
    /// Name of the interface.
    pub interface: String,
    /// Numbers of the queues, at least one.
    pub numbers: Vec<u32>,
}

/// The environment variable that names [`Queues`], or has `auto`.
pub const QUEUES_ENV: &str = "WARPVERBS_TCP_QUEUES";

/// A text that names no queues.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{given:?} names no receive queues; expected auto or INTERFACE:QUEUE[,QUEUE…], as in eth0:7"
)]
pub struct UnknownQueues {
    given: String,
}

impl FromStr for Queues {
    type Err = UnknownQueues;

    fn from_str(given: &str) -> Result<Self, UnknownQueues> {
        let unknown = || UnknownQueues { given: given.to_owned() };
        // Names of interfaces may have colons.
        let (interface, list) = given.rsplit_once(':').ok_or_else(unknown)?;
        let numbers: Result<Vec<u32>, _> = list.split(',').map(str::parse).collect();
        let numbers = numbers.map_err(|_| unknown())?;
        let valid = !interface.is_empty() && !interface.contains('/');
        valid.then(|| Self { interface: interface.to_owned(), numbers }).ok_or_else(unknown)
    }
}

impl fmt::Display for Queues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<String> = self.numbers.iter().map(u32::to_string).collect();
        write!(f, "{}:{}", self.interface, numbers.join(","))
    }
}

/// Queues that are named, or any that no flow is hashed to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueueChoice {
    /// Of the first interface that binds them, those to which flows are not hashed, so that they
    /// are not taken from other sockets; written `auto`.
    Auto,
    /// These.
    Named(Queues),
}

impl FromStr for QueueChoice {
    type Err = UnknownQueues;

    fn from_str(given: &str) -> Result<Self, UnknownQueues> {
        match given {
            "auto" => Ok(Self::Auto),
            given => given.parse().map(Self::Named),
        }
    }
}

impl fmt::Display for QueueChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Named(queues) => queues.fmt(f),
        }
    }
}

impl QueueChoice {
    /// As [`BoundQueues::bind`].
    ///
    /// # Errors
    /// One line; of [`QueueChoice::Auto`], with the reason of every interface.
    pub fn bind(&self, gpu: &Arc<dyn Gpu>, bytes: u64) -> Result<BoundQueues, String> {
        if let Self::Named(queues) = self {
            return BoundQueues::bind(queues, gpu, bytes);
        }
        let interfaces = Interface::all().map_err(|error| format!("/sys/class/net: {error}"))?;
        let mut ethtool = Ethtool::open().map_err(|error| error.to_string())?;
        let mut reasons = Vec::new();
        for interface in interfaces.iter().filter(|interface| interface.name != "lo") {
            let bound = unused(interface, &mut ethtool).and_then(|numbers| {
                let queues = Queues { interface: interface.name.clone(), numbers };
                BoundQueues::bind(&queues, gpu, bytes)
            });
            match bound {
                Ok(bound) => return Ok(bound),
                Err(reason) => reasons.push(reason),
            }
        }
        match reasons.is_empty() {
            true => Err("there is no interface but lo".to_owned()),
            false => Err(reasons.join("; ")),
        }
    }
}

/// Queues to which no flow is hashed, or one line with what helps.
fn unused(interface: &Interface, ethtool: &mut Ethtool) -> Result<Vec<u32>, String> {
    let name = &interface.name;
    let count = interface.receive_queues().map_err(|error| format!("{name}: {error}"))?;
    let hashed = ethtool.hashed_queues(interface);
    let hashed = hashed.map_err(|error| {
        format!("{name} does not say to which queues it hashes flows: name one (kernel: {error})")
    })?;
    let unused: Vec<u32> = (0..count).filter(|queue| !hashed.contains(queue)).collect();
    match (unused.is_empty(), count) {
        (false, _) => Ok(unused),
        (true, 0 | 1) => {
            Err(format!("{name} has {count} receive queues, of which others need one"))
        }
        (true, _) => Err(format!(
            "{name} hashes flows to all of its {count} receive queues: `ethtool -X {name} equal {}` \
             leaves one out",
            count - 1
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_is_auto_or_queues() {
        assert_eq!("auto".parse(), Ok(QueueChoice::Auto));
        for given in ["auto", "eth0:7"] {
            assert_eq!(given.parse::<QueueChoice>().unwrap().to_string(), given);
        }
        assert!("Auto".parse::<QueueChoice>().is_err());
    }

    #[test]
    fn queues_are_an_interface_and_numbers() {
        let queues: Queues = "eth0.5:1:6,7".parse().unwrap();
        assert_eq!(queues, Queues { interface: "eth0.5:1".to_owned(), numbers: vec![6, 7] });
        assert_eq!(queues.to_string(), "eth0.5:1:6,7");
        for bad in ["", "eth0", "eth0:", ":1", "eth0:1,", "eth0:x", "eth0:-1", "../x:1"] {
            let error = bad.parse::<Queues>().unwrap_err().to_string();
            assert!(error.contains("eth0:7"), "{bad}: {error}");
        }
    }
}
