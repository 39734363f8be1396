//! Automatic path migration: a second path that a QP changes to when the first fails.

use super::Path;
use crate::sys;

/// A second path, taken when the first fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alternate {
    /// How the peer is reached then.
    pub path: Path,
    /// Partition key, by index.
    pub pkey_index: u16,
    /// Code of the time after which an answer is missed.
    pub timeout: u8,
}

impl Alternate {
    pub(super) fn to_raw(self, raw: &mut sys::ibv_qp_attr) {
        raw.alt_ah_attr = self.path.to_raw();
        raw.alt_port_num = self.path.port;
        raw.alt_pkey_index = self.pkey_index;
        raw.alt_timeout = self.timeout;
    }

    pub(super) fn from_raw(raw: &sys::ibv_qp_attr) -> Self {
        let path = Path { port: raw.alt_port_num, ..Path::from_raw(&raw.alt_ah_attr) };
        Self { path, pkey_index: raw.alt_pkey_index, timeout: raw.alt_timeout }
    }
}

/// Where a QP with an alternate path stands (`enum ibv_mig_state`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Migration {
    /// On the alternate path, or without one.
    Migrated = sys::IBV_MIG_MIGRATED,
    /// The new alternate path is being agreed on.
    Rearm = sys::IBV_MIG_REARM,
    /// Will change over when the first path fails.
    Armed = sys::IBV_MIG_ARMED,
}

impl Migration {
    pub(super) fn from_raw(raw: u32) -> Option<Self> {
        [Self::Migrated, Self::Rearm, Self::Armed].into_iter().find(|&state| state as u32 == raw)
    }
}
