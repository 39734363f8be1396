//! Sends.

use super::{Direct, GONE, Id, lock, retire, try_lock};
use crate::FirstError;
use crate::post::protocol::Ring;
use crate::post::request::{Action, Request};
use crate::post::words::Words;
use crate::post::work::Posted;
use crate::provider::{NotPosted, SendPort};
use std::collections::VecDeque;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use warpverbs_mlx5::export::{ErrorWord, Outcome};
use warpverbs_mlx5::syndrome::Syndrome;
use warpverbs_nic::{Gone, Rule};
use warpverbs_rdma::{Completion, Data, Op, SendFlags, WorkRequest};

/// Completions processed in one call.
const MOST: usize = 256;

/// The posters' side of a send queue.
#[derive(Debug)]
pub(super) struct Sending {
    port: Box<dyn SendPort>,
    /// A WRITE after which the NIC was not asked for a completion: an empty one like it asks.
    silent: Option<Op>,
    /// End of the last request that asked for one.
    asked: u64,
    deferred: VecDeque<Deferred>,
    /// A deferred request will end the queue: nothing after it goes to the NIC.
    broken: bool,
}

/// A request that is not given to the NIC: it completes, or fails, when all before it is complete.
#[derive(Debug)]
struct Deferred {
    index: u64,
    end: u64,
    /// Why it fails, if it does.
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
    pub(super) fn new(port: Box<dyn SendPort>) -> Self {
        Self { port, silent: None, asked: 0, deferred: VecDeque::new(), broken: false }
    }

    pub(super) fn reset(&mut self) {
        (self.silent, self.asked, self.broken) = (None, 0, false);
        self.deferred.clear();
    }

    /// Posts a request. The rule for which the NIC refuses it, if it does.
    #[inline]
    fn post(&mut self, work: &WorkRequest<'_>) -> Result<Option<Rule>, Full> {
        match self.port.post_send(work) {
            Ok(()) => Ok(None),
            Err(NotPosted::Full) => Err(Full),
            Err(NotPosted::Refused(rule)) => Ok(Some(*rule)),
        }
    }

    /// Asks for a completion, with identity `id`, of work at the NIC that was not to report any.
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
    pub(in crate::post) fn try_post(&self, q: &Words, request: &Request<'_>) -> Option<Posted> {
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
            // The cause that the NIC reports comes first.
            self.drain_send(q);
            let flushed = Syndrome::WrFlush;
            q.claim_error(self.error(index, flushed, flushed.usual_vendor()));
        } else if self.deferred.load(Relaxed) > 0 {
            self.complete_deferred(q);
        }
        Some(Posted { index, end, signaled })
    }

    /// Indexes that may be in flight: the NIC remembers as many completions.
    #[inline]
    fn window(&self, q: &Words) -> u64 {
        q.send.depth().min(self.send_depth)
    }

    #[inline]
    fn slot(&self, index: u64) -> usize {
        index as usize & (self.opcodes.len() - 1)
    }

    /// Gives the NIC the work request at `index`, or defers it. Whether its completion will be
    /// reported without being asked for.
    #[inline]
    fn hand_over(
        &self,
        q: &Words,
        sending: &mut Sending,
        request: &Request<'_>,
        index: u64,
    ) -> Result<bool, Full> {
        let id = Id { generation: self.generation.load(Relaxed), indexes: 1, end: index + 1 };
        // A queue full of silent work would not make room.
        let overdue = id.end - sending.asked >= self.window(q) / 2;
        let signaled = request.flags.contains(SendFlags::SIGNALED) || overdue;
        let broken = match request.action {
            Action::Rdma(op) => {
                // The completion of a plain WRITE can be asked for later.
                let silent = !signaled && matches!(op, Op::Write(_));
                let mut flags = request.flags;
                flags.set(SendFlags::SIGNALED, !silent);
                let work = WorkRequest { id: id.pack(), op, data: request.data, flags };
                match sending.post(&work)? {
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
            Action::Nop if sending.silent.is_some() => match sending.ask(id)? {
                None => return Ok(true),
                refused => refused,
            },
            Action::Nop => None,
            _ => Some(Rule::NotProxied { opcode: request.opcode() }),
        };
        if broken.is_some() {
            // It fails when the work before it is complete, which must be reported.
            sending.ask(Id { indexes: 0, end: index, ..id })?;
            sending.broken = true;
        }
        let failure = broken.map(|rule| Failure {
            syndrome: rule.status().map_or(Syndrome::LocalQpOp, Syndrome::of_failure),
            rule: Some(rule),
        });
        sending.deferred.push_back(Deferred { index, end: id.end, failure });
        self.deferred.store(sending.deferred.len(), Relaxed);
        Ok(true)
    }

    /// Processes the available send completions, unless another thread is polling.
    #[inline]
    pub(in crate::post) fn drain_send(&self, q: &Words) {
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
        if self.deferred.load(Relaxed) > 0 {
            self.complete_deferred(q);
        }
    }

    /// A send has completed, and all before it.
    #[inline]
    fn settle(&self, q: &Words, completion: &Completion) {
        let id = Id::unpack(completion.id);
        if id.generation != self.generation.load(Relaxed) {
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

    /// Completes the deferred requests that nothing is before any more.
    #[cold]
    fn complete_deferred(&self, q: &Words) {
        let mut sending = lock(&self.send);
        let mut failed = None;
        while let Some(&Deferred { index, end, failure }) = sending.deferred.front()
            && index <= q.send.completed()
        {
            sending.deferred.pop_front();
            match failure {
                None => retire(&q.send, end),
                Some(failure) => failed = Some((index, failure)),
            }
        }
        self.deferred.store(sending.deferred.len(), Relaxed);
        drop(sending);
        if let Some((index, failure)) = failed {
            self.fail(q, index, failure, failure.syndrome.usual_vendor());
        }
    }

    /// The send at `index` has failed.
    #[cold]
    fn fail(&self, q: &Words, index: u64, failure: Failure, vendor: u8) {
        let Failure { syndrome, rule } = failure;
        if syndrome != Syndrome::WrFlush {
            lock(&self.first_error).get_or_insert(FirstError {
                index,
                status: syndrome.status(),
                rule,
            });
        }
        q.claim_error(self.error(index, syndrome, vendor));
        self.end(q);
    }

    fn error(&self, index: u64, syndrome: Syndrome, vendor: u8) -> ErrorWord {
        let opcode = self.opcodes[self.slot(index)].load(Relaxed);
        ErrorWord::failed(Outcome::Requester, syndrome.value(), vendor, opcode, index as u16)
    }

    /// The NIC is gone: nothing that it has will complete.
    #[cold]
    fn lose(&self, q: &Words) {
        let (index, end) = (q.send.completed(), q.send.published().load(Acquire));
        self.has_failed();
        if index < end {
            self.fail(q, index, Failure { syndrome: GONE, rule: None }, GONE.usual_vendor());
        }
    }
}
