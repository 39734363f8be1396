//! How links of two processes of a host meet. A process that has datagrams for an address connects to its
//! [socket](named), and sends a greeting with the memfd of a ring that it will write them to. The
//! connection then shows when the other process ends.

use super::ring::MEMORY;
use crate::{QpnPart, named};
use rustix::event::{PollFd, PollFlags};
use rustix::net::{SocketAddrUnix, SocketFlags};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;
use warpverbs_meet::{Hello, unix};

/// A greeting has the ring's bytes, the sender's address, and the ring.
const HELLO: Hello = Hello { magic: b"wvlink", version: 3 };

/// Use of rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Datagrams go through them.
    Datagrams,
    /// Datagrams go by UDP. Rings stay empty; they show that their consumer looks, or has ended.
    Looks,
}

impl Purpose {
    fn name(self, address: SocketAddr, part: Option<QpnPart>) -> io::Result<SocketAddrUnix> {
        let what = match self {
            Self::Datagrams => "link",
            Self::Looks => "looks",
        };
        named::name(what, address, part)
    }

    /// Listens for processes that have datagrams for `address`, or for a part of the QP numbers there.
    pub(super) fn listener(
        self,
        address: SocketAddr,
        part: Option<QpnPart>,
    ) -> io::Result<OwnedFd> {
        named::take(&self.name(address, part)?, SocketFlags::NONBLOCK)
    }

    /// Connects to the link at `to`, which must be of the same user.
    pub(super) fn reach(self, to: SocketAddr, part: Option<QpnPart>) -> io::Result<OwnedFd> {
        named::reach(&self.name(to, part)?, SocketFlags::NONBLOCK)
    }
}

/// The next peer that has connected, if it is of the same user.
pub(super) fn accept(listener: &OwnedFd) -> io::Result<OwnedFd> {
    named::accept(listener, SocketFlags::NONBLOCK)
}

pub(super) fn greet(socket: &OwnedFd, local: SocketAddr, ring: OwnedFd) -> io::Result<()> {
    unix::send(socket, &HELLO, &(MEMORY, local), &[ring])
}

/// A greeting: the sender's address, and its ring. `None`: it has not come yet.
pub(super) fn greeting(socket: &OwnedFd) -> io::Result<Option<(SocketAddr, OwnedFd)>> {
    use io::ErrorKind::{Interrupted, WouldBlock};
    let mut got = match unix::receive::<(u64, SocketAddr)>(socket, &HELLO) {
        Err(error) if matches!(error.kind(), WouldBlock | Interrupted) => return Ok(None),
        got => got?,
    };
    match (got.value, got.fds.pop()) {
        (Some((MEMORY, from)), Some(fd)) if from.port() != 0 => {
            Ok(Some((SocketAddr::new(from.ip().to_canonical(), from.port()), fd)))
        }
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Which of `sockets` have something to read, or have ended. Does not wait.
pub(super) fn ready<'a>(sockets: impl Iterator<Item = &'a OwnedFd>) -> Vec<bool> {
    let watched = |fd: &'a OwnedFd| PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN);
    let mut fds: Vec<_> = sockets.map(watched).collect();
    match warpverbs_meet::poll(&mut fds, Some(Duration::ZERO)) {
        Ok(_) => fds.iter().map(|fd| !fd.revents().is_empty()).collect(),
        // Next time.
        Err(_) => vec![false; fds.len()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SendFlags, SocketType};

    #[test]
    fn greetings_are_read_as_they_were_sent() {
        for address in ["127.9.8.7:4791", "[fd00::1]:17"] {
            let address: SocketAddr = address.parse().unwrap();
            let (one, other) = rustix::net::socketpair(
                AddressFamily::UNIX,
                SocketType::SEQPACKET,
                SocketFlags::NONBLOCK,
                None,
            )
            .unwrap();
            assert!(greeting(&other).unwrap().is_none());
            let fd = warpverbs_mem::sealed_memfd(4096).unwrap();
            greet(&one, address, fd).unwrap();
            let (from, ring) = greeting(&other).unwrap().unwrap();
            assert_eq!(from, address);
            assert!(warpverbs_mem::check_sealed(&ring, 4096).is_ok());
            rustix::net::send(&one, b"something else", SendFlags::NOSIGNAL).unwrap();
            assert!(greeting(&other).is_err());
            drop(one);
            assert!(greeting(&other).is_err(), "the end is no greeting");
        }
    }
}
