//! Channels of events: pairs of sockets, of which the program has one, and the program's eventfds.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, send, socketpair};
use nix::unistd::write;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use warpverbs_nic::{AsyncEvent, CompletionNotice};
use warpverbs_uverbs::{Errno, EventForm, EventSource, Refusal};

/// Bytes of a message at most: a cookie and an event of firmware.
const LONGEST: usize = 72;

/// One channel.
pub(crate) enum Channel {
    /// The program reads whole messages from its end.
    Messages {
        ours: OwnedFd,
        /// A duplicate of the program's end, to take back what it has not read.
        theirs: OwnedFd,
    },
    /// A duplicate of one of the program's eventfds, to which each event adds 1.
    Eventfd(OwnedFd),
}

impl Channel {
    /// A channel, and the descriptor for the program.
    pub(crate) fn open() -> Result<(Self, u32), Refusal> {
        let failed = |why: String| Refusal::new(Errno::ENOMEM, why);
        let (ours, theirs) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)
                .map_err(|error| failed(error.to_string()))?;
        let kept = theirs.try_clone().map_err(|error| failed(error.to_string()))?;
        Ok((Self::Messages { ours, theirs: kept }, theirs.into_raw_fd() as u32))
    }

    /// A channel that counts events in the program's eventfd `fd`.
    pub(crate) fn of_eventfd(fd: i32) -> Result<Self, Refusal> {
        let what = std::fs::read_link(format!("/proc/self/fd/{fd}"))
            .map_err(|_| Refusal::new(Errno::EBADF, format!("there is no descriptor {fd}")))?;
        if what.as_os_str() != "anon_inode:[eventfd]" {
            return Err(Refusal::invalid(format!("descriptor {fd} is {what:?}, no eventfd")));
        }
        // SAFETY: takes numbers, and makes a new descriptor.
        match unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) } {
            // SAFETY: the new descriptor, which nobody else has.
            own @ 0.. => Ok(Self::Eventfd(unsafe { OwnedFd::from_raw_fd(own) })),
            _ => Err(Refusal::new(Errno::EBADF, format!("descriptor {fd} was closed"))),
        }
    }

    /// Whether there was room for the message.
    fn send(&self, message: &[u8]) -> bool {
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        match self {
            Self::Messages { ours, .. } => send(ours.as_raw_fd(), message, flags).is_ok(),
            Self::Eventfd(eventfd) => {
                // The program may have made it a blocking one; a write waits while the count is
                // full.
                let mut ready = [PollFd::new(eventfd.as_fd(), PollFlags::POLLOUT)];
                poll(&mut ready, PollTimeout::ZERO) == Ok(1) && write(eventfd, message).is_ok()
            }
        }
    }

    /// Takes back the messages that the program has not read and that begin with `start`; how many.
    fn take_back(&self, start: &[u8]) -> u32 {
        let (mut taken, mut others, mut bytes) = (0, Vec::new(), [0; LONGEST]);
        // A count does not say which object its events were about.
        let Self::Messages { theirs, .. } = self else { return 0 };
        while let Ok(len @ 1..) = recv(theirs.as_raw_fd(), &mut bytes, MsgFlags::MSG_DONTWAIT) {
            match bytes[..len].starts_with(start) {
                true => taken += 1,
                false => others.push((bytes, len)),
            }
        }
        // There is room: they were there before.
        for (other, len) in others {
            self.send(&other[..len]);
        }
        taken
    }
}

/// Receivers of asynchronous events, by source.
#[derive(Default)]
pub(crate) struct Router {
    reports: Mutex<BTreeMap<EventSource, Vec<Arc<Sink>>>>,
}

/// One form of events, and their channel.
struct Sink {
    channel: Arc<Channel>,
    form: EventForm,
    sent: AtomicU32,
}

/// Events that a program asked for; no more of them come when it is dropped.
pub(crate) struct Report {
    router: Arc<Router>,
    source: EventSource,
    sink: Arc<Sink>,
}

impl Router {
    pub(crate) fn report(
        self: &Arc<Self>,
        source: EventSource,
        channel: Arc<Channel>,
        form: EventForm,
    ) -> Report {
        let sink = Arc::new(Sink { channel, form, sent: AtomicU32::new(0) });
        self.lock().entry(source).or_default().push(sink.clone());
        Report { router: self.clone(), source, sink }
    }

    /// Writes an event to all channels that want it. `false`: one has no room.
    pub(crate) fn deliver(&self, event: AsyncEvent) -> bool {
        let Some(source) = EventSource::of(&event) else { return true };
        let mut delivered = true;
        for sink in self.lock().get(&source).into_iter().flatten() {
            let Some(message) = sink.form.message(&event) else { continue };
            let sent = sink.channel.send(&message);
            sink.sent.fetch_add(sent.into(), Ordering::Relaxed);
            delivered &= sent;
        }
        delivered
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<EventSource, Vec<Arc<Sink>>>> {
        self.reports.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Report {
    /// Stops sending; how many events the program has read.
    pub(crate) fn close(&self) -> u32 {
        let mut reports = self.router.lock();
        if let Some(sinks) = reports.get_mut(&self.source) {
            sinks.retain(|sink| !Arc::ptr_eq(sink, &self.sink));
            if sinks.is_empty() {
                reports.remove(&self.source);
            }
        }
        // Messages of either form begin with the program's own number of the object.
        let name = match self.sink.form {
            EventForm::Verbs { element: name } | EventForm::Mlx5 { cookie: name, .. } => name,
            EventForm::Counted { .. } => 0,
        };
        let sent = self.sink.sent.swap(0, Ordering::Relaxed);
        match sent {
            0 => 0,
            sent => sent - self.sink.channel.take_back(&name.to_ne_bytes()).min(sent),
        }
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        self.close();
    }
}

/// The completion events of one CQ.
pub(crate) struct CqEvents {
    channel: Arc<Channel>,
    /// What an event carries: the program's own name of the CQ.
    message: [u8; 8],
    /// Events sent; `None` once the CQ is closed.
    sent: Mutex<Option<u32>>,
}

impl CqEvents {
    pub(crate) fn new(channel: Arc<Channel>, user_handle: u64) -> Arc<Self> {
        let sent = Mutex::new(Some(0));
        Arc::new(Self { channel, message: user_handle.to_ne_bytes(), sent })
    }

    /// What has the NIC send an event.
    pub(crate) fn notice(self: &Arc<Self>) -> CompletionNotice {
        let events = self.clone();
        CompletionNotice::new(move || events.notify())
    }

    fn notify(&self) -> bool {
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(count) = sent.as_mut() else { return true };
        let done = self.channel.send(&self.message);
        *count += u32::from(done);
        done
    }

    /// Stops sending; how many events the program has read. libibverbs waits until it has
    /// acknowledged as many.
    pub(crate) fn close(&self) -> u32 {
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        let count = sent.take().unwrap_or(0);
        count - self.channel.take_back(&self.message).min(count)
    }
}

/// The completions of a CQ whose program may subscribe to them. Its number is known later.
pub(crate) fn completions(router: Arc<Router>, cqn: Arc<OnceLock<u32>>) -> CompletionNotice {
    CompletionNotice::new(move || match cqn.get() {
        Some(&cqn) => router.deliver(AsyncEvent::Completion { cqn }),
        None => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::unistd::{close, read};
    use std::os::fd::BorrowedFd;

    #[test]
    fn what_was_not_read_is_taken_back() {
        let (channel, fd) = Channel::open().unwrap();
        let channel = Arc::new(channel);
        let (a, b) = (CqEvents::new(channel.clone(), 7), CqEvents::new(channel, 8));
        assert!(a.notify() && a.notify() && b.notify() && a.notify());
        // SAFETY: the program's end, which this test is to close.
        let program = unsafe { BorrowedFd::borrow_raw(fd as i32) };
        let next = || {
            let mut bytes = [0; 16];
            assert_eq!(read(program, &mut bytes), Ok(8));
            u64::from_ne_bytes(std::array::from_fn(|i| bytes[i]))
        };
        assert_eq!(next(), 7);
        assert_eq!(a.close(), 1);
        assert!(a.notify(), "a closed CQ has nothing to deliver");
        assert_eq!(next(), 8);
        assert_eq!(b.close(), 1);
        close(fd as i32).unwrap();
    }

    #[test]
    fn events_go_to_those_who_asked() {
        let (channel, fd) = Channel::open().unwrap();
        let (router, channel) = (Arc::new(Router::default()), Arc::new(channel));
        let verbs = |element| EventForm::Verbs { element };
        let of_qp = router.report(EventSource::Qp(5), channel.clone(), verbs(50));
        let kinds = vec![0x13];
        let form = EventForm::Mlx5 { cookie: 60, kinds, omit_data: true };
        let firmware = router.report(EventSource::Qp(5), channel.clone(), form);
        let of_srq = router.report(EventSource::Srq(5), channel, verbs(70));
        for event in [
            AsyncEvent::LastWqeReached { qpn: 5 },
            AsyncEvent::SqDrained { qpn: 5 },
            AsyncEvent::SqDrained { qpn: 6 },
            AsyncEvent::SrqLimit { srqn: 5 },
            AsyncEvent::CqError { cqn: 5 },
        ] {
            assert!(router.deliver(event));
        }
        // SAFETY: the program's end, which this test is to close.
        let program = unsafe { BorrowedFd::borrow_raw(fd as i32) };
        let next = || {
            let mut bytes = [0; LONGEST];
            let len = read(program, &mut bytes).unwrap();
            (len, bytes[0], bytes[8])
        };
        assert_eq!((next(), next()), ((16, 50, 16), (8, 60, 0)));
        // One of two was read; the other is not seen any more.
        assert_eq!(of_qp.close(), 1);
        assert_eq!(next(), (16, 70, 15));
        assert_eq!((firmware.close(), of_srq.close()), (1, 1));
        assert!(router.lock().is_empty());
        assert!(router.deliver(AsyncEvent::SqDrained { qpn: 5 }));
        assert_eq!(of_qp.close(), 0);
        close(fd as i32).unwrap();
    }

    #[test]
    fn an_eventfd_counts_the_events_that_are_wanted() {
        // SAFETY: makes a new descriptor.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        // SAFETY: the new descriptor, which nobody else has.
        let program = unsafe { OwnedFd::from_raw_fd(fd) };
        let router = Arc::new(Router::default());
        let channel = Arc::new(Channel::of_eventfd(fd).unwrap());
        let form = EventForm::Counted { kinds: vec![0x13] };
        let report = router.report(EventSource::Qp(5), channel, form);
        for event in [
            AsyncEvent::LastWqeReached { qpn: 5 },
            AsyncEvent::SqDrained { qpn: 5 },
            AsyncEvent::LastWqeReached { qpn: 6 },
            AsyncEvent::LastWqeReached { qpn: 5 },
        ] {
            assert!(router.deliver(event));
        }
        let mut count = [0; 8];
        assert_eq!(read(&program, &mut count), Ok(8));
        assert_eq!(u64::from_ne_bytes(count), 2);
        // An eventfd whose count is full is not waited for.
        write(&program, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        assert!(!router.deliver(AsyncEvent::LastWqeReached { qpn: 5 }));
        drop(report);
        assert!(router.deliver(AsyncEvent::LastWqeReached { qpn: 5 }));
        let errno = |fd| Channel::of_eventfd(fd).map(|_| ()).unwrap_err().errno;
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!((errno(-1), errno(file.as_raw_fd())), (Errno::EBADF, Errno::EINVAL));
    }

    #[test]
    fn a_full_channel_says_so() {
        let (channel, _fd) = Channel::open().unwrap();
        let events = CqEvents::new(Arc::new(channel), 7);
        let sent = (0..1_000_000).take_while(|_| events.notify()).count();
        assert!((100..1_000_000).contains(&sent), "{sent}");
        assert_eq!(events.close(), 0);
    }
}
