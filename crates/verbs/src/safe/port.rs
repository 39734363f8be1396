//! Ports.

use crate::sys;
use warpverbs_rdma::Mtu;

/// State of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PortState {
    /// No link.
    Down,
    /// A link, and nobody has configured it (InfiniBand: no subnet manager).
    Init,
    /// Configured, not yet in use.
    Armed,
    /// In use.
    Active,
    /// In use, with a link that is failing.
    ActiveDefer,
    /// A value that this crate does not know.
    Unknown(u32),
}

/// The link layer of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LinkLayer {
    /// InfiniBand, or a device too old to report it.
    InfiniBand,
    /// Ethernet: RoCE or iWARP.
    Ethernet,
    /// A value that this crate does not know.
    Unknown(u8),
}

/// The values of `enum ibv_mtu` are those of queue pair contexts.
pub(super) fn mtu_from_raw(raw: u32) -> Option<Mtu> {
    Mtu::from_code(u8::try_from(raw).ok()?)
}

/// Attributes of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PortAttr {
    /// Its state.
    pub state: PortState,
    /// Its link layer.
    pub link_layer: LinkLayer,
    /// The MTU it could have; absent if it tells none that exists.
    pub max_mtu: Option<Mtu>,
    /// The MTU it has.
    pub active_mtu: Option<Mtu>,
    /// Bytes of one message.
    pub max_message: u32,
    /// Entries of its GID table, in use or not.
    pub gid_count: u32,
    /// Entries of its table of partition keys.
    pub pkey_count: u16,
    /// Local identifier; 0 on Ethernet.
    pub lid: u16,
    /// Low bits of the identifier that paths may differ in.
    pub lmc: u8,
    /// Local identifier of the subnet manager.
    pub sm_lid: u16,
    /// Service level of the subnet manager.
    pub sm_sl: u8,
    /// Megabits a second of all lanes together; absent if the port codes it in an unknown way.
    pub mbps: Option<u32>,
    /// Every path needs a global route, even inside the subnet.
    pub grh_required: bool,
}

impl PortAttr {
    pub(super) fn from_raw(raw: &sys::ibv_port_attr) -> Self {
        Self {
            state: match raw.state {
                sys::IBV_PORT_DOWN => PortState::Down,
                sys::IBV_PORT_INIT => PortState::Init,
                sys::IBV_PORT_ARMED => PortState::Armed,
                sys::IBV_PORT_ACTIVE => PortState::Active,
                sys::IBV_PORT_ACTIVE_DEFER => PortState::ActiveDefer,
                other => PortState::Unknown(other),
            },
            link_layer: match u32::from(raw.link_layer) {
                sys::IBV_LINK_LAYER_UNSPECIFIED | sys::IBV_LINK_LAYER_INFINIBAND => {
                    LinkLayer::InfiniBand
                }
                sys::IBV_LINK_LAYER_ETHERNET => LinkLayer::Ethernet,
                _ => LinkLayer::Unknown(raw.link_layer),
            },
            max_mtu: mtu_from_raw(raw.max_mtu),
            active_mtu: mtu_from_raw(raw.active_mtu),
            max_message: raw.max_msg_sz,
            gid_count: u32::try_from(raw.gid_tbl_len).unwrap_or(0),
            pkey_count: raw.pkey_tbl_len,
            lid: raw.lid,
            lmc: raw.lmc,
            sm_lid: raw.sm_lid,
            sm_sl: raw.sm_sl,
            mbps: mbps(raw.active_speed, raw.active_width),
            grh_required: u32::from(raw.flags) & GRH_REQUIRED != 0,
        }
    }
}

/// `IBV_QPF_GRH_REQUIRED`, which is a macro of an enumerator in another header.
const GRH_REQUIRED: u32 = 1;

/// Speed of a lane and number of lanes, as IBTA's PortInfo codes them.
fn mbps(speed: u8, width: u8) -> Option<u32> {
    let lanes = match width {
        1 => 1,
        2 => 4,
        4 => 8,
        8 => 12,
        16 => 2,
        _ => return None,
    };
    let lane = match speed {
        1 => 2_500,
        2 => 5_000,
        4 | 8 => 10_000,
        16 => 14_000,
        32 => 25_000,
        64 => 50_000,
        128 => 100_000,
        _ => return None,
    };
    Some(lanes * lane)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mtus_have_the_codes_of_the_library() {
        let codes = [
            sys::IBV_MTU_256,
            sys::IBV_MTU_512,
            sys::IBV_MTU_1024,
            sys::IBV_MTU_2048,
            sys::IBV_MTU_4096,
        ];
        assert_eq!(Mtu::ALL.map(|mtu| mtu as u32), codes);
        assert_eq!(codes.map(mtu_from_raw), Mtu::ALL.map(Some));
        assert_eq!([0, 6, 258].map(mtu_from_raw), [None; 3]);
    }

    #[test]
    fn rates_of_real_links() {
        assert_eq!(mbps(128, 2), Some(400_000), "NDR, 4 lanes");
        assert_eq!(mbps(32, 2), Some(100_000), "EDR, 4 lanes");
        assert_eq!(mbps(1, 1), Some(2_500), "soft-RoCE's answer for any link");
        assert_eq!((mbps(0, 2), mbps(128, 3)), (None, None));
    }
}
