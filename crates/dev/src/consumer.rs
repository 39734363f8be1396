//! A CQ of any format in host memory, and what polls it.

use crate::format::{LOG_SQ, QueueFormat};
use std::sync::atomic::Ordering;
use warpverbs_bnxt::cqe as bnxt;
use warpverbs_bnxt::doorbell::Kind;
use warpverbs_bnxt::ring::Ring;
use warpverbs_ionic::cqe as ionic;
use warpverbs_ionic::doorbell::Doorbell;
use warpverbs_mem::{HostBuf, Region};
use warpverbs_mlx5::cqe::{Cqe, CqeTail, owned_by_software};
use warpverbs_mlx5::doorbell::set_ci_word;
use warpverbs_nic::{Cq, CqConfig, CqMode, CqeSize, Dialect, NicError, SoftNic, Status};
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
pub(crate) struct AnyConsumer {
    pub(crate) cq: Cq,
    dialect: Dialect,
    buf: Region,
    dbr: Region,
    log_size: u8,
    ci: u64,
    count: u64,
    /// Of the last receive of bnxt_re.
    pub(crate) id: u32,
}

impl AnyConsumer {
    pub(crate) fn new(
        nic: &SoftNic,
        format: QueueFormat,
        mode: CqMode,
        log_size: u8,
    ) -> Result<Self, NicError> {
        let memory = |cause| NicError::Memory { what: "test memory", cause };
        let buf = HostBuf::region(64 << log_size).map_err(memory)?;
        let dbr = HostBuf::region(64).map_err(memory)?;
        let dialect = format.dialect();
        let config = CqConfig {
            dialect,
            mode,
            log_size,
            cqe_size: CqeSize::B64,
            buf: buf.clone(),
            dbr: dbr.clone(),
            ignore_overrun: false,
            notice: None,
        };
        let cq = nic.create_cq(&config)?;
        Ok(Self { cq, dialect, buf, dbr, log_size, ci: 0, count: 0, id: 0 })
    }

    /// After RESET.
    pub(crate) fn restart(&mut self) {
        self.count = 0;
    }

    /// The bytes of the next CQE, if there is one whose last word says so.
    fn next<const N: usize>(&self, is_new: impl Fn(&[u8; N]) -> bool) -> Option<[u8; N]> {
        let at = (self.ci & ((1 << self.log_size) - 1)) * N as u64;
        let last = self.buf.atomic_u64(at + N as u64 - 8).ok()?.load(Ordering::Acquire);
        let mut bytes = [0; N];
        self.buf.read(at, &mut bytes).ok()?;
        bytes[N - 8..].copy_from_slice(&last.to_ne_bytes());
        is_new(&bytes).then_some(bytes)
    }

    pub(crate) fn poll(&mut self) -> Option<Reported> {
        let first_lap = !is_odd_lap(self.ci, self.log_size);
        let reported = match self.dialect {
            Dialect::Mlx5 => {
                let is_new = |bytes: &[u8; 64]| {
                    let tail = bytes.last_chunk().map_or(0, |last| u64::from_ne_bytes(*last));
                    owned_by_software(CqeTail::from_ne(tail), self.ci, self.log_size)
                };
                of_mlx5(Cqe::parse_any(&self.next(is_new)?).expect("a CQE").0)
            }
            Dialect::Bnxt(_) => {
                let bytes = self.next(|bytes| bnxt::phase(bytes) == first_lap)?;
                let cqe = bnxt::Cqe::parse(&bytes).expect("a CQE");
                if let bnxt::Cqe::Received { id, .. } = cqe {
                    self.id = id;
                }
                of_bnxt(cqe, self.count)
            }
            Dialect::Ionic => {
                let bytes = self.next(|bytes| ionic::color(bytes) == first_lap)?;
                of_ionic(ionic::Cqe::parse(&bytes).expect("a CQE"), self.count)
            }
        };
        if let Reported::Sent { count, .. } = reported {
            self.count = count;
        }
        self.ci += 1;
        self.tell(self.ci);
        Some(reported)
    }

    /// Says how far the consumer is.
    pub(crate) fn tell(&self, ci: u64) {
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

fn of_ionic(cqe: ionic::Cqe, before: u64) -> Reported {
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
            assert_eq!(u64::from(index), before % (1 << LOG_SQ), "the place of the next WQE");
            Reported::Sent { count: before + 1, status: status(ended) }
        }
    }
}
