//! A link, as programs use it.

use super::domain::left;
use super::engine::{Engine, Interest};
use super::error::TcpError;
use super::keys::RemoteKey;
use super::protocol::{Agreed, Framing, Offer, Op, Request};
use super::receive::PayloadCounts;
use super::spins::Spins;
use rustix::event::{PollFd, PollFlags};
use std::fmt;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use warpverbs_meet::{Deadline, poll};
use warpverbs_mem::{Region, SmallBuf};

/// The longest sleep of a waiting thread, since another thread that uses the link may complete its
/// request.
const NAP: Duration = Duration::from_millis(10);
/// The longest sleep of a serving thread. The peer's bytes wake it; the limit is for asking `done`.
const SERVING_NAP: Duration = Duration::from_millis(200);

/// A link to a peer: several sockets, used as one.
///
/// A link has no thread of its own: bytes move only while one of these methods runs. An end that
/// only serves the peer's reads and writes calls [`Link::serve`].
///
/// Memory is given as a [`Region`], which the link keeps alive; bytes must not be changed
/// while they are sent. Dropping a link ends it at once, which the peer sees as an error; [`Link::close`]
/// ends it in good order.
pub struct Link {
    engine: Mutex<Engine>,
    sockets: Arc<[TcpStream]>,
    agreed: Agreed,
    secret: [u8; 16],
    offers: [Offer; 2],
    why: Arc<str>,
    spin: Duration,
    spins: Spins,
    /// Threads that wait for the engine.
    waiting: AtomicU32,
    /// A thread waits to end the link: no other begins anything.
    ending: Arc<AtomicBool>,
}

/// The state of a wait while there is nothing to do.
struct Idle {
    /// When it sleeps.
    until: Instant,
    /// Until then it polls.
    spins: bool,
    /// It has slept.
    slept: bool,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Link({})", self.explain())
    }
}

impl Link {
    pub(super) fn new(
        engine: Engine,
        agreed: Agreed,
        secret: [u8; 16],
        offers: [Offer; 2],
        why: Arc<str>,
        spin: Duration,
    ) -> Self {
        Self {
            sockets: engine.sockets(),
            ending: engine.ending(),
            engine: Mutex::new(engine),
            agreed,
            secret,
            offers,
            why,
            spin,
            spins: Spins::default(),
            waiting: AtomicU32::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Engine> {
        if let Ok(engine) = self.engine.try_lock() {
            return engine;
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let engine = self.engine.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        engine
    }

    /// The outcome of the handshake.
    pub fn agreed(&self) -> &Agreed {
        &self.agreed
    }

    /// The secret with which it began.
    pub fn secret(&self) -> &[u8; 16] {
        &self.secret
    }

    /// How each end receives, and why this one does so, in one line.
    pub fn explain(&self) -> String {
        let [near, far] = self.offers;
        let Agreed { sockets, chunk, receive, send, .. } = self.agreed;
        let framing = |framing| match framing {
            Framing::Inline => "headers before their payload",
            Framing::Separate => "headers on a socket of their own",
        };
        format!(
            "{sockets} sockets, chunks of {chunk} bytes; this end receives into {} ({}), {}; the \
             peer into {} ({})",
            near.receive,
            framing(receive),
            self.why,
            far.receive,
            framing(send),
        )
    }

    /// Where the kernel put the payload received so far. Nothing is counted at an end that receives
    /// into host memory.
    pub fn placed(&self) -> PayloadCounts {
        self.lock().counts().unwrap_or_default()
    }

    /// Sends with `MSG_ZEROCOPY` ([`Config::zerocopy`](super::Config)), and how many of them the kernel
    /// has copied after all.
    pub fn zerocopied(&self) -> (u64, u64) {
        self.lock().zerocopied()
    }

    /// The peer's address.
    ///
    /// # Errors
    /// The socket has failed.
    pub fn peer(&self) -> Result<SocketAddr, TcpError> {
        self.sockets[0].peer_addr().map_err(TcpError::socket("the peer's address"))
    }

    fn post(&self, op: Op, memory: Region, remote: Option<RemoteKey>) -> Result<Request, TcpError> {
        self.posting().post(op, memory, remote)
    }

    /// Requests that are posted by this value begin together when it is dropped: many short ones
    /// travel by few system calls. Other threads wait for the link meanwhile.
    pub fn posting(&self) -> Posting<'_> {
        Posting { engine: self.lock(), begin: false }
    }

    /// Sends all of `memory` as one message. Complete when the memory may be changed again.
    ///
    /// # Errors
    /// The link is over.
    pub fn isend(&self, memory: &Region) -> Result<Request, TcpError> {
        self.post(Op::Send, memory.clone(), None)
    }

    /// Receives the peer's next message that has no receive yet; its length is the result.
    ///
    /// # Errors
    /// The link is over.
    pub fn irecv(&self, memory: &Region) -> Result<Request, TcpError> {
        self.post(Op::Receive, memory.clone(), None)
    }

    /// Writes all of `memory` to the start of `to`. Complete when it is in the peer's memory.
    ///
    /// # Errors
    /// The link is over; too many writes are under way.
    pub fn write(&self, memory: &Region, to: RemoteKey) -> Result<Request, TcpError> {
        self.post(Op::Write, memory.clone(), Some(to))
    }

    /// Reads from the start of `from` until `memory` is full.
    ///
    /// # Errors
    /// The link is over; too many reads are under way.
    pub fn read(&self, memory: &Region, from: RemoteKey) -> Result<Request, TcpError> {
        self.post(Op::Read, memory.clone(), Some(from))
    }

    /// Sends a notification of up to 64 KiB, which the peer gets after all writes posted before.
    ///
    /// # Errors
    /// The link is over; the notification is too long.
    pub fn notify(&self, bytes: &[u8]) -> Result<Request, TcpError> {
        self.post(Op::Notify, SmallBuf::of(bytes), None)
    }

    /// Moves bytes; returns the result of a request, the number of its bytes, once it is complete. The
    /// result is returned once.
    ///
    /// # Errors
    /// The request failed, or the link is over.
    pub fn test(&self, request: Request) -> Result<Option<u64>, TcpError> {
        let mut engine = self.lock();
        if let Some(result) = engine.take(request) {
            return result.map(Some);
        }
        // A fault is the result of every request that is not complete.
        let _ = engine.progress();
        engine.take(request).transpose()
    }

    /// Waits until a request is complete. After a timeout the request goes on, and can be waited for
    /// again.
    ///
    /// # Errors
    /// The request failed or was not complete in time; the link is over.
    pub fn wait(&self, request: Request, timeout: Duration) -> Result<u64, TcpError> {
        self.until("an operation", timeout, |engine| engine.take(request))
    }

    /// The next notification, if there is one. Moves bytes.
    ///
    /// # Errors
    /// The link is over.
    pub fn poll_notification(&self) -> Result<Option<Vec<u8>>, TcpError> {
        let mut engine = self.lock();
        let outcome = engine.progress();
        match engine.take_notification() {
            Some(bytes) => Ok(Some(bytes)),
            None => outcome.map(|_| None),
        }
    }

    /// Waits for the next notification.
    ///
    /// # Errors
    /// None came in time; the link is over.
    pub fn wait_notification(&self, timeout: Duration) -> Result<Vec<u8>, TcpError> {
        self.until("a notification", timeout, |engine| match engine.take_notification() {
            Some(bytes) => Some(Ok(bytes)),
            None if engine.peer_is_gone() => Some(Err(TcpError::Closed)),
            None => None,
        })
    }

    /// Moves bytes once, without waiting. Whether there was anything to do.
    ///
    /// # Errors
    /// The link is over.
    pub fn progress(&self) -> Result<bool, TcpError> {
        self.lock().progress()
    }

    /// Serves the peer's reads and writes until `done` says so, which is asked after each step and
    /// five times a second, or until the peer closes the link.
    ///
    /// # Errors
    /// `done` was not true in time; the link is over.
    pub fn serve(&self, timeout: Duration, mut done: impl FnMut() -> bool) -> Result<(), TcpError> {
        self.woken(SERVING_NAP, "the end of serving", timeout, |engine| {
            (done() || engine.peer_is_gone()).then_some(Ok(()))
        })
    }

    /// Sends what was posted and a goodbye, and waits until the peer has closed as well.
    ///
    /// # Errors
    /// The peer did not close in time, or the link had already failed.
    pub fn close(self, timeout: Duration) -> Result<(), TcpError> {
        let deadline = Deadline::after(timeout);
        self.lock().close();
        self.until("sending what was posted", timeout, |engine| {
            engine.is_flushed().then_some(Ok(()))
        })?;
        for socket in self.sockets.iter() {
            // A peer that has closed before us may have ended them.
            let _ = socket.shutdown(Shutdown::Write);
        }
        let rest = left(deadline, "the peer's goodbye")?;
        self.until("the peer's goodbye", rest, |engine| {
            (engine.peer_is_gone() && !engine.reads_memory()).then_some(Ok(()))
        })
    }

    /// Ends the link at once, for the peer midway. Requests that are not complete fail, also
    /// where another thread waits for them. On return no socket and no copy touches memory of this
    /// end; only a copy engine that hangs may, and then the memory is kept.
    pub fn abort(&self) {
        // The thread that has the lock releases it after its current system call.
        self.ending.store(true, Ordering::Relaxed);
        self.lock().abort();
        for socket in self.sockets.iter() {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// Moves bytes until `done` has a result: first by polling, then woken by the system.
    fn until<T>(
        &self,
        what: &'static str,
        timeout: Duration,
        done: impl FnMut(&mut Engine) -> Option<Result<T, TcpError>>,
    ) -> Result<T, TcpError> {
        self.woken(NAP, what, timeout, done)
    }

    /// As [`Link::until`], and wakes by itself after `nap`.
    fn woken<T>(
        &self,
        nap: Duration,
        what: &'static str,
        timeout: Duration,
        mut done: impl FnMut(&mut Engine) -> Option<Result<T, TcpError>>,
    ) -> Result<T, TcpError> {
        let began = Instant::now();
        let mut idle: Option<Idle> = None;
        loop {
            let mut engine = self.lock();
            if let Some(result) = done(&mut engine) {
                return result;
            }
            let outcome = engine.progress();
            let result = done(&mut engine);
            let busy = result.is_some() || outcome.as_ref().is_ok_and(|busy| *busy);
            if busy && idle.take().is_some_and(|idle| idle.spins) {
                self.spins.end(true);
            }
            if let Some(result) = result {
                return result;
            }
            outcome?;
            let now = Instant::now();
            if now - began >= timeout {
                return Err(TcpError::Timeout { what, waited: timeout });
            }
            if busy {
                continue;
            }
            let idle = idle.get_or_insert_with(|| match self.spins.begin() {
                true => Idle { until: now + self.spin, spins: true, slept: false },
                false => Idle { until: now, spins: false, slept: false },
            });
            if now >= idle.until {
                if std::mem::take(&mut idle.spins) {
                    self.spins.end(false);
                }
                // An update frame wakes the peer, so at first an update waits for the next frame to carry
                // it.
                if std::mem::replace(&mut idle.slept, true) {
                    engine.send_news()?;
                }
                let interest = engine.interest();
                drop(engine);
                self.sleep(&interest, (timeout - (now - began)).min(nap))?;
            } else if self.waiting.load(Ordering::Relaxed) != 0 {
                drop(engine);
                std::thread::yield_now();
            }
        }
    }

    /// Sleeps until a socket is ready. The lock must not be held.
    fn sleep(&self, interest: &Interest, most: Duration) -> Result<(), TcpError> {
        if interest.soon {
            std::thread::yield_now();
            return Ok(());
        }
        let mut fds = Vec::with_capacity(self.sockets.len());
        for (socket, &(more, full)) in self.sockets.iter().zip(&interest.sockets) {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, more);
            flags.set(PollFlags::OUT, full);
            if !flags.is_empty() {
                fds.push(PollFd::new(socket, flags));
            }
        }
        let ready = poll(&mut fds, Some(most));
        ready.map(drop).map_err(TcpError::socket("waiting for the sockets"))
    }
}

/// Requests that begin together; see [`Link::posting`].
pub struct Posting<'a> {
    engine: MutexGuard<'a, Engine>,
    /// Whether there is something to send.
    begin: bool,
}

impl Posting<'_> {
    fn post(
        &mut self,
        op: Op,
        memory: Region,
        remote: Option<RemoteKey>,
    ) -> Result<Request, TcpError> {
        let remote = remote.map_or((0, 0), |remote| (remote.key, remote.addr));
        let request = self.engine.post(op, memory, remote)?;
        // A receive has nothing to send.
        self.begin |= op != Op::Receive;
        Ok(request)
    }

    /// As [`Link::write`].
    ///
    /// # Errors
    /// As for [`Link::write`].
    pub fn write(&mut self, memory: Region, to: RemoteKey) -> Result<Request, TcpError> {
        self.post(Op::Write, memory, Some(to))
    }

    /// As [`Link::read`].
    ///
    /// # Errors
    /// As for [`Link::read`].
    pub fn read(&mut self, memory: Region, from: RemoteKey) -> Result<Request, TcpError> {
        self.post(Op::Read, memory, Some(from))
    }
}

impl Drop for Posting<'_> {
    fn drop(&mut self) {
        if self.begin {
            self.engine.begin();
        }
    }
}

impl fmt::Debug for Posting<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Posting").finish_non_exhaustive()
    }
}
