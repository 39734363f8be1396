//! Bytes from a peer that do not parse.

use thiserror::Error;

/// Why bytes are not an [`EndpointHandle`](crate::EndpointHandle) or a
/// [`RemoteRegion`](crate::RemoteRegion).
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "fields are named by what they are")]
pub enum HandleError {
    /// Fewer bytes than the message has.
    #[error("{what} of {found} bytes, expected {expected}")]
    Truncated { what: &'static str, expected: usize, found: usize },
    /// Bytes after the end of the message.
    #[error("{extra} bytes after the end of a {what}")]
    Trailing { what: &'static str, extra: usize },
    /// Something else altogether.
    #[error("not a {what}: begins with {found:02x?}, expected {expected:02x?}")]
    Magic { what: &'static str, expected: [u8; 4], found: [u8; 4] },
    /// Made by a later program.
    #[error("{what} of version {found}, this program reads up to {newest}")]
    Version { what: &'static str, found: u16, newest: u16 },
    /// Made by an earlier program.
    #[error("{what} of version {found}, this program reads from {oldest} on")]
    Outdated { what: &'static str, found: u16, oldest: u16 },
    /// A field is out of range.
    #[error("{what}: {field} is {value:#x}, expected {expected}")]
    Field { what: &'static str, field: &'static str, value: u64, expected: &'static str },
}
