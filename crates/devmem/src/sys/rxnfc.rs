//! `SIOCETHTOOL`: rules that steer flows to receive queues (`include/uapi/linux/ethtool.h`). Netlink
//! has no such request.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use zerocopy::{FromBytes, FromZeros as _, Immutable, IntoBytes, KnownLayout};

/// Rules of an interface that are listed at most.
const MOST_RULES: usize = 4096;
const SIOCETHTOOL: libc::Ioctl = 0x8946;

/// `struct ethtool_rx_flow_spec`. Addresses and ports are in network byte order.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct FlowSpec {
    pub(crate) flow_type: u32,
    /// `union ethtool_flow_union`.
    pub(crate) flow: [u8; 52],
    extended: [u8; 20],
    /// Which bits of `flow` count.
    pub(crate) mask: [u8; 52],
    extended_mask: [u8; 20],
    pad: [u8; 4],
    /// The queue.
    pub(crate) ring_cookie: u64,
    pub(crate) location: u32,
    pad_end: [u8; 4],
}

/// `struct ethtool_rxnfc`.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Rxnfc {
    pub(crate) command: u32,
    flow_type: u32,
    pub(crate) data: u64,
    pub(crate) spec: FlowSpec,
    pub(crate) rule_count: u32,
    pub(crate) locations: [u32; MOST_RULES],
    pad: u32,
}

const _: () = assert!(size_of::<FlowSpec>() == 168);
const _: () = assert!(std::mem::offset_of!(Rxnfc, locations) == 188);

impl Rxnfc {
    /// A request without arguments.
    pub(crate) fn new(command: u32) -> Box<Self> {
        Box::new(Self { command, ..Self::new_zeroed() })
    }

    /// Room for the locations of all rules.
    pub(crate) fn with_locations(mut self: Box<Self>) -> Box<Self> {
        self.rule_count = MOST_RULES as u32;
        self
    }
}

/// Makes a request at an interface; the answer is in the request.
pub(crate) fn rxnfc(socket: BorrowedFd<'_>, name: &str, request: &mut Rxnfc) -> io::Result<()> {
    // SAFETY: an `ifreq` is bytes, integers and a pointer, for which zero is a value.
    let mut ifreq: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= ifreq.ifr_name.len() || request.rule_count as usize > MOST_RULES {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in ifreq.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    ifreq.ifr_ifru.ifru_data = std::ptr::from_mut(request).cast();
    // SAFETY: the name ends with a zero; the kernel reads and writes a `struct ethtool_rxnfc`, which
    // `request` is, and behind it at most `rule_count` locations, for which it has room.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut ifreq) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
