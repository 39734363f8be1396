//! Handles that peers exchange to connect.

use crate::fabric::gid_of;
use crate::wire::{Frame, Reader};
use crate::{FabricAddress, HandleError};
use std::fmt;
use std::net::SocketAddr;
use warpverbs_nic::Mtu;

/// Identity of a NIC, made when it comes up: tells whether two handles are of one NIC.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct NicId(pub [u8; 16]);

impl fmt::Debug for NicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

/// How to reach an [`Endpoint`](crate::Endpoint): 56 bytes that its peer needs to connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "RdmaEndpointHandle")]
pub struct EndpointHandle {
    pub(crate) nic: NicId,
    pub(crate) qpn: u32,
    pub(crate) psn: u32,
    pub(crate) mtu: Mtu,
    pub(crate) max_rd_atomic: u8,
    pub(crate) reach: FabricAddress,
}

const FRAME: Frame = Frame { what: "endpoint handle", magic: *b"WVEP", version: 3, body: 48 };

impl EndpointHandle {
    /// A queue pair that some other program made on its NIC, known by what that program tells: its
    /// address and UDP port (4791 for every RoCEv2 NIC), its number, the packet sequence number its
    /// send queue begins with (both 24 bits), its path MTU, and how many READs and atomics it
    /// serves at a time.
    ///
    /// # Errors
    /// A number of more than 24 bits, or 0; an address that is not one host's.
    pub fn foreign(
        addr: SocketAddr,
        qpn: u32,
        psn: u32,
        mtu: Mtu,
        max_rd_atomic: u8,
    ) -> Result<Self, HandleError> {
        // Two NICs at one address are one.
        let (nic, reach) = (NicId(gid_of(addr.ip())), FabricAddress::Udp(addr));
        Self::from_bytes(&Self { nic, qpn, psn, mtu, max_rd_atomic, reach }.to_bytes())
    }

    /// The NIC the endpoint is on.
    pub fn nic(&self) -> NicId {
        self.nic
    }

    /// QP number, 24 bits.
    pub fn qpn(&self) -> u32 {
        self.qpn
    }

    /// The packet sequence number its send queue begins with, 24 bits.
    pub fn psn(&self) -> u32 {
        self.psn
    }

    /// The largest path MTU it takes.
    pub fn mtu(&self) -> Mtu {
        self.mtu
    }

    /// READs and atomics it serves at the same time.
    pub fn max_rd_atomic(&self) -> u8 {
        self.max_rd_atomic
    }

    /// The network its NIC is on, and where.
    pub fn reach(&self) -> FabricAddress {
        self.reach
    }

    /// Where RoCEv2 packets for its NIC go, if it takes them.
    pub fn addr(&self) -> Option<SocketAddr> {
        self.reach.udp()
    }

    /// The handle as versioned bytes, to be sent to the peer by any means.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(FRAME.body);
        body.extend_from_slice(&self.nic.0);
        body.extend_from_slice(&self.qpn.to_le_bytes());
        body.extend_from_slice(&self.psn.to_le_bytes());
        let (kind, gid, port, lid) = self.reach.fields();
        body.extend_from_slice(&[self.mtu as u8, self.max_rd_atomic, kind, 0]);
        body.extend_from_slice(&gid);
        body.extend_from_slice(&port.to_le_bytes());
        body.extend_from_slice(&lid.to_le_bytes());
        FRAME.wrap(&body)
    }

    /// Parses what [`EndpointHandle::to_bytes`] made. Every byte is checked.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, HandleError> {
        let mut body = Reader(FRAME.unwrap(bytes)?);
        let (nic, qpn, psn) = (NicId(body.take()), body.u32(), body.u32());
        let [mtu, max_rd_atomic, kind, reserved] = body.take();
        FRAME.field("qpn", qpn.into(), (1..1 << 24).contains(&qpn), "1 to 0xffffff")?;
        FRAME.field("psn", psn.into(), psn < 1 << 24, "0 to 0xffffff")?;
        FRAME.field("reserved", reserved.into(), reserved == 0, "0")?;
        let (gid, port, lid) = (body.take(), body.take(), body.take());
        let (port, lid) = (u16::from_le_bytes(port), u16::from_le_bytes(lid));
        let reach = FabricAddress::from_fields(&FRAME, (kind, gid, port, lid))?;
        let bad_mtu = HandleError::Field {
            what: FRAME.what,
            field: "mtu",
            value: mtu.into(),
            expected: "1 to 5",
        };
        let mtu = Mtu::from_code(mtu).ok_or(bad_mtu)?;
        Ok(Self { nic, qpn, psn, mtu, max_rd_atomic, reach })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::{IpAddr, Ipv6Addr};

    fn handle() -> impl Strategy<Value = EndpointHandle> {
        let ip = prop_oneof![
            (1u32..0xe000_0000).prop_map(|ip| IpAddr::from(ip.to_be_bytes())),
            (1u128..0xff << 120).prop_map(|ip| Ipv6Addr::from(ip).to_canonical()),
        ];
        let gid = || ip.clone().prop_map(gid_of);
        let reach = prop_oneof![
            Just(FabricAddress::Local),
            (ip.clone(), 1u16..).prop_map(|addr| FabricAddress::Udp(addr.into())),
            gid().prop_map(|gid| FabricAddress::RoceV2 { gid }),
            gid().prop_map(|gid| FabricAddress::RoceV1 { gid }),
            (gid(), any::<u16>()).prop_map(|(gid, lid)| FabricAddress::Infiniband { gid, lid }),
        ];
        (any::<[u8; 16]>(), 1u32..1 << 24, 0u32..1 << 24, 1u8..=5, any::<u8>(), reach).prop_map(
            |(nic, qpn, psn, mtu, max_rd_atomic, reach)| EndpointHandle {
                reach,
                nic: NicId(nic),
                qpn,
                psn,
                mtu: Mtu::from_code(mtu).unwrap(),
                max_rd_atomic,
            },
        )
    }

    proptest! {
        #[test]
        fn bytes_come_back_as_the_same_handle(handle in handle()) {
            let bytes = handle.to_bytes();
            prop_assert_eq!(bytes.len(), 56);
            prop_assert_eq!(EndpointHandle::from_bytes(&bytes), Ok(handle));
        }

        #[test]
        fn what_parses_is_what_was_written(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(handle) = EndpointHandle::from_bytes(&bytes) {
                prop_assert_eq!(handle.to_bytes(), bytes);
            }
        }

        #[test]
        fn one_changed_byte_never_passes_for_the_same(handle in handle(), at in 0usize..56, by in 1u8..) {
            let mut bytes = handle.to_bytes();
            bytes[at] ^= by;
            match EndpointHandle::from_bytes(&bytes) {
                Ok(other) => prop_assert_eq!(other.to_bytes(), bytes),
                Err(HandleError::Magic { .. }) => prop_assert!(at < 4),
                Err(HandleError::Version { .. } | HandleError::Outdated { .. }) => {
                    prop_assert!((4..6).contains(&at));
                }
                Err(error) => prop_assert!(matches!(error, HandleError::Field { .. }), "{}", error),
            }
        }

        #[test]
        fn cut_or_padded_is_refused(handle in handle(), len in 0usize..80) {
            let mut bytes = handle.to_bytes();
            bytes.resize(len, 0);
            match EndpointHandle::from_bytes(&bytes) {
                Ok(_) => prop_assert_eq!(len, 56),
                Err(HandleError::Truncated { found, .. }) => prop_assert!(found == len && len < 56),
                Err(HandleError::Trailing { extra, .. }) => prop_assert_eq!(extra + 56, len),
                Err(error) => prop_assert!(false, "{}", error),
            }
        }
    }

    #[test]
    fn a_queue_pair_of_another_program_is_checked_as_well() {
        let addr: SocketAddr = "10.0.0.1:4791".parse().unwrap();
        let handle = EndpointHandle::foreign(addr, 17, 0xff_ffff, Mtu::B1024, 16).unwrap();
        assert_eq!((handle.addr(), handle.qpn(), handle.psn()), (Some(addr), 17, 0xff_ffff));
        let refused = |addr: &str, qpn, psn| {
            let addr = addr.parse().unwrap();
            EndpointHandle::foreign(addr, qpn, psn, Mtu::B1024, 16).unwrap_err().to_string()
        };
        assert!(refused("10.0.0.1:4791", 0, 0).contains("qpn"));
        assert!(refused("10.0.0.1:4791", 1, 1 << 24).contains("psn"));
        assert!(refused("10.0.0.1:0", 1, 0).contains("port"));
        assert!(refused("0.0.0.0:4791", 1, 0).contains("gid"));
        assert!(refused("224.0.0.1:4791", 1, 0).contains("gid"));
    }

    #[test]
    fn a_handle_of_another_program_is_told_apart() {
        let handle = EndpointHandle {
            nic: NicId([7; 16]),
            qpn: 1,
            psn: 0,
            mtu: Mtu::B1024,
            max_rd_atomic: 16,
            reach: FabricAddress::Local,
        };
        let mut bytes = handle.to_bytes();
        bytes[4] = 2;
        let error = EndpointHandle::from_bytes(&bytes[..36]).unwrap_err();
        assert_eq!(error.to_string(), "endpoint handle of version 2, this program reads from 3 on");
        bytes[4] = 4;
        bytes.extend([0; 24]);
        let error = EndpointHandle::from_bytes(&bytes).unwrap_err();
        assert_eq!(error.to_string(), "endpoint handle of version 4, this program reads up to 3");
    }
}
