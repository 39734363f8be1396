//! Calls of the system for which no crate has a safe function. They are here because other crates
//! forbid `unsafe`.

use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// What a UDP socket of IPv6 may do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoChecksum {
    /// Datagrams leave without a checksum.
    Sent,
    /// Datagrams that came without one are delivered; by default the system drops them.
    Received,
}

/// Sets `UDP_NO_CHECK6_TX` or `UDP_NO_CHECK6_RX` (RFC 6935 allows both to protocols with a check of
/// their own).
///
/// # Errors
/// What the system says, for instance of a socket that is not one of IPv6.
pub fn set_no_checksum(socket: &impl AsFd, which: NoChecksum) -> io::Result<()> {
    let name = match which {
        NoChecksum::Sent => libc::UDP_NO_CHECK6_TX,
        NoChecksum::Received => libc::UDP_NO_CHECK6_RX,
    };
    let (fd, on): (_, c_int) = (socket.as_fd().as_raw_fd(), 1);
    let (value, len) = ((&raw const on).cast::<c_void>(), size_of::<c_int>() as u32);
    // SAFETY: an open descriptor, and an integer that lives during the call.
    match unsafe { libc::setsockopt(fd, libc::IPPROTO_UDP, name, value, len) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Chooses which of the UDP sockets that share a port (`SO_REUSEPORT`) gets a datagram: of the
/// big-endian word at byte `at` of its payload, the bits `mask` after a shift to the right by
/// `shift` are the socket's number, counted in the order in which they were bound. A datagram
/// without that word goes to the first, and one for a socket that does not exist to any of them.
/// `socket` is one of the sockets; the program is that of all.
///
/// # Errors
/// What the system says, for instance of a socket that does not share its port.
pub fn steer_by_word(socket: &impl AsFd, at: u32, shift: u32, mask: u32) -> io::Result<()> {
    // Classic BPF; the payload begins at 0.
    let step = |code: u32, k| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let mut steps = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at),
        step(libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K, shift),
        step(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, mask),
        step(libc::BPF_RET | libc::BPF_A, 0),
    ];
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    let (fd, name) = (socket.as_fd().as_raw_fd(), libc::SO_ATTACH_REUSEPORT_CBPF);
    let (value, len) = ((&raw const program).cast::<c_void>(), size_of_val(&program) as u32);
    // SAFETY: an open descriptor.
    // SAFETY: a program and its steps, of the lengths given, which live during the call.
    match unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, name, value, len) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::time::Duration;

    #[test]
    fn datagrams_without_a_checksum_arrive_only_if_asked_for() {
        let Ok(to) = UdpSocket::bind("[::1]:0") else {
            return eprintln!("SKIPPED: no IPv6 here");
        };
        to.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let from = UdpSocket::bind("[::1]:0").unwrap();
        set_no_checksum(&from, NoChecksum::Sent).unwrap();
        from.send_to(b"one", to.local_addr().unwrap()).unwrap();
        set_no_checksum(&to, NoChecksum::Received).unwrap();
        from.send_to(b"two", to.local_addr().unwrap()).unwrap();
        // Loopback keeps the order: the first datagram would come first.
        let mut buffer = [0; 8];
        assert_eq!((to.recv(&mut buffer).unwrap(), &buffer[..3]), (3, &b"two"[..]));
    }

    #[test]
    fn what_is_no_udp_socket_is_refused() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(set_no_checksum(&file, NoChecksum::Received).is_err());
        assert!(steer_by_word(&file, 0, 0, 1).is_err());
    }

    #[test]
    fn a_port_without_partners_is_not_steered() {
        let alone = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(steer_by_word(&alone, 0, 0, 1).is_err());
    }
}
