//! The devices that the program has opened.
//!
//! A device is a `memfd`. It is known by its inode, not by the number of a descriptor, which the
//! program may duplicate, close and reuse.

use crate::device::{FILE_BYTES, SoftDevice};
use crate::memory::ProcessMemory;
use crate::nic;
use crate::real::Real;
use crate::record::Recorder;
use crate::settings::Settings;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use std::cell::Cell;
use std::ffi::{c_int, c_ulong};
use std::mem::MaybeUninit;
use std::os::fd::IntoRawFd;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::{fs, io};
use warpverbs_uverbs::{Context, Errno, Refusal};

/// Which file: device and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    dev: u64,
    ino: u64,
}

struct OpenFile {
    identity: Identity,
    /// Number of the device.
    index: u32,
    /// The process that opened it, in which the NIC's thread runs.
    process: u32,
    context: Context<SoftDevice>,
}

static FILES: Mutex<Vec<OpenFile>> = Mutex::new(Vec::new());
/// How many there are, so that programs without any pay next to nothing.
static COUNT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The NIC's thread, which may hold what a call of the program waits for, is always inside.
    static INSIDE: Cell<bool> = Cell::new(is_nics_own());
}

/// Whether this is a thread of a NIC, by its name.
fn is_nics_own() -> bool {
    let mut name = [0u8; 16];
    // SAFETY: room for a name, which has at most 16 bytes.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    name.starts_with(nic::THREAD.as_bytes())
}

/// Runs `work`, during which this thread's calls go to the C library as they are. `None` if it does
/// so already.
pub(crate) fn inside<T>(work: impl FnOnce() -> T) -> Option<T> {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            INSIDE.with(|inside| inside.set(false));
        }
    }
    // In a thread that ends, calls go to the C library as well.
    if INSIDE.try_with(|inside| inside.replace(true)).unwrap_or(true) {
        return None;
    }
    let _leave = Leave;
    Some(work())
}

/// Whether a device is open.
pub(crate) fn any() -> bool {
    COUNT.load(Ordering::Relaxed) != 0
}

/// Number of the device with this path, if it is one of ours.
pub(crate) fn index_of(path: &[u8]) -> Option<u32> {
    let number = path.strip_prefix(b"/dev/infiniband/uverbs")?;
    let number: u32 = std::str::from_utf8(number).ok()?.parse().ok()?;
    (number < Settings::get().nics).then_some(number)
}

fn identity(fd: c_int) -> Option<Identity> {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the C library's fstat, with room for its answer.
    let done = unsafe { (Real::get().fstat)(fd, stat.as_mut_ptr()) };
    if done != 0 {
        return None;
    }
    // SAFETY: fstat succeeded, so it has written all of it.
    let stat = unsafe { stat.assume_init() };
    Some(Identity { dev: stat.st_dev, ino: stat.st_ino })
}

fn report(index: u32, refusal: &Refusal) {
    if Settings::get().verbose {
        eprintln!("warpverbs: mlx5_{index}: {refusal}");
    }
}

/// Opens a device: a descriptor, or a number for `errno`.
pub(crate) fn open(index: u32, flags: c_int) -> Result<c_int, c_int> {
    let made = make(index, flags);
    made.map_err(|refusal| {
        // A device that cannot be opened is of interest to everybody.
        eprintln!("warpverbs: mlx5_{index} cannot be opened: {refusal}");
        refusal.errno.number()
    })
}

fn make(index: u32, flags: c_int) -> Result<c_int, Refusal> {
    let failed = |error: io::Error| Refusal::new(Errno::ENOMEM, error.to_string());
    let nic = nic::shared(index)?;
    // Sparse: only the doorbell pages that are used are there. Sealed, because the NIC reads them.
    let file = warpverbs_mem::sealed_memfd(FILE_BYTES).map_err(failed)?;
    let pages = warpverbs_mem::map_sealed(&file, FILE_BYTES).map_err(failed)?;
    if flags & libc::O_CLOEXEC == 0 {
        let flags = fcntl(&file, FcntlArg::F_SETFD(FdFlag::empty()));
        flags.map_err(|errno| failed(errno.into()))?;
    }
    let mut context = Context::new(SoftDevice::new(nic, pages));
    if let Some(fault) = Settings::get().fault {
        context.fail(fault);
    }
    let fd = file.into_raw_fd();
    let gone = || Refusal::new(Errno::EBADF, "the file is gone");
    let identity = identity(fd).ok_or_else(gone)?;
    let process = std::process::id();
    let mut files = FILES.lock().unwrap_or_else(PoisonError::into_inner);
    files.push(OpenFile { identity, index, process, context });
    COUNT.store(files.len(), Ordering::Relaxed);
    Ok(fd)
}

/// Number of the device that is open as `fd`.
pub(crate) fn device_of(fd: c_int) -> Option<u32> {
    let identity = identity(fd)?;
    let files = FILES.lock().unwrap_or_else(PoisonError::into_inner);
    files.iter().find(|file| file.identity == identity).map(|file| file.index)
}

/// Answers a call, and records it where that was asked for.
fn answer(context: &mut Context<SoftDevice>, request: c_ulong, at: u64) -> Result<(), Refusal> {
    let Some(file) = &Settings::get().record else {
        return context.ioctl(&ProcessMemory, request, at);
    };
    let recorder = Recorder::new(ProcessMemory);
    let answered = context.ioctl(&recorder, request, at);
    let errno = answered.as_ref().err().map_or(0, |refusal| refusal.errno.number());
    if let Err(error) = recorder.finish(errno, file) {
        eprintln!("warpverbs: {}: {error}", file.display());
    }
    answered
}

/// Answers an `ioctl` on a device; `None` if `fd` is none.
pub(crate) fn ioctl(fd: c_int, request: c_ulong, at: u64) -> Option<Result<(), c_int>> {
    let identity = identity(fd)?;
    let mut files = FILES.lock().unwrap_or_else(PoisonError::into_inner);
    let file = files.iter_mut().find(|file| file.identity == identity)?;
    let answered = match file.process == std::process::id() {
        true => answer(&mut file.context, request, at),
        false => Err(Refusal::new(Errno::EIO, "the device was opened before fork()")),
    };
    Some(answered.map_err(|refusal| {
        report(file.index, &refusal);
        refusal.errno.number()
    }))
}

/// Closes `fd`. A device goes with its last descriptor.
pub(crate) fn close(fd: c_int) -> c_int {
    let closed = identity(fd);
    let mut files = FILES.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: the C library's close, for the program that asks for it.
    let result = unsafe { (Real::get().close)(fd) };
    let Ok(number) = u32::try_from(fd) else { return result };
    for file in files.iter_mut() {
        file.context.closed(number);
    }
    let at = files.iter().position(|file| Some(file.identity) == closed);
    if let Some(at) = at.filter(|at| !is_open(files[*at].identity)) {
        let file = files.swap_remove(at);
        if Settings::get().verbose && file.context.objects() > 0 {
            let (index, left) = (file.index, file.context.objects());
            eprintln!("warpverbs: mlx5_{index}: closed with {left} object(s) left");
        }
        drop(file);
        COUNT.store(files.len(), Ordering::Relaxed);
    }
    result
}

/// Whether the page at `address` is one of registers: a mapping of a device's file.
pub(crate) fn is_register(address: usize) -> bool {
    let Ok(maps) = fs::read_to_string("/proc/self/maps") else { return false };
    // From-to, rights, offset, device, inode, name.
    let found = maps.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let (from, to) = words.next()?.split_once('-')?;
        let number = |word| usize::from_str_radix(word, 16).ok();
        let inode = words.nth(3)?.parse::<u64>().ok()?;
        let holds = (number(from)?..number(to)?).contains(&address);
        let is_memfd = words.next().is_some_and(|name| name.starts_with("/memfd:"));
        holds.then_some(inode).filter(|_| is_memfd)
    });
    let files = FILES.lock().unwrap_or_else(PoisonError::into_inner);
    files.iter().any(|file| Some(file.identity.ino) == found)
}

/// Whether this process has a descriptor of the file.
fn is_open(identity: Identity) -> bool {
    let Ok(descriptors) = fs::read_dir("/proc/self/fd") else { return true };
    let is = |found: &fs::Metadata| found.dev() == identity.dev && found.ino() == identity.ino;
    descriptors.flatten().any(|entry| fs::metadata(entry.path()).is_ok_and(|found| is(&found)))
}
