//! Properties of the interface that has an address, as the system reports them.

use crate::Mtu;
use nix::ifaddrs::getifaddrs;
use std::net::IpAddr;

/// Headers around the payload at most: IP without options, UDP, BTH, RETH with immediate data,
/// ICRC.
const HEADERS_V4: usize = 20 + 8 + 12 + 20 + 4;
const HEADERS_V6: usize = 40 + 8 + 12 + 20 + 4;

/// The largest path MTU whose packets fit the interface that has `ip`.
pub(super) fn path_mtu(ip: IpAddr) -> Mtu {
    let known = interface_of(ip).and_then(|name| mtu_of(&name));
    known.map_or(Mtu::B1024, |mtu| fitting(mtu, ip.is_ipv4()))
}

fn fitting(interface: usize, v4: bool) -> Mtu {
    let payload = interface.saturating_sub(if v4 { HEADERS_V4 } else { HEADERS_V6 });
    // Every IP network carries 576 bytes (RFC 791): 256 always fits.
    Mtu::largest_within(payload).unwrap_or(Mtu::B256)
}

/// The interface that has the address. All of 127.0.0.0/8 is the loopback interface's.
fn interface_of(ip: IpAddr) -> Option<String> {
    let wanted = |candidate: IpAddr| candidate == ip || candidate.is_loopback() && ip.is_loopback();
    let addresses = getifaddrs().ok()?;
    let found = addresses.into_iter().find(|address| {
        let address = address.address.as_ref();
        let v4 = address.and_then(|address| address.as_sockaddr_in()).map(|v4| v4.ip().into());
        let v6 = address.and_then(|address| address.as_sockaddr_in6()).map(|v6| v6.ip().into());
        v4.or(v6).is_some_and(wanted)
    });
    found.map(|address| address.interface_name)
}

fn mtu_of(interface: &str) -> Option<usize> {
    std::fs::read_to_string(format!("/sys/class/net/{interface}/mtu")).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_fit_the_interface() {
        for (interface, v4, v6) in [
            (65536, Mtu::B4096, Mtu::B4096),
            (9000, Mtu::B4096, Mtu::B4096),
            (4180, Mtu::B4096, Mtu::B4096),
            (4179, Mtu::B4096, Mtu::B2048),
            (4160, Mtu::B4096, Mtu::B2048),
            (4159, Mtu::B2048, Mtu::B2048),
            (1500, Mtu::B1024, Mtu::B1024),
            (1280, Mtu::B1024, Mtu::B1024),
            (1100, Mtu::B1024, Mtu::B512),
            (576, Mtu::B512, Mtu::B256),
            (68, Mtu::B256, Mtu::B256),
        ] {
            assert_eq!(
                (fitting(interface, true), fitting(interface, false)),
                (v4, v6),
                "{interface}"
            );
        }
    }

    #[test]
    fn the_loopback_interface_is_found() {
        for ip in ["127.0.0.1", "127.3.2.1", "::1"] {
            let ip: IpAddr = ip.parse().unwrap();
            // Without IPv6 there is no ::1.
            let Some(name) = interface_of(ip) else { continue };
            assert_eq!(name, "lo");
            assert_eq!(path_mtu(ip), fitting(mtu_of("lo").unwrap(), ip.is_ipv4()));
        }
        // No interface has an address of TEST-NET-1.
        assert_eq!(path_mtu("192.0.2.1".parse().unwrap()), Mtu::B1024);
    }
}
