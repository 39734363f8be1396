//! Channels of events: pairs of sockets, of which the program has one, and the program's eventfds.

use crate::files::{descriptor_of, exhausted};
use crate::process::file_of;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, send, socketpair};
use nix::unistd::write;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use warpverbs_nic::link::descriptors::own;
use warpverbs_nic::{AsyncEvent, CompletionNotice};
use warpverbs_uverbs::{Errno, EventForm, EventSource, Refusal};

/// Bytes of a message at most: a cookie and an event of firmware.
const LONGEST: usize = 72;

/// One channel.
pub(crate) enum Channel {
    /// The program reads whole messages from its end.
    Messages {
        ours: OwnedFd,
        /// The program's end: the number that it had first, and what it stands for. The program may
        /// duplicate it and close the first.
        theirs: (RawFd, u64),
        /// Held while messages are sent or taken back: none gets between those that are taken.
        order: Mutex<()>,
    },
    /// A duplicate of one of the program's eventfds, to which each event adds 1.
    Eventfd(OwnedFd),
}

impl Channel {
    /// A channel, and the descriptor for the program.
    pub(crate) fn open() -> Result<(Self, u32), Refusal> {
        let (ours, theirs) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)
                .map_err(|errno| exhausted("a channel of events", &errno.into()))?;
        let gone = || Refusal::new(Errno::EBADF, "the channel was closed");
        let file = file_of(theirs.as_raw_fd()).ok_or_else(gone)?;
        let (ours, number, order) = (own(ours), theirs.into_raw_fd(), Mutex::default());
        let channel = Self::Messages { ours, theirs: (number, file), order };
        Ok((channel, number.cast_unsigned()))
    }

    /// Whether the program has closed its end.
    pub(crate) fn is_closed(&self) -> bool {
        let Self::Messages { ours, .. } = self else { return false };
        let mut ready = [PollFd::new(ours.as_fd(), PollFlags::empty())];
        let ended = |ready: &PollFd<'_>| {
            ready.revents().is_some_and(|events| events.contains(PollFlags::POLLHUP))
        };
        poll(&mut ready, PollTimeout::ZERO).is_ok() && ended(&ready[0])
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
            copy @ 0.. => Ok(Self::Eventfd(own(unsafe { OwnedFd::from_raw_fd(copy) }))),
            _ => match io::Error::last_os_error() {
                error if error.raw_os_error() == Some(libc::EBADF) => {
                    Err(Refusal::new(Errno::EBADF, format!("descriptor {fd} was closed")))
                }
                error => Err(exhausted("an eventfd", &error)),
            },
        }
    }

    /// Whether there was room for the message.
    fn send(&self, message: &[u8]) -> bool {
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        match self {
            Self::Messages { ours, order, .. } => {
                let _order = order.lock().unwrap_or_else(PoisonError::into_inner);
                send(ours.as_raw_fd(), message, flags).is_ok()
            }
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
        let Self::Messages { ours, theirs: (number, file), order } = self else { return 0 };
        let has_it = |fd: &RawFd| file_of(*fd) == Some(*file);
        // Without a descriptor the program reads no more.
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        let end = Some(*number).filter(has_it).or_else(|| descriptor_of(*file));
        let Some(end) = end else { return 0 };
        let _order = order.lock().unwrap_or_else(PoisonError::into_inner);
        while let Ok(len @ 1..) = recv(end, &mut bytes, MsgFlags::MSG_DONTWAIT) {
            match bytes[..len].starts_with(start) {
                true => taken += 1,
                false => others.push((bytes, len)),
            }
        }
        // There is room: they were there before, and nobody else has sent meanwhile.
        for (other, len) in others {
            let _ = send(ours.as_raw_fd(), &other[..len], flags);
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
    /// Message of an event: the program's own name of the CQ.
    message: [u8; 8],
    /// Events sent; `None` once the CQ is closed.
    sent: Mutex<Option<u32>>,
}

impl CqEvents {
    pub(crate) fn new(channel: Arc<Channel>, user_handle: u64) -> Arc<Self> {
        let sent = Mutex::new(Some(0));
        Arc::new(Self { channel, message: user_handle.to_ne_bytes(), sent })
    }

    /// The notice by which the NIC sends an event.
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
    use std::sync::atomic::AtomicBool;

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
    fn events_of_others_are_not_lost_while_some_are_taken_back() {
        for _ in 0..50 {
            let (channel, fd) = Channel::open().unwrap();
            let channel = Arc::new(channel);
            let (a, b) = (CqEvents::new(channel.clone(), 7), CqEvents::new(channel, 8));
            while a.notify() && b.notify() {}
            let ended = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !ended.load(Ordering::Relaxed) {
                        b.notify();
                    }
                });
                assert_eq!(a.close(), 0);
                ended.store(true, Ordering::Relaxed);
            });
            let sent = b.sent.lock().unwrap().unwrap();
            let mut bytes = [0; 16];
            let next = || recv(fd as i32, &mut bytes, MsgFlags::MSG_DONTWAIT);
            let read = std::iter::repeat_with(next).take_while(|len| *len == Ok(8)).count();
            close(fd as i32).unwrap();
            assert_eq!(read, sent as usize);
        }
    }

    /// The program's end is found by what it stands for.
    #[test]
    fn a_channel_outlives_the_descriptor_that_it_had_first() {
        let (channel, fd) = Channel::open().unwrap();
        let channel = Arc::new(channel);
        let events = CqEvents::new(channel.clone(), 7);
        // SAFETY: the program's end, which is closed here alone.
        let first = unsafe { OwnedFd::from_raw_fd(fd as i32) };
        let second = first.try_clone().unwrap();
        drop(first);
        assert!(events.notify() && events.notify() && !channel.is_closed());
        let mut bytes = [0; 16];
        assert_eq!(read(&second, &mut bytes), Ok(8));
        assert_eq!(events.close(), 1);
        assert!(recv(second.as_raw_fd(), &mut bytes, MsgFlags::MSG_DONTWAIT).is_err());
        drop(second);
        assert!(channel.is_closed());
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
