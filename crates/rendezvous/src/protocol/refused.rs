//! How our server says to our client why it closes a connection.
//!
//! PyTorch's protocol has no error reply, and a client of PyTorch would take one for data. Our
//! client marks its ping, and only a connection that was marked gets a reason before it is closed.
//! A connection that is closed before its ping gets one in any case: PyTorch's client compares the
//! reply to its ping and fails, as it does when the connection ends.

use std::io::Read;

use super::ReplyError;

/// Upper half of the nonce in our client's ping. PyTorch's nonce is a process id, below 2^22.
const OURS: u32 = 0x5756 << 16;
/// First bytes of a reason. No reply begins so: it is neither a flag nor a length within any bound.
pub(super) const MARK: [u8; 8] = *b"\xffwvclose";
/// Longest reason, in bytes.
const LONGEST: usize = 512;

/// The nonce of our client's ping in this process.
pub(crate) fn nonce(process: u32) -> u32 {
    OURS | (process & 0xffff)
}

/// Whether a ping is our client's.
pub(crate) fn is_ours(nonce: u32) -> bool {
    nonce & 0xffff_0000 == OURS
}

/// Appends a reason, cut to [`LONGEST`]: the mark, its length as `u32`, its text.
pub(crate) fn emit(out: &mut Vec<u8>, why: &str) {
    let mut end = why.len().min(LONGEST);
    while !why.is_char_boundary(end) {
        end -= 1;
    }
    out.extend_from_slice(&MARK);
    out.extend_from_slice(&(end as u32).to_le_bytes());
    out.extend_from_slice(&why.as_bytes()[..end]);
}

/// The reason in place of a reply that began with `start`, if it is one: the mark's first bytes.
pub(super) fn read(start: &[u8], from: &mut impl Read) -> Option<ReplyError> {
    let rest = MARK.strip_prefix(start)?;
    let mut found = vec![0; rest.len()];
    from.read_exact(&mut found).ok()?;
    if found != rest {
        return None;
    }
    let mut len = [0; 4];
    from.read_exact(&mut len).ok()?;
    let len = (u32::from_le_bytes(len) as usize).min(LONGEST);
    let mut text = Vec::new();
    from.by_ref().take(len as u64).read_to_end(&mut text).ok()?;
    Some(ReplyError::Refused { why: String::from_utf8_lossy(&text).into_owned() })
}
