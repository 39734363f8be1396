//! For tests: memory that only a copy engine reaches, an engine whose pace a test sets, and a thread
//! that the system allows less.
//!
//! This is here and not in `warpverbs-dev`, with the other test beds, because this crate's own unit
//! tests use it: there it would implement the traits of another build of this crate. It also has
//! `unsafe` code, which that crate forbids.

use crate::{Backing, Copier, CopyTicket, Dmabuf, HostBuf, Kind, MemError, NotExported, Region};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Host memory with these bytes.
pub fn region_of(bytes: &[u8]) -> Region {
    let region = HostBuf::region(bytes.len()).expect("host memory");
    region.write(0, bytes).expect("as many bytes");
    region
}

/// All bytes of some memory.
pub fn content(region: &Region) -> Vec<u8> {
    let mut bytes = vec![0; region.len()];
    region.read_through(0, &mut bytes).expect("as many bytes");
    bytes
}

/// From now on the kernel writes to no other process for this thread, though it reads there, as a
/// system's policy may have it (seccomp(2)). Whether the filter is in place: a system may allow none.
pub fn forbid_process_writes() -> bool {
    forbid(libc::SYS_process_vm_writev)
}

/// The same of io_uring: this thread gets no ring.
pub fn forbid_io_uring() -> bool {
    forbid(libc::SYS_io_uring_setup)
}

/// This thread, and those that it starts, may make rings and not use them.
pub fn forbid_io_uring_use() -> bool {
    forbid(libc::SYS_io_uring_enter)
}

/// Refuses a system call to this thread, and to those that it starts.
fn forbid(call: libc::c_long) -> bool {
    let one = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let refuse = libc::SECCOMP_RET_ERRNO | libc::EPERM.unsigned_abs();
    let call = u32::try_from(call).expect("a number of a system call");
    let mut filter = [
        // The number of the call is the first word of `seccomp_data`.
        one(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        one(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, call),
        one(libc::BPF_RET | libc::BPF_K, 0, 0, refuse),
        one(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let len = filter.len() as u16;
    let program = libc::sock_fprog { len, filter: filter.as_mut_ptr() };
    // SAFETY: takes numbers, and changes only what this thread may do.
    let kept = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } == 0;
    let mode = libc::SECCOMP_MODE_FILTER;
    // SAFETY: a program of `len` instructions that lives during the call, which copies it.
    kept && unsafe { libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program) } == 0
}

/// `len` zeroed bytes of host memory that begin, as their owner has them, `shift` bytes behind a page's
/// first.
///
/// # Errors
/// There is not enough memory.
pub fn shifted(shift: usize, len: usize) -> Result<Region, MemError> {
    let whole = HostBuf::region(shift.saturating_add(len))?.slice(shift as u64, len)?;
    // SAFETY: `whole` is those bytes, and is kept as long.
    Ok(unsafe { Region::foreign(whole.addr(), len, whole) })
}

/// A copy engine that performs copies when a test allows it, in the order in which they were
/// started.
#[derive(Debug, Default)]
pub struct LazyCopier(Mutex<Queue>);

#[derive(Debug, Default)]
struct Queue {
    started: u64,
    done: u64,
    waiting: VecDeque<(u64, u64, usize)>,
    /// Copies that are carried out at once.
    eager: u64,
    /// Polls after which a copy is performed, and those since the last.
    pace: Option<u64>,
    asked: u64,
    broken: bool,
    buffers: u64,
}

impl LazyCopier {
    /// Carries out up to `count` copies that were started, or will be.
    pub fn allow(&self, count: u64) {
        let mut queue = self.queue();
        queue.eager = queue.eager.saturating_add(count);
        queue.go_on();
    }

    /// Copies started and not carried out.
    pub fn waiting(&self) -> usize {
        self.queue().waiting.len()
    }

    /// Copies started so far.
    pub fn started(&self) -> u64 {
        self.queue().started
    }

    /// Times that it was asked for host memory so far.
    pub fn buffers(&self) -> u64 {
        self.queue().buffers
    }

    /// From now on a copy is performed after this many polls, without being allowed.
    pub fn pace(&self, polls: u64) {
        self.queue().pace = Some(polls);
    }

    /// Every copy fails from now on, those that wait included.
    pub fn break_down(&self) {
        let mut queue = self.queue();
        queue.broken = true;
        queue.waiting.clear();
    }

    fn queue(&self) -> std::sync::MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const BROKEN: MemError = MemError::CopyFailed { code: -1, what: "LazyCopier" };

impl Queue {
    fn go_on(&mut self) {
        while self.eager > 0
            && let Some((dst, src, len)) = self.waiting.pop_front()
        {
            self.eager -= 1;
            // SAFETY: the caller of `start` keeps both ranges, which are host memory.
            unsafe { crate::region::host_copy(dst, src, len) };
            self.done += 1;
        }
    }
}

// SAFETY: `host_copy` touches exactly the two ranges given to `start`; callers keep both valid
// until `is_done` says so, or fails, after which nothing touches them.
unsafe impl Copier for LazyCopier {
    unsafe fn start(&self, dst: u64, src: u64, len: usize) -> Result<CopyTicket, MemError> {
        let mut queue = self.queue();
        if queue.broken {
            return Err(BROKEN);
        }
        queue.started += 1;
        queue.waiting.push_back((dst, src, len));
        let ticket = CopyTicket(queue.started);
        queue.go_on();
        Ok(ticket)
    }

    fn is_done(&self, ticket: CopyTicket) -> Result<bool, MemError> {
        let mut queue = self.queue();
        if queue.broken {
            return Err(BROKEN);
        }
        if ticket.0 > queue.done && queue.pace.is_some() {
            queue.asked += 1;
            if queue.pace.is_some_and(|pace| queue.asked >= pace) {
                queue.asked = 0;
                queue.eager += 1;
                queue.go_on();
            }
        }
        Ok(ticket.0 <= queue.done)
    }

    fn host_memory(&self, len: usize) -> Result<Region, MemError> {
        self.queue().buffers += 1;
        HostBuf::region(len)
    }

    /// Short where a test holds copies back, and does not want to wait.
    fn timeout(&self) -> Duration {
        match self.queue().pace {
            None => Duration::from_millis(20),
            Some(_) => Duration::from_secs(30),
        }
    }
}

/// Memory that calls itself that of CUDA device `device`.
#[derive(Debug)]
pub struct LazyMemory {
    host: HostBuf,
    device: u32,
    copier: Arc<LazyCopier>,
    dmabuf: Option<(OwnedFd, u64)>,
}

impl LazyMemory {
    /// `len` zeroed bytes: as only the copy engine may reach them, and as the test sees them.
    pub fn regions(
        len: usize,
        device: u32,
        copier: &Arc<LazyCopier>,
    ) -> Result<(Region, Region), MemError> {
        Self::exporting(len, device, copier, None)
    }

    /// As [`Self::regions`]; the memory says that it begins at this place of a dmabuf.
    pub fn exporting(
        len: usize,
        device: u32,
        copier: &Arc<LazyCopier>,
        dmabuf: Option<(OwnedFd, u64)>,
    ) -> Result<(Region, Region), MemError> {
        let host = HostBuf::new(len)?;
        let memory = Arc::new(Self { host, device, copier: copier.clone(), dmabuf });
        // SAFETY: the bytes are those of the mapping that the shared `LazyMemory` owns.
        let view = unsafe { Region::foreign(memory.addr(), len, memory.clone()) };
        Ok((Region::from_arc(memory).slice(0, len)?, view))
    }
}

// SAFETY: the bytes are those of the mapping that `host` owns.
unsafe impl Backing for LazyMemory {
    fn addr(&self) -> u64 {
        self.host.addr()
    }

    fn len(&self) -> usize {
        self.host.len()
    }

    fn kind(&self) -> Kind {
        Kind::Cuda(self.device)
    }

    fn copier(&self) -> Option<Arc<dyn Copier>> {
        Some(self.copier.clone())
    }

    fn export_dmabuf(&self) -> Result<Dmabuf, NotExported> {
        let none = || NotExported(format!("{} memory is not exported", self.kind()));
        let (fd, offset) = self.dmabuf.as_ref().ok_or_else(none)?;
        let fd = fd.try_clone().map_err(|error| NotExported(error.to_string()))?;
        Ok(Dmabuf { fd, offset: *offset })
    }
}
