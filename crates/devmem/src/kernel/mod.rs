//! The kernel's side: which interfaces can receive into device memory, binding a dmabuf to their
//! queues, header split, steering of flows, and what to do about each refusal.

mod advice;
mod claims;
mod ethtool;
mod host_dmabuf;
mod netdev;
mod netlink;
mod steering;

pub use advice::Refusal;
pub use ethtool::{Ethtool, Rings};
pub use host_dmabuf::HostDmabuf;
pub use netdev::{Binding, Netdev, Operation};
pub use netlink::NetlinkError;
pub use steering::{Steering, SteeringRefusal};

use std::io;

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its number.
    pub index: u32,
    /// Its name.
    pub name: String,
}

impl Interface {
    /// The interface of this name.
    ///
    /// # Errors
    ///
    /// No interface of this network namespace has this name.
    pub fn named(name: &str) -> io::Result<Self> {
        // The file is one number; reading it needs no privilege.
        let path = std::path::Path::new("/sys/class/net").join(name).join("ifindex");
        let text = std::fs::read_to_string(path)?;
        let index = text.trim().parse().map_err(io::Error::other)?;
        Ok(Self { index, name: name.to_owned() })
    }

    /// How many receive queues it has.
    ///
    /// # Errors
    /// sysfs is not there, or the interface is gone.
    pub fn receive_queues(&self) -> io::Result<u32> {
        let folder = std::path::Path::new("/sys/class/net").join(&self.name).join("queues");
        let mut count = 0;
        for entry in std::fs::read_dir(folder)? {
            count += u32::from(entry?.file_name().to_string_lossy().starts_with("rx-"));
        }
        Ok(count)
    }

    /// All interfaces of this network namespace, by name.
    ///
    /// # Errors
    /// sysfs is not there.
    pub fn all() -> io::Result<Vec<Self>> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/sys/class/net")? {
            // Some files, such as `bonding_masters`, are not interfaces.
            found.extend(Self::named(&entry?.file_name().to_string_lossy()).ok());
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }
}
