//! Completer: what responses do to the requester (vol. 1, 9.7.6).

use warpverbs_wire::{Aeth, Bth, Extension, NakCode, Opcode, Operation, Psn, RnrTimer, Syndrome};

use crate::requester::Requester;
use crate::requester::queue::Entry;
use crate::{Instant, Op, Place, Stats, Status};

impl Requester {
    /// A response of the peer. Failures stay in the requester.
    pub(crate) fn handle_response(
        &mut self,
        now: Instant,
        bth: &Bth,
        ext: &Extension,
        payload_len: u32,
        stats: &mut Stats,
    ) -> Place {
        let Some(position) = self.check_psn(bth.psn, ext, stats) else { return Place::Nothing };
        let handled = match (bth.opcode.operation(), ext) {
            (Operation::Acknowledge, Extension::Aeth(aeth)) => {
                self.handle_acknowledge(now, position, aeth, stats).map(|()| Place::Nothing)
            }
            (Operation::AtomicAcknowledge, Extension::AethAtomicAck(aeth, ack)) => {
                self.handle_atomic(now, position, aeth, ack.original, stats)
            }
            (Operation::ReadResponse, Extension::Aeth(_) | Extension::Empty) => {
                self.handle_read(now, position, bth.opcode, ext, payload_len, stats)
            }
            // Headers that are not the opcode's do not come out of a parser.
            _ => Ok(Place::Nothing),
        };
        let place = handled.unwrap_or_else(|status| {
            self.fail(Some(status));
            Place::Nothing
        });
        self.check_pending_failure();
        place
    }

    /// The position that a response answers. One that is not outstanding has no effect, but the
    /// last acknowledgement may be repeated with new credits.
    fn check_psn(&mut self, psn: Psn, ext: &Extension, stats: &mut Stats) -> Option<u64> {
        let position = self.flight.outstanding_position(psn);
        if position.is_none() {
            stats.ghosts += 1;
            if let (true, Extension::Aeth(aeth)) = (self.flight.is_last_answered(psn), ext)
                && self.is_plausible(ext)
            {
                self.flight.learn_credits(aeth);
            }
        } else if !self.is_plausible(ext) {
            stats.implausible += 1;
            return None;
        }
        position
    }

    /// The message sequence number, where there is one, counts messages that are outstanding. An
    /// attacker who does not see the packets of a connection would have to guess it along with the
    /// PSN.
    //= [comp.msn]
    fn is_plausible(&self, ext: &Extension) -> bool {
        let (Extension::Aeth(aeth) | Extension::AethAtomicAck(aeth, _)) = ext else { return true };
        let (least, most) = self.queue.messages();
        aeth.msn.steps_from(least) <= most.steps_from(least)
    }

    fn handle_acknowledge(
        &mut self,
        now: Instant,
        position: u64,
        aeth: &Aeth,
        stats: &mut Stats,
    ) -> Result<(), Status> {
        match aeth.syndrome {
            Syndrome::Ack(_) => {
                self.flight.learn_credits(aeth);
                self.acknowledge(now, position + 1, stats)
            }
            Syndrome::RnrNak(timer) => self.handle_rnr(now, position, timer, stats),
            Syndrome::Nak(code) => self.handle_nak(now, position, code, stats),
            // Reserved: discarded.
            Syndrome::Unknown(_) => Ok(()),
        }
    }

    /// Everything before `upto` arrived. READs and atomics are only complete with their own
    /// responses: one that is passed over lost its own.
    //= [comp.coalesced-ack] [comp.implied-nak]
    fn acknowledge(&mut self, now: Instant, upto: u64, stats: &mut Stats) -> Result<(), Status> {
        let before = self.flight.una;
        while self.flight.una < upto {
            let Some(head) = self.queue.head() else { break };
            if head.request.op.is_rd_atomic() {
                break;
            }
            let end = head.end().min(upto);
            self.flight.advance(&mut self.queue, end, false);
        }
        if self.flight.una > before {
            self.retry.on_progress(now, self.flight.una, self.flight.is_outstanding());
        }
        match self.flight.una < upto {
            true => self.handle_loss(now, stats),
            false => Ok(()),
        }
    }

    /// Everything before a response or NAK at `position` arrived. Whether it is then the oldest
    /// outstanding; if not, something before it is lost.
    //= [comp.implied-ack]
    fn reach(&mut self, now: Instant, position: u64, stats: &mut Stats) -> Result<bool, Status> {
        self.acknowledge(now, position, stats)?;
        Ok(self.flight.una == position)
    }

    fn handle_loss(&mut self, now: Instant, stats: &mut Stats) -> Result<(), Status> {
        if self.retry.on_loss(now, self.flight.una)? {
            stats.losses += 1;
            self.handle_lost();
        }
        Ok(())
    }

    fn handle_rnr(
        &mut self,
        now: Instant,
        position: u64,
        timer: RnrTimer,
        stats: &mut Stats,
    ) -> Result<(), Status> {
        if self.reach(now, position, stats)? && self.retry.on_rnr(now, timer.delay())? {
            stats.rnr_waits += 1;
            self.rewind();
        }
        Ok(())
    }

    fn handle_nak(
        &mut self,
        now: Instant,
        position: u64,
        code: NakCode,
        stats: &mut Stats,
    ) -> Result<(), Status> {
        let status = match code {
            NakCode::PsnSequenceError => None,
            //= [comp.nak-fatal]
            NakCode::InvalidRequest => Some(Status::RemoteInvalidRequest),
            NakCode::RemoteAccessError => Some(Status::RemoteAccess),
            NakCode::RemoteOperationalError => Some(Status::RemoteOperation),
            // Reserved, or of another service: discarded.
            NakCode::InvalidRdRequest | NakCode::Unknown(_) => return Ok(()),
        };
        //= [exc.refusal-behind-read]
        if !self.reach(now, position, stats)? {
            return Ok(());
        }
        match status {
            None => self.handle_loss(now, stats),
            Some(status) => Err(status),
        }
    }

    fn handle_atomic(
        &mut self,
        now: Instant,
        position: u64,
        aeth: &Aeth,
        value: u64,
        stats: &mut Stats,
    ) -> Result<Place, Status> {
        let entry = *self.queue.find(position).ok_or(Status::BadResponse)?;
        if !entry.request.op.is_atomic() {
            return Err(Status::BadResponse);
        }
        if !self.reach(now, position, stats)? {
            return Ok(Place::Nothing);
        }
        self.flight.learn_credits(aeth);
        self.answer_one(now, true);
        Ok(Place::Original { id: entry.request.id, value })
    }

    //= [comp.read-response]
    fn handle_read(
        &mut self,
        now: Instant,
        position: u64,
        opcode: Opcode,
        ext: &Extension,
        payload_len: u32,
        stats: &mut Stats,
    ) -> Result<Place, Status> {
        let entry = *self.queue.find(position).ok_or(Status::BadResponse)?;
        let offset = match self.check_read_response(&entry, position, opcode, payload_len) {
            // Nothing but its PSN speaks for it: it may be anybody's.
            Err(Status::BadResponse) if matches!(ext, Extension::Empty) => {
                stats.implausible += 1;
                return Ok(Place::Nothing);
            }
            checked => checked?,
        };
        if !self.reach(now, position, stats)? {
            return Ok(Place::Nothing);
        }
        if let Extension::Aeth(aeth) = ext {
            self.flight.learn_credits(aeth);
        }
        self.answer_one(now, opcode.position().ends());
        Ok(match payload_len {
            0 => Place::Nothing,
            _ => Place::Request { id: entry.request.id, offset },
        })
    }

    /// The response is one that a READ at `position` gets; where its payload belongs.
    //= [comp.bad-response]
    fn check_read_response(
        &self,
        entry: &Entry,
        position: u64,
        opcode: Opcode,
        payload_len: u32,
    ) -> Result<u32, Status> {
        let Op::Read(_) = entry.request.op else { return Err(Status::BadResponse) };
        let chunk_end = self.flight.chunk_end(entry, position);
        // A repeated request may begin anywhere in a chunk, so its first response may as well.
        let no_begin = self.flight.begins_chunk(entry, position) && !opcode.position().begins();
        let ends = position + 1 == chunk_end;
        let offset = u64::from(entry.packets_before(position)) * u64::from(self.flight.mtu);
        let left = u64::from(entry.request.len).saturating_sub(offset);
        let expected_len = left.min(u64::from(self.flight.mtu));
        if no_begin || opcode.position().ends() != ends || u64::from(payload_len) != expected_len {
            return Err(Status::BadResponse);
        }
        Ok(offset as u32)
    }

    /// The response at the oldest outstanding position is here.
    fn answer_one(&mut self, now: Instant, rd_atomic: bool) {
        self.flight.advance(&mut self.queue, self.flight.una + 1, rd_atomic);
        self.retry.on_progress(now, self.flight.una, self.flight.is_outstanding());
    }
}
