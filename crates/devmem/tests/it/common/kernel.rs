//! A model of the receiving kernel, written from its documentation and behaviour and not from this
//! crate: pages of a dmabuf, a queue of packets, tokens of one socket, and everything that a
//! `recvmsg` and a `setsockopt` may do.

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng};
use std::collections::{BTreeMap, VecDeque};
use warpverbs_mem::{HostBuf, Region};

pub(crate) const PAGE: usize = 4096;
pub(crate) const DMABUF_ID: u32 = 7;
pub(crate) const EAGAIN: i32 = 11;
const EFAULT: i32 = 14;
const EINVAL: i32 = 22;
const ETOOSMALL: i32 = 525;
const ECONNRESET: i32 = 104;

/// The stream's byte at a position.
pub(crate) fn byte_at(position: u64) -> u8 {
    (position.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 53) as u8
}

pub(crate) fn bytes_at(position: u64, len: usize) -> Vec<u8> {
    (position..position + len as u64).map(byte_at).collect()
}

#[derive(Debug)]
struct Frag {
    page: usize,
    offset: usize,
    len: usize,
}

/// A packet, or several that were coalesced.
#[derive(Debug)]
struct Skb {
    /// From a queue without a binding.
    readable: bool,
    linear: Vec<u8>,
    frags: Vec<Frag>,
    /// Bytes that have been received.
    read: usize,
}

impl Skb {
    fn len(&self) -> usize {
        self.linear.len() + self.frags.iter().map(|frag| frag.len).sum::<usize>()
    }
}

/// Result of a `recvmsg`.
pub(crate) struct Got {
    pub(crate) bytes: usize,
    pub(crate) control: Vec<u8>,
}

pub(crate) struct Kernel {
    rng: StdRng,
    pub(crate) dmabuf: Region,
    /// Of each page: fragments in packets and tokens.
    references: Vec<u32>,
    pub(crate) tokens: BTreeMap<u32, usize>,
    packets: VecDeque<Skb>,
    /// Sent by the peer, and not yet in a packet.
    pub(crate) wire: VecDeque<u8>,
    /// The peer sends nothing more.
    pub(crate) ended: bool,
    arrived: u64,
    /// Tokens returned that nobody holds.
    pub(crate) unknown: u32,
    /// Fragments in the dmabuf that were announced.
    pub(crate) announced: u64,
    /// Packets that no page was free for.
    pub(crate) starved: u64,
    /// The connection is reset when this many bytes have arrived.
    pub(crate) reset_at: Option<u64>,
    /// Returned tokens may be freed in part.
    pub(crate) partial: bool,
}

impl Kernel {
    pub(crate) fn new(seed: u64, pages: usize) -> Self {
        Self {
            rng: StdRng::seed_from_u64(seed),
            dmabuf: HostBuf::region(pages * PAGE).unwrap(),
            references: vec![0; pages],
            tokens: BTreeMap::new(),
            packets: VecDeque::new(),
            wire: VecDeque::new(),
            ended: false,
            arrived: 0,
            unknown: 0,
            announced: 0,
            starved: 0,
            reset_at: None,
            partial: false,
        }
    }

    pub(crate) fn all_free(&self) -> bool {
        self.tokens.is_empty() && self.references.iter().all(|references| *references == 0)
    }

    /// The peer sends more.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.wire.extend(bytes);
    }

    fn take(&mut self, len: usize) -> Vec<u8> {
        self.arrived += len as u64;
        self.wire.drain(..len).collect()
    }

    /// The next packet arrives, if there are pages for it.
    pub(crate) fn arrive(&mut self) {
        let left = self.wire.len();
        if left == 0 {
            return;
        }
        let linear = match self.rng.random_range(0..8) {
            0 => return self.arrive_readable(left),
            1 | 2 => self.rng.random_range(1..200).min(left),
            _ => 0,
        };
        let mut free: Vec<usize> =
            (0..self.references.len()).filter(|page| self.references[*page] == 0).collect();
        let wanted = self.rng.random_range(1..=17);
        if free.len() < wanted || linear == left {
            self.starved += u64::from(free.len() < wanted);
            return;
        }
        let linear = self.take(linear);
        let mut skb = Skb { readable: false, linear, frags: Vec::new(), read: 0 };
        // Some rings hand out pages in order, others do not.
        let in_order = self.rng.random_bool(0.5);
        let whole = self.rng.random_bool(0.5);
        for _ in 0..wanted {
            let pick = if in_order { 0 } else { self.rng.random_range(0..free.len()) };
            let page = free.remove(pick);
            let offset = if whole { 0 } else { self.rng.random_range(0..PAGE) };
            let most = if whole { PAGE } else { self.rng.random_range(1..=PAGE - offset) };
            let len = most.min(self.wire.len());
            if len == 0 {
                break;
            }
            let bytes = self.take(len);
            self.dmabuf.write((page * PAGE + offset) as u64, &bytes).unwrap();
            self.references[page] += 1;
            skb.frags.push(Frag { page, offset, len });
        }
        self.packets.push_back(skb);
    }

    fn arrive_readable(&mut self, left: usize) {
        let len = self.rng.random_range(1..9000).min(left);
        let linear = self.take(len);
        self.packets.push_back(Skb { readable: true, linear, frags: Vec::new(), read: 0 });
    }

    /// `recvmsg(MSG_SOCK_DEVMEM | MSG_DONTWAIT)` with `room` bytes for control data.
    pub(crate) fn recvmsg(&mut self, iov: &mut [u8], room: usize) -> Result<Got, i32> {
        if self.reset_at.is_some_and(|at| self.arrived >= at) {
            return Err(ECONNRESET);
        }
        if self.packets.is_empty() {
            let done = self.ended && self.wire.is_empty();
            return if done { Ok(Got { bytes: 0, control: Vec::new() }) } else { Err(EAGAIN) };
        }
        let mut call = Call { iov_at: 0, control: Vec::new(), room };
        let (mut copied, mut last_readable) = (0, None);
        while copied < iov.len() {
            let Some(mut skb) = self.packets.pop_front() else { break };
            if last_readable.is_some_and(|readable| readable != skb.readable) {
                self.packets.push_front(skb);
                break;
            }
            let most = (skb.len() - skb.read).min(iov.len() - copied);
            let result = if skb.readable {
                iov[call.iov_at..][..most].copy_from_slice(&skb.linear[skb.read..][..most]);
                call.iov_at += most;
                Ok(most)
            } else {
                self.receive_dmabuf(&skb, most, iov, &mut call)
            };
            if let Ok(bytes) = result {
                copied += bytes;
                skb.read += bytes;
            }
            last_readable = Some(skb.readable);
            if skb.read < skb.len() {
                self.packets.push_front(skb);
            } else {
                skb.frags.iter().for_each(|frag| self.references[frag.page] -= 1);
            }
            match result {
                Err(error) if copied == 0 => return Err(error),
                Err(_) => break,
                // The call that holds the socket's lock may be asked to stop.
                Ok(_) if self.rng.random_bool(0.1) => break,
                Ok(_) => {}
            }
        }
        Ok(Got { bytes: copied, control: call.control })
    }

    /// At most `most` bytes of an unreadable packet: as far as there is room for announcements.
    fn receive_dmabuf(
        &mut self,
        skb: &Skb,
        most: usize,
        iov: &mut [u8],
        call: &mut Call,
    ) -> Result<usize, i32> {
        let mut sent = 0;
        let linear = skb.linear.get(skb.read..).unwrap_or_default();
        let linear = &linear[..linear.len().min(most)];
        if !linear.is_empty() {
            let Some(to) = iov[call.iov_at..].get_mut(..linear.len()) else { return Err(EFAULT) };
            // Copied before it is known whether it can be announced.
            to.copy_from_slice(linear);
            call.iov_at += linear.len();
            if !call.announce(SCM_LINEAR, [0, linear.len() as u64, 0, 0]) {
                return Err(ETOOSMALL);
            }
            sent += linear.len();
        }
        let mut start = skb.linear.len();
        for frag in &skb.frags {
            let end = start + frag.len;
            let from = skb.read + sent;
            if from < end && sent < most {
                let len = (end - from).min(most - sent);
                let offset = frag.page * PAGE + frag.offset + from - start;
                let token = (0..).find(|token| !self.tokens.contains_key(token)).unwrap_or(0);
                let words = [offset as u64, len as u64, token.into(), DMABUF_ID.into()];
                if !call.announce(SCM_DMABUF, words) {
                    return if sent > 0 { Ok(sent) } else { Err(ETOOSMALL) };
                }
                self.tokens.insert(token, frag.page);
                self.announced += 1;
                self.references[frag.page] += 1;
                sent += len;
            }
            start = end;
        }
        Ok(sent)
    }

    /// `setsockopt(SO_DEVMEM_DONTNEED)`.
    pub(crate) fn dontneed(&mut self, option: &[u8]) -> Result<u32, i32> {
        if !option.len().is_multiple_of(8) || option.len() > 128 * 8 {
            return Err(EINVAL);
        }
        let mut budget = if self.partial { self.rng.random_range(1..=1024) } else { 1024 };
        let mut freed = 0;
        for range in option.chunks(8) {
            let start = u32::from_ne_bytes(range[..4].try_into().unwrap());
            let count = u32::from_ne_bytes(range[4..].try_into().unwrap());
            for token in start..start.saturating_add(count) {
                if budget == 0 {
                    return Ok(freed);
                }
                budget -= 1;
                match self.tokens.remove(&token) {
                    Some(page) => {
                        self.references[page] -= 1;
                        freed += 1;
                        // A later reader of the page reads something else.
                        if self.references[page] == 0 {
                            self.dmabuf.write((page * PAGE) as u64, &[0xdd; PAGE]).unwrap();
                        }
                    }
                    None => self.unknown += 1,
                }
            }
        }
        Ok(freed)
    }
}

const SCM_LINEAR: i32 = 78;
const SCM_DMABUF: i32 = 79;

struct Call {
    iov_at: usize,
    control: Vec<u8>,
    room: usize,
}

impl Call {
    /// Appends a control message of 40 bytes, unless there is no room for it.
    fn announce(&mut self, kind: i32, words: [u64; 4]) -> bool {
        if self.control.len() + 40 > self.room {
            return false;
        }
        self.control.extend(message(kind, words));
        true
    }
}

/// A control message: offset, size, token and id of the dmabuf.
pub(crate) fn message(kind: i32, [offset, size, token, id]: [u64; 4]) -> Vec<u8> {
    let mut bytes = 40u64.to_ne_bytes().to_vec();
    bytes.extend(1i32.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(offset.to_ne_bytes());
    for word in [size, token, id, 0] {
        bytes.extend((word as u32).to_ne_bytes());
    }
    bytes
}
