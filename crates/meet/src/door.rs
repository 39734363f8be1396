//! Listening, also while the process has no descriptor left.

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};
use rustix::io::Errno;
use socket2::{Domain, Protocol, Socket, Type};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// As many as the system allows: all ranks of a job may connect in the same instant.
const BACKLOG: i32 = 4096;

/// Listens at `addr`. Accepting does not block.
///
/// # Errors
/// The system's.
pub fn listen(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    // A job that restarts takes its port again although old connections linger in TIME_WAIT.
    socket.set_reuse_address(true)?;
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(TcpListener::from(socket))
}

/// Whether the process, or the whole system, may not open another descriptor.
pub fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NFILE | Errno::MFILE))
}

/// Whether there is no descriptor, or no memory, for another socket.
fn is_shortage(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    is_out_of_descriptors(error) || matches!(errno, Some(Errno::NOBUFS | Errno::NOMEM))
}

/// Sends the reason to a peer that is not served, and reads what it has sent: bytes that lie unread when
/// a socket is closed would take the reason back. The stream does not block.
pub fn dismiss(stream: &mut (impl Read + Write), reason: &[u8]) {
    // A peer that does not take it sees the connection end.
    let _ = stream.write(reason);
    let _ = stream.read(&mut [0; 1024]);
}

/// Accepts connections, also while descriptors are short. Without a free one accepting fails whether or not
/// a connection waits, so the listener is asked, and a spare descriptor is kept to turn one away.
#[derive(Debug)]
pub struct Door {
    spare: Option<OwnedFd>,
    /// Nothing is accepted before.
    closed_until: Option<Instant>,
    /// A failure was logged, once until something is accepted again.
    logged: bool,
}

/// The result of accepting.
#[derive(Debug)]
pub enum Arrival<S> {
    /// A connection.
    Guest(S),
    /// The system has no descriptor, or no memory, for a connection that waits. The caller closes one
    /// of its own, [turns away](Door::turn_away) the next one, or [closes](Door::close) for a while.
    Short,
    /// No connection waits, or accepting pauses.
    Nobody,
    /// The system fails otherwise, as it does once the listener is shut down. The door is closed for a while.
    Failed(io::Error),
}

/// How long nothing is accepted after a failure.
const PAUSE: Duration = Duration::from_millis(50);

/// Whether a connection waits to be accepted. True as well if that cannot be found out.
fn is_wanted(listener: &impl AsFd) -> bool {
    let mut fds = [PollFd::new(listener, PollFlags::IN)];
    crate::poll(&mut fds, Some(Duration::ZERO)).is_err() || !fds[0].revents().is_empty()
}

fn spare() -> Option<OwnedFd> {
    eventfd(0, EventfdFlags::CLOEXEC).ok()
}

impl Default for Door {
    fn default() -> Self {
        Self { spare: spare(), closed_until: None, logged: false }
    }
}

impl Door {
    /// When accepting resumes, if it pauses now.
    pub fn closed_until(&self) -> Option<Instant> {
        self.closed_until.filter(|until| *until > Instant::now())
    }

    /// Pauses accepting for 50 ms.
    pub fn close(&mut self) {
        self.closed_until = Some(Instant::now() + PAUSE);
    }

    /// Accepts a connection of `listener` by `accept`, which does not block.
    pub fn accept<S>(
        &mut self,
        listener: &impl AsFd,
        mut accept: impl FnMut() -> io::Result<S>,
    ) -> Arrival<S> {
        if self.closed_until().is_some() {
            return Arrival::Nobody;
        }
        loop {
            let error = match accept() {
                Ok(stream) => {
                    self.logged = false;
                    return Arrival::Guest(stream);
                }
                Err(error) => error,
            };
            match error.kind() {
                ErrorKind::WouldBlock => return Arrival::Nobody,
                // The other end has gone already.
                ErrorKind::ConnectionAborted | ErrorKind::Interrupted => {}
                _ if is_shortage(&error) && !is_wanted(listener) => return Arrival::Nobody,
                _ => {
                    if !std::mem::replace(&mut self.logged, true) {
                        tracing::warn!(%error, "cannot accept a connection");
                    }
                    if is_shortage(&error) {
                        return Arrival::Short;
                    }
                    self.close();
                    return Arrival::Failed(error);
                }
            }
        }
    }

    /// Gives up the spare descriptor to accept one connection, to which `tell` sends the reason why it is
    /// closed: otherwise its maker would wait for its deadline. Whether more connections may wait.
    pub fn turn_away<S>(
        &mut self,
        mut accept: impl FnMut() -> io::Result<S>,
        tell: impl FnOnce(S),
    ) -> bool {
        drop(self.spare.take());
        let accepted = accept();
        let more = accepted.is_ok();
        match accepted {
            Ok(stream) => tell(stream),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            // Another thread has taken the descriptor.
            Err(_) => self.close(),
        }
        self.spare = spare();
        more
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, TcpStream};

    fn fails(errno: Errno) -> io::Result<u8> {
        Err(errno.into())
    }

    #[test]
    fn a_shortage_is_told_and_a_pause_ends() {
        let (mut door, listener) =
            (Door::default(), listen((Ipv4Addr::LOCALHOST, 0).into()).unwrap());
        assert!(is_out_of_descriptors(&Errno::MFILE.into()));
        let mut script = vec![Ok(1), fails(Errno::INTR), fails(Errno::CONNABORTED)];
        assert!(matches!(door.accept(&listener, || script.pop().unwrap()), Arrival::Guest(1)));
        assert!(matches!(door.accept(&listener, || fails(Errno::AGAIN)), Arrival::Nobody));
        // Without a connection that waits nothing has to make room for one.
        assert!(matches!(door.accept(&listener, || fails(Errno::MFILE)), Arrival::Nobody));
        let _waits = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        for short in [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM] {
            assert!(matches!(door.accept(&listener, || fails(short)), Arrival::Short));
        }
        let mut told = 0;
        assert!(door.turn_away(|| Ok(7), |stream| told = stream));
        assert!(!door.turn_away(|| fails(Errno::AGAIN), |_| panic!()));
        assert_eq!((told, door.closed_until()), (7, None));
        assert!(!door.turn_away(|| fails(Errno::MFILE), |_| panic!()));
        let until = door.closed_until().unwrap();
        assert!(matches!(door.accept(&listener, || Ok(1)), Arrival::Nobody));
        // The pause is the subject.
        std::thread::sleep(until.saturating_duration_since(Instant::now()));
        assert!(matches!(door.accept(&listener, || Ok(1)), Arrival::Guest(1)));
        let failed = door.accept(&listener, || fails(Errno::INVAL));
        assert!(
            matches!(failed, Arrival::Failed(error) if error.kind() == ErrorKind::InvalidInput)
        );
        assert!(door.closed_until().is_some());
    }
}
