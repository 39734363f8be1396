//! Attributes of a device.

use crate::sys;

/// Attributes of a device. Numbers are upper limits; reaching all of them at once is not promised.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceAttr {
    /// Firmware version, as the device writes it.
    pub firmware: String,
    /// Identifier of the device.
    pub node_guid: u64,
    /// Identifier of the adapter that it is a part of.
    pub system_guid: u64,
    /// PCI vendor.
    pub vendor_id: u32,
    /// The vendor's part number.
    pub part_id: u32,
    /// The vendor's revision.
    pub hw_version: u32,
    /// Ports; they are numbered from 1.
    pub ports: u8,
    /// Bytes of one memory region.
    pub max_mr_size: u64,
    /// Queue pairs.
    pub max_qp: u32,
    /// Work requests of one queue.
    pub max_qp_wr: u32,
    /// Entries of one request's list.
    pub max_sge: u32,
    /// Completion queues.
    pub max_cq: u32,
    /// Entries of one.
    pub max_cqe: u32,
    /// Memory regions.
    pub max_mr: u32,
    /// Protection domains.
    pub max_pd: u32,
    /// READs and atomics of a peer that a QP can serve at once.
    pub max_dest_rd_atomic: u32,
    /// READs and atomics that a QP can have outstanding.
    pub max_rd_atomic: u32,
    /// Shared receive queues.
    pub max_srq: u32,
    /// Work requests of one.
    pub max_srq_wr: u32,
    /// Entries of one such request's list.
    pub max_srq_sge: u32,
}

impl DeviceAttr {
    pub(super) fn from_raw(raw: &sys::ibv_device_attr_ex) -> Self {
        let classic = &raw.orig_attr;
        let count = |n: i32| u32::try_from(n).unwrap_or(0);
        let firmware: Vec<u8> =
            classic.fw_ver.iter().map(|&c| c as u8).take_while(|&c| c != 0).collect();
        Self {
            firmware: String::from_utf8_lossy(&firmware).into_owned(),
            node_guid: u64::from_be(classic.node_guid),
            system_guid: u64::from_be(classic.sys_image_guid),
            vendor_id: classic.vendor_id,
            part_id: classic.vendor_part_id,
            hw_version: classic.hw_ver,
            ports: classic.phys_port_cnt,
            max_mr_size: classic.max_mr_size,
            max_qp: count(classic.max_qp),
            max_qp_wr: count(classic.max_qp_wr),
            max_sge: count(classic.max_sge),
            max_cq: count(classic.max_cq),
            max_cqe: count(classic.max_cqe),
            max_mr: count(classic.max_mr),
            max_pd: count(classic.max_pd),
            max_dest_rd_atomic: count(classic.max_qp_rd_atom),
            max_rd_atomic: count(classic.max_qp_init_rd_atom),
            max_srq: count(classic.max_srq),
            max_srq_wr: count(classic.max_srq_wr),
            max_srq_sge: count(classic.max_srq_sge),
        }
    }
}
