//! Sockets by which processes of a host find each other: their abstract names are made of the
//! host's boot id and a link's address, and are free again when their process ends, however it
//! does. Abstract names belong to a network namespace, as ports do.

use super::QpnPart;
use super::descriptors::own;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind,
    connect, listen, recvmsg, sendmsg, socket_with, sockopt,
};
use rustix::process::geteuid;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

/// Callers that the system keeps until they are accepted.
const BACKLOG: i32 = 1024;
/// Descriptors that come with one message at most.
const MAX_FDS: usize = QpnPart::COUNT;
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

fn socket(flags: SocketFlags) -> io::Result<OwnedFd> {
    let flags = flags | SocketFlags::CLOEXEC;
    Ok(own(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?))
}

/// Takes a name, until the socket is closed.
pub(super) fn take(name: &SocketAddrUnix, flags: SocketFlags) -> io::Result<OwnedFd> {
    let socket = socket(flags)?;
    bind(&socket, name)?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// Connects to who has a name, which must be a process of the same user.
pub(super) fn reach(name: &SocketAddrUnix, flags: SocketFlags) -> io::Result<OwnedFd> {
    let socket = socket(flags)?;
    connect(&socket, name)?;
    same_user(&socket)?;
    Ok(socket)
}

/// The next caller, if it is a process of the same user.
pub(super) fn accept(listener: &OwnedFd, flags: SocketFlags) -> io::Result<OwnedFd> {
    let socket = own(accept_with(listener, flags | SocketFlags::CLOEXEC)?);
    same_user(&socket)?;
    Ok(socket)
}

fn same_user(socket: &OwnedFd) -> io::Result<()> {
    match sockopt::socket_peercred(socket)?.uid == geteuid() {
        true => Ok(()),
        false => Err(io::ErrorKind::PermissionDenied.into()),
    }
}

/// Sends a message with at most [`MAX_FDS`] descriptors.
pub(super) fn send(socket: &OwnedFd, message: &[u8], fds: &[OwnedFd]) -> io::Result<()> {
    let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let sent = sendmsg(socket, &[IoSlice::new(message)], &mut control, SendFlags::NOSIGNAL)?;
    if sent == message.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Receives a message and its descriptors. What does not fit is lost, so `message` needs a byte
/// more than the expected one for a longer one to be noticed.
pub(super) fn receive(socket: &OwnedFd, message: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let parts = &mut [IoSliceMut::new(message)];
    let got = recvmsg(socket, parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let fds = control.drain().filter_map(|item| match item {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    Ok((got.bytes, fds.flatten().collect()))
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
