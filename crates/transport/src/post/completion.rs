//! Completions in the format of the NIC that wrote them.

use super::format::{Named, doorbell};
use warpverbs_bnxt::cqe as bnxt;
use warpverbs_ionic::cqe as ionic;
use warpverbs_mlx5::cqe::{self as mlx5, CqeTail, ErrorSide, owned_by_software};
use warpverbs_mlx5::doorbell::set_ci_word;
use warpverbs_mlx5::export::{ErrorWord, NicFormat, Outcome};
use warpverbs_mlx5::opcode::CqeOpcode;
use warpverbs_mlx5::syndrome::Syndrome;
use warpverbs_rdma::{ReceivedKind, Status, is_odd_lap};

/// The format of a CQ's entries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CqFormat(pub(crate) NicFormat);

/// How a consumer tells how far it has come.
pub(crate) enum Consumed {
    /// By a record.
    Record(u32),
    /// By a doorbell in its place.
    Doorbell(u64),
}

/// An entry of a send CQ.
pub(super) enum Sent {
    /// Everything up to the work request of this counter is complete.
    Done(u16),
    /// None.
    Nothing,
    /// The queue has failed.
    Failed(ErrorWord),
    /// The queue pair has ended, for a reason that a receive may have reported before.
    Ended(ErrorWord),
}

/// An entry of a receive CQ that reports a message.
pub(super) struct Arrived {
    /// Low 16 bits of the receive's index, where the format names one.
    pub(super) counter: Option<u16>,
    pub(super) kind: ReceivedKind,
    pub(super) bytes: u32,
    pub(super) solicited: bool,
}

/// Another entry.
pub(super) struct NotArrived {
    pub(super) error: ErrorWord,
    /// The receive that failed, where it is known.
    pub(super) counter: Option<u16>,
}

impl CqFormat {
    /// Bytes of an entry.
    pub(crate) const fn cqe_bytes(self) -> usize {
        match self.0 {
            NicFormat::Mlx5 => mlx5::CQE,
            NicFormat::Bnxt => bnxt::CQE,
            NicFormat::Ionic => ionic::CQE,
        }
    }

    /// Whether the NIC has written the entry at `ci` whose last 8 bytes are `tail`.
    #[inline]
    pub(crate) fn is_new(self, tail: u64, ci: u64, log_size: u8) -> bool {
        let bytes = tail.to_ne_bytes();
        match self.0 {
            NicFormat::Mlx5 => owned_by_software(CqeTail::from_ne(tail), ci, log_size),
            NicFormat::Bnxt => (bytes[0] & 1 == 0) == is_odd_lap(ci, log_size),
            NicFormat::Ionic => (bytes[7] & 1 == 0) == is_odd_lap(ci, log_size),
        }
    }

    /// The word that says that everything below `ci` was taken.
    pub(crate) fn consumed(self, cqn: u32, ci: u64, log_size: u8) -> Consumed {
        match self.0 {
            NicFormat::Mlx5 => Consumed::Record(set_ci_word(ci)),
            format => {
                let word = doorbell(format, Named::Completion(cqn), ci, log_size.into());
                Consumed::Doorbell(word)
            }
        }
    }

    /// Reads an entry of a send CQ; `entry` has the whole of it. `done`: what was counted before.
    #[inline]
    pub(super) fn sent(self, tail: u64, done: u64, entry: impl FnOnce() -> [u8; 64]) -> Sent {
        match self.0 {
            NicFormat::Mlx5 => {
                let tail = CqeTail::from_ne(tail);
                match tail.opcode() {
                    CqeOpcode::Req => Sent::Done(tail.wqe_counter.get()),
                    CqeOpcode::Invalid => Sent::Nothing,
                    _ => Sent::Failed(mlx5_error(&entry())),
                }
            }
            NicFormat::Bnxt => sent_of_bnxt(&entry(), done),
            NicFormat::Ionic => sent_of_ionic(&entry(), done),
        }
    }

    /// Reads an entry of a receive CQ.
    pub(super) fn arrived(self, raw: &[u8; 64], done: u64) -> Result<Arrived, NotArrived> {
        let solicited = false;
        let failed = |status, vendor| NotArrived {
            error: failed(Outcome::Responder, status, vendor, done),
            counter: None,
        };
        let strange = NotArrived { error: strange(done), counter: None };
        match self.0 {
            NicFormat::Mlx5 => match mlx5::Cqe::parse(raw) {
                Ok(mlx5::Cqe::Receive {
                    wqe_counter, kind, byte_cnt: bytes, solicited, ..
                }) => Ok(Arrived { counter: Some(wqe_counter), kind, bytes, solicited }),
                Ok(mlx5::Cqe::Error { wqe_counter, .. }) => {
                    Err(NotArrived { error: mlx5_error(raw), counter: Some(wqe_counter) })
                }
                _ => Err(NotArrived { error: mlx5_error(raw), counter: None }),
            },
            NicFormat::Bnxt => match bnxt::Cqe::parse(half(raw)) {
                Ok(bnxt::Cqe::Received { status, kind, length: bytes, .. }) => {
                    match status.status() {
                        Status::Success => Ok(Arrived { counter: None, kind, bytes, solicited }),
                        why => Err(failed(why, status.value())),
                    }
                }
                Ok(bnxt::Cqe::Terminal { .. }) => Err(failed(Status::Flushed, 0)),
                _ => Err(strange),
            },
            NicFormat::Ionic => match ionic::Cqe::parse(half(raw)) {
                Ok(ionic::Cqe::Received { kind, status: Ok(bytes), .. }) => {
                    Ok(Arrived { counter: None, kind, bytes, solicited })
                }
                Ok(
                    ionic::Cqe::Received { status: Err(why), .. }
                    | ionic::Cqe::Local { status: Err(why), .. }
                    | ionic::Cqe::Messages { status: Err(why), .. },
                ) => Err(failed(why.status(), why.value() as u8)),
                _ => Err(strange),
            },
        }
    }
}

fn sent_of_bnxt(raw: &[u8; 64], done: u64) -> Sent {
    match bnxt::Cqe::parse(half(raw)) {
        Ok(bnxt::Cqe::Sent { consumed, status, .. }) => match status.status() {
            Status::Success => Sent::Done(consumed.wrapping_sub(1)),
            why => Sent::Failed(failed(Outcome::Requester, why, status.value(), done)),
        },
        Ok(bnxt::Cqe::Terminal { .. }) => {
            Sent::Ended(failed(Outcome::Requester, Status::Flushed, 0, done))
        }
        _ => Sent::Failed(strange(done)),
    }
}

fn sent_of_ionic(raw: &[u8; 64], done: u64) -> Sent {
    match ionic::Cqe::parse(half(raw)) {
        // The count of messages is the index: every work request here is one.
        Ok(ionic::Cqe::Messages { msn, status: Ok(()), .. }) => {
            Sent::Done((msn as u16).wrapping_sub(1))
        }
        Ok(
            ionic::Cqe::Messages { status: Err(why), .. }
            | ionic::Cqe::Local { status: Err(why), .. },
        ) => Sent::Failed(failed(Outcome::Requester, why.status(), why.value() as u8, done)),
        _ => Sent::Failed(strange(done)),
    }
}

fn half(raw: &[u8; 64]) -> &[u8; 32] {
    let (halves, _) = raw.as_chunks::<32>();
    &halves[0]
}

/// Of the oldest work request that no completion has reported.
fn failed(side: Outcome, why: Status, vendor: u8, done: u64) -> ErrorWord {
    ErrorWord::failed(side, Syndrome::of_failure(why).value(), vendor, 0, done as u16)
}

fn strange(done: u64) -> ErrorWord {
    ErrorWord::failed(Outcome::BadError, 0, 0, 0, done as u16)
}

/// The error word of the CQE of an error.
fn mlx5_error(raw: &[u8; 64]) -> ErrorWord {
    match mlx5::Cqe::parse(raw) {
        Ok(mlx5::Cqe::Error { side, wqe_counter, opcode, syndrome, vendor, .. }) => {
            let cause = match side {
                ErrorSide::Requester => Outcome::Requester,
                ErrorSide::Responder => Outcome::Responder,
            };
            ErrorWord::failed(cause, syndrome.value(), vendor, opcode.value(), wqe_counter)
        }
        // A CQE of another kind; nothing after it counts.
        _ => {
            let counter = u16::from_be_bytes([raw[60], raw[61]]);
            ErrorWord::failed(Outcome::BadError, 0, 0, raw[56], counter)
        }
    }
}
