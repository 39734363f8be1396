//! Options of UDP sockets that std and socket2 lack.

use nix::sys::socket::sockopt::{AttachReusePortCbpf, SetBool};
use nix::sys::socket::{SetSockOpt, setsockopt};
use std::io;
use std::os::fd::AsFd;

/// Checksums that a UDP socket of IPv6 may do without (RFC 6935 allows both to protocols with a check of their own).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoChecksum {
    /// Datagrams leave without a checksum.
    Sent,
    /// Datagrams that came without one are delivered; by default the system drops them.
    Received,
}

#[derive(Clone, Copy, Debug)]
struct NotSent;
nix::setsockopt_impl!(NotSent, libc::IPPROTO_UDP, libc::UDP_NO_CHECK6_TX, bool, SetBool);
#[derive(Clone, Copy, Debug)]
struct NotExpected;
nix::setsockopt_impl!(NotExpected, libc::IPPROTO_UDP, libc::UDP_NO_CHECK6_RX, bool, SetBool);

/// Does without a checksum.
///
/// # Errors
/// The system's error, for instance of a socket that is not one of IPv6.
pub fn set_no_checksum(socket: &impl AsFd, which: NoChecksum) -> io::Result<()> {
    Ok(match which {
        NoChecksum::Sent => NotSent.set(socket, &true),
        NoChecksum::Received => NotExpected.set(socket, &true),
    }?)
}

/// Chooses which of the UDP sockets that share a port (`SO_REUSEPORT`) gets a datagram: of the
/// big-endian word at byte `at` of its payload, the bits `mask` after a shift to the right by
/// `shift` are the socket's number, counted in the order in which they were bound. A datagram
/// without that word goes to the first, and one for a socket that does not exist to any of them.
/// `socket` is one of the sockets; the program is that of all.
pub(crate) fn steer_by_word(socket: &impl AsFd, at: u32, shift: u32, mask: u32) -> io::Result<()> {
    // Classic BPF; the payload begins at 0.
    let step = |code: u32, k| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let mut steps = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at),
        step(libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K, shift),
        step(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, mask),
        step(libc::BPF_RET | libc::BPF_A, 0),
    ];
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    Ok(setsockopt(socket, AttachReusePortCbpf, &program)?)
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
