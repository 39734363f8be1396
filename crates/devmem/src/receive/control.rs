//! Control messages of one `recvmsg`, one after the other.

use super::abi::{Announcement, CmsgHeader, DmabufCmsg};
use super::error::ControlError;
use zerocopy::FromBytes;

/// Place of the stream's next bytes, as one control message announces it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Announced {
    /// They are in a dmabuf.
    Dmabuf(DmabufCmsg),
    /// So many were copied to the host.
    Linear(u32),
}

/// Iterates over the control messages that announce bytes; others are skipped.
#[derive(Clone, Debug)]
pub(super) struct Announcements<'a> {
    rest: &'a [u8],
    total: usize,
}

impl<'a> Announcements<'a> {
    /// Announcements in the control data of `recvmsg`: `msg_control`, `msg_controllen` bytes.
    pub(super) fn new(control: &'a [u8]) -> Self {
        Self { rest: control, total: control.len() }
    }

    /// The messages that follow, cut to the kernel's usual size.
    pub(super) fn of_usual_size(&self) -> &'a [[u8; Announcement::BYTES]] {
        self.rest.as_chunks().0
    }

    /// Skips `count` messages of the usual size.
    pub(super) fn skip_usual(&mut self, count: usize) {
        self.rest = &self.rest[count * Announcement::BYTES..];
    }

    #[cold]
    fn fail(&mut self, error: ControlError) -> Option<Result<Announced, ControlError>> {
        self.rest = &[];
        Some(Err(error))
    }
}

const HEADER: usize = size_of::<CmsgHeader>();
const PAYLOAD: usize = size_of::<DmabufCmsg>();

impl Iterator for Announcements<'_> {
    type Item = Result<Announced, ControlError>;

    fn next(&mut self) -> Option<Self::Item> {
        // A remainder without room for a header ends the list, as `CMSG_NXTHDR` has it.
        while let Ok((header, body)) = CmsgHeader::read_from_prefix(self.rest) {
            let at = self.total - self.rest.len();
            let CmsgHeader { len, level, kind } = header;
            if len < HEADER as u64 || len > self.rest.len() as u64 {
                return self.fail(ControlError::Length { at, len, left: self.rest.len() });
            }
            let payload = len as usize - HEADER;
            let ours = level == libc::SOL_SOCKET
                && (kind == libc::SCM_DEVMEM_DMABUF || kind == libc::SCM_DEVMEM_LINEAR);
            if ours && payload != PAYLOAD {
                return self.fail(ControlError::Payload { at, len: payload });
            }
            // Not beyond the end: the padding behind the last message may be missing.
            self.rest = body.get(payload.next_multiple_of(8)..).unwrap_or_default();
            if let Some(Ok((fragment, _))) = ours.then(|| DmabufCmsg::read_from_prefix(body)) {
                let is_dmabuf = kind == libc::SCM_DEVMEM_DMABUF;
                let linear = Announced::Linear(fragment.frag_size);
                return Some(Ok(if is_dmabuf { Announced::Dmabuf(fragment) } else { linear }));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::IntoBytes;

    fn message(kind: i32, payload: &[u8]) -> Vec<u8> {
        let len = (HEADER + payload.len()) as u64;
        let header = CmsgHeader { len, level: libc::SOL_SOCKET, kind };
        let mut bytes = [header.as_bytes(), payload].concat();
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    }

    #[test]
    fn other_messages_are_skipped_and_the_last_needs_no_padding() {
        let linear =
            DmabufCmsg { frag_offset: 0, frag_size: 77, frag_token: 0, dmabuf_id: 0, flags: 0 };
        let mut bytes = message(libc::SCM_TIMESTAMP, &[1; 13]);
        bytes.extend(message(libc::SCM_DEVMEM_LINEAR, linear.as_bytes()));
        bytes.extend(message(libc::SCM_TIMESTAMP, &[1; 13]));
        bytes.truncate(bytes.len() - 3);
        let found: Vec<_> = Announcements::new(&bytes).collect();
        assert!(matches!(found[..], [Ok(Announced::Linear(77))]), "{found:?}");
    }

    #[test]
    fn bad_lengths_end_the_list() {
        let good = message(libc::SCM_DEVMEM_LINEAR, &[0; PAYLOAD]);
        for len in [0u64, 15, 41, u64::MAX, u64::MAX - 7] {
            let mut bytes = good.clone();
            bytes[..8].copy_from_slice(&len.to_ne_bytes());
            let mut found = Announcements::new(&bytes);
            let first = found.next();
            assert!(matches!(first, Some(Err(ControlError::Length { at: 0, .. }))), "{len}");
            assert!(found.next().is_none());
        }
        let mut short = good.clone();
        short.extend(message(libc::SCM_DEVMEM_DMABUF, &[0; PAYLOAD - 1]));
        let last = Announcements::new(&short).last();
        let expected = ControlError::Payload { at: 40, len: PAYLOAD - 1 };
        assert_eq!(last.map(|found| found.err()), Some(Some(expected)));
    }
}
