//! Channels of events: pairs of sockets, of which the program has one.

use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, send, socketpair};
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use warpverbs_nic::CompletionNotice;
use warpverbs_uverbs::{Errno, Refusal};

/// One channel. The program reads whole messages from its end.
pub(crate) struct Channel {
    ours: OwnedFd,
    /// A duplicate of the program's end, to take back what it has not read.
    theirs: OwnedFd,
}

impl Channel {
    /// A channel, and the descriptor for the program.
    pub(crate) fn open() -> Result<(Self, u32), Refusal> {
        let failed = |why: String| Refusal::new(Errno::ENOMEM, why);
        let (ours, theirs) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)
                .map_err(|error| failed(error.to_string()))?;
        let kept = theirs.try_clone().map_err(|error| failed(error.to_string()))?;
        Ok((Self { ours, theirs: kept }, theirs.into_raw_fd() as u32))
    }

    /// Whether there was room for the message.
    fn send(&self, message: &[u8]) -> bool {
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        send(self.ours.as_raw_fd(), message, flags).is_ok()
    }

    /// Takes back the messages that the program has not read and that are `message`; how many.
    fn take_back(&self, message: &[u8; 8]) -> u32 {
        let (mut taken, mut others, mut bytes) = (0, Vec::new(), [0; 8]);
        while recv(self.theirs.as_raw_fd(), &mut bytes, MsgFlags::MSG_DONTWAIT) == Ok(8) {
            match bytes == *message {
                true => taken += 1,
                false => others.push(bytes),
            }
        }
        // There is room: they were there before.
        for other in others {
            self.send(&other);
        }
        taken
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

    /// Nothing is sent any more; how many events the program has read. It waits until it has
    /// acknowledged as many.
    pub(crate) fn close(&self) -> u32 {
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        let count = sent.take().unwrap_or(0);
        count - self.channel.take_back(&self.message).min(count)
    }
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
    fn a_full_channel_says_so() {
        let (channel, _fd) = Channel::open().unwrap();
        let events = CqEvents::new(Arc::new(channel), 7);
        let sent = (0..1_000_000).take_while(|_| events.notify()).count();
        assert!((100..1_000_000).contains(&sent), "{sent}");
        assert_eq!(events.close(), 0);
    }
}
