//! Sockets between processes of a host, and the descriptors that travel by them. Messages stay whole
//! (`SOCK_SEQPACKET`), and a connection shows when its other end's process ends, however it does.
//!
//! A name that is an abstract one belongs to a network namespace, as ports do, and is free again when its
//! process ends.

use crate::{FrameError, Hello};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
    accept_with, bind, listen as system_listen, recvmsg, sendmsg, socket_with,
};
use rustix::process::geteuid;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

/// Connections that the system keeps until they are accepted.
const BACKLOG: i32 = 1024;
/// Descriptors that come with one message at most.
const MAX_FDS: usize = 64;

/// Bytes of a message at most, [`Hello`] included.
const LONGEST: usize = 512;

/// A message that has arrived.
#[derive(Debug)]
pub struct Received<T> {
    /// Its value; none if the connection has ended.
    pub value: Option<T>,
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

/// Whether the other end is a process of the same user, in whichever PID namespace it is.
///
/// # Errors
/// The system's, and `PermissionDenied` if it is not.
pub fn same_user(socket: &OwnedFd) -> io::Result<()> {
    // Not by rustix, for which a process number is never 0: it is for a peer that this process cannot see.
    match getsockopt(socket, PeerCredentials)?.uid() == geteuid().as_raw() {
        true => Ok(()),
        false => Err(io::ErrorKind::PermissionDenied.into()),
    }
}

/// Sends a message of a protocol, with at most 64 descriptors.
///
/// # Errors
/// The system's; `InvalidInput` for more descriptors, and for a message that is longer than any that is
/// received.
pub fn send(
    socket: &OwnedFd,
    hello: &Hello,
    value: &impl Serialize,
    fds: &[impl AsFd],
) -> io::Result<()> {
    let message = postcard::to_extend(value, hello.bytes()).map_err(io::Error::other)?;
    check_length(message.len()).map_err(|why| io::Error::new(io::ErrorKind::InvalidInput, why))?;
    let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let sent = sendmsg(socket, &[IoSlice::new(&message)], &mut control, SendFlags::NOSIGNAL)?;
    if sent == message.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Whether a message has at most as many bytes as are received.
fn check_length(len: usize) -> Result<(), FrameError> {
    match len > LONGEST {
        true => Err(FrameError::TooLong { len, longest: LONGEST }),
        false => Ok(()),
    }
}

/// Receives a message of a protocol.
///
/// # Errors
/// The system's; `InvalidData` with a [`HelloError`](crate::HelloError) or a
/// [`FrameError`] for one of another protocol or version.
pub fn receive<T: DeserializeOwned>(socket: &OwnedFd, hello: &Hello) -> io::Result<Received<T>> {
    let mut message = [0; LONGEST];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let parts = &mut [IoSliceMut::new(&mut message)];
    // With the last flag the count is that of the message, of which the rest is lost.
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::TRUNC;
    let got = recvmsg(socket, parts, &mut control, flags)?;
    let fds = control.drain().filter_map(|item| match item {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    let fds = fds.flatten().collect();
    let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
    check_length(got.bytes).map_err(|why| invalid(why.into()))?;
    let value = match &message[..got.bytes] {
        [] => None,
        message => Some(hello.read(message).map_err(invalid)?),
    };
    Ok(Received { value, fds, truncated: got.flags.contains(ReturnFlags::CTRUNC) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::socketpair;

    const HELLO: Hello = Hello { magic: b"wvtest", version: 2 };
    const NONE: &[OwnedFd] = &[];

    fn pair() -> (OwnedFd, OwnedFd) {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap()
    }

    #[test]
    fn values_and_descriptors_arrive_whole() {
        let (near, far) = pair();
        let none = receive::<u8>(&far, &HELLO).unwrap_err();
        assert_eq!(none.kind(), io::ErrorKind::WouldBlock);
        send(&near, &HELLO, &("word", 7u64), &[near.as_fd(), far.as_fd()]).unwrap();
        let got = receive::<(String, u64)>(&far, &HELLO).unwrap();
        assert_eq!((got.value, got.fds.len(), got.truncated), (Some(("word".into(), 7)), 2, false));
        assert!(same_user(&far).is_ok());
        drop((near, got.fds));
        assert!(receive::<u8>(&far, &HELLO).unwrap().value.is_none());
    }

    #[test]
    fn other_protocols_and_other_lengths_are_refused() {
        let (near, far) = pair();
        let older = Hello { version: 1, ..HELLO };
        send(&near, &older, &7u8, NONE).unwrap();
        rustix::net::send(&near, b"HTTP", SendFlags::NOSIGNAL).unwrap();
        rustix::net::send(&near, b"wvte", SendFlags::NOSIGNAL).unwrap();
        send(&near, &HELLO, &(7u8, 7u8), NONE).unwrap();
        send(&near, &HELLO, &(), NONE).unwrap();
        rustix::net::send(&near, &[HELLO.bytes(), vec![1; 5000]].concat(), SendFlags::NOSIGNAL)
            .unwrap();
        let long = "5008 bytes, expected at most 512";
        for why in
            ["version 1", "magic \"HTTP\"", "magic \"wvte\"", "1 bytes too many", "decode", long]
        {
            let error = receive::<u8>(&far, &HELLO).unwrap_err();
            assert!(error.to_string().contains(why), "{error}");
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        }
    }

    /// One of which the beginning is a whole message is not that message.
    #[test]
    fn a_message_that_is_cut_is_no_message() {
        let (near, far) = pair();
        // Behind the preamble and two bytes of length.
        let longest = [HELLO.bytes(), vec![0xf6, 0x03], vec![b'x'; 502]].concat();
        assert_eq!(longest.len(), LONGEST);
        for (message, is_whole) in [(longest.clone(), true), ([&longest[..], b"y"].concat(), false)]
        {
            rustix::net::send(&near, &message, SendFlags::NOSIGNAL).unwrap();
            let got = receive::<String>(&far, &HELLO).map(|got| got.value.unwrap());
            assert_eq!(got.ok(), is_whole.then(|| "x".repeat(502)));
        }
        let text = |len| send(&near, &HELLO, &"x".repeat(len), NONE);
        text(502).unwrap();
        assert_eq!(text(503).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
