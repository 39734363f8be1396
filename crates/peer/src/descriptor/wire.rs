//! The two messages, in bytes.

const MAGIC: [u8; 4] = *b"WVFD";
const VERSION: u32 = 1;

/// Length of a request.
pub(crate) const REQUEST: usize = 32;
/// Length of a reply.
pub(crate) const REPLY: usize = 24;

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Verdict {
    /// The descriptor comes with the reply.
    Granted = 0,
    /// Nothing is offered under this number.
    Unknown = 1,
    /// The asker is another user's process.
    OtherUser = 2,
    /// The server has no descriptor left for another connection.
    Full = 3,
    /// The asker's secret is nobody's.
    Stranger = 4,
}

pub(crate) fn request(ask: &[u8; 16], id: u64) -> [u8; REQUEST] {
    let mut out = [0; REQUEST];
    out[..4].copy_from_slice(&MAGIC);
    out[4..8].copy_from_slice(&VERSION.to_ne_bytes());
    out[8..24].copy_from_slice(ask);
    out[24..].copy_from_slice(&id.to_ne_bytes());
    out
}

/// The secret that a request shows, and the number it asks for.
pub(crate) fn parse_request(bytes: &[u8]) -> Option<([u8; 16], u64)> {
    let bytes: &[u8; REQUEST] = bytes.try_into().ok()?;
    let ask = bytes[8..24].try_into().ok()?;
    let id = bytes.last_chunk::<8>().map(|id| u64::from_ne_bytes(*id))?;
    (*bytes == request(&ask, id)).then_some((ask, id))
}

pub(crate) fn reply(verdict: Verdict, answer: &[u8; 16]) -> [u8; REPLY] {
    let mut out = [0; REPLY];
    out[..4].copy_from_slice(&MAGIC);
    out[4..8].copy_from_slice(&(verdict as u32).to_ne_bytes());
    out[8..].copy_from_slice(answer);
    out
}

/// The verdict, if the message is a reply with this secret. To whom it has not heard the server shows
/// zeros.
pub(crate) fn parse_reply(bytes: &[u8], answer: &[u8; 16]) -> Option<Verdict> {
    [
        (Verdict::Granted, answer),
        (Verdict::Unknown, answer),
        (Verdict::OtherUser, &[0; 16]),
        (Verdict::Full, &[0; 16]),
        (Verdict::Stranger, &[0; 16]),
    ]
    .into_iter()
    .find_map(|(verdict, shown)| (bytes == reply(verdict, shown)).then_some(verdict))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_right_secret_passes() {
        let (ask, id) = ([7; 16], 0x0102_0304_0506_0708);
        let message = request(&ask, id);
        assert_eq!(parse_request(&message), Some((ask, id)));
        for at in 0..24 {
            let mut wrong = message;
            wrong[at] ^= 1;
            let found = parse_request(&wrong);
            assert!(found.is_none_or(|(shown, _)| shown != ask), "byte {at}");
        }
        assert_eq!(parse_request(&message[1..]), None);
        let said = reply(Verdict::Unknown, &ask);
        assert_eq!(parse_reply(&said, &ask), Some(Verdict::Unknown));
        assert_eq!(parse_reply(&said, &[8; 16]), None);
        assert_eq!(parse_reply(&reply(Verdict::Granted, &[0; 16]), &ask), None);
    }
}
