//! Reading the GIDs of a port.

use super::{Context, Gid, GidEntry, GidKind, PortAttr, VerbsError};
use crate::call::check;
use crate::{CallError, sys};
use nix::errno::Errno;
use std::path::Path;

/// The table of `port`, from the library where it has the call, else entry by entry.
pub(super) fn read(context: &Context, port: u8) -> Result<Vec<GidEntry>, VerbsError> {
    let attr = context.port(port)?;
    let ports = context.attr()?.ports.max(1);
    let room = attr.gid_count as usize * usize::from(ports);
    match whole(context, room) {
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

/// All entries in use of the GID tables of all ports, `room` at most, with their types. Needs
/// rdma-core 33.
fn whole(context: &Context, room: usize) -> Result<Vec<sys::ibv_gid_entry>, CallError> {
    let call = "ibv_query_gid_table";
    let query = context.api()._ibv_query_gid_table.ok_or(CallError::absent(call))?;
    let mut entries = vec![sys::zeroed::<sys::ibv_gid_entry>(); room];
    let size = size_of::<sys::ibv_gid_entry>();
    // SAFETY: a live context, and room for `room` entries of `size` bytes.
    let found = unsafe { query(context.ptr().as_ptr(), entries.as_mut_ptr(), room, 0, size) };
    let found = usize::try_from(found).map_err(|_| {
        let errno = Errno::from_raw(found.unsigned_abs() as i32);
        CallError { call, errno }
    })?;
    entries.truncate(found);
    Ok(entries)
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
    let (query, mut out) = (context.api().ibv_query_gid, Vec::new());
    for index in 0..attr.gid_count {
        let mut raw = sys::zeroed();
        // SAFETY: a live context and a live local.
        let code = unsafe { query(context.ptr().as_ptr(), port, index as i32, &mut raw) };
        check("ibv_query_gid", code)?;
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
