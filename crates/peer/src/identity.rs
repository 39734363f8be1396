//! Identity of a process: whether two can share memory, and by which means.

use crate::Reason;
use serde::{Deserialize, Serialize};
use std::fs;
use warpverbs_gpu::Gpu;

/// A process and its device, as others see them. Only equality counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Name of the host, for people.
    pub host: String,
    /// This start of this machine's kernel; empty if unknown.
    pub boot_id: String,
    /// Process number in its own PID namespace.
    pub pid: u32,
    /// PID namespace, `pid:[4026531836]`; empty if unknown.
    pub pid_namespace: String,
    /// Network namespace, `net:[4026531840]`; empty if unknown.
    pub net_namespace: String,
    /// `simt`, or the GPU's kind and UUID.
    pub gpu: String,
}

impl Identity {
    /// Identity of this process, whose kernels run on `gpu`.
    pub fn of_this_process(gpu: &dyn Gpu) -> Self {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let link = |path: &str| {
            fs::read_link(path).map(|link| link.to_string_lossy().into_owned()).unwrap_or_default()
        };
        let info = gpu.info();
        let kind = format!("{:?}", info.kind).to_lowercase();
        Self {
            host: text("/proc/sys/kernel/hostname"),
            boot_id: text("/proc/sys/kernel/random/boot_id"),
            pid: std::process::id(),
            pid_namespace: link("/proc/self/ns/pid"),
            net_namespace: link("/proc/self/ns/net"),
            gpu: info.uuid.as_ref().map_or(kind.clone(), |uuid| format!("{kind} {uuid}")),
        }
    }

    /// Why memory cannot be shared with `other`, if that is certain before anything is tried.
    ///
    /// # Errors
    /// The reason: another machine, or a device of another kind.
    pub fn may_share(&self, other: &Self) -> Result<(), Reason> {
        if self.boot_id.is_empty() || self.boot_id != other.boot_id {
            let why = match self.boot_id.is_empty() || other.boot_id.is_empty() {
                true => "no boot id to compare".to_owned(),
                false => format!("{} is another machine than {}", other.host, self.host),
            };
            return Err(Reason::new("same machine", why));
        }
        let kind = |identity: &Self| identity.gpu.split(' ').next().map(str::to_owned);
        if kind(self) != kind(other) {
            let why = format!("{} and {} share no memory", self.gpu, other.gpu);
            return Err(Reason::new("same kind of device", why));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpverbs_gpu::GpuChoice;

    #[test]
    fn this_process_shares_with_itself_and_not_with_other_machines_or_devices() {
        let gpu = warpverbs_gpu::open(GpuChoice::Simt).unwrap();
        let own = Identity::of_this_process(&*gpu);
        assert!(own.pid_namespace.starts_with("pid:[") && own.net_namespace.starts_with("net:["));
        own.may_share(&own).unwrap();
        let far = Identity { boot_id: "x".into(), host: "far".into(), ..own.clone() };
        assert!(own.may_share(&far).unwrap_err().to_string().contains("far is another machine"));
        let unknown = Identity { boot_id: String::new(), ..own.clone() };
        assert!(own.may_share(&unknown).is_err() && unknown.may_share(&unknown).is_err());
        let card = Identity { gpu: "cuda GPU-1".into(), ..own.clone() };
        assert!(own.may_share(&card).is_err());
        let second = Identity { gpu: "cuda GPU-2".into(), ..own.clone() };
        card.may_share(&second).unwrap();
    }
}
