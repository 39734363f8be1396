//! Names by which processes of a host find each other's links: made of the host's boot id and a link's
//! address.

use super::QpnPart;
use super::descriptors::own;
use rustix::net::{SocketAddrUnix, SocketFlags};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};
use warpverbs_meet::unix;

/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(1);

/// `what`, at `address`; with a part, where several NICs share the address.
pub(super) fn name(
    what: &str,
    address: SocketAddr,
    part: Option<QpnPart>,
) -> io::Result<SocketAddrUnix> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let part = part.map_or(String::new(), |part| format!("#{}", part.index()));
    let name = format!("warpverbs-{what}-{}-{address}{part}", boot.trim());
    Ok(SocketAddrUnix::new_abstract_name(name.as_bytes())?)
}

/// Takes a name, until the socket is closed.
pub(super) fn take(name: &SocketAddrUnix, flags: SocketFlags) -> io::Result<OwnedFd> {
    unix::listen(name, flags).map(own)
}

/// Connects to the process that has a name, which must be of the same user.
pub(super) fn reach(name: &SocketAddrUnix, flags: SocketFlags) -> io::Result<OwnedFd> {
    let socket = own(unix::connect(name, flags)?);
    unix::same_user(&socket).map(|()| socket)
}

/// The next caller, if it is a process of the same user.
pub(super) fn accept(listener: &OwnedFd, flags: SocketFlags) -> io::Result<OwnedFd> {
    let socket = own(unix::accept(listener, flags)?);
    unix::same_user(&socket).map(|()| socket)
}

/// Tries until it succeeds, for as long as an address is in use, and no longer than to `end`.
pub(super) fn until<T>(end: Instant, mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match attempt() {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < end => {
                thread::sleep(PAUSE);
            }
            done => return done,
        }
    }
}
