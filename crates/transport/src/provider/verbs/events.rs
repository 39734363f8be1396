//! Asynchronous events of a device: a thread that waits for them and passes them on.

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use warpverbs_nic::SoftNic;
use warpverbs_rdma::AsyncEvent;
use warpverbs_verbs::{CallError, Context, VerbsError};

/// Listens until it is dropped.
pub(super) struct Listener {
    stop: Arc<EventFd>,
    handle: Option<JoinHandle<()>>,
}

/// Source of events.
pub(super) trait EventSource: Send + 'static {
    /// Readable while there is one.
    fn fd(&self) -> BorrowedFd<'_>;
    /// Takes one, if there is one.
    fn take(&self) -> Result<Option<AsyncEvent>, VerbsError>;
}

impl EventSource for Context {
    fn fd(&self) -> BorrowedFd<'_> {
        self.async_fd()
    }

    fn take(&self) -> Result<Option<AsyncEvent>, VerbsError> {
        self.next_event(Duration::ZERO)
    }
}

impl Listener {
    /// Passes events of the device `name` on to `nic`; `gone` is set when the device is.
    pub(super) fn start(
        name: &str,
        source: impl EventSource,
        nic: SoftNic,
        gone: Arc<AtomicBool>,
    ) -> Result<Self, VerbsError> {
        let failed = |errno| CallError { call: "eventfd", errno };
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let stop = Arc::new(EventFd::from_flags(flags).map_err(failed)?);
        let (wake, name) = (stop.clone(), format!("events-{name}"));
        let run = move || listen(&source, &nic, &gone, &wake);
        let handle = thread::Builder::new().name(name).spawn(run).map_err(|error| {
            let errno = Errno::from_raw(error.raw_os_error().unwrap_or(Errno::EAGAIN as i32));
            CallError { call: "clone", errno }
        })?;
        Ok(Self { stop, handle: Some(handle) })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Err(error) = self.stop.write(1) {
            tracing::warn!(%error, "events of a device are listened to for ever");
            return;
        }
        if let Some(handle) = self.handle.take() {
            // One that panicked has said so on standard error.
            let _ = handle.join();
        }
    }
}

fn listen(source: &impl EventSource, nic: &SoftNic, gone: &AtomicBool, stop: &EventFd) {
    loop {
        let mut fds = [
            PollFd::new(source.fd(), PollFlags::POLLIN),
            PollFd::new(stop.as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return tracing::warn!(%error, "no more events of the device"),
        }
        if fds[1].any().unwrap_or(true) {
            return;
        }
        loop {
            match source.take() {
                Ok(Some(event)) => pass_on(nic, gone, event),
                Ok(None) => break,
                Err(error) => return tracing::warn!(%error, "no more events of the device"),
            }
        }
    }
}

fn pass_on(nic: &SoftNic, gone: &AtomicBool, event: AsyncEvent) {
    tracing::info!(?event, "event of the device");
    if event == AsyncEvent::DeviceFatal {
        // Proxy devices look at this in every poll.
        gone.store(true, Ordering::Release);
    }
    nic.raise(match event {
        AsyncEvent::CqError { cqn } => AsyncEvent::CqError { cqn: device_number(cqn) },
        AsyncEvent::SrqError { srqn } => AsyncEvent::SrqError { srqn: device_number(srqn) },
        AsyncEvent::SrqLimit { srqn } => AsyncEvent::SrqLimit { srqn: device_number(srqn) },
        other => other,
    });
}

/// The number of a CQ or shared queue of the device. Those of the software NIC have 24 bits, so
/// that the two are never equal.
pub(super) fn device_number(id: u32) -> u32 {
    1 << 31 | id
}
