//! Streams whose waits end.

use crate::Deadline;
use socket2::{SockRef, TcpKeepalive};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

/// Sets TCP_NODELAY, so that small messages leave at once, and TCP keepalive, so that a host that
/// vanished is noticed.
///
/// # Errors
/// The system's.
pub fn prepare(stream: &impl AsFd) -> io::Result<()> {
    let socket = SockRef::from(stream);
    socket.set_tcp_nodelay(true)?;
    let alive = TcpKeepalive::new()
        .with_time(Duration::from_secs(30))
        .with_interval(Duration::from_secs(10));
    socket.set_tcp_keepalive(&alive)
}

/// Connects within `limit`; the stream is [prepared](prepare).
///
/// # Errors
/// The system's.
pub fn connect(to: SocketAddr, limit: Duration) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&to, limit)?;
    // The kernel may connect a socket to itself if its ephemeral port has no listener.
    if stream.local_addr()? == stream.peer_addr()? {
        return Err(ErrorKind::ConnectionRefused.into());
    }
    prepare(&stream)?;
    Ok(stream)
}

/// A blocking stream that gives `TimedOut` once the deadline has passed.
#[derive(Debug)]
pub struct Timed<'a, S = TcpStream> {
    /// The stream.
    pub stream: &'a S,
    /// When its calls end.
    pub deadline: Deadline,
}

impl<S> Timed<'_, S> {
    fn remaining(&self) -> io::Result<Option<Duration>> {
        // Rounded up: the operating system counts in microseconds, and takes 0 for no limit.
        let left = self.deadline.remaining().ok_or(ErrorKind::TimedOut)?;
        Ok(Some(left.max(Duration::from_micros(1))))
    }
}

/// The operating system says `WouldBlock` when a timeout of a blocking socket has passed.
fn timed_out<T>(result: io::Result<T>) -> io::Result<T> {
    result.map_err(|error| match error.kind() {
        ErrorKind::WouldBlock => ErrorKind::TimedOut.into(),
        _ => error,
    })
}

impl<'a, S: AsFd> Read for Timed<'a, S>
where
    &'a S: Read,
{
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        SockRef::from(self.stream).set_read_timeout(self.remaining()?)?;
        timed_out(self.stream.read(buf))
    }
}

impl<'a, S: AsFd> Write for Timed<'a, S>
where
    &'a S: Write,
{
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        SockRef::from(self.stream).set_write_timeout(self.remaining()?)?;
        timed_out(self.stream.write(buf))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
