//! What a device can do.

use crate::sys;
use bitflags::bitflags;

bitflags! {
    /// Abilities, by the bits of `ibv_device_cap_flags`. Bits without a name are kept.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct DeviceFlags: u64 {
        /// Bad partition keys are counted.
        const BAD_PKEY_COUNTER = sys::IBV_DEVICE_BAD_PKEY_CNTR as u64;
        /// Alternate paths.
        const AUTO_PATH_MIGRATION = sys::IBV_DEVICE_AUTO_PATH_MIG as u64;
        /// A QP may change its port.
        const CHANGE_PHYSICAL_PORT = sys::IBV_DEVICE_CHANGE_PHY_PORT as u64;
        /// Events of ports.
        const PORT_ACTIVE_EVENT = sys::IBV_DEVICE_PORT_ACTIVE_EVENT as u64;
        /// Waits asked by a receiver that is not ready.
        const RNR_NAK = sys::IBV_DEVICE_RC_RNR_NAK_GEN as u64;
        /// A shared queue may change its size.
        const SRQ_RESIZE = sys::IBV_DEVICE_SRQ_RESIZE as u64;
        /// LOCAL_INV, SEND_INVAL and fast registration.
        const MEM_MGT_EXTENSIONS = sys::IBV_DEVICE_MEM_MGT_EXTENSIONS as u64;
        /// Memory windows of type 2B.
        const MEM_WINDOW_TYPE_2B = sys::IBV_DEVICE_MEM_WINDOW_TYPE_2B as u64;
        /// Flow steering.
        const MANAGED_FLOW_STEERING = sys::IBV_DEVICE_MANAGED_FLOW_STEERING as u64;
        const _ = !0;
    }
}

/// The clock of completions' timestamps, free-running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceClock {
    /// Ticks in a millisecond; 0 if the device does not tell.
    pub khz: u64,
    /// Bits that count; a timestamp wraps there.
    pub mask: u64,
}

/// With what else a device's atomics are atomic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AtomicSupport {
    /// There are none.
    None,
    /// With those of the same device.
    Device,
    /// With those of the CPU too.
    Global,
    /// A value that this crate does not know.
    Unknown(u32),
}

/// What a device can do. Numbers are upper limits; reaching all of them at once is not promised.
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
    /// Entries of one READ's list.
    pub max_sge_rd: u32,
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
    /// With what atomics are atomic.
    pub atomics: AtomicSupport,
    /// Shared receive queues.
    pub max_srq: u32,
    /// Work requests of one.
    pub max_srq_wr: u32,
    /// Entries of one such request's list.
    pub max_srq_sge: u32,
    /// Partition keys.
    pub max_pkeys: u16,
    /// Abilities.
    pub flags: DeviceFlags,
    /// Memory that is not pinned, if the device can.
    #[cfg(feature = "odp")]
    pub on_demand: Option<super::OnDemandPaging>,
    /// The clock of timestamps, if completions can have them.
    pub clock: Option<DeviceClock>,
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
            max_sge_rd: count(classic.max_sge_rd),
            max_cq: count(classic.max_cq),
            max_cqe: count(classic.max_cqe),
            max_mr: count(classic.max_mr),
            max_pd: count(classic.max_pd),
            max_dest_rd_atomic: count(classic.max_qp_rd_atom),
            max_rd_atomic: count(classic.max_qp_init_rd_atom),
            atomics: match classic.atomic_cap {
                sys::IBV_ATOMIC_NONE => AtomicSupport::None,
                sys::IBV_ATOMIC_HCA => AtomicSupport::Device,
                sys::IBV_ATOMIC_GLOB => AtomicSupport::Global,
                other => AtomicSupport::Unknown(other),
            },
            max_srq: count(classic.max_srq),
            max_srq_wr: count(classic.max_srq_wr),
            max_srq_sge: count(classic.max_srq_sge),
            max_pkeys: classic.max_pkeys,
            flags: DeviceFlags::from_bits_retain(
                u64::from(classic.device_cap_flags) | raw.device_cap_flags_ex,
            ),
            #[cfg(feature = "odp")]
            on_demand: super::OnDemandPaging::from_raw(&raw.odp_caps),
            clock: (raw.completion_timestamp_mask != 0).then_some(DeviceClock {
                khz: raw.hca_core_clock,
                mask: raw.completion_timestamp_mask,
            }),
        }
    }
}
