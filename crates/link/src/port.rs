//! A UDP port that NICs of several processes of a host share.
//!
//! The first of them binds [`QpnPart::COUNT`] sockets to it, one for each part of the QP numbers,
//! with a program by which the system gives each datagram to the socket of its destination's part.
//! Every other process gets all of these sockets from one that has them, and uses that of its own
//! part. As everybody holds all of them, none leaves the port while one process lives: the system
//! would give its place to another. The process that has a part has the abstract name of it, which
//! is free again when its process ends, however it does.

use super::descriptors::own;
use super::udp_option::{NoChecksum, set_no_checksum, steer_by_word};
use super::{QpnPart, named, part};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{Shutdown, SocketAddrUnix, SocketFlags, shutdown, sockopt};
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use warpverbs_meet::{Hello, unix};

/// For all processes that join before this one, for one of them to hand over the sockets, and for
/// one that ends to release its part.
pub(super) const LIMIT: Duration = Duration::from_secs(10);
/// After a caller that could not be accepted, and before calling again where too many wait.
const PAUSE: Duration = Duration::from_millis(1);
/// Receive buffer, in bytes, of a socket whose part no process has taken: most datagrams for it are lost.
const UNUSED_BUFFER: usize = 4096;
/// Greeting that comes with the sockets.
const HELLO: Hello = Hello { magic: b"wvport", version: 2 };

/// A place at a shared port; given up when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    part: QpnPart,
    sockets: Arc<[OwnedFd]>,
    listener: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Place {
    /// Takes the first free part of the QP numbers at `address`, whose port is not 0.
    pub(super) fn take(address: SocketAddr) -> io::Result<Self> {
        let end = Instant::now() + LIMIT;
        // One process at a time, so that no process finds a port half made.
        let lock = named::name("port", address, None)?;
        let _lock = named::until(end, || named::take(&lock, SocketFlags::empty()))?;
        let (part, listener, taken) = take_part(address)?;
        let sockets = match ask(&taken, end)? {
            Some(sockets) => sockets.into_iter().map(own).collect(),
            // Sockets of processes that are just ending may still be there.
            None => named::until(end, || bind_all(address))?,
        };
        let (sockets, listener) = (Arc::<[OwnedFd]>::from(sockets), Arc::new(listener));
        let (to_give, callers) = (sockets.clone(), listener.clone());
        let name = format!("nic-port-{}-{}", address.port(), part.index());
        let thread = thread::Builder::new().name(name).spawn(move || serve(&callers, &to_give))?;
        Ok(Self { part, sockets, listener, thread: Some(thread) })
    }

    pub(super) fn part(&self) -> QpnPart {
        self.part
    }

    /// The socket that gets the datagrams for QPs of this part. Earlier datagrams are lost.
    pub(super) fn socket(&self) -> io::Result<Socket> {
        let socket = Socket::from(self.sockets[self.part.index()].try_clone()?);
        socket.set_nonblocking(true)?;
        // Shorter ones are cut. No more than the buffer holds at a time, or it would never end.
        let mut room = [MaybeUninit::uninit(); 8];
        for _ in 0..socket.recv_buffer_size()? {
            match socket.recv(&mut room) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // An error is that of a datagram sent earlier.
                _ => {}
            }
        }
        Ok(socket)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let socket = socket2::SockRef::from(&self.sockets[self.part.index()]);
        let _ = socket.set_recv_buffer_size(UNUSED_BUFFER);
        // Ends the thread's wait.
        let _ = shutdown(&*self.listener, Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The first free part, with its name, and the names of all that are taken.
fn take_part(address: SocketAddr) -> io::Result<(QpnPart, OwnedFd, Vec<SocketAddrUnix>)> {
    let (mut own, mut taken) = (None, Vec::new());
    for part in (0..QpnPart::COUNT).map(QpnPart::new) {
        let name = named::name("port", address, Some(part))?;
        match named::take(&name, SocketFlags::empty()) {
            Ok(listener) if own.is_none() => own = Some((part, listener)),
            // Only to find out whether a process has it.
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => taken.push(name),
            Err(error) => return Err(error),
        }
    }
    let (part, listener) = own.ok_or(io::ErrorKind::QuotaExceeded)?;
    Ok((part, listener, taken))
}

/// The sockets, from the first of those that have them to answer: some may be stopped. `None` if
/// all of these have ended.
fn ask(taken: &[SocketAddrUnix], end: Instant) -> io::Result<Option<Vec<OwnedFd>>> {
    let (mut busy, mut peers): (Vec<_>, _) = (taken.iter().collect(), Vec::new());
    loop {
        for name in std::mem::take(&mut busy) {
            // A process that is stopped may have more callers than the system lets wait.
            match named::reach(name, SocketFlags::NONBLOCK) {
                Ok(peer) => peers.push(peer),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => busy.push(name),
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(error) => return Err(error),
            }
        }
        if peers.is_empty() && busy.is_empty() {
            return Ok(None);
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let pause = if busy.is_empty() { left } else { left.min(PAUSE) };
        let watched = |peer| PollFd::from_borrowed_fd(peer, PollFlags::IN);
        let mut ready: Vec<_> = peers.iter().map(|peer| watched(peer.as_fd())).collect();
        warpverbs_meet::poll(&mut ready, Some(pause))?;
        let Some(first) = ready.iter().position(|peer| !peer.revents().is_empty()) else {
            continue;
        };
        if let Some(sockets) = receive(&peers.swap_remove(first))? {
            return Ok(Some(sockets));
        }
    }
}

/// Sockets that a process has answered with. `None`: it ended before it answered.
fn receive(peer: &OwnedFd) -> io::Result<Option<Vec<OwnedFd>>> {
    let got = match unix::receive(peer, &HELLO) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
        got => got?,
    };
    match got.value {
        None => Ok(None),
        Some(()) if got.fds.len() == QpnPart::COUNT => Ok(Some(got.fds)),
        Some(()) => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Gives the sockets to everybody who calls, until the listener is shut down.
fn serve(listener: &OwnedFd, sockets: &[OwnedFd]) {
    loop {
        match named::accept(listener, SocketFlags::empty()) {
            Ok(caller) => {
                if let Err(error) = unix::send(&caller, &HELLO, &(), sockets) {
                    tracing::debug!(%error, "a process did not take the sockets of a port");
                }
            }
            Err(error) => match Errno::from_io_error(&error) {
                // The listener is shut down.
                Some(Errno::INVAL) => return,
                // Among them that of a caller that is another user's, or has gone again. Where
                // descriptors are short, the next attempt would follow at once.
                _ => thread::sleep(PAUSE),
            },
        }
    }
}

/// The sockets of a port that no process has yet: the index of each is its part.
fn bind_all(address: SocketAddr) -> io::Result<Vec<OwnedFd>> {
    let make = || Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP));
    // Others that share the port would be joined otherwise, behind their sockets.
    make()?.bind(&address.into())?;
    let sockets = (0..QpnPart::COUNT).map(|_| {
        let socket = make()?;
        sockopt::set_socket_reuseport(&socket, true)?;
        socket.set_recv_buffer_size(UNUSED_BUFFER)?;
        if address.is_ipv6() {
            set_no_checksum(&socket, NoChecksum::Received)?;
        }
        socket.bind(&address.into())?;
        Ok(socket)
    });
    let sockets = sockets.collect::<io::Result<Vec<_>>>()?;
    let (at, shift) = part::WORD;
    steer_by_word(&sockets[0], at, shift, QpnPart::COUNT as u32 - 1)?;
    Ok(sockets.into_iter().map(|socket| own(socket.into())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketType, bind, listen, socket_with};
    use std::sync::mpsc::channel;

    /// Ends a hang.
    const LONG: Duration = Duration::from_secs(600);

    /// A process that has a part, has stopped, and has as many callers as the system lets wait.
    #[test]
    fn one_that_accepts_nobody_is_waited_for_until_the_deadline() {
        let name = format!("warpverbs-test-port-{}", std::process::id());
        let name = SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap();
        let flags = SocketFlags::CLOEXEC;
        let full = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        bind(&full, &name).unwrap();
        listen(&full, 0).unwrap();
        let mut callers = Vec::new();
        while let Ok(caller) = named::reach(&name, SocketFlags::NONBLOCK) {
            callers.push(caller);
        }
        let ask_within = |limit| {
            let ((answer, answered), name) = (channel(), name.clone());
            thread::spawn(move || answer.send(ask(&[name], Instant::now() + limit)));
            answered
        };
        let late = ask_within(Duration::from_millis(50)).recv_timeout(LONG).unwrap();
        assert_eq!(late.unwrap_err().kind(), io::ErrorKind::TimedOut);
        // It goes on.
        let answered = ask_within(LONG);
        let sockets: Vec<_> = (0..QpnPart::COUNT).map(|_| full.try_clone().unwrap()).collect();
        for _ in 0..=callers.len() {
            let caller = named::accept(&full, SocketFlags::empty()).unwrap();
            // Those that have gone do not take them.
            let _ = unix::send(&caller, &HELLO, &(), &sockets);
        }
        let got = answered.recv_timeout(LONG).unwrap().unwrap();
        assert_eq!(got.map(|sockets| sockets.len()), Some(QpnPart::COUNT));
    }
}
