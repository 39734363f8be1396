//! Bytes from a peer that do not parse.

use thiserror::Error;

/// Why bytes are not an [`EndpointHandle`](crate::EndpointHandle) or a
/// [`RemoteRegion`](crate::RemoteRegion).
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HandleError {
    /// Fewer bytes than the message has.
    #[error("{what} of {found} bytes, expected {expected}")]
    Truncated {
        /// Name of the parsed message.
        what: &'static str,
        /// Bytes needed.
        expected: usize,
        /// Bytes given.
        found: usize,
    },
    /// Bytes after the end of the message.
    #[error("{extra} bytes after the end of a {what}")]
    Trailing {
        /// Name of the parsed message.
        what: &'static str,
        /// Bytes too many.
        extra: usize,
    },
    /// Something else altogether.
    #[error("not a {what}: begins with {found:02x?}, expected {expected:02x?}")]
    Magic {
        /// Name of the parsed message.
        what: &'static str,
        /// First bytes of a right one.
        expected: [u8; 4],
        /// First bytes given.
        found: [u8; 4],
    },
    /// Made by a later program.
    #[error("{what} of version {found}, this program reads up to {newest}")]
    Version {
        /// Name of the parsed message.
        what: &'static str,
        /// Its version.
        found: u16,
        /// The newest known here.
        newest: u16,
    },
    /// Made by an earlier program.
    #[error("{what} of version {found}, this program reads from {oldest} on")]
    Outdated {
        /// Name of the parsed message.
        what: &'static str,
        /// Its version.
        found: u16,
        /// The oldest read here.
        oldest: u16,
    },
    /// A field is out of range.
    #[error("{what}: {field} is {value:#x}, expected {expected}")]
    Field {
        /// Name of the parsed message.
        what: &'static str,
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
        /// The values allowed.
        expected: &'static str,
    },
}
