//! Which connection gives way to a new one while none of them has authenticated itself.

use super::session::{Role, Session};
use std::net::{IpAddr, Ipv6Addr};

/// Connections that have not authenticated themselves.
pub(super) const MOST_STRANGERS: usize = 64;

/// A connection that may give way: how far it is, and whence it comes.
#[derive(Clone, Copy)]
struct Candidate {
    at: usize,
    greeted: bool,
    network: IpAddr,
}

/// Addresses of one owner: of IPv6, those of a subnet.
fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => {
            let subnet = u128::from(v6) & !u128::from(u64::MAX);
            Ipv6Addr::from(subnet).into()
        }
    }
}

fn candidates(sessions: &[Session]) -> Vec<Candidate> {
    let candidate = |(at, session): (usize, &Session)| match session.role {
        Role::Stranger { address } => {
            Some(Candidate { at, greeted: false, network: network(address) })
        }
        Role::Greeted { address, .. } => {
            Some(Candidate { at, greeted: true, network: network(address) })
        }
        _ => None,
    };
    sessions.iter().enumerate().filter_map(candidate).collect()
}

/// The place of the session that gives way, if there are `most` strangers: the oldest that has not shown
/// the key, of the network that has the most of them.
pub(super) fn to_evict(sessions: &[Session], most: usize) -> Option<usize> {
    let all = candidates(sessions);
    if all.len() < most {
        return None;
    }
    choose(&all)
}

fn choose(all: &[Candidate]) -> Option<usize> {
    let count = |network| all.iter().filter(|other| other.network == network).count();
    // Sessions are in the order of their beginning.
    let rank = |one: &&Candidate| (!one.greeted, count(one.network), usize::MAX - one.at);
    all.iter().max_by_key(rank).map(|one| one.at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(list: &[(&str, bool)]) -> Vec<Candidate> {
        let candidate = |(at, (address, greeted)): (usize, &(&str, bool))| {
            let network = network(address.parse().unwrap());
            Candidate { at, greeted: *greeted, network }
        };
        list.iter().enumerate().map(candidate).collect()
    }

    #[test]
    fn the_oldest_of_the_network_with_the_most_gives_way() {
        let flood = [("10.0.0.1", false), ("10.0.0.2", false), ("10.0.0.2", false)];
        assert_eq!(choose(&all(&flood)), Some(1));
        // Addresses of one subnet are one owner's.
        let flood = [("fd00::1", false), ("fd00:0:0:1::1", false), ("fd00:0:0:1:2::2", false)];
        assert_eq!(choose(&all(&flood)), Some(1));
        // One that has shown the key is the last to give way.
        let flood = [("10.0.0.2", true), ("10.0.0.2", true), ("10.0.0.1", false)];
        assert_eq!(choose(&all(&flood)), Some(2));
        assert_eq!(choose(&all(&flood[..2])), Some(0));
        assert_eq!(choose(&[]), None);
    }
}
