//! The ring of io_uring, and the thread that feeds it.
//!
//! One thread has the ring to itself. It takes parts as slots are free, hands them to the kernel all at
//! once, and waits for the first that ends, or for a batch.

use super::batch::{Batch, Lane, Part};
use super::calls::{Span, step};
use super::error::FileIoError;
use super::line::Line;
use super::request::FileOp;
use super::wake::Wake;
use io_uring::{IoUring, Probe, cqueue, opcode, squeue, types};
use nix::errno::Errno;
use std::fmt;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle, sleep};
use std::time::Duration;

/// Operations that the kernel has at a time.
pub(super) const SLOTS: usize = 128;
/// Entries of the ring: each slot, its cancellation, its continuation, and the wait for batches.
const ENTRIES: u32 = 512;
/// Entries that are no operation of a slot.
const WOKEN: u64 = u64::MAX;
const CANCELLED: u64 = u64::MAX - 1;
/// Between two looks at a ring that is out of memory, or that cannot be waited for.
const PAUSE: Duration = Duration::from_millis(1);

/// A ring and its thread, which starts with the first batch.
pub(super) struct Ring {
    line: Arc<Line>,
    wake: Arc<Wake>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Until the thread has it.
    ring: Option<IoUring>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring").field("line", &self.line).finish_non_exhaustive()
    }
}

impl Ring {
    /// A ring, if this kernel lets this process have one with all operations that are needed.
    pub(super) fn open() -> Result<Self, String> {
        let ring = opened()?;
        let wake = Wake::new().map_err(|errno| format!("eventfd: {errno}"))?;
        Ok(Self {
            line: Arc::new(Line::new(Lane::Ring)),
            wake: Arc::new(wake),
            state: Mutex::new(State { ring: Some(ring), thread: None }),
        })
    }

    pub(super) fn waker(&self) -> Arc<Wake> {
        self.wake.clone()
    }

    /// Hands `batch` to the thread, or fails it.
    pub(super) fn push(&self, batch: &Arc<Batch>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ring) = state.ring.take() {
            // The thread's own, and handed back if there is no thread.
            let handed = Arc::new(Mutex::new(Some(ring)));
            let (line, wake, theirs) = (self.line.clone(), self.wake.clone(), handed.clone());
            let taken = move || theirs.lock().unwrap_or_else(PoisonError::into_inner).take();
            let run = move || {
                if let Some(ring) = taken() {
                    Driver::new(ring, line, wake).run();
                }
            };
            match Builder::new().name("warpverbs-file".to_owned()).spawn(run) {
                Ok(thread) => state.thread = Some(thread),
                Err(error) => {
                    state.ring = handed.lock().unwrap_or_else(PoisonError::into_inner).take();
                    drop(state);
                    let errno = error.raw_os_error().map_or(Errno::EAGAIN, Errno::from_raw);
                    return batch.fail(FileIoError::Start { what: "a thread", errno });
                }
            }
        }
        drop(state);
        self.line.push(batch);
        self.wake.wake();
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.line.close(FileIoError::Stopped);
        self.wake.wake();
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        // The memory of a part may own the queue: then it is the thread that ends it.
        if let Some(thread) = state.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

/// A ring that takes an operation and gives it back.
fn opened() -> Result<IoUring, String> {
    let mut ring = IoUring::new(ENTRIES).map_err(|error| {
        let disabled = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled");
        match disabled.as_deref().map(str::trim) {
            Ok(level @ ("1" | "2")) => format!("{error} (kernel.io_uring_disabled is {level})"),
            _ => format!("io_uring_setup: {error}"),
        }
    })?;
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe).map_err(|error| format!("its probe: {error}"))?;
    let needed = [
        ("read", opcode::Read::CODE),
        ("write", opcode::Write::CODE),
        ("poll", opcode::PollAdd::CODE),
        ("cancel", opcode::AsyncCancel::CODE),
    ];
    if let Some((name, _)) = needed.iter().find(|(_, code)| !probe.is_supported(*code)) {
        return Err(format!("this kernel's has no {name}"));
    }
    // SAFETY: an operation that touches no memory.
    let pushed = unsafe { ring.submission().push(&opcode::Nop::new().build()) };
    pushed.map_err(|_| "a new ring is full".to_owned())?;
    ring.submit_and_wait(1).map_err(|error| format!("io_uring_enter: {error}"))?;
    let result = ring.completion().next().map(|entry| entry.result());
    match result {
        Some(0) => Ok(ring),
        other => Err(format!("an operation that does nothing ended with {other:?}")),
    }
}

/// A part that the kernel has, or is to have.
struct Slot {
    part: Part,
    span: Span,
    is_cancelled: bool,
}

/// The thread's state. When it is dropped, by a panic as well, the kernel has no part any more.
struct Driver {
    ring: IoUring,
    line: Arc<Line>,
    wake: Arc<Wake>,
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
    /// Entries pushed whose end has not been seen.
    outstanding: usize,
    /// Whether the kernel watches `wake`.
    is_watched: bool,
    /// Batches may have been cancelled.
    was_woken: bool,
}

impl Driver {
    fn new(ring: IoUring, line: Arc<Line>, wake: Arc<Wake>) -> Self {
        let slots = (0..SLOTS).map(|_| None).collect();
        let free = (0..SLOTS).rev().collect();
        Self { ring, line, wake, slots, free, outstanding: 0, is_watched: false, was_woken: false }
    }

    fn run(mut self) {
        if let Err(errno) = self.work() {
            self.line.close(FileIoError::Ring { errno });
            self.drain();
            let left: Vec<_> = self.slots.iter_mut().filter_map(Option::take).collect();
            for slot in left {
                slot.part.end(Err(FileIoError::Ring { errno }));
            }
        }
    }

    /// Until the line is closed and nothing is left.
    fn work(&mut self) -> Result<(), Errno> {
        loop {
            self.fill()?;
            if self.free.len() == SLOTS && self.line.is_closed() {
                return Ok(());
            }
            self.cancel_stopped()?;
            if !self.is_watched {
                let fd = types::Fd(self.wake.descriptor());
                let entry = opcode::PollAdd::new(fd, libc::POLLIN as u32).build();
                self.push(&entry.user_data(WOKEN))?;
                self.is_watched = true;
            }
            match self.ring.submit_and_wait(1).map_err(errno_of) {
                Ok(_) | Err(Errno::EINTR) => {}
                // For want of memory, or until ends are taken notice of.
                Err(Errno::EAGAIN | Errno::EBUSY) => sleep(PAUSE),
                Err(errno) => return Err(errno),
            }
            self.reap(true)?;
        }
    }

    /// Gives free slots to parts that wait.
    fn fill(&mut self) -> Result<(), Errno> {
        while let Some(&index) = self.free.last()
            && let Some(part) = self.line.next()
        {
            let Some((_, span)) = part.span() else {
                // Not the CPU's memory, which no lane gives to a ring.
                part.end(Err(FileIoError::Stopped));
                continue;
            };
            self.free.pop();
            self.slots[index] = Some(Slot { part, span, is_cancelled: false });
            self.hand_over(index)?;
        }
        Ok(())
    }

    /// Makes an entry of what is left of a slot.
    fn hand_over(&mut self, index: usize) -> Result<(), Errno> {
        let Some(slot) = &self.slots[index] else { return Ok(()) };
        let Some((file, _)) = slot.part.span() else { return Ok(()) };
        let Span { op, addr, offset, len, moved } = slot.span;
        let (fd, at) = (types::Fd(file.as_raw_fd()), addr + moved);
        // A part is shorter than 4 GiB.
        let (len, offset) = ((len - moved) as u32, offset + moved);
        let entry = match op {
            FileOp::Read => opcode::Read::new(fd, at as *mut u8, len).offset(offset).build(),
            FileOp::Write => opcode::Write::new(fd, at as *const u8, len).offset(offset).build(),
        };
        self.push(&entry.user_data(index as u64))
    }

    /// All entries are those of slots, whose parts keep memory and file until the end was seen, or touch
    /// no memory.
    fn push(&mut self, entry: &squeue::Entry) -> Result<(), Errno> {
        // SAFETY: as above; the range was checked when the part was made.
        let pushed = unsafe { self.ring.submission().push(entry) };
        pushed.map_err(|_| Errno::EOVERFLOW)?;
        self.outstanding += 1;
        Ok(())
    }

    /// Asks the kernel to give back what was cancelled, if it has not begun.
    fn cancel_stopped(&mut self) -> Result<(), Errno> {
        if !std::mem::take(&mut self.was_woken) {
            return Ok(());
        }
        for index in 0..SLOTS {
            if let Some(slot) = &mut self.slots[index]
                && !slot.is_cancelled
                && slot.part.is_stopped()
            {
                slot.is_cancelled = true;
                let entry = opcode::AsyncCancel::new(index as u64).build();
                self.push(&entry.user_data(CANCELLED))?;
            }
        }
        Ok(())
    }

    /// Takes notice of what has ended; what has not moved all goes on, if it may.
    fn reap(&mut self, may_go_on: bool) -> Result<(), Errno> {
        let ended: Vec<cqueue::Entry> = self.ring.completion().collect();
        self.outstanding -= ended.len();
        for entry in ended {
            match entry.user_data() {
                WOKEN => {
                    self.wake.clear();
                    (self.is_watched, self.was_woken) = (false, true);
                }
                CANCELLED => {}
                index => self.ended(index as usize, entry.result(), may_go_on)?,
            }
        }
        Ok(())
    }

    /// The kernel has ended the operation of a slot.
    fn ended(&mut self, index: usize, result: i32, may_go_on: bool) -> Result<(), Errno> {
        let Some(Slot { part, mut span, is_cancelled }) = self.slots[index].take() else {
            return Ok(());
        };
        let Some((file, _)) = part.span() else { return Ok(()) };
        let mut result = u64::try_from(result).map_err(|_| Errno::from_raw(-result));
        if result == Err(Errno::EAGAIN) {
            // A file that was opened to be never waited for: so this thread waits.
            // SAFETY: the part has found the range in its region, which it holds.
            result = unsafe { step(file, &span) };
        }
        let over = match result {
            Err(Errno::ECANCELED) => Err(FileIoError::Stopped),
            result => span.advance(file, result),
        };
        let over = match over {
            Ok(false) if may_go_on && !part.is_stopped() => {
                self.slots[index] = Some(Slot { part, span, is_cancelled });
                return self.hand_over(index);
            }
            Ok(false) => Err(FileIoError::Stopped),
            Ok(true) => Ok(()),
            Err(error) => Err(error),
        };
        self.free.push(index);
        part.end(over);
        Ok(())
    }

    /// Waits until the kernel has nothing of this ring any more. Entries that it has not taken
    /// yet it never will: it takes them in order, and in calls alone.
    fn drain(&mut self) {
        self.wake.wake();
        loop {
            let _ = self.reap(false);
            let mut entries = self.ring.submission();
            entries.sync();
            if self.outstanding <= entries.len() {
                return;
            }
            drop(entries);
            sleep(PAUSE);
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // It is closed already, unless this is a panic.
        self.line.close(FileIoError::Ring { errno: Errno::EIO });
        if self.slots.iter().any(Option::is_some) {
            self.drain();
        }
    }
}

fn errno_of(error: io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}
