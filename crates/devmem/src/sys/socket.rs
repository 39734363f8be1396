//! System calls on sockets for which no safe wrapper exists: received bytes go to registered memory,
//! a `setsockopt` that returns a number, and sends whose address is an offset.

use super::message::{Part, message, returned};
use crate::receive::abi::CmsgHeader;
use crate::receive::{Got, Span};
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::ptr;
use warpverbs_mem::Region;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `struct sock_extended_err`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct ExtendedError {
    errno: u32,
    pub(crate) origin: u8,
    kind: u8,
    pub(crate) code: u8,
    pad: u8,
    pub(crate) info: u32,
    pub(crate) data: u32,
}

/// `recvmsg` into `span` of host memory, with control data into `control`.
pub(crate) fn receive(
    socket: BorrowedFd<'_>,
    memory: &Region,
    span: Span,
    control: &mut [u64],
    flags: i32,
) -> io::Result<Got> {
    receive_into(socket, host_part(memory, span.offset, span.len)?, control, flags)
}

fn host_part(region: &Region, offset: u64, len: u64) -> io::Result<libc::iovec> {
    let len = usize::try_from(len).map_err(io::Error::other)?;
    Part { region, offset, len }.vector()
}

fn receive_into(
    socket: BorrowedFd<'_>,
    part: libc::iovec,
    control: &mut [u64],
    flags: i32,
) -> io::Result<Got> {
    let mut parts = [part];
    let mut message: libc::msghdr = message(&mut parts, control);
    // SAFETY: `message` points to one `iovec` and to `control`, both of which live until the call
    // returns; the `iovec` is of no length or names host memory that the caller's region holds, which
    // anybody may write at any time.
    let result = unsafe { libc::recvmsg(socket.as_raw_fd(), &mut message, flags) };
    let truncated = message.msg_flags & libc::MSG_CTRUNC != 0;
    Ok(Got { bytes: returned(result)?, control: message.msg_controllen, truncated })
}

/// The next entry of the socket's error queue, if it says what it is.
pub(crate) fn next_error(socket: BorrowedFd<'_>) -> io::Result<Option<ExtendedError>> {
    let mut control = [0u64; 64];
    let nothing = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    let got = receive_into(socket, nothing, &mut control, flags)?;
    let mut rest = &control.as_bytes()[..got.control];
    while let Ok((header, body)) = CmsgHeader::read_from_prefix(rest) {
        let ours = [(libc::SOL_IP, libc::IP_RECVERR), (libc::SOL_IPV6, libc::IPV6_RECVERR)];
        if ours.contains(&(header.level, header.kind)) {
            return Ok(ExtendedError::read_from_prefix(body).ok().map(|(error, _)| error));
        }
        let next = usize::try_from(header.len).unwrap_or(usize::MAX);
        rest = rest.get(next.saturating_add(7) & !7..).filter(|_| next > 0).unwrap_or_default();
    }
    Ok(None)
}

/// `setsockopt` at `SOL_SOCKET`. Returns what the kernel returns.
pub(crate) fn set_option(socket: BorrowedFd<'_>, name: i32, value: &[u8]) -> io::Result<u32> {
    let len = libc::socklen_t::try_from(value.len()).map_err(io::Error::other)?;
    let (level, value) = (libc::SOL_SOCKET, value.as_ptr().cast());
    // SAFETY: the kernel reads `len` bytes at `value`, which are those of a slice.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value, len) };
    u32::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Sends bytes of host memory; the kernel reads them until the send has completed.
pub(crate) fn send_zerocopy(
    socket: BorrowedFd<'_>,
    memory: &Region,
    offset: u64,
    len: u64,
) -> io::Result<u64> {
    // Pages that the network reads stay pinned even if the region is freed.
    send(socket, host_part(memory, offset, len)?, &mut [])
}

/// Sends `len` bytes from `offset` of the dmabuf that is bound for sending under `id`.
pub(crate) fn send_dmabuf(
    socket: BorrowedFd<'_>,
    id: u32,
    offset: u64,
    len: u64,
) -> io::Result<u64> {
    let iov_len = usize::try_from(len).map_err(io::Error::other)?;
    let at = usize::try_from(offset).map_err(io::Error::other)?;
    let header = CmsgHeader { len: 20, level: libc::SOL_SOCKET, kind: libc::SCM_DEVMEM_DMABUF };
    let mut control = [0u64; 3];
    control[..2].as_mut_bytes().copy_from_slice(header.as_bytes());
    control[2..].as_mut_bytes()[..4].copy_from_slice(&id.to_ne_bytes());
    // Not an address: with the control message, the kernel takes it for an offset in the dmabuf, and
    // without a binding of this id it refuses the call.
    send(socket, libc::iovec { iov_base: ptr::without_provenance_mut(at), iov_len }, &mut control)
}

fn send(socket: BorrowedFd<'_>, part: libc::iovec, control: &mut [u64]) -> io::Result<u64> {
    let mut parts = [part];
    let message = message(&mut parts, control);
    let flags = libc::MSG_ZEROCOPY | libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: `message` points to one `iovec` and to `control`, both of which live until the call
    // returns. The kernel reads only what the `iovec` names, and checks it.
    let result = unsafe { libc::sendmsg(socket.as_raw_fd(), &message, flags) };
    Ok(returned(result)? as u64)
}
