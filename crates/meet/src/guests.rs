//! Chooses which unauthenticated connection is closed for a new one.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};

/// A connection that may be closed for a new one, because it has not authenticated.
#[derive(Clone, Copy, Debug)]
pub struct Guest {
    /// The caller's number of it, which rises with the time of its beginning.
    pub at: usize,
    /// It has sent something that only a peer can know, and is closed last.
    pub greeted: bool,
    /// Where it comes from; the unspecified address for a process of this host.
    pub address: IpAddr,
}

impl Guest {
    /// A connection that has sent nothing that only a peer can know.
    pub fn stranger(at: usize, address: IpAddr) -> Self {
        Self { at, greeted: false, address }
    }
}

/// The network that an address is counted under: a /64 for IPv6, one address for IPv4, which a listener
/// for both versions shows as a mapped IPv6 address.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => Ipv6Addr::from(u128::from(v6) & !u128::from(u64::MAX)).into(),
        v4 => v4,
    }
}

/// The number of the one that gives way if there are `most` already: the oldest that has not greeted, of the
/// network that has the most of them.
pub fn gives_way(guests: impl IntoIterator<Item = Guest>, most: usize) -> Option<usize> {
    let all = Vec::from_iter(guests);
    if all.len() < most {
        return None;
    }
    let mut counts = HashMap::new();
    all.iter().for_each(|one| *counts.entry(network(one.address)).or_insert(0) += 1);
    let rank = |one: &&Guest| (!one.greeted, counts[&network(one.address)], usize::MAX - one.at);
    all.iter().max_by_key(rank).map(|one| one.at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(list: &[(&str, bool)], most: usize) -> Option<usize> {
        let guest = |(at, (address, greeted)): (usize, &(&str, bool))| {
            let address = address.parse().unwrap();
            Guest { at, greeted: *greeted, address }
        };
        gives_way(list.iter().enumerate().map(guest), most)
    }

    #[test]
    fn the_oldest_of_the_network_with_the_most_gives_way() {
        let flood = [("10.0.0.1", false), ("10.0.0.2", false), ("10.0.0.2", false)];
        assert_eq!(choose(&flood, 3), Some(1));
        assert_eq!(choose(&flood, 4), None);
        // Addresses of one subnet are one owner's.
        let flood = [("fd00::1", false), ("fd00:0:0:1::1", false), ("fd00:0:0:1:2::2", false)];
        assert_eq!(choose(&flood, 1), Some(1));
        // Those of IPv4 are not, however the listener shows them.
        let flood = [("::ffff:10.0.0.1", false), ("10.0.0.2", false), ("::ffff:10.0.0.2", false)];
        assert_eq!(choose(&flood, 3), Some(1));
        // One that has shown the key is the last to give way.
        let flood = [("10.0.0.2", true), ("10.0.0.2", true), ("10.0.0.1", false)];
        assert_eq!(choose(&flood, 1), Some(2));
        assert_eq!(choose(&flood[..2], 1), Some(0));
        assert_eq!(choose(&[], 1), None);
    }
}
