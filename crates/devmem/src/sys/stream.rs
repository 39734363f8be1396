//! Stream sockets that send from registered memory and receive into it, without a copy in between.

pub use super::message::Part;
use super::message::{message, returned};
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Receives bytes of a stream, first into `first` and then into `rest`. Never waits; returns how
/// many bytes came, 0 at the end of the stream.
///
/// # Errors
/// `WouldBlock` if no bytes have arrived, `InvalidInput` if `first` is not in host memory of its region,
/// and what the system says.
pub fn receive(socket: &impl AsFd, first: Option<Part<'_>>, rest: &mut [u8]) -> io::Result<usize> {
    let fd = socket.as_fd().as_raw_fd();
    let flags = libc::MSG_DONTWAIT;
    let Some(first) = first else {
        let (to, len) = (rest.as_mut_ptr().cast(), rest.len());
        // SAFETY: an open socket, and exclusive bytes of this length.
        return returned(unsafe { libc::recv(fd, to, len, flags) });
    };
    let tail = libc::iovec { iov_base: rest.as_mut_ptr().cast(), iov_len: rest.len() };
    let mut vectors = [first.vector()?, tail];
    let mut message = message(&mut vectors, &mut []);
    // SAFETY: an open socket, and a message whose vectors are exclusive bytes or registered memory,
    // which tolerates any concurrent access.
    returned(unsafe { libc::recvmsg(fd, &raw mut message, flags) })
}

/// Sends bytes on a stream, first `first` and then `rest`. Never waits, and raises no signal;
/// returns how many bytes were taken.
///
/// # Errors
/// As for [`receive`].
pub fn send(socket: &impl AsFd, first: &[u8], rest: Option<Part<'_>>) -> io::Result<usize> {
    let Some(rest) = rest else { return send_bytes(socket, first, 0) };
    let head = libc::iovec { iov_base: first.as_ptr().cast_mut().cast(), iov_len: first.len() };
    let mut vectors = [head, rest.vector()?];
    let message = message(&mut vectors, &mut []);
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: an open socket, and a message whose vectors are readable; the call only reads them.
    returned(unsafe { libc::sendmsg(fd, &raw const message, SEND) })
}

/// As [`send`] of bytes alone; the kernel may keep them until more follow, which must be soon.
///
/// # Errors
/// As for [`receive`].
pub fn send_more(socket: &impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    send_bytes(socket, bytes, libc::MSG_MORE)
}

const SEND: i32 = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;

fn send_bytes(socket: &impl AsFd, bytes: &[u8], more: i32) -> io::Result<usize> {
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: an open socket, and readable bytes of this length.
    returned(unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), SEND | more) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;
    use warpverbs_mem::HostBuf;
    use warpverbs_mem::testing::{LazyCopier, LazyMemory};

    #[test]
    fn bytes_go_from_region_to_region_with_others_around() {
        let (near, far) = UnixStream::pair().unwrap();
        let region = HostBuf::region(64).unwrap();
        region.write(10, b"payload").unwrap();
        let part = |offset, len| Some(Part { region: &region, offset, len });
        assert_eq!(send(&near, b"head", part(10, 7)).unwrap(), 11);
        assert_eq!(send_more(&near, b"!").unwrap(), 1);
        let mut tail = [0; 16];
        assert_eq!(receive(&far, part(30, 9), &mut tail).unwrap(), 12);
        let mut placed = [0; 12];
        region.read(29, &mut placed).unwrap();
        assert_eq!((&placed, &tail[..4]), (b"\0headpaylo\0\0", &b"ad!\0"[..]));
        assert_eq!(send(&near, b"", part(10, 7)).unwrap(), 7);
        assert_eq!(receive(&far, part(40, 20), &mut []).unwrap(), 7);
        let empty = receive(&far, None, &mut tail).unwrap_err();
        assert_eq!(empty.kind(), io::ErrorKind::WouldBlock);
        drop(near);
        assert_eq!(receive(&far, None, &mut tail).unwrap(), 0);
        assert_eq!(send(&far, b"x", None).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn parts_outside_of_their_region_are_refused() {
        let (near, _far) = UnixStream::pair().unwrap();
        let region = HostBuf::region(64).unwrap();
        for (offset, len) in [(60, 5), (u64::MAX, 2), (65, 0)] {
            let part = Some(Part { region: &region, offset, len });
            assert_eq!(send(&near, b"", part).unwrap_err().kind(), io::ErrorKind::InvalidInput);
            let refused = receive(&near, part, &mut []).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
        }
        let copier = std::sync::Arc::new(LazyCopier::default());
        let (device, _) = LazyMemory::regions(64, 0, &copier).unwrap();
        let part = Some(Part { region: &device, offset: 0, len: 8 });
        assert_eq!(send(&near, b"", part).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
