//! One connection between two agents, as the threads that send on it see it.

use super::frame::{Frame, Service};
use super::streams::Streams;
use crate::at_hand;
use crate::deadline::Deadline;
use crate::lock;
use crate::names::Owner;
use crate::{AgentConfig, AgentError};
use std::collections::{HashMap, VecDeque};
use std::io::{ErrorKind, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use warpverbs_meet::Wake;
use warpverbs_mem::Proof;

/// Unsent bytes that a peer may let accumulate, beside one answer. A peer that lets more wait is lost.
const MOST_UNSENT: usize = 64 << 20;
/// While this many bytes are unsent, notifications stay in their queue, where they can be withdrawn.
const ENOUGH: usize = 1 << 20;
/// Proofs that are kept in memory for the peer to read. A peer that asks for more at a time has to repeat
/// some requests.
const PROOFS: usize = 16;
/// Capacity that an empty queue keeps.
const KEPT: usize = 64 << 10;

/// Deregistered memory, which is kept until a peer has confirmed that it does not touch it.
pub(crate) trait Revoked: Send + Sync {
    fn id(&self) -> u32;
    fn label(&self) -> &str;
}

/// Identifies a connection among all that this process has ever had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkId(u64);

/// A connection. Sending never waits.
pub(crate) struct Link {
    pub(crate) id: LinkId,
    pub(crate) stream: TcpStream,
    /// Whether it was made here.
    outbound: bool,
    out: Mutex<VecDeque<u8>>,
    /// Bytes in `out`.
    unsent: AtomicUsize,
    /// The reason why it is lost.
    lost: OnceLock<AgentError>,
    wake: Arc<Wake>,
    notices: Mutex<Notices>,
    calls: Mutex<Calls>,
    answered: Condvar,
    /// Deregistered memory that the peer may still access.
    pub(crate) revoking: Mutex<HashMap<u32, Arc<dyn Revoked>>>,
    /// Proofs that the peer reads from this process.
    proofs: Mutex<VecDeque<Proof>>,
    /// Streams whose events travel on this connection.
    pub(crate) streams: Streams,
}

/// Notifications on their way to the peer.
#[derive(Default)]
struct Notices {
    credits: u32,
    next: u64,
    /// Sent and not yet accepted.
    sent: HashMap<u64, Arc<Receipt>>,
    /// Waiting for credits of the peer.
    waiting: VecDeque<(Vec<u8>, Arc<Receipt>)>,
}

#[derive(Default)]
struct Calls {
    next: u64,
    answers: HashMap<u64, Option<Result<Vec<u8>, String>>>,
}

const WAITING: u8 = 0;
const SENT: u8 = 1;
const ACCEPTED: u8 = 2;
const LOST: u8 = 3;
const DECLINED: u8 = 4;

/// The fate of a notification.
pub(crate) struct Receipt {
    fate: AtomicU8,
    /// Its length.
    len: usize,
    /// The peer's reason for declining it.
    why: OnceLock<String>,
}

impl Receipt {
    /// Whether the peer has it. On an error, that will never be known.
    pub(crate) fn poll(&self, link: &Link) -> Result<bool, AgentError> {
        match self.fate.load(Ordering::Acquire) {
            ACCEPTED => Ok(true),
            DECLINED => {
                let (len, why) = (self.len, self.why.get().cloned().unwrap_or_default());
                Err(AgentError::Notification { len, why })
            }
            LOST => Err(link.why()),
            _ => Ok(false),
        }
    }

    fn set(&self, from: u8, to: u8) -> bool {
        self.fate.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Withdraws it; whether that was before it was sent.
    pub(crate) fn withdraw(&self) -> bool {
        self.set(WAITING, LOST)
    }
}

impl Link {
    /// A connection made by the other end or, with the peer's first credits, by this one.
    pub(crate) fn new(stream: TcpStream, wake: Arc<Wake>, credits: Option<u32>) -> Self {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let (outbound, credits) = (credits.is_some(), credits.unwrap_or(0));
        Self {
            id: LinkId(MADE.fetch_add(1, Ordering::Relaxed)),
            stream,
            outbound,
            out: Mutex::default(),
            unsent: AtomicUsize::new(0),
            lost: OnceLock::new(),
            wake,
            notices: Mutex::new(Notices { credits, ..Notices::default() }),
            calls: Mutex::default(),
            answered: Condvar::new(),
            revoking: Mutex::default(),
            proofs: Mutex::default(),
            streams: Streams::default(),
        }
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.lost.get().is_some()
    }

    pub(crate) fn why(&self) -> AgentError {
        let unknown = || AgentError::PeerLost { peer: "peer".into(), why: "unknown".into() };
        self.lost.get().cloned().unwrap_or_else(unknown)
    }

    /// Fails everything that waits for the peer. The first reason stays.
    pub(crate) fn lose(&self, why: AgentError) {
        let _ = self.lost.set(why);
        self.streams.lose(&self.why());
        let mut notices = lock(&self.notices);
        let waiting: Vec<_> = notices.waiting.drain(..).map(|(_, receipt)| receipt).collect();
        for receipt in waiting.into_iter().chain(notices.sent.drain().map(|(_, receipt)| receipt)) {
            let _ = receipt.set(WAITING, LOST) || receipt.set(SENT, LOST);
        }
        drop(notices);
        self.tell();
        if !self.outbound {
            // The peer sees the end, and closes once it no longer accesses memory.
            let _ = self.stream.shutdown(Shutdown::Write);
        }
        self.wake.wake();
    }

    pub(crate) fn close(&self) {
        let _ = self.stream.shutdown(Shutdown::Both);
        let kept = std::mem::take(&mut *lock(&self.revoking));
        // Memory is freed after the lock is released.
        drop(kept);
        lock(&self.proofs).clear();
    }

    /// Keeps a proof in memory until newer ones replace it or the connection ends.
    pub(crate) fn keep(&self, proof: Proof) {
        let mut proofs = lock(&self.proofs);
        if proofs.len() == PROOFS {
            proofs.pop_front();
        }
        proofs.push_back(proof);
    }

    /// Sends what the system takes now; the control thread sends the rest.
    pub(crate) fn send(&self, frame: &Frame<'_>) {
        if self.is_lost() {
            return;
        }
        let mut out = lock(&self.out);
        let was_empty = out.is_empty();
        out.extend(frame.encode());
        if was_empty && !self.write(&mut out) || out.len() > MOST_UNSENT {
            self.wake.wake();
        }
        self.unsent.store(out.len(), Ordering::Relaxed);
    }

    /// Bytes that wait to be sent.
    pub(crate) fn unsent(&self) -> usize {
        self.unsent.load(Ordering::Relaxed)
    }

    /// Whether more than one answer is unread by the other end.
    pub(crate) fn is_unread(&self, answer: usize) -> bool {
        self.unsent() > MOST_UNSENT.saturating_add(answer)
    }

    /// Writes queued bytes as far as the socket takes them, then notifications for which there is room.
    pub(crate) fn flush(&self) {
        let mut out = lock(&self.out);
        self.write(&mut out);
        self.unsent.store(out.len(), Ordering::Relaxed);
        drop(out);
        if self.outbound {
            self.send_waiting(&mut lock(&self.notices));
        }
    }

    /// Whether all was taken. A broken connection shows when it is read.
    fn write(&self, out: &mut VecDeque<u8>) -> bool {
        loop {
            let (first, _) = out.as_slices();
            if first.is_empty() {
                out.shrink_to(KEPT);
                return true;
            }
            match (&self.stream).write(first) {
                Ok(count) => drop(out.drain(..count)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                Err(_) => out.clear(),
            }
        }
    }

    /// Sends a notification as soon as the peer has room.
    pub(crate) fn notify(&self, bytes: &[u8], queue: usize) -> Result<Arc<Receipt>, AgentError> {
        let len = bytes.len();
        if len > AgentConfig::MAX_NOTIFICATION {
            let why = format!("at most {} are taken", AgentConfig::MAX_NOTIFICATION);
            return Err(AgentError::Notification { len, why });
        }
        let receipt = Arc::new(Receipt { fate: AtomicU8::new(WAITING), len, why: OnceLock::new() });
        let mut notices = lock(&self.notices);
        if self.is_lost() {
            return Err(self.why());
        }
        if notices.waiting.len() >= queue {
            notices.waiting.retain(|(_, receipt)| receipt.fate.load(Ordering::Acquire) == WAITING);
        }
        if notices.waiting.len() >= queue {
            let why = format!("{queue} notifications already wait for room at the peer");
            return Err(AgentError::Notification { len, why });
        }
        notices.waiting.push_back((bytes.to_vec(), receipt.clone()));
        self.send_waiting(&mut notices);
        Ok(receipt)
    }

    /// Under the lock, so that they leave in order.
    fn send_waiting(&self, notices: &mut Notices) {
        while notices.credits > 0 && self.unsent() < ENOUGH {
            let Some((bytes, receipt)) = notices.waiting.pop_front() else { return };
            if !receipt.set(WAITING, SENT) {
                continue;
            }
            let number = notices.next;
            notices.next += 1;
            notices.credits -= 1;
            notices.sent.insert(number, receipt);
            self.send(&Frame::Notify { number, bytes: bytes.into() });
        }
    }

    pub(crate) fn accepted(&self, number: u64, count: impl FnOnce()) -> Result<(), String> {
        let receipt = lock(&self.notices).sent.remove(&number);
        let receipt = receipt.ok_or_else(|| format!("notification {number} was not sent"))?;
        // Counted first: a thread that sees the receipt may look at the counters.
        count();
        receipt.set(SENT, ACCEPTED);
        self.tell();
        Ok(())
    }

    /// Wakes those who wait for an answer of the peer.
    fn tell(&self) {
        // A thread that has looked already waits now.
        drop(lock(&self.calls));
        self.answered.notify_all();
    }

    /// The peer has declined it, and has room for another one.
    pub(crate) fn declined(&self, number: u64, why: String) -> Result<(), String> {
        let mut notices = lock(&self.notices);
        let receipt = notices.sent.remove(&number);
        let receipt = receipt.ok_or_else(|| format!("notification {number} was not sent"))?;
        let _ = receipt.why.set(why);
        receipt.set(SENT, DECLINED);
        notices.credits = notices.credits.saturating_add(1);
        self.send_waiting(&mut notices);
        drop(notices);
        self.tell();
        Ok(())
    }

    pub(crate) fn credit(&self, count: u32) {
        let mut notices = lock(&self.notices);
        notices.credits = notices.credits.saturating_add(count);
        self.send_waiting(&mut notices);
    }

    /// Sends a call and returns its number; [`Link::answered`] returns the answer.
    pub(crate) fn ask(&self, service: Service, bytes: &[u8]) -> u64 {
        let mut calls = lock(&self.calls);
        let number = calls.next;
        calls.next += 1;
        calls.answers.insert(number, None);
        drop(calls);
        self.send(&Frame::Call { number, service, bytes: bytes.into() });
        number
    }

    /// The answer, once it has come; it is returned once.
    pub(crate) fn answered(&self, number: u64) -> Option<Result<Vec<u8>, String>> {
        let mut calls = lock(&self.calls);
        let answer = calls.answers.get_mut(&number)?.take()?;
        calls.answers.remove(&number);
        Some(answer)
    }

    /// Sends a call and waits for the answer.
    pub(crate) fn call(
        &self,
        peer: &dyn std::fmt::Display,
        service: Service,
        bytes: &[u8],
        deadline: &Deadline,
    ) -> Result<Vec<u8>, AgentError> {
        let what = || format!("an answer from {peer}");
        deadline.left(what)?;
        if !at_hand::may_wait() {
            return Err(deadline.late(what()));
        }
        let number = self.ask(service, bytes);
        let has = |calls: &Calls| matches!(calls.answers.get(&number), Some(Some(_)));
        let waited = self.wait(deadline, what, has);
        // One that came as the time ended counts; from now on it is dropped.
        let answer = lock(&self.calls).answers.remove(&number).flatten();
        let answer = answer.map_or_else(|| waited.and(Err(self.why())), Ok)?;
        answer.map_err(|why| AgentError::Refused { peer: peer.to_string(), why })
    }

    /// Waits until the fate of a notification is known, or the time is over.
    pub(crate) fn wait_for_receipt(&self, receipt: &Receipt, deadline: &Deadline) {
        let known = |_: &Calls| !matches!(receipt.fate.load(Ordering::Acquire), WAITING | SENT);
        // Late or not: the receipt says it.
        let _ = self.wait(deadline, String::new, known);
    }

    /// Waits until an answer is there, or none can come.
    fn wait(
        &self,
        deadline: &Deadline,
        what: impl Fn() -> String,
        is_there: impl Fn(&Calls) -> bool,
    ) -> Result<(), AgentError> {
        let mut calls = lock(&self.calls);
        while !is_there(&calls) && !self.is_lost() {
            calls = deadline.wait(&self.answered, calls, &what)?;
        }
        Ok(())
    }

    /// An answer to a call that was given up is dropped.
    pub(crate) fn answer(&self, number: u64, answer: Result<Vec<u8>, String>) {
        if let Some(slot) = lock(&self.calls).answers.get_mut(&number) {
            *slot = Some(answer);
        }
        self.answered.notify_all();
    }

    /// Revokes `memory` at the peer; it is kept until the peer confirms that it no longer accesses it.
    pub(crate) fn revoke(&self, memory: &Arc<dyn Revoked>) {
        lock(&self.revoking).insert(memory.id(), memory.clone());
        self.send(&Frame::Revoke { id: memory.id() });
    }

    pub(crate) fn revoked(&self, id: u32) {
        let kept = lock(&self.revoking).remove(&id);
        // Memory is freed after the lock is released.
        drop(kept);
    }
}

/// The reason in an error, with the peer's name.
pub(crate) fn lost(peer: &Owner, why: impl ToString) -> AgentError {
    AgentError::PeerLost { peer: peer.to_string(), why: why.to_string() }
}

/// The agent of this end has ended.
pub(crate) fn ended(own: &Owner) -> AgentError {
    lost(own, "this agent has ended")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::time::Duration;

    /// Whenever the time ends: before the question, as the answer is waited for, between two looks.
    #[test]
    fn a_call_that_is_late_leaves_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        stream.set_nonblocking(true).unwrap();
        let link = Link::new(stream, Arc::new(Wake::new().unwrap()), Some(0));
        for nanos in 0..20_000 {
            let deadline = Deadline::after(Duration::from_nanos(nanos % 2000));
            let late = link.call(&"peer", Service::Fetch, b"", &deadline).unwrap_err();
            assert!(matches!(late, AgentError::Timeout { .. }), "{late}");
            assert!(lock(&link.calls).answers.is_empty(), "after {nanos} ns");
        }
        // A later answer is dropped.
        let asked = lock(&link.calls).next;
        assert!(asked > 0);
        link.answer(asked - 1, Ok(vec![7]));
        assert!(lock(&link.calls).answers.is_empty());
    }
}
