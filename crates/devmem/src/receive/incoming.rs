//! One stream's receiving side without the socket: what `recvmsg` returned becomes fragments.

use super::abi::{Announcement, DmabufCmsg, MAX_RECEIVE};
use super::control::{Announced, Announcements};
use super::landing::Landing;
use super::{Fragment, Ledger, ReceiveError, Source, Span};

/// Bounds of one stream.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of landing memory.
    pub landing: u64,
    /// Fragments in device memory that may be outstanding.
    pub tokens: u32,
    /// Tokens that are collected before they are returned.
    pub watermark: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { landing: 4 << 20, tokens: 1 << 20, watermark: 256 }
    }
}

/// Result of one `recvmsg`.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// Its result, at least 1.
    pub bytes: u64,
    /// The control data that it wrote.
    pub control: &'a [u8],
    /// `MSG_CTRUNC` is among its flags.
    pub truncated: bool,
}

/// The kernel counts the bytes of a file in a `loff_t`.
const MAX_DMABUF: u64 = i64::MAX as u64;

/// A dmabuf that the kernel may name.
#[derive(Clone, Copy, Debug)]
struct Binding {
    id: u32,
    size: u64,
}

/// Position in the stream, tokens and landing memory of one socket. Makes no system call.
#[derive(Debug)]
pub struct Incoming {
    at: u64,
    bindings: Vec<Binding>,
    ledger: Ledger,
    landing: Landing,
    room: Span,
    failed: bool,
}

impl Incoming {
    /// At the start of a stream.
    pub fn new(limits: Limits) -> Self {
        Self {
            at: 0,
            bindings: Vec::new(),
            ledger: Ledger::new(limits.tokens, limits.watermark),
            landing: Landing::new(limits.landing),
            room: Span::default(),
            failed: false,
        }
    }

    /// Accepts fragments in the dmabuf of `size` bytes that is bound under `id`.
    pub fn bind(&mut self, id: u32, size: u64) {
        let size = size.min(MAX_DMABUF);
        self.bindings.retain(|binding| binding.id != id);
        self.bindings.push(Binding { id, size });
    }

    /// Bytes received so far.
    pub fn position(&self) -> u64 {
        self.at
    }

    /// The landing memory for the next `recvmsg`. Its length bounds what that returns, in device
    /// memory too, and is 0 if all is in use.
    pub fn room(&mut self, most: u64) -> Span {
        self.room = self.landing.room(most.min(MAX_RECEIVE));
        self.room
    }

    /// Describes what a `recvmsg` into [`Incoming::room`] returned: appends fragments to `into`, in
    /// stream order.
    ///
    /// # Errors
    /// The kernel's message is impossible. Nothing is appended, the memory of the message's
    /// fragments is given back, and nothing can be received any more.
    pub fn received(
        &mut self,
        message: Message<'_>,
        into: &mut Vec<Fragment>,
    ) -> Result<(), ReceiveError> {
        if self.failed {
            return Err(ReceiveError::Failed);
        }
        let first = into.len();
        let mut announced = Announcements::new(message.control);
        let described = self.describe(message, &mut announced, into);
        let result = described.and_then(|run| self.settle(message, run, into));
        // Later calls need another room.
        self.room = Span::default();
        if result.is_err() {
            self.abandon(first, announced, into);
        }
        result
    }

    /// Appends the fragments that control messages announce.
    fn describe(
        &mut self,
        message: Message<'_>,
        announced: &mut Announcements<'_>,
        into: &mut Vec<Fragment>,
    ) -> Result<Described, ReceiveError> {
        let most = message.bytes.min(MAX_RECEIVE);
        let mut sum = Described::default();
        loop {
            self.describe_usual(most, announced, &mut sum, into);
            let Some(next) = announced.next() else { return Ok(sum) };
            let at = self.at + sum.bytes;
            let len = match next? {
                Announced::Dmabuf(fragment) => self.describe_dmabuf(at, fragment, into)?,
                Announced::Linear(size) => {
                    let (len, offset) = (u64::from(size), self.room.offset + sum.on_host);
                    sum.on_host += len;
                    let source = Source::Linear;
                    into.push(Fragment { at, len, source, offset, token: None });
                    len
                }
            };
            if len == 0 {
                return Err(ReceiveError::Empty { at });
            }
            sum.bytes += len;
            if sum.bytes > most {
                return Ok(sum);
            }
        }
    }

    /// Appends fragments in the dmabuf of the newest binding, as long as nothing is unusual. The
    /// loop calls nothing, so that its variables stay in registers.
    #[inline(never)]
    fn describe_usual(
        &mut self,
        most: u64,
        announced: &mut Announcements<'_>,
        sum: &mut Described,
        into: &mut Vec<Fragment>,
    ) {
        let Some(&Binding { id, size }) = self.bindings.last() else { return };
        let messages = announced.of_usual_size();
        let (first, source) = (into.len(), Source::Dmabuf(id));
        into.reserve(messages.len());
        // A variable of this function: what is behind a reference would be written back each time.
        let mut list = std::mem::take(into);
        let (mut at, mut left) = (self.at + sum.bytes, most - sum.bytes);
        for message in messages {
            let next: Announcement = zerocopy::transmute!(*message);
            let usual = next.is_dmabuf() && next.fragment.dmabuf_id == id;
            let DmabufCmsg { frag_offset: offset, frag_size, frag_token: token, .. } =
                next.fragment;
            let len = u64::from(frag_size);
            // No sum wraps, since `size` is at most `MAX_DMABUF`.
            let inside = offset <= size && offset.wrapping_add(len) <= size;
            // Of at least one byte and not more than there are.
            if !usual || !inside || len.wrapping_sub(1) >= left || list.len() == list.capacity() {
                break;
            }
            if !self.ledger.take_quickly(token, frag_size) {
                break;
            }
            list.push(Fragment { at, len, source, offset, token: Some(token) });
            at += len;
            left -= len;
        }
        let count = list.len() - first;
        *into = list;
        announced.skip_usual(count);
        self.ledger.add_held(count as u64);
        sum.bytes = at - self.at;
    }

    /// Appends a fragment in any dmabuf, and checks it.
    fn describe_dmabuf(
        &mut self,
        at: u64,
        fragment: DmabufCmsg,
        into: &mut Vec<Fragment>,
    ) -> Result<u64, ReceiveError> {
        let DmabufCmsg { frag_offset: offset, frag_size, frag_token, dmabuf_id: id, .. } = fragment;
        let held = frag_size.clamp(1, MAX_RECEIVE as u32);
        self.ledger.take(frag_token, held)?;
        // Pushed before the checks, so that the token is returned if one fails.
        let (source, token) = (Source::Dmabuf(id), Some(frag_token));
        into.push(Fragment { at, len: held.into(), source, offset, token });
        let found = self.bindings.iter().find(|binding| binding.id == id);
        let size = found.ok_or(ReceiveError::UnknownDmabuf { id })?.size;
        let len = u64::from(frag_size);
        if offset > size || len > size - offset {
            return Err(ReceiveError::OutsideDmabuf { id, offset, len: frag_size, size });
        }
        Ok(len)
    }

    /// Checks the sums, and takes the landing memory into use.
    fn settle(
        &mut self,
        message: Message<'_>,
        mut described: Described,
        into: &mut Vec<Fragment>,
    ) -> Result<(), ReceiveError> {
        let Message { bytes, truncated, .. } = message;
        if described.bytes == 0 && bytes > 0 && !truncated {
            // From a queue without a binding: plain bytes, of which no message speaks.
            let (at, len, offset) = (self.at, bytes, self.room.offset);
            described = Described { bytes, on_host: bytes };
            into.push(Fragment { at, len, source: Source::Plain, offset, token: None });
        }
        if described.bytes != bytes || bytes > MAX_RECEIVE {
            let (returned, described) = (bytes, described.bytes);
            return Err(ReceiveError::ByteCount { returned, described, truncated });
        }
        if described.on_host > self.room.len {
            let (bytes, room) = (described.on_host, self.room.len);
            return Err(ReceiveError::LandingOverrun { bytes, room });
        }
        self.landing.commit(described.on_host);
        self.at += bytes;
        Ok(())
    }

    /// After an error: takes back what was appended, and returns the tokens of the whole message.
    #[cold]
    fn abandon(&mut self, first: usize, rest: Announcements<'_>, into: &mut Vec<Fragment>) {
        self.failed = true;
        for fragment in into.drain(first..) {
            if let Some(token) = fragment.token {
                let _ = self.ledger.release(token, fragment.len);
            }
        }
        for next in rest {
            let Ok(Announced::Dmabuf(fragment)) = next else { continue };
            if self.ledger.take(fragment.frag_token, 1).is_ok() {
                let _ = self.ledger.release(fragment.frag_token, 1);
            }
        }
    }

    /// Fragments, or parts of them, are no longer needed.
    ///
    /// # Errors
    /// They are not in use. Those before the wrong one have been given back.
    pub fn give_back(&mut self, fragments: &[Fragment]) -> Result<(), ReceiveError> {
        let mut rest = fragments;
        while let Some((fragment, behind)) = rest.split_first() {
            let run = self.ledger.release_run(rest);
            if run > 0 {
                rest = &rest[run..];
                continue;
            }
            match fragment.token {
                Some(token) => self.ledger.release(token, fragment.len)?,
                None => self.landing.release(fragment.offset, fragment.len)?,
            }
            rest = behind;
        }
        Ok(())
    }

    /// The tokens.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The tokens, to be returned.
    pub fn ledger_mut(&mut self) -> &mut Ledger {
        &mut self.ledger
    }
}

/// Sums over the fragments of one message.
#[derive(Clone, Copy, Debug, Default)]
struct Described {
    bytes: u64,
    on_host: u64,
}
