//! Reading the GIDs of a port.

use super::{Context, Gid, GidEntry, GidKind, PortAttr, VerbsError};
use crate::{result, sys};
use nix::errno::Errno;
use std::path::Path;

/// The table of `port`, from the library where it has the call, else entry by entry.
pub(super) fn read(context: &Context, port: u8) -> Result<Vec<GidEntry>, VerbsError> {
    let attr = context.port(port)?;
    let ports = context.attr()?.ports.max(1);
    let room = attr.gid_count as usize * usize::from(ports);
    // SAFETY: a live context.
    match unsafe { result::query_gid_table(context.api(), context.ptr(), room) } {
        Ok(raw) => {
            let mine = raw.iter().filter(|entry| entry.port_num == u32::from(port));
            let mut entries: Vec<_> = mine.map(entry_of).filter(|e| !e.gid.is_zero()).collect();
            entries.sort_by_key(|entry| entry.index);
            Ok(entries)
        }
        // Before rdma-core 33, and drivers that cannot.
        Err(error) if matches!(error.errno, Errno::EOPNOTSUPP | Errno::ENOSYS) => {
            one_by_one(context, port, &attr)
        }
        Err(error) => Err(error.into()),
    }
}

fn entry_of(raw: &sys::ibv_gid_entry) -> GidEntry {
    GidEntry {
        index: raw.gid_index,
        // SAFETY: every variant of the union is sixteen bytes, and every pattern of them is valid.
        gid: Gid(unsafe { raw.gid.raw }),
        kind: match raw.gid_type {
            sys::IBV_GID_TYPE_IB => GidKind::Ib,
            sys::IBV_GID_TYPE_ROCE_V1 => GidKind::RoceV1,
            sys::IBV_GID_TYPE_ROCE_V2 => GidKind::RoceV2,
            _ => GidKind::Unknown,
        },
        interface: (raw.ndev_ifindex != 0).then_some(raw.ndev_ifindex),
    }
}

fn one_by_one(context: &Context, port: u8, attr: &PortAttr) -> Result<Vec<GidEntry>, VerbsError> {
    let folder = Path::new(&context.device().sysfs()).join(format!("ports/{port}/gid_attrs/types"));
    let mut out = Vec::new();
    for index in 0..attr.gid_count {
        // SAFETY: a live context.
        let raw = unsafe { result::query_gid(context.api(), context.ptr(), port, index as i32) }?;
        // SAFETY: every variant of the union is sixteen bytes, and every pattern of them is valid.
        let gid = Gid(unsafe { raw.raw });
        if gid.is_zero() {
            continue;
        }
        let word = std::fs::read_to_string(folder.join(index.to_string())).unwrap_or_default();
        let kind = GidKind::from_sysfs(attr.link_layer, word.trim());
        out.push(GidEntry { index, gid, kind, interface: None });
    }
    Ok(out)
}
