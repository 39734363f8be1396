//! Attributes of a device besides [`DeviceAttr`](warpverbs_verbs::DeviceAttr).

use bitflags::bitflags;
use warpverbs_verbs::{Context, VerbsError, sys};

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

    /// Operations that may touch memory which is paged in on demand (`ibv_odp_transport_cap_bits`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct OnDemandOps: u32 {
        /// SEND.
        const SEND = sys::IBV_ODP_SUPPORT_SEND;
        /// Receives.
        const RECV = sys::IBV_ODP_SUPPORT_RECV;
        /// WRITE.
        const WRITE = sys::IBV_ODP_SUPPORT_WRITE;
        /// READ.
        const READ = sys::IBV_ODP_SUPPORT_READ;
        /// Atomics.
        const ATOMIC = sys::IBV_ODP_SUPPORT_ATOMIC;
        /// Receives of a shared queue.
        const SRQ_RECV = sys::IBV_ODP_SUPPORT_SRQ_RECV;
        const _ = !0;
    }
}

/// The clock of completions' timestamps, free-running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceClock {
    /// Ticks in a millisecond; 0 if the device does not report it.
    pub khz: u64,
    /// Bits that count; a timestamp wraps there.
    pub mask: u64,
}

/// The accesses to which a device's atomics are atomic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AtomicSupport {
    /// Atomics are not supported.
    None,
    /// Those of the same device.
    Device,
    /// Those of the CPU too.
    Global,
    /// A value that this crate does not know.
    Unknown(u32),
}

/// How far a device supports on-demand paging.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnDemandPaging {
    /// A whole address space can be registered.
    pub implicit: bool,
    /// Operations of RC queue pairs on such memory.
    pub rc: OnDemandOps,
}

/// Abilities of a device besides the numbers of [`DeviceAttr`](warpverbs_verbs::DeviceAttr).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExtraAttr {
    /// Abilities.
    pub flags: DeviceFlags,
    /// With what atomics are atomic.
    pub atomics: AtomicSupport,
    /// Memory that is not pinned, if the device can.
    pub on_demand: Option<OnDemandPaging>,
    /// The clock of timestamps, if completions can have them.
    pub clock: Option<DeviceClock>,
}

impl ExtraAttr {
    /// Asks the device of `context`.
    pub fn of(context: &Context) -> Result<Self, VerbsError> {
        let raw = context.raw_attr()?;
        let paging = |bit: u32| raw.odp_caps.general_caps & u64::from(bit) != 0;
        let classic = u64::from(raw.orig_attr.device_cap_flags);
        Ok(Self {
            flags: DeviceFlags::from_bits_retain(classic | raw.device_cap_flags_ex),
            atomics: match raw.orig_attr.atomic_cap {
                sys::IBV_ATOMIC_NONE => AtomicSupport::None,
                sys::IBV_ATOMIC_HCA => AtomicSupport::Device,
                sys::IBV_ATOMIC_GLOB => AtomicSupport::Global,
                other => AtomicSupport::Unknown(other),
            },
            on_demand: paging(sys::IBV_ODP_SUPPORT).then(|| OnDemandPaging {
                implicit: paging(sys::IBV_ODP_SUPPORT_IMPLICIT),
                rc: OnDemandOps::from_bits_retain(raw.odp_caps.per_transport_caps.rc_odp_caps),
            }),
            clock: (raw.completion_timestamp_mask != 0).then_some(DeviceClock {
                khz: raw.hca_core_clock,
                mask: raw.completion_timestamp_mask,
            }),
        })
    }
}
