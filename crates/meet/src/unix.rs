//! Sockets between processes of a host, and the descriptors that travel by them. Messages stay whole
//! (`SOCK_SEQPACKET`), and a connection shows when its other end's process ends, however it does.
//!
//! A name that is an abstract one belongs to a network namespace, as ports do, and is free again when its
//! process ends.

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
    accept_with, bind, listen as system_listen, recvmsg, sendmsg, socket_with, sockopt,
};
use rustix::process::geteuid;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

/// Connections that the system keeps until they are accepted.
const BACKLOG: i32 = 1024;
/// Descriptors that come with one message at most.
const MAX_FDS: usize = 64;

/// A message that has arrived.
#[derive(Debug)]
pub struct Received {
    /// Bytes of it.
    pub len: usize,
    /// Its descriptors. Close-on-exec.
    pub fds: Vec<OwnedFd>,
    /// This process may not have as many descriptors as were sent: the others are lost.
    pub truncated: bool,
}

fn socket(flags: SocketFlags) -> io::Result<OwnedFd> {
    let flags = flags | SocketFlags::CLOEXEC;
    Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// Listens at a name, which stays taken until the socket is closed.
///
/// # Errors
/// The system's, for instance that the name is taken.
pub fn listen(name: &SocketAddrUnix, flags: SocketFlags) -> io::Result<OwnedFd> {
    let socket = socket(flags)?;
    bind(&socket, name)?;
    system_listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// Connects to the process that listens at a name.
///
/// # Errors
/// The system's; `WouldBlock` if it has too many callers already.
pub fn connect(name: &SocketAddrUnix, flags: SocketFlags) -> io::Result<OwnedFd> {
    let socket = socket(flags)?;
    rustix::net::connect(&socket, name)?;
    Ok(socket)
}

/// The next connection.
///
/// # Errors
/// The system's.
pub fn accept(listener: &OwnedFd, flags: SocketFlags) -> io::Result<OwnedFd> {
    Ok(accept_with(listener, flags | SocketFlags::CLOEXEC)?)
}

/// Whether the other end is a process of the same user.
///
/// # Errors
/// The system's, and `PermissionDenied` if it is not.
pub fn same_user(socket: &OwnedFd) -> io::Result<()> {
    match sockopt::socket_peercred(socket)?.uid == geteuid() {
        true => Ok(()),
        false => Err(io::ErrorKind::PermissionDenied.into()),
    }
}

/// Sends a message with at most 64 descriptors.
///
/// # Errors
/// The system's.
pub fn send(socket: &OwnedFd, message: &[u8], fds: &[impl AsFd]) -> io::Result<()> {
    let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let sent = sendmsg(socket, &[IoSlice::new(message)], &mut control, SendFlags::NOSIGNAL)?;
    if sent == message.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Receives a message and its descriptors. A longer message is cut off, so `message` needs a byte more than
/// the expected one for that to be noticed.
///
/// # Errors
/// The system's.
pub fn receive(socket: &OwnedFd, message: &mut [u8]) -> io::Result<Received> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let parts = &mut [IoSliceMut::new(message)];
    let got = recvmsg(socket, parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let fds = control.drain().filter_map(|item| match item {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    let fds = fds.flatten().collect();
    Ok(Received { len: got.bytes, fds, truncated: got.flags.contains(ReturnFlags::CTRUNC) })
}
