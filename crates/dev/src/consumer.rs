//! A CQ of any format in host memory, and what polls it.

use crate::config::{PortConfig, QueueMemory};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use warpverbs_bnxt::cqe as bnxt;
use warpverbs_bnxt::doorbell::Kind;
use warpverbs_bnxt::ring::Ring;
use warpverbs_ionic::cqe as ionic;
use warpverbs_ionic::doorbell::Doorbell;
use warpverbs_mem::Region;
use warpverbs_mlx5::cqe::{Cqe, CqeFormat, CqeTail, owned_by_software, owner_bit};
use warpverbs_mlx5::doorbell::set_ci_word;
use warpverbs_mlx5::opcode::CqeOpcode;
use warpverbs_nic::{Cq, CqConfig, CqMode, Dialect, NicError, SoftNic, Status};
use warpverbs_rdma::{Qpn, ReceivedKind, is_odd_lap, widen};

/// The meaning of a CQE, whatever its format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reported {
    /// Send WQEs have ended, the last of them so.
    Sent {
        /// mlx5: the index of the last one; others: how many have ended since RESET.
        count: u64,
        /// How the last one ended.
        status: Status,
    },
    /// A receive has ended.
    Received {
        /// The kind of message; of no meaning after a failure.
        kind: ReceivedKind,
        /// Bytes that arrived.
        len: u32,
        /// How it ended.
        status: Status,
    },
    /// As [`Self::Received`], of a datagram that arrived.
    Datagram {
        /// The kind of message.
        kind: ReceivedKind,
        /// Bytes that arrived, those of the route header included.
        len: u32,
        /// Number of the sender's QP.
        source: u32,
        /// How it ended.
        status: Status,
    },
    /// The QP is in ERR, and the library flushes the rest by itself.
    Ended,
}

/// A CQ with its memory and consumer index.
#[derive(Debug)]
pub(crate) struct Consumer {
    pub(crate) cq: Cq,
    dialect: Dialect,
    memory: QueueMemory,
    pub(crate) buf: Region,
    dbr: Region,
    /// Bytes of an entry of mlx5's; the CQE is its last 64.
    entry: usize,
    log_size: u8,
    ci: u64,
    /// Payload that the last CQE of mlx5 carried in place of memory, and the bytes behind it.
    pub(crate) payload: Vec<u8>,
    /// Sends that have ended, of a queue of 2^`log_sq`.
    count: u64,
    log_sq: u8,
    /// Of the last receive of bnxt_re.
    pub(crate) id: u32,
    /// Where bnxt_re's goes on, each behind the CQE that says so, and log2 of its entries.
    resized: VecDeque<(Region, u8)>,
}

impl Consumer {
    pub(crate) fn new(
        nic: &SoftNic,
        dialect: Dialect,
        mode: CqMode,
        port: &PortConfig,
    ) -> Result<Self, NicError> {
        let (log_size, entry) = (port.log_cq, port.cqe_size.bytes());
        let (its_buf, buf) = port.memory.alloc(entry << log_size)?;
        let (its_dbr, dbr) = port.memory.alloc(64)?;
        let config = CqConfig {
            dialect,
            mode,
            log_size,
            cqe_size: port.cqe_size,
            buf: its_buf,
            dbr: its_dbr,
            ignore_overrun: false,
            notice: None,
        };
        let (cq, memory, payload) = (nic.create_cq(&config)?, port.memory.clone(), Vec::new());
        let (ci, count, log_sq, id, resized) = (0, 0, port.log_sq, 0, VecDeque::new());
        Ok(Self {
            cq,
            dialect,
            memory,
            buf,
            dbr,
            entry,
            log_size,
            ci,
            payload,
            count,
            log_sq,
            id,
            resized,
        })
    }

    /// After RESET.
    pub(crate) fn restart(&mut self) {
        self.count = 0;
    }

    /// Where mlx5's CQE at `index` is, in a ring of 2^`log_size` entries.
    fn place(&self, index: u64, log_size: u8) -> u64 {
        (index & ((1 << log_size) - 1)) * self.entry as u64 + (self.entry - 64) as u64
    }

    /// The `N` bytes of a CQE at an offset, if its last word says that it is new.
    fn load<const N: usize>(&self, at: u64, is_new: impl Fn(&[u8; N]) -> bool) -> Option<[u8; N]> {
        let last = self.buf.atomic_u64(at + N as u64 - 8).ok()?.load(Ordering::Acquire);
        let mut bytes = [0; N];
        self.buf.read(at, &mut bytes).ok()?;
        bytes[N - 8..].copy_from_slice(&last.to_ne_bytes());
        is_new(&bytes).then_some(bytes)
    }

    /// mlx5's CQE at `index`, if the NIC has written it.
    fn peek(&self, index: u64) -> Option<[u8; 64]> {
        self.load(self.place(index, self.log_size), |bytes| {
            let tail = bytes.last_chunk().map_or(0, |last| u64::from_ne_bytes(*last));
            owned_by_software(CqeTail::from_ne(tail), index, self.log_size)
        })
    }

    /// The next CQE of the other formats.
    fn next(&self, phase: impl Fn(&[u8; 32]) -> bool) -> Option<[u8; 32]> {
        let at = (self.ci & ((1 << self.log_size) - 1)) * 32;
        let first_lap = !is_odd_lap(self.ci, self.log_size);
        self.load(at, |bytes| phase(bytes) == first_lap)
    }

    /// The next CQE of mlx5's.
    pub(crate) fn poll_mlx5(&mut self) -> Option<Cqe> {
        let bytes = self.peek(self.ci)?;
        let (cqe, format) = Cqe::parse_any(&bytes).ok()?;
        self.payload = match format {
            CqeFormat::Plain => Vec::new(),
            CqeFormat::Inline32 => bytes[..32].to_vec(),
            CqeFormat::Inline64 => {
                let mut first = vec![0; 64];
                self.buf.read(self.place(self.ci, self.log_size) - 64, &mut first).ok()?;
                first
            }
        };
        self.consumed();
        Some(cqe)
    }

    /// The meaning of the next CQE, of any format.
    pub(crate) fn poll(&mut self) -> Option<Reported> {
        let reported = match self.dialect {
            Dialect::Mlx5 => of_mlx5(self.poll_mlx5()?),
            Dialect::Bnxt(_) => {
                let bytes = self.next(bnxt::phase)?;
                let cqe = bnxt::Cqe::parse(&bytes).expect("a CQE");
                self.consumed();
                match cqe {
                    bnxt::Cqe::CutOff { .. } => {
                        self.go_on();
                        return self.poll();
                    }
                    bnxt::Cqe::Received { id, .. } => self.id = id,
                    _ => {}
                }
                of_bnxt(cqe, self.count)
            }
            Dialect::Ionic => {
                let bytes = self.next(ionic::color)?;
                self.consumed();
                let cqe = ionic::Cqe::parse(&bytes).expect("a CQE");
                of_ionic(cqe, self.count, self.log_sq)
            }
        };
        if let Reported::Sent { count, .. } = reported {
            self.count = count;
        }
        Some(reported)
    }

    /// Switches rings as the vendor's library does.
    pub(crate) fn resize(&mut self, log_size: u8) -> Result<(), NicError> {
        let bytes = if self.dialect == Dialect::Mlx5 { self.entry } else { 32 };
        let (its_buf, buf) = self.memory.alloc(bytes << log_size)?;
        self.cq.resize(log_size, &its_buf)?;
        if self.dialect != Dialect::Mlx5 {
            self.resized.push_back((buf, log_size));
            return Ok(());
        }
        // The CQEs of the old ring move by one index.
        let mut index = self.ci;
        loop {
            let mut cqe = self.peek(index).expect("the old ring ends with a CQE of its own");
            if CqeOpcode::from_nibble(cqe[63] >> 4) == CqeOpcode::ResizeCq {
                break;
            }
            index += 1;
            cqe[63] = cqe[63] & !1 | u8::from(owner_bit(index, log_size));
            let at = self.place(index, log_size);
            buf.write(at, &cqe).expect("the ring has the entry");
        }
        self.ci += 1;
        (self.buf, self.log_size) = (buf, log_size);
        Ok(())
    }

    /// Goes on in the new ring of bnxt_re.
    fn go_on(&mut self) {
        let Dialect::Bnxt(library) = self.dialect else { return };
        let ring = Ring::new(1 << self.log_size, library).expect("a ring");
        let word = ring.doorbell(Kind::CutOffAck, self.cq.cqn(), self.ci).word();
        let cell = |at| self.dbr.atomic_u64(at).expect("a doorbell");
        cell(0).store(0, Ordering::Relaxed);
        cell(16).store(word.to_le(), Ordering::Release);
        (self.buf, self.log_size) = self.resized.pop_front().expect("a ring that was asked for");
        self.ci = 0;
    }

    fn consumed(&mut self) {
        self.ci += 1;
        self.tell(self.ci);
    }

    /// Says how far the consumer is.
    fn tell(&self, ci: u64) {
        let word = match self.dialect {
            Dialect::Mlx5 => {
                let word = self.dbr.atomic_u32(0).expect("a record");
                return word.store(set_ci_word(ci), Ordering::Release);
            }
            Dialect::Bnxt(library) => {
                let ring = Ring::new(1 << self.log_size, library).expect("a ring");
                ring.doorbell(Kind::Completion, self.cq.cqn(), ci).word()
            }
            Dialect::Ionic => {
                let index = (ci & ((1 << self.log_size) - 1)) as u16;
                Doorbell { queue: Qpn::truncate(self.cq.cqn()), index, arm: None }.word()
            }
        };
        self.dbr.atomic_u64(0).expect("a doorbell").store(word.to_le(), Ordering::Release);
    }
}

fn of_mlx5(cqe: Cqe) -> Reported {
    match cqe {
        Cqe::Requester { wqe_counter, .. } => {
            Reported::Sent { count: wqe_counter.into(), status: Status::Success }
        }
        Cqe::Receive { kind, byte_cnt: len, from: None, .. } => {
            Reported::Received { kind, len, status: Status::Success }
        }
        Cqe::Receive { kind, byte_cnt: len, from: Some(from), .. } => {
            Reported::Datagram { kind, len, source: from.qpn.get(), status: Status::Success }
        }
        Cqe::Error { side, wqe_counter, syndrome, .. } => {
            let status = syndrome.status();
            match side {
                warpverbs_mlx5::cqe::ErrorSide::Requester => {
                    Reported::Sent { count: wqe_counter.into(), status }
                }
                warpverbs_mlx5::cqe::ErrorSide::Responder => {
                    Reported::Received { kind: ReceivedKind::Send, len: 0, status }
                }
            }
        }
    }
}

fn of_bnxt(cqe: bnxt::Cqe, before: u64) -> Reported {
    let own = |handle| assert_eq!(handle, crate::format::HANDLE, "the QP's handle");
    match cqe {
        bnxt::Cqe::Sent { qp_handle, consumed, status } => {
            own(qp_handle);
            let count = widen(consumed.into(), 16, before);
            Reported::Sent { count, status: status.status() }
        }
        bnxt::Cqe::Received { qp_handle, status, kind, length: len, .. } => {
            own(qp_handle);
            Reported::Received { kind, len, status: status.status() }
        }
        bnxt::Cqe::Terminal { qp_handle } => {
            own(qp_handle);
            Reported::Ended
        }
        bnxt::Cqe::Datagram { qp_handle, status, imm, length, source, .. } => {
            own(qp_handle);
            let kind = imm.map_or(ReceivedKind::Send, ReceivedKind::SendImm);
            let (len, source) = (length.into(), source.get());
            Reported::Datagram { kind, len, source, status: status.status() }
        }
        other => panic!("{other:?}"),
    }
}

fn of_ionic(cqe: ionic::Cqe, before: u64, log_sq: u8) -> Reported {
    use warpverbs_ionic::status::Failure;
    let status =
        |status: Result<(), Failure>| status.map_or_else(Failure::status, |()| Status::Success);
    match cqe {
        ionic::Cqe::Messages { msn, status: ended, .. } => {
            Reported::Sent { count: widen(msn, 24, before), status: status(ended) }
        }
        ionic::Cqe::Local { status: Err(Failure::Flushed), .. }
        | ionic::Cqe::Received { status: Err(Failure::Flushed), .. } => Reported::Ended,
        ionic::Cqe::Received { kind, source, status: ended, .. } => {
            let (len, status) = (ended.unwrap_or(0), status(ended.map(|_| ())));
            match source.get() {
                0 => Reported::Received { kind, len, status },
                source => Reported::Datagram { kind, len, source, status },
            }
        }
        // Each datagram has one of its own.
        ionic::Cqe::Local { index, status: ended, .. } => {
            assert_eq!(u64::from(index), before % (1 << log_sq), "the place of the next WQE");
            Reported::Sent { count: before + 1, status: status(ended) }
        }
    }
}
