//! Rules that have the NIC put the packets of one connection into a chosen receive queue.

use super::Interface;
use crate::sys::{FlowSpec, Rxnfc, rxnfc};
use std::io;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::fd::AsFd as _;
use thiserror::Error;

const GET_COUNT: u32 = 0x2e;
const GET_ALL: u32 = 0x30;
const DELETE: u32 = 0x31;
const INSERT: u32 = 0x32;
/// In the answer to `GET_COUNT`: the driver chooses the location if it is asked for `ANY`.
const CHOOSES: u64 = 0x8000_0000;
const ANY: u32 = 0xffff_ffff;
const TCP_V4: u32 = 1;
const TCP_V6: u32 = 5;

/// The NIC does not steer a flow.
#[derive(Debug, Error)]
#[error("{interface} does not steer flows to queue {queue}: {} (kernel: {cause})", self.advice())]
pub struct SteeringRefusal {
    /// Name of the interface.
    pub interface: String,
    /// The queue.
    pub queue: u32,
    /// What the kernel said.
    #[source]
    pub cause: io::Error,
}

impl SteeringRefusal {
    /// What helps, in one line.
    pub fn advice(&self) -> String {
        let (name, queue) = (&self.interface, self.queue);
        match self.cause.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => {
                "this needs CAP_NET_ADMIN: run it as root".to_owned()
            }
            Some(libc::EOPNOTSUPP) => format!(
                "switch rules on: `ethtool -K {name} ntuple on`; if that fails, its driver has none"
            ),
            Some(libc::ENOSPC | libc::EBUSY | libc::EEXIST) => format!(
                "its table is full: `ethtool -n {name}` lists the rules, `ethtool -N {name} delete \
                 N` removes one"
            ),
            Some(libc::EINVAL) => format!(
                "queue {queue} may not exist, or rules are off: `ethtool -l {name}`, `ethtool -K \
                 {name} ntuple on`"
            ),
            Some(libc::ENODEV) => {
                "there is no such interface in this network namespace: `ip link`".to_owned()
            }
            _ => format!("look at its rules: `ethtool -n {name}`"),
        }
    }
}

/// A rule, until this is dropped.
#[derive(Debug)]
pub struct Steering {
    interface: String,
    location: u32,
}

/// Bytes that a rule compares with those of a packet.
fn spec(peer: SocketAddr, local: SocketAddr, queue: u32) -> (u32, [u8; 52], usize, u64) {
    let mut flow = [0; 52];
    let mut fields = |parts: [&[u8]; 4]| {
        let bytes = parts.concat();
        flow[..bytes.len()].copy_from_slice(&bytes);
        bytes.len()
    };
    let ports = [peer.port().to_be_bytes(), local.port().to_be_bytes()];
    let [from, to] = &ports;
    let (flow_type, len) = match (peer.ip().to_canonical(), local.ip().to_canonical()) {
        (std::net::IpAddr::V4(peer), std::net::IpAddr::V4(local)) => {
            (TCP_V4, fields([&peer.octets(), &local.octets(), from, to]))
        }
        (peer, local) => {
            let octets = |address: std::net::IpAddr| match address {
                std::net::IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
                std::net::IpAddr::V6(address) => address.octets(),
            };
            (TCP_V6, fields([&octets(peer), &octets(local), from, to]))
        }
    };
    (flow_type, flow, len, queue.into())
}

impl Steering {
    /// Steers what `socket` receives to a queue. Needs `CAP_NET_ADMIN`. Packets that have arrived
    /// are where they are.
    ///
    /// # Errors
    /// The kernel's refusal, with advice.
    pub fn of(
        socket: &TcpStream,
        interface: &Interface,
        queue: u32,
    ) -> Result<Self, SteeringRefusal> {
        let insert = || {
            let (peer, local) = (socket.peer_addr()?, socket.local_addr()?);
            let control = control()?;
            let name = &interface.name;
            let mut request = Rxnfc::new(INSERT);
            let FlowSpec { flow_type, flow, mask, ring_cookie, location, .. } = &mut request.spec;
            let len;
            (*flow_type, *flow, len, *ring_cookie) = spec(peer, local, queue);
            mask[..len].fill(0xff);
            *location = free(&control, name)?;
            rxnfc(control.as_fd(), name, &mut request)?;
            // Chosen by the driver, perhaps.
            Ok(Self { interface: name.clone(), location: request.spec.location })
        };
        let refusal = |cause| SteeringRefusal { interface: interface.name.clone(), queue, cause };
        insert().map_err(refusal)
    }
}

/// Any socket will do for requests to interfaces.
fn control() -> io::Result<UdpSocket> {
    UdpSocket::bind((std::net::Ipv4Addr::UNSPECIFIED, 0))
}

/// Where a new rule goes: the last free location, as `ethtool` does it, since the first rule that
/// fits a packet counts and those of the administrator should.
fn free(control: &UdpSocket, name: &str) -> io::Result<u32> {
    let mut count = Rxnfc::new(GET_COUNT);
    rxnfc(control.as_fd(), name, &mut count)?;
    if count.data & CHOOSES != 0 {
        return Ok(ANY);
    }
    let mut all = Rxnfc::new(GET_ALL).with_locations();
    rxnfc(control.as_fd(), name, &mut all)?;
    let taken = all.locations.get(..all.rule_count as usize).unwrap_or(&all.locations);
    let size = u32::try_from(all.data).unwrap_or(u32::MAX).min(all.locations.len() as u32);
    let full = || io::Error::from_raw_os_error(libc::ENOSPC);
    (0..size).rev().find(|location| !taken.contains(location)).ok_or_else(full)
}

impl Drop for Steering {
    fn drop(&mut self) {
        let mut request = Rxnfc::new(DELETE);
        request.spec.location = self.location;
        let delete =
            control().and_then(|control| rxnfc(control.as_fd(), &self.interface, &mut request));
        // The interface may be gone, with its rules.
        let _ = delete;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_compares_addresses_and_ports_of_the_packet() {
        let v4 = |last, port| SocketAddr::from(([10, 0, 0, last], port));
        let (flow_type, flow, len, queue) = spec(v4(2, 0x1234), v4(1, 7000), 3);
        assert_eq!((flow_type, len, queue), (TCP_V4, 12, 3));
        assert_eq!(flow[..12], [10, 0, 0, 2, 10, 0, 0, 1, 0x12, 0x34, 0x1b, 0x58]);
        // A listener at `::` sees IPv4 addresses as mapped ones.
        let mapped: SocketAddr = "[::ffff:10.0.0.2]:4660".parse().unwrap();
        let local: SocketAddr = "[::ffff:10.0.0.1]:7000".parse().unwrap();
        assert_eq!(spec(mapped, local, 3), (flow_type, flow, len, queue));
        let v6: SocketAddr = "[fd00::2]:1".parse().unwrap();
        let (flow_type, flow, len, _) = spec(v6, "[fd00::1]:2".parse().unwrap(), 0);
        assert_eq!((flow_type, len), (TCP_V6, 36));
        assert_eq!((flow[0], flow[15], flow[31], &flow[32..36]), (0xfd, 2, 1, &[0, 1, 0, 2][..]));
    }

    #[test]
    fn every_refusal_is_one_line_with_what_helps() {
        let cases = [
            (libc::EPERM, "root"),
            (libc::EOPNOTSUPP, "ethtool -K eth7 ntuple on"),
            (libc::ENOSPC, "ethtool -n eth7"),
            (libc::EINVAL, "ethtool -l eth7"),
            (libc::ENODEV, "ip link"),
            (libc::EIO, "ethtool -n eth7"),
        ];
        for (errno, expected) in cases {
            let cause = io::Error::from_raw_os_error(errno);
            let line =
                SteeringRefusal { interface: "eth7".to_owned(), queue: 5, cause }.to_string();
            assert!(line.contains(expected) && !line.contains('\n'), "{line}");
            assert!(line.starts_with("eth7 does not steer flows to queue 5: "), "{line}");
        }
    }
}
