//! Replies, as a server writes and as a client reads them.

use super::request::emit_bytes;

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// To ping: its nonce.
    Nonce(u32),
    /// To get and compare_set.
    Value(Vec<u8>),
    /// To add, num_keys and delete_key.
    Number(i64),
    /// To check: whether all are there. On the wire 0 says that they are.
    Ready(bool),
    /// To wait: it is over. On the wire 0.
    Arrived,
    /// To cancel_wait. On the wire 1.
    Cancelled,
    /// To multi_get.
    Values(Vec<Vec<u8>>),
}

impl Reply {
    /// Appends the reply's bytes to `out`.
    pub fn emit(&self, out: &mut Vec<u8>) {
        match self {
            Reply::Nonce(nonce) => out.extend_from_slice(&nonce.to_le_bytes()),
            Reply::Value(value) => emit_bytes(out, value),
            Reply::Number(number) => out.extend_from_slice(&number.to_le_bytes()),
            Reply::Ready(ready) => out.push(u8::from(!ready)),
            Reply::Arrived => out.push(read::ARRIVED),
            Reply::Cancelled => out.push(read::CANCELLED),
            Reply::Values(values) => values.iter().for_each(|value| emit_bytes(out, value)),
        }
    }
}

/// The pieces of replies, read from a peer. Nothing is allocated before its bytes have arrived.
pub mod read {
    use std::io::Read;

    use crate::protocol::{ReplyError, refused};

    /// Byte of [`super::Reply::Arrived`].
    pub const ARRIVED: u8 = 0;
    /// Byte of [`super::Reply::Cancelled`].
    pub const CANCELLED: u8 = 1;

    /// The reason why the store has closed the connection, if it gave one.
    pub(crate) fn reason(from: &mut impl Read) -> Option<ReplyError> {
        refused::read(&[], from)
    }

    /// One byte that is 0 or 1.
    pub fn flag(from: &mut impl Read) -> Result<u8, ReplyError> {
        match fixed::<1>(from)? {
            [got @ (0 | 1)] => Ok(got),
            [got] => Err(refused::read(&[got], from).unwrap_or(ReplyError::Unexpected { got })),
        }
    }

    /// A `u32`.
    pub fn word(from: &mut impl Read) -> Result<u32, ReplyError> {
        let bytes = fixed::<4>(from)?;
        refused::read(&bytes, from).map_or(Ok(u32::from_le_bytes(bytes)), Err)
    }

    /// An `i64`.
    pub fn number(from: &mut impl Read) -> Result<i64, ReplyError> {
        let bytes = fixed::<8>(from)?;
        refused::read(&bytes, from).map_or(Ok(i64::from_le_bytes(bytes)), Err)
    }

    /// A count of `what`, at most `limit`.
    fn count(from: &mut impl Read, what: &'static str, limit: usize) -> Result<usize, ReplyError> {
        let got = number(from)?;
        let size = u64::try_from(got).map_err(|_| ReplyError::Negative { what, got })?;
        usize::try_from(size).ok().filter(|&size| size <= limit).ok_or(ReplyError::TooLarge {
            what,
            size,
            limit,
        })
    }

    /// Length and bytes, at most `limit`.
    pub fn bytes(
        from: &mut impl Read,
        what: &'static str,
        limit: usize,
    ) -> Result<Vec<u8>, ReplyError> {
        let len = count(from, what, limit)?;
        let mut bytes = Vec::new();
        from.by_ref().take(len as u64).read_to_end(&mut bytes)?;
        if bytes.len() < len {
            return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into());
        }
        Ok(bytes)
    }

    /// `count` times length and bytes: each at most `limit`, all at most `total`.
    pub fn many(
        from: &mut impl Read,
        what: &'static str,
        count: usize,
        limit: usize,
        total: usize,
    ) -> Result<Vec<Vec<u8>>, ReplyError> {
        let mut left = total;
        let mut all = Vec::new();
        for _ in 0..count {
            let one = bytes(from, what, limit.min(left))?;
            left -= one.len();
            all.push(one);
        }
        Ok(all)
    }

    fn fixed<const N: usize>(from: &mut impl Read) -> Result<[u8; N], ReplyError> {
        let mut bytes = [0; N];
        from.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}
