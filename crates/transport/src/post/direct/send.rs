//! Sends.

use super::{Direct, GONE, Id, lock, retire, try_lock};
use crate::FirstError;
use crate::post::host::HostQueues;
use crate::post::protocol::Ring;
use crate::post::request::{Action, Pieces, Request};
use crate::post::rings::error_opcode;
use crate::post::work::Posted;
use crate::provider::SendPort;
use std::collections::VecDeque;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use warpverbs_mlx5::cqe::ErrorSide;
use warpverbs_mlx5::export::ErrorWord;
use warpverbs_mlx5::syndrome::Syndrome;
use warpverbs_nic::{Bounds, Gone, ProxyKeys, Rule};
use warpverbs_rdma::{Completion, Data, Op, SendFlags, WorkRequest};

/// Completions looked at in one go.
const MOST: usize = 256;

/// The posters' side of a send queue.
#[derive(Debug)]
pub(super) struct Sending {
    port: Box<dyn SendPort>,
    keys: ProxyKeys,
    /// A WRITE behind which the NIC was not asked for a completion: how to ask.
    silent: Option<Op>,
    /// Where the NIC was asked for one last.
    asked: u64,
    turns: VecDeque<Turn>,
    /// A turn will end the queue.
    broken: bool,
}

/// What happens here when everything before `index` is complete.
#[derive(Debug)]
struct Turn {
    index: u64,
    end: u64,
    /// It fails; otherwise it is done.
    failure: Option<Failure>,
}

#[derive(Clone, Copy, Debug)]
struct Failure {
    syndrome: Syndrome,
    rule: Option<Rule>,
}

/// The NIC has no room.
struct Full;

impl Sending {
    pub(super) fn new(port: Box<dyn SendPort>, keys: ProxyKeys) -> Self {
        let turns = VecDeque::new();
        Self { port, keys, silent: None, asked: 0, turns, broken: false }
    }

    pub(super) fn reset(&mut self) {
        (self.silent, self.asked, self.broken) = (None, 0, false);
        self.turns.clear();
    }

    /// Posts a request. Why the NIC refuses it, if it does.
    #[inline]
    fn post(&mut self, work: &WorkRequest<'_>) -> Result<Option<Rule>, Full> {
        let posted = self.port.post_send(work);
        match (posted.count, posted.refused) {
            (1.., _) => Ok(None),
            (_, None) => Err(Full),
            (_, Some(errno)) => Ok(Some(Rule::DeviceRefused { errno })),
        }
    }

    /// If nothing tells of the end of the work at the NIC, work of identity `id` that does.
    fn ask(&mut self, id: Id) -> Result<Option<Rule>, Full> {
        let Some(op) = self.silent else { return Ok(None) };
        let (packed, data, flags) = (id.pack(), Data::Sges(&[]), SendFlags::SIGNALED);
        let refused = self.post(&WorkRequest { id: packed, op, data, flags })?;
        (self.silent, self.asked) = (None, id.end);
        Ok(refused)
    }
}

impl Direct {
    /// Posts a send work request. `None` if there is no room, here or at the NIC.
    pub(in crate::post) fn try_post(
        &self,
        q: &HostQueues,
        request: &Request<'_>,
    ) -> Option<Posted> {
        let mut sending = lock(&self.send);
        let index = q.send.reserved().load(Relaxed);
        let end = index + 1;
        if end > q.send.completed() + self.window(q) {
            return None;
        }
        self.opcodes[self.slot(index)].store(request.opcode().value(), Relaxed);
        let failed = self.failed.load(Acquire);
        let mut signaled = true;
        if !failed && !sending.broken {
            signaled = self.hand_over(q, &mut sending, request, index).ok()?;
        }
        if !signaled {
            q.send.unsignaled().store(end, Relaxed);
        }
        q.send.reserved().store(end, Release);
        q.send.published().store(end, Release);
        drop(sending);
        if failed {
            // What the NIC knows of its end comes first.
            self.drain_send(q);
            let flushed = Syndrome::WrFlush;
            q.claim_error(self.error(index, flushed, flushed.usual_vendor()));
        } else if self.turns.load(Relaxed) > 0 {
            self.take_turns(q);
        }
        Some(Posted { index, end, signaled })
    }

    /// Indexes that may be in flight: as many completions as the NIC remembers, at least.
    #[inline]
    fn window(&self, q: &HostQueues) -> u64 {
        q.send.depth().min(self.limits.send_depth.into())
    }

    #[inline]
    fn slot(&self, index: u64) -> usize {
        index as usize & (self.opcodes.len() - 1)
    }

    /// Gives the NIC the work request at `index`, or queues it here. Whether its completion will be
    /// reported without being asked for.
    #[inline]
    fn hand_over(
        &self,
        q: &HostQueues,
        sending: &mut Sending,
        request: &Request<'_>,
        index: u64,
    ) -> Result<bool, Full> {
        let id = Id { life: self.life.load(Relaxed), indexes: 1, end: index + 1 };
        // A queue full of silent work would not make room.
        let overdue = id.end - sending.asked >= self.window(q) / 2;
        let signaled = request.flags.contains(SendFlags::SIGNALED) || overdue;
        let mut pieces = Pieces::new();
        let broken = match self.translate(&mut sending.keys, request, &mut pieces) {
            Ok(Some((op, data))) => {
                // A plain WRITE can be asked after later.
                let silent = !signaled && matches!(op, Op::Write(_));
                let mut flags = request.flags;
                flags.set(SendFlags::SIGNALED, !silent);
                match sending.post(&WorkRequest { id: id.pack(), op, data, flags })? {
                    None if silent => {
                        sending.silent = Some(op);
                        return Ok(false);
                    }
                    None => {
                        (sending.silent, sending.asked) = (None, id.end);
                        return Ok(true);
                    }
                    refused => refused,
                }
            }
            Ok(None) if sending.silent.is_some() => match sending.ask(id)? {
                None => return Ok(true),
                refused => refused,
            },
            Ok(None) => None,
            Err(rule) => Some(*rule),
        };
        if broken.is_some() {
            // Its turn comes when the work before it is complete, which must be reported.
            sending.ask(Id { indexes: 0, end: index, ..id })?;
            sending.broken = true;
        }
        let failure = broken.map(|rule| Failure {
            syndrome: rule.syndrome().unwrap_or(Syndrome::LocalQpOp),
            rule: Some(rule),
        });
        sending.turns.push_back(Turn { index, end: id.end, failure });
        self.turns.store(sending.turns.len(), Relaxed);
        Ok(true)
    }

    /// A request as the device takes it, within its limits and under its keys; `None` for a NOP, for
    /// which the device has nothing to do.
    #[inline]
    fn translate<'a>(
        &self,
        keys: &mut ProxyKeys,
        request: &Request<'a>,
        pieces: &'a mut Pieces,
    ) -> Result<Option<(Op, Data<'a>)>, Box<Rule>> {
        let op = match request.action {
            Action::Rdma(op) => op,
            Action::Nop => return Ok(None),
            _ => return Err(Box::new(Rule::NotProxied { opcode: request.opcode() })),
        };
        let bounds = Bounds { limits: &self.limits, fetches: self.fetches.load(Relaxed) };
        let data = match request.data {
            Data::Inline(bytes) => {
                bounds.check_inline(bytes)?;
                request.data
            }
            Data::Sges(sges) => {
                bounds.translate(op, sges.iter().copied(), keys, |sge| pieces.push(sge))?;
                Data::Sges(pieces)
            }
        };
        Ok(Some((op, data)))
    }

    /// Takes the completions of sends that are there, unless somebody else does.
    #[inline]
    pub(in crate::post) fn drain_send(&self, q: &HostQueues) {
        let Some(mut sent) = try_lock(&self.sent) else { return };
        for _ in 0..MOST {
            match sent.next() {
                Ok(Some(completion)) => self.settle(q, &completion),
                Ok(None) => break,
                Err(Gone) => {
                    self.lose(q);
                    break;
                }
            }
        }
        drop(sent);
        if self.turns.load(Relaxed) > 0 {
            self.take_turns(q);
        }
    }

    /// A send has completed, and all before it.
    #[inline]
    fn settle(&self, q: &HostQueues, completion: &Completion) {
        let id = Id::unpack(completion.id);
        if id.life != self.life.load(Relaxed) {
            return;
        }
        match Syndrome::of(completion.status) {
            None => retire(&q.send, id.end),
            Some(syndrome) => {
                let failure = Failure { syndrome, rule: None };
                self.fail(q, id.index(), failure, completion.vendor as u8);
            }
        }
    }

    /// What is due among the turns.
    #[cold]
    fn take_turns(&self, q: &HostQueues) {
        let mut sending = lock(&self.send);
        let mut failed = None;
        while let Some(&Turn { index, end, failure }) = sending.turns.front()
            && index <= q.send.completed()
        {
            sending.turns.pop_front();
            match failure {
                None => retire(&q.send, end),
                Some(failure) => failed = Some((index, failure)),
            }
        }
        self.turns.store(sending.turns.len(), Relaxed);
        drop(sending);
        if let Some((index, failure)) = failed {
            self.fail(q, index, failure, failure.syndrome.usual_vendor());
        }
    }

    /// The send at `index` has failed.
    #[cold]
    fn fail(&self, q: &HostQueues, index: u64, failure: Failure, vendor: u8) {
        let Failure { syndrome, rule } = failure;
        if syndrome != Syndrome::WrFlush {
            lock(&self.first_error).get_or_insert(FirstError { index, syndrome, rule });
        }
        q.claim_error(self.error(index, syndrome, vendor));
        self.end(q);
    }

    fn error(&self, index: u64, syndrome: Syndrome, vendor: u8) -> ErrorWord {
        let opcode = self.opcodes[self.slot(index)].load(Relaxed);
        let side = error_opcode(ErrorSide::Requester);
        ErrorWord::new(side, syndrome.value(), vendor, opcode, index as u16)
    }

    /// Nothing that is at the NIC will come back.
    #[cold]
    fn lose(&self, q: &HostQueues) {
        let (index, end) = (q.send.completed(), q.send.published().load(Acquire));
        self.has_failed();
        if index < end {
            self.fail(q, index, Failure { syndrome: GONE, rule: None }, GONE.usual_vendor());
        }
    }
}
