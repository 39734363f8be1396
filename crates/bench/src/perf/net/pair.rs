//! One end of a queue pair, and its memory.

use super::messages::{End, Measure, Part};
use super::side::{Role, Side};
use crate::rig::kernel::{one_line, unwell};
use crate::rig::pattern::{compare, pattern, poison};
use crate::rig::plan::Op;
use anyhow::{Context as _, Result, ensure};
use std::sync::atomic::AtomicU8;
use warpverbs::transport::{Endpoint, EndpointHandle, MemoryRegion, RemoteRegion};

/// One end of a queue pair.
pub(crate) struct PairEnd {
    pub(crate) endpoint: Endpoint,
    /// The payload of the operation: source or destination.
    pub(crate) main: MemoryRegion,
    /// Memory for answers, on the first queue pair.
    pub(crate) back: Option<MemoryRegion>,
    /// The peer's, once connected.
    pub(crate) peer_main: RemoteRegion,
    pub(crate) peer_back: Option<RemoteRegion>,
    role: Role,
    op: Op,
    index: u32,
    /// A kernel posts to it, and the host does not.
    kernel: bool,
}

impl PairEnd {
    pub(crate) fn new(
        (role, kernel): (Role, bool),
        op: Op,
        index: u32,
        endpoint: Endpoint,
        main: MemoryRegion,
        back: Option<MemoryRegion>,
    ) -> Self {
        let peer_main = RemoteRegion::new(0, 0, 0);
        Self { endpoint, main, back, peer_main, peer_back: None, role, op, index, kernel }
    }

    /// The part that its peer needs.
    pub(crate) fn end(&self) -> End {
        End {
            handle: self.endpoint.handle().to_bytes(),
            main: self.main.remote().to_bytes().to_vec(),
            back: self.back.as_ref().map(|back| back.remote().to_bytes().to_vec()),
        }
    }

    /// Connects to what the peer sent, and offers memory for this many of its messages.
    pub(crate) fn connect(&mut self, end: &End, receives: u32) -> Result<()> {
        self.peer_main = RemoteRegion::from_bytes(&end.main)?;
        self.peer_back = end.back.as_deref().map(RemoteRegion::from_bytes).transpose()?;
        self.endpoint.connect(&EndpointHandle::from_bytes(&end.handle)?)?;
        if let (Op::Send, false, Some(inbox)) = (self.op, self.kernel, self.inbox()) {
            let host = self.endpoint.host()?;
            for _ in 0..receives {
                host.post_recv(inbox.local())?;
            }
        }
        Ok(())
    }

    /// Where messages of the peer arrive at this end.
    pub(crate) fn inbox(&self) -> Option<&MemoryRegion> {
        match self.role {
            Role::Server => Some(&self.main),
            Role::Client => self.back.as_ref(),
        }
    }

    /// Puts data where a part takes them from, and what differs in every byte where they go.
    pub(crate) fn prepare(&self, part: &Part) -> Result<()> {
        self.main.write(0, &self.data(part, false, self.is_source()))?;
        if let Some(back) = &self.back {
            back.write(0, &self.data(part, true, !self.is_source()))?;
        }
        if let (true, Some(inbox)) = (self.counts_turns(part), self.inbox()) {
            inbox.write(part.bytes - 1, &[0])?;
        }
        Ok(())
    }

    /// A ping-pong of WRITEs counts in its last byte.
    fn counts_turns(&self, part: &Part) -> bool {
        part.measure == Measure::Latency && self.op == Op::Write
    }

    /// Compares every byte at this end with what `messages` operations make of it.
    pub(crate) fn verify(&self, part: &Part, messages: u64) -> Result<()> {
        if messages == 0 {
            return Ok(());
        }
        if self.op == Op::Atomic {
            return self.verify_counter(part, messages);
        }
        let counts = self.counts_turns(part);
        let check = |region: &MemoryRegion, back| -> Result<()> {
            let mut expected = self.data(part, back, true);
            if let (true, Some(last)) = (counts, expected.last_mut()) {
                *last = messages as u8;
            }
            let mut found = vec![0; expected.len()];
            region.read(0, &mut found)?;
            Ok(compare(self.index as usize, &expected, &found)?)
        };
        check(&self.main, false)?;
        match &self.back {
            Some(back) if part.measure == Measure::Latency => check(back, true),
            _ => Ok(()),
        }
    }

    /// The server's word has counted all; the client got the value before the last, unless a
    /// kernel added: it drops them.
    fn verify_counter(&self, part: &Part, messages: u64) -> Result<()> {
        if self.kernel {
            return Ok(());
        }
        let word = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).context("8 bytes");
        let first = word(&self.data(part, false, false))?;
        let (mut found, add) = ([0; 8], messages - u64::from(self.role == Role::Client));
        self.main.read(0, &mut found)?;
        let (found, expected) = (word(&found)?, first.wrapping_add(add));
        let pair = self.index;
        ensure!(
            found == expected,
            "queue pair {pair}: the counter is {found:#x}, expected {expected:#x}"
        );
        Ok(())
    }

    /// The byte that counts turns of a ping-pong.
    pub(crate) fn last_byte<'r>(region: &'r MemoryRegion, part: &Part) -> Result<&'r AtomicU8> {
        Ok(region.region().atomic_u8(part.bytes - 1)?)
    }

    /// Whether the bytes in `main` go out from this end. An atomic's word is the server's: the
    /// client is the source of nothing, nor is the server.
    fn is_source(&self) -> bool {
        match self.op {
            Op::Write | Op::Send => self.role == Role::Client,
            Op::Read => self.role == Role::Server,
            Op::Atomic => false,
        }
    }

    /// Bytes of a part, or those that differ from each of them.
    fn data(&self, part: &Part, back: bool, source: bool) -> Vec<u8> {
        let tag = u64::from(part.number) << 13 | u64::from(self.index) << 1 | u64::from(back);
        let data = pattern(tag, part.bytes as usize);
        if source { data } else { poison(&data) }
    }
}

/// The error, with the state of the first queue pair that is not well, because a poll may show only
/// consequences of it, and with what the NIC says of its link, which may lead nowhere. Either end may be
/// the first to give up, so the other's word of it comes with this end's link as well.
pub(crate) fn explained(error: anyhow::Error, side: &Side, pairs: &[PairEnd]) -> anyhow::Error {
    let health = unwell(pairs.iter().map(|pair| &pair.endpoint));
    let link = side.device.link().map(|link| format!("link: {}", one_line(link)));
    match health.into_iter().chain(link).collect::<Vec<_>>() {
        known if known.is_empty() => error,
        known => anyhow::anyhow!("{error:#} [{}]", known.join("; ")),
    }
}
