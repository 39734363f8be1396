//! Automatic path migration: a second path that a QP changes to when the first fails.

use warpverbs_rdma::{AttrMask, QpState};
use warpverbs_verbs::{Finding, LinkLayer, Path, Qp, QpAttrs, VerbsError, sys};

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
    fn from_raw(raw: u32) -> Option<Self> {
        [Self::Migrated, Self::Rearm, Self::Armed].into_iter().find(|&state| state as u32 == raw)
    }
}

/// As [`Qp::modify`], with a second path and what is to become of it.
pub fn modify(
    qp: &Qp,
    state: QpState,
    attrs: &QpAttrs,
    alternate: Option<Alternate>,
    migration: Option<Migration>,
) -> Result<(), VerbsError> {
    let done = qp.modify_with(state, attrs, |raw| write(raw, alternate, migration));
    done.map_err(|error| explained(error, qp, attrs, alternate))
}

/// A QP's second path, as the device has it, and what has become of it.
pub fn query(qp: &Qp) -> Result<(Alternate, Option<Migration>), VerbsError> {
    Ok(read(&qp.raw_attr(AttrMask::ALTERNATE | AttrMask::MIGRATION)?))
}

fn write(
    raw: &mut sys::ibv_qp_attr,
    alternate: Option<Alternate>,
    migration: Option<Migration>,
) -> AttrMask {
    let mut given = AttrMask::empty();
    if let Some(Alternate { path, pkey_index, timeout }) = alternate {
        raw.alt_ah_attr = path.to_raw();
        (raw.alt_port_num, raw.alt_pkey_index) = (path.port, pkey_index);
        raw.alt_timeout = timeout;
        given |= AttrMask::ALTERNATE;
    }
    if let Some(migration) = migration {
        raw.path_mig_state = migration as u32;
        given |= AttrMask::MIGRATION;
    }
    given
}

fn read(raw: &sys::ibv_qp_attr) -> (Alternate, Option<Migration>) {
    let path = Path { port: raw.alt_port_num, ..Path::from_raw(&raw.alt_ah_attr) };
    let (pkey_index, timeout) = (raw.alt_pkey_index, raw.alt_timeout);
    (Alternate { path, pkey_index, timeout }, Migration::from_raw(raw.path_mig_state))
}

/// The kernel's core refuses second paths on Ethernet (`_ib_modify_qp`), whatever the device says
/// that it can.
fn explained(
    mut error: VerbsError,
    qp: &Qp,
    attrs: &QpAttrs,
    alternate: Option<Alternate>,
) -> VerbsError {
    let path = attrs.path.or(alternate.map(|alternate| alternate.path));
    let port = attrs.port.or(path.map(|path| path.port));
    let port = port.and_then(|port| qp.pd().context().port(port).ok());
    let ethernet = port.is_some_and(|port| port.link_layer == LinkLayer::Ethernet);
    if let VerbsError::Modify(refused) = &mut error
        && refused.given.intersects(AttrMask::ALTERNATE | AttrMask::MIGRATION)
        && ethernet
    {
        let why = "Linux has alternate paths on InfiniBand only, and the port is Ethernet";
        refused.findings.push(Finding::Unfit(AttrMask::ALTERNATE, why.to_owned()));
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_paths_survive_the_way_to_the_library_and_back() {
        let mut raw: sys::ibv_qp_attr = sys::zeroed();
        let path = Path::infiniband(2, 9);
        let alternate = Alternate { path, pkey_index: 4, timeout: 5 };
        let given = write(&mut raw, Some(alternate), Some(Migration::Rearm));
        assert_eq!(given, AttrMask::ALTERNATE | AttrMask::MIGRATION);
        assert_eq!(read(&raw), (alternate, Some(Migration::Rearm)));
        assert_eq!(write(&mut raw, None, None), AttrMask::empty());
    }
}
