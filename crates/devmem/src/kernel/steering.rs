//! Rules that have the NIC put the packets of one connection into a chosen receive queue.

use super::Interface;
use super::claims::{Claim, Rule, Table};
use crate::sys::{FlowSpec, Rxnfc, rxnfc};
use std::io;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::fd::AsFd as _;
use thiserror::Error;

const GET_COUNT: u32 = 0x2e;
const GET_RULE: u32 = 0x2f;
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
    /// The kernel's error.
    #[source]
    pub cause: io::Error,
}

impl SteeringRefusal {
    /// Advice, in one line.
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

/// A rule, until this is dropped. A rule of a process that was killed is removed by the next process
/// that steers a flow at the interface.
#[derive(Debug)]
pub struct Steering(
    #[expect(dead_code, reason = "removes the rule when it is dropped")] Claim<Rules>,
);

/// The rule for packets from `peer` to `local`.
fn rule(peer: SocketAddr, local: SocketAddr, queue: u32) -> Rule {
    let ports = [peer.port().to_be_bytes(), local.port().to_be_bytes()].concat();
    let (flow_type, addresses) = match (peer.ip().to_canonical(), local.ip().to_canonical()) {
        (std::net::IpAddr::V4(peer), std::net::IpAddr::V4(local)) => {
            (TCP_V4, [peer.octets(), local.octets()].concat())
        }
        (peer, local) => {
            let octets = |address: std::net::IpAddr| match address {
                std::net::IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
                std::net::IpAddr::V6(address) => address.octets(),
            };
            (TCP_V6, [octets(peer), octets(local)].concat())
        }
    };
    let mut flow = [0; 52];
    let bytes = [addresses, ports].concat();
    flow[..bytes.len()].copy_from_slice(&bytes);
    Rule { flow_type, flow, queue: queue.into() }
}

/// Bytes that a rule of this type compares with those of a packet.
fn compared(flow_type: u32) -> usize {
    if flow_type == TCP_V4 { 12 } else { 36 }
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
            let rules = Rules { control: control()?, name: interface.name.clone() };
            Claim::new(rules, interface.index, rule(peer, local, queue)).map(Self)
        };
        let refusal = |cause| SteeringRefusal { interface: interface.name.clone(), queue, cause };
        insert().map_err(refusal)
    }
}

/// Any socket will do for requests to interfaces.
fn control() -> io::Result<UdpSocket> {
    UdpSocket::bind((std::net::Ipv4Addr::UNSPECIFIED, 0))
}

/// The rules of an interface.
#[derive(Debug)]
struct Rules {
    control: UdpSocket,
    name: String,
}

impl Rules {
    fn ask(&self, request: &mut Rxnfc) -> io::Result<()> {
        rxnfc(self.control.as_fd(), &self.name, request)
    }

    /// The request with all locations, and how many there are.
    fn all(&self) -> io::Result<(Box<Rxnfc>, usize)> {
        let mut all = Rxnfc::new(GET_ALL).with_locations();
        self.ask(&mut all)?;
        let count = (all.rule_count as usize).min(all.locations.len());
        Ok((all, count))
    }
}

impl Table for Rules {
    /// The last free location, as `ethtool` does it, since the first rule that fits a packet counts
    /// and those of the administrator should.
    fn free(&self) -> io::Result<u32> {
        let mut count = Rxnfc::new(GET_COUNT);
        self.ask(&mut count)?;
        if count.data & CHOOSES != 0 {
            return Ok(ANY);
        }
        let (all, taken) = self.all()?;
        let taken = &all.locations[..taken];
        let size = u32::try_from(all.data).unwrap_or(u32::MAX).min(all.locations.len() as u32);
        let full = || io::Error::from_raw_os_error(libc::ENOSPC);
        (0..size).rev().find(|location| !taken.contains(location)).ok_or_else(full)
    }

    fn locations(&self) -> io::Result<Vec<u32>> {
        let (all, count) = self.all()?;
        Ok(all.locations[..count].to_vec())
    }

    fn rule(&self, location: u32) -> io::Result<Rule> {
        let mut request = Rxnfc::new(GET_RULE);
        request.spec.location = location;
        self.ask(&mut request)?;
        let FlowSpec { flow_type, mut flow, ring_cookie, .. } = request.spec;
        // Drivers return what the mask leaves out as they like.
        flow[compared(flow_type)..].fill(0);
        Ok(Rule { flow_type, flow, queue: ring_cookie })
    }

    fn insert(&self, rule: &Rule, at: u32) -> io::Result<u32> {
        let mut request = Rxnfc::new(INSERT);
        let FlowSpec { flow_type, flow, mask, ring_cookie, location, .. } = &mut request.spec;
        (*flow_type, *flow, *ring_cookie, *location) = (rule.flow_type, rule.flow, rule.queue, at);
        mask[..compared(rule.flow_type)].fill(0xff);
        self.ask(&mut request)?;
        // Chosen by the driver, perhaps.
        Ok(request.spec.location)
    }

    fn delete(&self, location: u32) -> io::Result<()> {
        let mut request = Rxnfc::new(DELETE);
        request.spec.location = location;
        self.ask(&mut request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_compares_addresses_and_ports_of_the_packet() {
        let v4 = |last, port| SocketAddr::from(([10, 0, 0, last], port));
        let of_v4 = rule(v4(2, 0x1234), v4(1, 7000), 3);
        let Rule { flow_type, flow, queue } = of_v4;
        assert_eq!((flow_type, compared(flow_type), queue), (TCP_V4, 12, 3));
        assert_eq!(flow[..12], [10, 0, 0, 2, 10, 0, 0, 1, 0x12, 0x34, 0x1b, 0x58]);
        // A listener at `::` sees IPv4 addresses as mapped ones.
        let mapped: SocketAddr = "[::ffff:10.0.0.2]:4660".parse().unwrap();
        let local: SocketAddr = "[::ffff:10.0.0.1]:7000".parse().unwrap();
        assert_eq!(rule(mapped, local, 3), of_v4);
        let v6: SocketAddr = "[fd00::2]:1".parse().unwrap();
        let Rule { flow_type, flow, .. } = rule(v6, "[fd00::1]:2".parse().unwrap(), 0);
        assert_eq!((flow_type, compared(flow_type)), (TCP_V6, 36));
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
