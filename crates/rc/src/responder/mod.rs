//! Responder: judges the peer's requests, executes them, and answers (vol. 1, 9.7.4, 9.7.5).

mod check;
mod completed;
mod replay;
mod respond;

use check::{Accepted, Inbound, Message, PsnCheck, Range, Refusal};
use completed::Completed;
use replay::{Replay, Replays};
use respond::{ReadResponse, Responses};
use warpverbs_wire::{
    Bth, Credits, Extension, Msn, Mtu, NakCode, Operation, Psn, Qpn, Reth, RnrTimer, Syndrome,
};

use crate::host::{Atomic, Denied, Host, Receive};
use crate::{
    Completion, Config, MAX_MESSAGE, Place, Received, ReceivedKind, Stats, Status, Transmit,
};

#[derive(Debug)]
pub(crate) struct Responder {
    dest_qpn: Qpn,
    mtu: Mtu,
    min_rnr_timer: RnrTimer,
    /// PSN of the next request.
    expected: Psn,
    /// Messages completed.
    msn: Msn,
    /// A NAK was sent for `expected`: later requests are dropped without an answer.
    refused: bool,
    message: Message,
    replays: Replays,
    responses: Responses,
    completed: Completed,
    /// The last response carried zero credits.
    no_credits: bool,
    failed: bool,
}

impl Responder {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            dest_qpn: config.dest_qpn,
            mtu: config.mtu,
            min_rnr_timer: config.min_rnr_timer,
            expected: config.rq_psn,
            msn: Msn::default(),
            refused: false,
            message: Message::None,
            replays: Replays::new(config.max_dest_rd_atomic),
            responses: Responses::new(config.max_dest_rd_atomic),
            completed: Completed::new(),
            no_credits: false,
            failed: false,
        }
    }

    /// PSN of the next new request.
    pub(crate) fn expected(&self) -> Psn {
        self.expected
    }

    /// Whether the connection has failed here.
    #[inline]
    pub(crate) fn has_failed(&self) -> bool {
        self.failed
    }

    /// Whether there is no response to be sent.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.responses.is_empty()
    }

    /// Stops, and flushes the receive of a message that will not be finished.
    pub(crate) fn fail(&mut self) {
        self.failed = true;
        if let Message::Send { receive, .. } = self.message {
            self.completed.push_error(receive.id, Status::Flushed);
        }
        self.message = Message::None;
    }

    /// The request at `psn` cannot be executed after all. Responses that wait are dropped: they are
    /// for later requests.
    //= [resp.local-error]
    pub(crate) fn fail_response(&mut self, psn: Psn) {
        if self.failed {
            return;
        }
        self.responses.clear();
        let syndrome = Syndrome::Nak(NakCode::RemoteOperationalError);
        self.responses.refuse(psn, self.msn, syndrome);
        self.fail();
    }

    #[inline]
    pub(crate) fn poll_completion(&mut self) -> Option<Completion> {
        self.completed.pop()
    }

    /// There are receives again: sends credits to a peer whose last credits were zero.
    //= [resp.credits]
    pub(crate) fn receive_available(&mut self) {
        if self.no_credits && !self.failed && self.responses.has_room() {
            self.responses.acknowledge(self.expected - 1, self.msn);
        }
    }

    /// A request of the peer.
    // Always: its arguments stay in registers.
    #[inline(always)]
    pub(crate) fn handle_request(
        &mut self,
        bth: &Bth,
        ext: &Extension,
        len: u32,
        host: &mut impl Host,
        stats: &mut Stats,
    ) -> Place {
        match self.check_psn(bth.psn) {
            PsnCheck::Expected => {}
            PsnCheck::Duplicate => {
                stats.duplicates += 1;
                self.handle_duplicate(bth, ext, stats);
                return Place::Nothing;
            }
            PsnCheck::OutOfSequence => {
                stats.out_of_sequence += 1;
                self.refuse_sequence(stats);
                return Place::Nothing;
            }
        }
        let inbound = Inbound { bth, ext, len };
        let executed =
            self.judge(&inbound, host).and_then(|accepted| self.execute(&inbound, &accepted, host));
        match executed {
            Ok(place) => place,
            Err(refusal) => {
                self.refuse(bth.psn, refusal, host, stats);
                Place::Nothing
            }
        }
    }

    /// One NAK for a gap; the peer sends again from there.
    //= [resp.nak-once]
    fn refuse_sequence(&mut self, stats: &mut Stats) {
        if self.refused {
            return;
        }
        if !self.responses.has_room() {
            stats.overruns += 1;
            return;
        }
        self.refused = true;
        let syndrome = Syndrome::Nak(NakCode::PsnSequenceError);
        self.responses.refuse(self.expected, self.msn, syndrome);
    }

    fn refuse(&mut self, psn: Psn, refusal: Refusal, host: &mut impl Host, stats: &mut Stats) {
        let syndrome = match refusal {
            Refusal::Overrun => {
                stats.overruns += 1;
                return;
            }
            //= [resp.not-yet]
            Refusal::NotYet => return,
            //= [resp.rnr]
            Refusal::NotReady => Some(Syndrome::RnrNak(self.min_rnr_timer)),
            //= [resp.nak-fatal]
            Refusal::Invalid | Refusal::TooLong { .. } => {
                Some(Syndrome::Nak(NakCode::InvalidRequest))
            }
            Refusal::Access { .. } => Some(Syndrome::Nak(NakCode::RemoteAccessError)),
            Refusal::Operational { .. } => Some(Syndrome::Nak(NakCode::RemoteOperationalError)),
            //= [exc.silent-invalidation]
            Refusal::Invalidation { .. } => None,
        };
        self.refused = true;
        if let Some(syndrome) = syndrome {
            self.responses.refuse(psn, self.msn, syndrome);
        }
        if refusal == Refusal::NotReady {
            return;
        }
        if let Some((receive, status)) = refusal.receive() {
            // A message of several packets took its receive with the first one.
            if !matches!(self.message, Message::Send { .. }) {
                host.take_receive(receive.id);
            }
            self.message = Message::None;
            self.completed.push_error(receive.id, status);
        }
        self.fail();
    }

    //= [resp.execute-once]
    #[inline]
    fn execute(
        &mut self,
        inbound: &Inbound<'_>,
        accepted: &Accepted,
        host: &mut impl Host,
    ) -> Result<Place, Refusal> {
        let psn = inbound.bth.psn;
        let (place, packets) = match *accepted {
            Accepted::Send { receive, offset } => {
                (self.execute_send(inbound, receive, offset, host), 1)
            }
            Accepted::Write { range, left, len, receive } => {
                (self.execute_write(inbound, range, left, len, receive, host), 1)
            }
            Accepted::Read { range } => (Place::Nothing, self.execute_read(psn, range)),
            Accepted::Atomic(atomic) => {
                self.execute_atomic(psn, &atomic, host)?;
                (Place::Nothing, 1)
            }
        };
        self.refused = false;
        self.expected = psn + packets;
        let answers_itself = matches!(accepted, Accepted::Read { .. } | Accepted::Atomic(_));
        if inbound.bth.ack_request && !answers_itself {
            self.responses.acknowledge(psn, self.msn);
        }
        Ok(place)
    }

    fn execute_send(
        &mut self,
        inbound: &Inbound<'_>,
        receive: Receive,
        offset: u32,
        host: &mut impl Host,
    ) -> Place {
        let position = inbound.bth.opcode.position();
        if position.begins() {
            host.take_receive(receive.id);
        }
        let end = offset + inbound.len;
        if position.ends() {
            let kind = match *inbound.ext {
                Extension::Imm(imm) => ReceivedKind::SendImm(imm.data),
                Extension::Ieth(ieth) => ReceivedKind::SendInvalidate(ieth.rkey),
                _ => ReceivedKind::Send,
            };
            self.complete(receive, kind, end, inbound.bth.solicited);
            self.end_message();
        } else {
            self.message = Message::Send { receive, offset: end };
        }
        match inbound.len {
            0 => Place::Nothing,
            _ => Place::Receive { id: receive.id, offset },
        }
    }

    #[inline]
    fn execute_write(
        &mut self,
        inbound: &Inbound<'_>,
        range: Range,
        left: u32,
        len: u32,
        receive: Option<Receive>,
        host: &mut impl Host,
    ) -> Place {
        let Range { rkey, va, len: piece } = range;
        if inbound.bth.opcode.position().ends() {
            if let (Some(receive), Extension::Imm(imm) | Extension::RethImm(_, imm)) =
                (receive, inbound.ext)
            {
                host.take_receive(receive.id);
                let kind = ReceivedKind::WriteImm(imm.data);
                self.complete(receive, kind, len, inbound.bth.solicited);
            }
            self.end_message();
        } else {
            let va = va.wrapping_add(u64::from(piece));
            self.message = Message::Write { rkey, va, left, len };
        }
        match piece {
            0 => Place::Nothing,
            _ => Place::Region { rkey, va },
        }
    }

    /// Returns the PSNs that the response takes.
    fn execute_read(&mut self, psn: Psn, range: Range) -> u32 {
        let packets = self.mtu.packets(range.len);
        self.end_message();
        self.replays.keep(Replay::Read { first: psn, packets, range });
        let msn = self.msn;
        let read = ReadResponse { original: psn, replay: false, psn, msn, range, begun: false };
        self.responses.answer_read(read);
        packets
    }

    fn execute_atomic(
        &mut self,
        psn: Psn,
        atomic: &Atomic,
        host: &mut impl Host,
    ) -> Result<(), Refusal> {
        let original =
            host.atomic(atomic).map_err(|Denied| Refusal::Operational { receive: None })?;
        let original = original.ok_or(Refusal::NotYet)?;
        self.end_message();
        self.replays.keep(Replay::Atomic { psn, original });
        self.responses.answer_atomic(psn, self.msn, original);
        Ok(())
    }

    fn complete(&mut self, receive: Receive, kind: ReceivedKind, len: u32, solicited: bool) {
        self.completed.push(receive.id, Received { kind, len, solicited });
    }

    //= [resp.msn]
    #[inline]
    fn end_message(&mut self) {
        self.message = Message::None;
        self.msn += 1;
    }

    /// A packet that was executed before. SENDs and writes are only acknowledged again; READs are
    /// read again and atomics answered from memory if they are among the last.
    //= [resp.duplicate]
    fn handle_duplicate(&mut self, bth: &Bth, ext: &Extension, stats: &mut Stats) {
        if !self.responses.has_room() {
            stats.overruns += 1;
            return;
        }
        match (bth.opcode.operation(), *ext) {
            (Operation::Send | Operation::Write, _) => {
                self.responses.acknowledge(self.expected - 1, self.msn);
            }
            (Operation::ReadRequest, Extension::Reth(reth)) => self.replay_read(bth.psn, &reth),
            (Operation::CompareSwap | Operation::FetchAdd, _) => {
                if let Some(original) = self.replays.original(bth.psn) {
                    self.responses.repeat_atomic(bth.psn, self.msn, original);
                }
            }
            _ => {}
        }
    }

    fn replay_read(&mut self, psn: Psn, reth: &Reth) {
        let Reth { va, rkey, dma_len } = *reth;
        if dma_len > MAX_MESSAGE {
            return;
        }
        let range = Range { rkey, va, len: dma_len };
        if let Some(original) = self.replays.read(psn, range, self.mtu.bytes() as u32) {
            let msn = self.msn;
            let read = ReadResponse { original, replay: true, psn, msn, range, begun: false };
            self.responses.repeat_read(read);
        }
    }

    /// The next response to be sent.
    pub(crate) fn poll_transmit(
        &mut self,
        host: &mut impl Host,
        stats: &mut Stats,
    ) -> Option<Transmit> {
        let mtu = self.mtu.bytes() as u32;
        let left = host.receives_left();
        let transmit = match self.responses.next(self.dest_qpn, mtu, self.credits(left), host)? {
            Ok(transmit) => transmit,
            Err(nak) => {
                self.fail();
                nak
            }
        };
        stats.responses_sent += 1;
        self.no_credits = left == Some(0);
        Some(transmit)
    }

    /// Messages beyond the completed ones that have a receive; one that is arriving has its own.
    fn credits(&self, left: Option<u32>) -> Credits {
        let arriving = u32::from(matches!(self.message, Message::Send { .. }));
        left.map_or(Credits::UNLIMITED, |left| Credits::at_most(left.saturating_add(arriving)))
    }

    /// The peer's last credits were zero: [`receive_available`](Self::receive_available) sends new
    /// ones.
    pub(crate) fn awaits_receives(&self) -> bool {
        self.no_credits && !self.failed
    }

    pub(crate) fn modify(&mut self, config: &Config) {
        self.min_rnr_timer = config.min_rnr_timer;
    }

    /// A request of this service with an opcode that is reserved.
    //= [resp.reserved-opcode]
    pub(crate) fn handle_reserved(&mut self, psn: Psn, host: &mut impl Host, stats: &mut Stats) {
        match self.check_psn(psn) {
            PsnCheck::Expected => self.refuse(psn, Refusal::Invalid, host, stats),
            PsnCheck::Duplicate => {}
            PsnCheck::OutOfSequence => {
                stats.out_of_sequence += 1;
                self.refuse_sequence(stats);
            }
        }
    }
}
