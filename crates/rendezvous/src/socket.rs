//! Sockets: what both ends set, and a stream whose waits end.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};

use crate::Deadline;

/// Small messages leave at once, and a host that vanished without a word is noticed.
pub(crate) fn prepare(stream: &impl AsFd) -> io::Result<()> {
    let socket = SockRef::from(stream);
    socket.set_tcp_nodelay(true)?;
    let alive = TcpKeepalive::new()
        .with_time(Duration::from_secs(30))
        .with_interval(Duration::from_secs(10));
    socket.set_tcp_keepalive(&alive)
}

/// Whether the process, or the whole system, may not open another descriptor.
pub(crate) fn is_out_of_descriptors(error: &io::Error) -> bool {
    // ENFILE and EMFILE, the same on all Unixes.
    cfg!(unix) && matches!(error.raw_os_error(), Some(23 | 24))
}

/// A blocking stream that gives `TimedOut` once the deadline has passed.
pub(crate) struct Timed<'a> {
    pub(crate) stream: &'a TcpStream,
    pub(crate) deadline: Deadline,
}

impl Timed<'_> {
    fn remaining(&self) -> io::Result<Option<Duration>> {
        // Rounded up: the operating system counts in microseconds, and takes 0 for no limit.
        let left = self.deadline.remaining().ok_or(io::ErrorKind::TimedOut)?;
        Ok(Some(left.max(Duration::from_micros(1))))
    }
}

/// The operating system says `WouldBlock` when a timeout of a blocking socket has passed.
fn timed_out<T>(result: io::Result<T>) -> io::Result<T> {
    result.map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
        _ => error,
    })
}

impl Read for Timed<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.remaining()?)?;
        timed_out(self.stream.read(buf))
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.remaining()?)?;
        timed_out(self.stream.write(buf))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
