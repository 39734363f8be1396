//! The host as a poster like kernels: work requests, records and completions in memory that a NIC
//! reads and writes.

use super::completion::{Arrived, Consumed, CqFormat, NotArrived, Sent};
use super::format;
use super::protocol::{Place, Poller, Reserved, Ring, must_signal, publish, try_lock, try_reserve};
use super::queue::WorkQueue;
use super::request::{Request, Wqe};
use super::words::Words;
use super::work::{Posted, Received, Taken};
use crate::limits::BNXT_SLOTS;
use crate::memory::Memory;
use crate::{TransportError, UsageError};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};
use warpverbs_bnxt::packets::{Packets, Table};
use warpverbs_mem::{Cells, Region};
use warpverbs_mlx5::cqe::gives_back;
use warpverbs_mlx5::export::{CqMode, ErrorWord, NicFormat, Outcome};
use warpverbs_mlx5::num::WqeIndex;
use warpverbs_mlx5::opcode::SendOpcode;
use warpverbs_rdma::{Mtu, Qpn, SendFlags, Sge};

/// 64-bit words of a WQEBB.
const WORDS: usize = 8;

/// A completion queue.
#[derive(Debug)]
struct CompletionQueue {
    format: CqFormat,
    cqn: u32,
    entries: Cells<AtomicU64>,
    record: Cells<AtomicU32>,
    /// In the place of the record, for formats without one.
    doorbell: Cells<AtomicU64>,
    log_size: u8,
    mode: CqMode,
}

impl CompletionQueue {
    fn first_word(&self, ci: u64) -> usize {
        (ci & ((1 << self.log_size) - 1)) as usize * self.words()
    }

    fn words(&self) -> usize {
        self.format.cqe_bytes() / 8
    }

    /// Acquire, pairs with the NIC's release of a CQE: the entry and all it reports are visible.
    #[inline]
    fn tail(&self, ci: u64) -> u64 {
        self.entries[self.first_word(ci) + self.words() - 1].load(Acquire)
    }

    /// The entry, of whose bytes the first are used.
    fn entry(&self, ci: u64, tail: u64) -> [u8; 64] {
        let (at, last) = (self.first_word(ci), self.words() - 1);
        let mut raw = [0; 64];
        let (words, _) = raw.as_chunks_mut::<8>();
        for (bytes, word) in words.iter_mut().zip(&self.entries[at..at + last]) {
            *bytes = word.load(Relaxed).to_ne_bytes();
        }
        words[last] = tail.to_ne_bytes();
        raw
    }

    /// Gives the entries from `from` to `ci`, which were taken, back to the NIC, unless that can wait.
    fn give_back(&self, from: u64, ci: u64) {
        if !gives_back(from, ci, self.log_size) {
            return;
        }
        // Release: the entries were read before.
        match self.format.consumed(self.cqn, ci, self.log_size) {
            Consumed::Record(word) => self.record[0].store(word, Release),
            Consumed::Doorbell(word) => self.doorbell[0].store(word, Release),
        }
    }
}

/// The table of packet numbers beside a send queue, and the path MTU, by which they are counted.
#[derive(Debug)]
struct PacketNumbers {
    table: Cells<AtomicU64>,
    /// Code of the [`Mtu`]; 0 before the first connection.
    mtu: AtomicU8,
}

impl PacketNumbers {
    fn mtu(&self) -> Mtu {
        Mtu::from_code(self.mtu.load(Relaxed)).unwrap_or(Mtu::B256)
    }

    /// Of the message of `bytes` bytes at `index`, at `slot` of the ring, whose first packet is `first`.
    fn write(&self, first: u32, bytes: u32, index: u64, slot: u64) {
        let start = (slot * u64::from(BNXT_SLOTS)) as u16;
        let (mut entry, packets) = ([0; 8], Packets::of(first, bytes, self.mtu(), start));
        if packets.write(Table::Msn, 0, &mut entry).is_ok() {
            let place = index as usize & (self.table.len() - 1);
            self.table[place].store(u64::from_ne_bytes(entry), Relaxed);
        }
    }
}

/// The rings and completion queues of an endpoint.
#[derive(Debug)]
pub(crate) struct Rings {
    format: NicFormat,
    sq: Cells<AtomicU64>,
    span: Cells<AtomicU8>,
    packets: Option<PacketNumbers>,
    /// None with an SRQ, or without receives.
    rq: Option<Cells<AtomicU64>>,
    recv_bytes: usize,
    send_cq: CompletionQueue,
    recv_cq: CompletionQueue,
}

impl Rings {
    /// Over `memory`, all of which is host memory.
    pub(crate) fn new(memory: &Memory, cqns: [u32; 2]) -> Result<Self, TransportError> {
        let shape = &memory.shape;
        let cq = |which: usize, buf: Region, log_size, mode| {
            let (format, record) = (CqFormat(shape.format), &memory.cq_bells()?[which]);
            Ok::<_, TransportError>(CompletionQueue {
                format,
                cqn: cqns[which],
                entries: buf.cells(0, (format.cqe_bytes() / 8) << log_size)?,
                record: record.cells(0, 1)?,
                doorbell: record.cells(0, 1)?,
                log_size,
                mode,
            })
        };
        let rq = match shape.own_recv {
            true => Some(memory.rq()?.cells(0, memory.rq()?.len() / 8)?),
            false => None,
        };
        let packets = match memory.packets()? {
            Some(table) => {
                let table = table.cells(0, table.len() / 8)?;
                Some(PacketNumbers { table, mtu: AtomicU8::new(0) })
            }
            None => None,
        };
        Ok(Self {
            format: shape.format,
            sq: memory.sq().cells(0, WORDS << shape.log_send)?,
            span: memory.sq_span()?.cells(0, 1 << shape.log_send)?,
            packets,
            rq,
            recv_bytes: shape.recv_bytes.into(),
            send_cq: cq(0, memory.send_cq()?, shape.log_send_cq, shape.send_cq_mode)?,
            recv_cq: cq(1, memory.recv_cq()?, shape.log_recv_cq, CqMode::Ring)?,
        })
    }

    /// The path MTU of the connection that is to be made.
    pub(super) fn start(&self, mtu: Mtu) {
        if let Some(packets) = &self.packets {
            packets.mtu.store(mtu as u8, Relaxed);
        }
    }

    /// The bytes of a request, whole units, but for its place.
    #[inline]
    pub(super) fn encode<'b>(
        &self,
        request: &Request<'_>,
        buf: &'b mut Wqe,
        qpn: Qpn,
    ) -> Result<&'b [u8], UsageError> {
        format::encode(self.format, request, buf, qpn).map(|wqe| &*wqe)
    }

    /// Reserve, gate, write, publish. `None` if there is no room.
    #[inline]
    pub(super) fn try_post(
        &self,
        queue: &WorkQueue,
        wqe: &[u8],
        request: &Request<'_>,
    ) -> Option<Posted> {
        let unit = format::unit_bytes(self.format);
        let (n, flags) = ((wqe.len() / unit) as u64, request.flags);
        let bytes = self.packets.as_ref().map(|packets| (packets, format::length(request)));
        let taken = bytes.map_or(0, |(packets, bytes)| packets.mtu().packets(bytes));
        let Reserved { base, packet } = try_reserve(queue, n, taken)?;
        let signaled = flags.contains(SendFlags::SIGNALED) || must_signal(queue, base, n);
        let slot = base & (queue.depth() - 1);
        let mut head = [0; 16];
        head.copy_from_slice(&wqe[..16]);
        format::stamp(self.format, &mut head, (base, queue.log_depth()), (flags, signaled));
        let first = slot * (unit / 8) as u64;
        store(&self.sq, first, &head);
        store(&self.sq, first + 2, &wqe[16..]);
        if let Some((packets, bytes)) = bytes {
            packets.write(packet, bytes, base, slot);
        }
        if signaled {
            self.span[slot as usize].store(n as u8, Relaxed);
        } else {
            queue.unsignaled().fetch_max(base + n, Relaxed);
        }
        publish(queue, base, n);
        Some(Posted { index: base, end: base + n, signaled })
    }

    /// The bytes of a receive of `recv_bytes`, but for its place.
    pub(super) fn encode_recv(&self, slot: &mut [u8], sges: &[Sge]) -> Result<(), UsageError> {
        format::encode_recv(self.format, slot, sges)
    }

    /// Pieces of memory of a receive at most.
    pub(super) fn most_recv_sges(&self) -> usize {
        format::most_recv_sges(self.format, self.recv_bytes)
    }

    /// As [`Self::try_post`], of a receive.
    pub(super) fn try_post_recv(&self, queue: &WorkQueue, slot: &[u8]) -> Option<Posted> {
        let rq = self.rq.as_ref()?;
        let index = try_reserve(queue, 1, 0)?.base;
        let (mut head, rest) = slot.split_first_chunk::<16>().map(|(head, rest)| (*head, rest))?;
        let place = index & (queue.depth() - 1);
        format::stamp_recv(self.format, &mut head, place);
        let first = place * (self.recv_bytes / 8) as u64;
        store(rq, first, &head);
        store(rq, first + 2, rest);
        publish(queue, index, 1);
        Some(Posted { index, end: index + 1, signaled: true })
    }

    /// Opcode of the send work request at `index`, which is in flight; of mlx5's format alone.
    pub(super) fn opcode(&self, queue: &WorkQueue, index: u64) -> Option<SendOpcode> {
        let slot = (index & (queue.depth() - 1)) as usize;
        let [_, _, _, opcode, ..] = self.sq[slot * WORDS].load(Relaxed).to_ne_bytes();
        (self.format == NicFormat::Mlx5).then(|| SendOpcode::from_value(opcode))
    }

    /// Polls the send CQ once, unless another thread is polling.
    #[inline]
    pub(super) fn drain_send(&self, q: &Words) {
        let Some(mut poller) = try_lock(&q.send) else { return };
        match self.send_cq.mode {
            CqMode::Collapsed => {
                self.take_send(q, &mut poller, 0, self.send_cq.tail(0));
            }
            CqMode::Ring => self.drain_send_ring(q, &mut poller),
        }
    }

    fn drain_send_ring(&self, q: &Words, poller: &mut Poller<'_, WorkQueue>) {
        let cq = &self.send_cq;
        let mut ci = q.send.cq_ci().load(Relaxed);
        let from = ci;
        loop {
            let tail = cq.tail(ci);
            if !cq.format.is_new(tail, ci, cq.log_size) || !self.take_send(q, poller, ci, tail) {
                break;
            }
            ci += 1;
        }
        if ci != from {
            q.send.cq_ci().store(ci, Relaxed);
            cq.give_back(from, ci);
        }
    }

    /// Acts on one send CQE; false if it cannot be counted, and has to stay in a ring CQ.
    #[inline]
    fn take_send(&self, q: &Words, poller: &mut Poller<'_, WorkQueue>, ci: u64, tail: u64) -> bool {
        let cq = &self.send_cq;
        match cq.format.sent(tail, poller.completed(), || cq.entry(ci, tail)) {
            Sent::Done(counter) => match poller.place(counter) {
                Place::InFlight(index) => {
                    let slot = (index & (q.send.depth() - 1)) as usize;
                    poller.retire(index + u64::from(self.span[slot].load(Relaxed).max(1)));
                    true
                }
                Place::NotYet => false,
                Place::Never if cq.mode == CqMode::Collapsed => false,
                Place::Never => {
                    q.claim_error(ErrorWord::failed(Outcome::StrayCqe, 0, 0, 0, counter));
                    true
                }
            },
            Sent::Nothing => false,
            Sent::Failed(word) => {
                q.claim_error(word);
                true
            }
            Sent::Ended(word) => {
                q.claim_error(self.failed_receive(q).unwrap_or(word));
                true
            }
        }
    }

    /// The error of a receive that was reported and not taken, without taking it. Of a queue pair that has
    /// ended, so that its receive CQ gets no more.
    fn failed_receive(&self, q: &Words) -> Option<ErrorWord> {
        let cq = &self.recv_cq;
        let (first, done) = (q.recv.cq_ci().load(Relaxed), q.recv.completed());
        (0..1u64 << cq.log_size)
            .map(|n| (n, cq.tail(first + n)))
            .take_while(|(n, tail)| cq.format.is_new(*tail, first + n, cq.log_size))
            .find_map(|(n, tail)| {
                let entry = cq.entry(first + n, tail);
                cq.format.arrived(&entry, done + n).err().map(|failed| failed.error)
            })
    }

    /// Takes one completion off the receive CQ, good or bad; `None` if there is none, or another
    /// thread is polling. The first bad one becomes the endpoint's error.
    pub(super) fn take_recv(&self, q: &Words) -> Option<Taken> {
        let cq = &self.recv_cq;
        let mut poller = try_lock(&q.recv)?;
        let ci = q.recv.cq_ci().load(Relaxed);
        let tail = cq.tail(ci);
        if !cq.format.is_new(tail, ci, cq.log_size) {
            drop(poller);
            if self.format == NicFormat::Bnxt {
                // The end of a queue pair is reported there alone.
                self.drain_send(q);
            }
            return None;
        }
        let raw = cq.entry(ci, tail);
        q.recv.cq_ci().store(ci + 1, Relaxed);
        cq.give_back(ci, ci + 1);
        match cq.format.arrived(&raw, poller.completed()) {
            Ok(Arrived { counter, kind, bytes, solicited }) => {
                let number = counter.unwrap_or(poller.completed() as u16);
                let mut index = number.into();
                if self.rq.is_some() {
                    index = WqeIndex(number).widen(poller.completed());
                    poller.retire(poller.completed() + 1);
                }
                let received = Received { byte_len: bytes, kind, solicited, index };
                Some(Taken { number, received: Some(received) })
            }
            Err(NotArrived { error, counter }) => {
                q.claim_error(error);
                counter.map(|number| Taken { number, received: None })
            }
        }
    }
}

/// Stores whole words of a work request from `first` on, going round at the ring's end.
#[inline]
fn store(ring: &Cells<AtomicU64>, first: u64, bytes: &[u8]) {
    let mask = ring.len() - 1;
    let (words, _) = bytes.as_chunks::<8>();
    for (at, word) in (first as usize..).zip(words) {
        ring[at & mask].store(u64::from_ne_bytes(*word), Relaxed);
    }
}
