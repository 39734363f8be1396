//! Responses to be sent, in the order of their requests (vol. 1, 9.7.5.1).

use alloc::collections::VecDeque;

use warpverbs_wire::{
    Aeth, AtomicAckEth, Bth, Credits, Extension, Msn, NakCode, Opcode, Psn, Qpn, Syndrome,
};

use super::check::{Range, check_range};
use crate::host::{Host, Need};
use crate::{Payload, Transmit};

#[derive(Clone, Copy, Debug)]
pub(crate) enum Response {
    Ack { psn: Psn, msn: Msn },
    Nak { psn: Psn, msn: Msn, syndrome: Syndrome },
    Read(ReadResponse),
    Atomic { psn: Psn, msn: Msn, original: u64, replay: bool },
}

impl Response {
    /// PSN of its next packet.
    fn psn(&self) -> Psn {
        match *self {
            Response::Ack { psn, .. }
            | Response::Nak { psn, .. }
            | Response::Atomic { psn, .. } => psn,
            Response::Read(read) => read.psn,
        }
    }
}

/// The rest of the response to a READ.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadResponse {
    /// First PSN of the original request.
    pub(crate) original: Psn,
    /// The original request was answered to the end before.
    pub(crate) replay: bool,
    /// PSN of the next packet.
    pub(crate) psn: Psn,
    pub(crate) msn: Msn,
    /// The bytes left.
    pub(crate) range: Range,
    pub(crate) begun: bool,
}

#[derive(Debug)]
pub(crate) struct Responses {
    queue: VecDeque<Response>,
    capacity: usize,
    rd_atomic: usize,
}

/// Two slots are kept for a last acknowledgement and the NAK that ends the connection.
const RESERVE: usize = 2;

impl Responses {
    /// Room for every READ and atomic, its replay, and acknowledgements between them.
    pub(crate) fn new(max_dest_rd_atomic: u8) -> Self {
        let capacity = 4 * usize::from(max_dest_rd_atomic) + 4;
        Self { queue: VecDeque::with_capacity(capacity + RESERVE), capacity, rd_atomic: 0 }
    }

    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.queue.len() < self.capacity
    }

    /// READs and atomics never yet answered to the end. Repeated answers do not count: the peer
    /// may have the first ones and may have gone on.
    pub(crate) fn rd_atomic(&self) -> usize {
        self.rd_atomic
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Everything up to `psn` is acknowledged, by a response that is not yet sent if possible.
    //= [resp.coalesce]
    #[inline]
    pub(crate) fn acknowledge(&mut self, psn: Psn, msn: Msn) {
        match self.queue.back_mut() {
            Some(Response::Ack { psn: last, msn: last_msn }) => (*last, *last_msn) = (psn, msn),
            _ => self.queue.push_back(Response::Ack { psn, msn }),
        }
    }

    pub(crate) fn refuse(&mut self, psn: Psn, msn: Msn, syndrome: Syndrome) {
        self.queue.push_back(Response::Nak { psn, msn, syndrome });
    }

    pub(crate) fn answer_atomic(&mut self, psn: Psn, msn: Msn, original: u64) {
        self.rd_atomic += 1;
        self.queue.push_back(Response::Atomic { psn, msn, original, replay: false });
    }

    /// Answers an atomic again, unless an answer is still to be sent.
    pub(crate) fn repeat_atomic(&mut self, at: Psn, msn: Msn, original: u64) {
        let same =
            |response: &Response| matches!(response, Response::Atomic { psn, .. } if *psn == at);
        if !self.queue.iter().any(same) {
            self.repeat(Response::Atomic { psn: at, msn, original, replay: true });
        }
    }

    /// Puts a repeated answer where its PSN belongs: a requester that lost it drops the later ones.
    fn repeat(&mut self, response: Response) {
        let later = self.queue.iter().position(|other| response.psn().is_before(other.psn()));
        self.queue.insert(later.unwrap_or(self.queue.len()), response);
    }

    pub(crate) fn answer_read(&mut self, read: ReadResponse) {
        self.rd_atomic += 1;
        self.queue.push_back(Response::Read(read));
    }

    /// Answers a READ again. A response that is still being sent begins anew where the repeated
    /// request says: a requester expects a first packet there.
    pub(crate) fn repeat_read(&mut self, read: ReadResponse) {
        let same = self.queue.iter_mut().find_map(|response| match response {
            Response::Read(other) if other.original == read.original => Some(other),
            _ => None,
        });
        match same {
            Some(other) => *other = ReadResponse { replay: other.replay, ..read },
            None => self.repeat(Response::Read(read)),
        }
    }

    /// The next response. A READ whose key was revoked turns into a NAK, `Err`.
    pub(crate) fn next(
        &mut self,
        dest_qpn: Qpn,
        mtu: u32,
        credits: Credits,
        host: &mut impl Host,
    ) -> Option<Result<Transmit, Transmit>> {
        let front = self.queue.front_mut()?;
        let ack = Syndrome::Ack(credits);
        let plain = |opcode, psn, ext| {
            let bth = Bth::new(opcode, dest_qpn, psn);
            Transmit { bth, ext, payload: Payload::Empty }
        };
        let transmit = match *front {
            Response::Ack { psn, msn } => {
                plain(Opcode::Acknowledge, psn, Extension::Aeth(Aeth { syndrome: ack, msn }))
            }
            Response::Nak { psn, msn, syndrome } => {
                plain(Opcode::Acknowledge, psn, Extension::Aeth(Aeth { syndrome, msn }))
            }
            Response::Atomic { psn, msn, original, replay } => {
                self.rd_atomic -= usize::from(!replay);
                let aeth = Aeth { syndrome: ack, msn };
                let ext = Extension::AethAtomicAck(aeth, AtomicAckEth { original });
                plain(Opcode::AtomicAcknowledge, psn, ext)
            }
            Response::Read(ref mut read) => {
                let piece = Range { len: read.range.len.min(mtu), ..read.range };
                if check_range(piece, Need::Read, host).is_err() {
                    let syndrome = Syndrome::Nak(NakCode::RemoteAccessError);
                    let aeth = Aeth { syndrome, msn: read.msn };
                    let nak = plain(Opcode::Acknowledge, read.psn, Extension::Aeth(aeth));
                    self.clear();
                    return Some(Err(nak));
                }
                let replay = read.replay;
                let (transmit, ended) = read.step(dest_qpn, piece, ack);
                if !ended {
                    return Some(Ok(transmit));
                }
                self.rd_atomic -= usize::from(!replay);
                transmit
            }
        };
        self.queue.pop_front();
        Some(Ok(transmit))
    }

    pub(crate) fn clear(&mut self) {
        self.queue.clear();
        self.rd_atomic = 0;
    }
}

impl ReadResponse {
    /// The packet with the next `piece`, and whether it was the last.
    //= [resp.read]
    fn step(&mut self, dest_qpn: Qpn, piece: Range, ack: Syndrome) -> (Transmit, bool) {
        let ends = piece.len == self.range.len;
        let aeth = Extension::Aeth(Aeth { syndrome: ack, msn: self.msn });
        let (opcode, ext) = match (!self.begun, ends) {
            (true, true) => (Opcode::ReadResponseOnly, aeth),
            (true, false) => (Opcode::ReadResponseFirst, aeth),
            (false, false) => (Opcode::ReadResponseMiddle, Extension::Empty),
            (false, true) => (Opcode::ReadResponseLast, aeth),
        };
        let Range { rkey, va, len } = piece;
        let payload = match len {
            0 => Payload::Empty,
            _ => Payload::Region { rkey, va, len },
        };
        let bth = Bth::new(opcode, dest_qpn, self.psn);
        self.psn += 1;
        self.range.va = va.wrapping_add(u64::from(len));
        self.range.len -= len;
        self.begun = true;
        (Transmit { bth, ext, payload }, ends)
    }
}
