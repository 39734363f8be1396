//! The devices that the program has opened.
//!
//! A device is a `memfd`. It is known by its inode, not by the number of a descriptor, which the
//! program may duplicate, close and reuse; where only that matters, by its name, which children of the
//! process and what they execute can read, too.
//!
//! Locks: that of the list is held for a look or a change alone. A device's own is held during a call,
//! which may take seconds; closing any other descriptor never waits for one.

use crate::device::{FILE_BYTES, SoftDevice};
use crate::faults::masked;
use crate::inside::inside;
use crate::memory::ProcessMemory;
use crate::nic;
use crate::process::{self, Own, SHOWN, file_of, mapped_at, status};
use crate::real::Real;
use crate::record::Recorder;
use crate::say::say;
use crate::settings::{Settings, device_name};
use nix::errno::Errno as Error;
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use std::ffi::{CString, c_int, c_uint, c_ulong};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{fs, io};
use warpverbs_nic::link::descriptors;
use warpverbs_uverbs::{Context, Errno, Refusal};

/// How the names of devices' files begin, behind which the number of the device follows.
const NAME: &str = "warpverbs-uverbs";

struct OpenFile {
    /// Device and inode, as [`descriptors::file`] has them.
    file: u64,
    inode: u64,
    /// Number of the device.
    index: u32,
    context: Mutex<Context<SoftDevice>>,
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        let context = self.context.get_mut().unwrap_or_else(PoisonError::into_inner);
        let left = context.objects();
        if Settings::get().verbose && left > 0 {
            say!("{}: closed with {left} object(s) left", device_name(self.index));
        }
    }
}

static FILES: Own<Mutex<Vec<Arc<OpenFile>>>> = Own::new();

fn files() -> MutexGuard<'static, Vec<Arc<OpenFile>>> {
    FILES.get().lock().unwrap_or_else(PoisonError::into_inner)
}

/// Number of the device with this path, if it is one of ours.
pub(crate) fn index_of(path: &[u8]) -> Option<u32> {
    let number = path.strip_prefix(b"/dev/infiniband/uverbs")?;
    let number: u32 = std::str::from_utf8(number).ok()?.parse().ok()?;
    (number < Settings::get().nics).then_some(number)
}

fn report(index: u32, refusal: &Refusal) {
    if Settings::get().verbose {
        say!("{}: {refusal}", device_name(index));
    }
}

/// Opens a device: a descriptor, or a number for `errno`.
pub(crate) fn open(index: u32, flags: c_int) -> Result<c_int, c_int> {
    let made = process::claim().and_then(|()| masked(|| make(index, flags)));
    made.map_err(|refusal| {
        // A device that cannot be opened is of interest to everybody.
        say!("{} cannot be opened: {refusal}", device_name(index));
        refusal.errno.number()
    })
}

/// The refusal where the system has no descriptors or memory left.
pub(crate) fn exhausted(what: &str, error: &io::Error) -> Refusal {
    let errno = match error.raw_os_error().map(Error::from_raw) {
        Some(Error::EMFILE) => Errno::EMFILE,
        Some(Error::ENFILE) => Errno::ENFILE,
        _ => Errno::ENOMEM,
    };
    Refusal::new(errno, format!("{what}: {error}"))
}

fn make(index: u32, flags: c_int) -> Result<c_int, Refusal> {
    let failed = |error: io::Error| exhausted("the device's file", &error);
    let nic = nic::shared(index)?;
    let name = CString::new(format!("{NAME}{index}")).unwrap_or_default();
    // Sparse: only the doorbell pages that are used are there. Sealed, because the NIC reads them.
    let fd = warpverbs_mem::named_memfd(&name, FILE_BYTES).map_err(failed)?;
    let pages = warpverbs_mem::map_sealed(&fd, FILE_BYTES).map_err(failed)?;
    // Bytes that are written would be doorbells. Appended bytes lie beyond the sealed end, and the
    // program does not take the flag away: see `flags_of`.
    let mut settings = vec![FcntlArg::F_SETFL(OFlag::O_RDWR | OFlag::O_APPEND)];
    if flags & libc::O_CLOEXEC == 0 {
        settings.push(FcntlArg::F_SETFD(FdFlag::empty()));
    }
    for setting in settings {
        fcntl(&fd, setting).map_err(|errno| failed(errno.into()))?;
    }
    let gone = || Refusal::new(Errno::EBADF, "the file is gone");
    let stat = status(fd.as_raw_fd()).ok_or_else(gone)?;
    let inode = stat.st_ino;
    let mut context = Context::new(SoftDevice::new(nic, pages, inode)?);
    if let Some(fault) = Settings::get().fault {
        context.fail(fault);
    }
    let context = Mutex::new(context);
    let file = descriptors::file(stat.st_dev, inode);
    files().push(Arc::new(OpenFile { file, inode, index, context }));
    Ok(fd.into_raw_fd())
}

/// Number of the device that is open as `fd`, whichever code opened it: `stat` is what `fstat` says.
pub(crate) fn device_of(fd: c_int, stat: &libc::stat) -> Option<u32> {
    is_like_a_device(stat).then(|| inside(|| named(fd, stat)).flatten())?
}

/// The flags that `fd` gets where the program asks for `flags`: [`make`] says why a device keeps one.
pub(crate) fn flags_of(fd: c_int, flags: c_int) -> c_int {
    match status(fd).and_then(|stat| device_of(fd, &stat)) {
        Some(_) => flags | libc::O_APPEND,
        None => flags,
    }
}

fn is_like_a_device(stat: &libc::stat) -> bool {
    let is_file = stat.st_mode & libc::S_IFMT == libc::S_IFREG && stat.st_nlink == 0;
    is_file && stat.st_size.cast_unsigned() == FILE_BYTES
}

fn named(fd: c_int, stat: &libc::stat) -> Option<u32> {
    is_like_a_device(stat).then_some(())?;
    let name = fs::read_link(format!("/proc/self/fd/{fd}")).ok()?;
    let name = name.to_str()?.strip_prefix(SHOWN)?;
    name.split(' ').next()?.parse().ok()
}

/// Answers a call, and records it if recording is on.
fn answer(context: &mut Context<SoftDevice>, request: c_ulong, at: u64) -> Result<(), Refusal> {
    let Some(file) = &Settings::get().record else {
        return context.ioctl(&ProcessMemory, request, at);
    };
    let recorder = Recorder::new(ProcessMemory);
    let answered = context.ioctl(&recorder, request, at);
    let errno = answered.as_ref().err().map_or(0, |refusal| refusal.errno.number());
    if let Err(error) = recorder.finish(errno, file) {
        say!("{}: {error}", file.display());
    }
    answered
}

fn find(file: u64) -> Option<Arc<OpenFile>> {
    process::is_owner().then(|| files().iter().find(|open| open.file == file).cloned())?
}

/// Answers an `ioctl` on a device; `None` if `fd` is not a device.
pub(crate) fn ioctl(fd: c_int, request: c_ulong, at: u64) -> Option<Result<(), c_int>> {
    let stat = status(fd)?;
    let Some(file) = find(descriptors::file(stat.st_dev, stat.st_ino)) else {
        let index = named(fd, &stat)?;
        let why = "the device was opened by another process, before fork() or exec()";
        report(index, &Refusal::new(Errno::EIO, why));
        return Some(Err(Errno::EIO.number()));
    };
    let answered = masked(|| {
        let mut context = file.context.lock().unwrap_or_else(PoisonError::into_inner);
        answer(&mut context, request, at)
    });
    Some(answered.map_err(|refusal| {
        report(file.index, &refusal);
        refusal.errno.number()
    }))
}

/// The result of `look` for the device that is open as `fd`.
pub(crate) fn look<T>(
    fd: c_int,
    look: impl FnOnce(&Context<SoftDevice>) -> Option<T>,
) -> Option<T> {
    let file = find(file_of(fd)?)?;
    masked(|| look(&file.context.lock().unwrap_or_else(PoisonError::into_inner)))
}

/// The number by which the device that is open as `fd` knows the object of this handle.
pub(crate) fn number(fd: c_int, handle: u32) -> Option<u32> {
    look(fd, |context| Some(context.number(handle)).filter(|number| *number != 0))
}

/// Closes `fd`. A device goes with its last descriptor. A descriptor that a NIC uses itself does not
/// exist for the program (`EBADF`).
pub(crate) fn close(fd: c_int) -> Result<(), c_int> {
    let known = file_of(fd);
    if known.is_some_and(|file| descriptors::is_own(fd, file)) {
        return Err(libc::EBADF);
    }
    // As long as it is held, its inode cannot belong to another file.
    let file = known.and_then(find);
    // SAFETY: the C library's close, for the program that asks for it.
    let closed = match unsafe { (Real::get().close)(fd) } {
        0 => Ok(()),
        _ => Err(Error::last_raw()),
    };
    if let Some(file) = file {
        forget_if_closed(&file);
    }
    closed
}

/// Closes the descriptors from `first` to `last`, but for those of NICs.
pub(crate) fn close_range(first: c_uint, last: c_uint) -> Result<(), c_int> {
    let range = |first: c_uint, last: c_uint| {
        // SAFETY: takes numbers.
        match unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) } {
            0 => Ok(()),
            _ => Err(Error::last_raw()),
        }
    };
    if first > last {
        return range(first, last);
    }
    let own = descriptors::all_own().filter(|(fd, file)| file_of(*fd) == Some(*file));
    let mut next = Some(first);
    for fd in own.map(|(fd, _)| fd.cast_unsigned()) {
        let Some(first) = next.filter(|first| (*first..=last).contains(&fd)) else { continue };
        if fd > first {
            range(first, fd - 1)?;
        }
        next = fd.checked_add(1);
    }
    if let Some(first) = next.filter(|first| *first <= last) {
        range(first, last)?;
    }
    let open = files().clone();
    open.iter().for_each(forget_if_closed);
    Ok(())
}

/// A device without descriptors goes, as soon as its last call has ended.
fn forget_if_closed(file: &Arc<OpenFile>) {
    if descriptor_of(file.file).is_none() {
        let known = |list: &[Arc<OpenFile>]| list.iter().position(|open| Arc::ptr_eq(open, file));
        let mut list = files();
        let gone = known(&list).map(|at| list.swap_remove(at));
        drop(list);
        masked(|| drop(gone));
    }
}

/// Whether the page at `address` is one of registers: a mapping of a device's file.
pub(crate) fn is_register(address: usize) -> bool {
    let found = mapped_at(address).map(|(inode, _)| inode);
    process::is_owner() && files().iter().any(|file| Some(file.inode) == found)
}

/// A descriptor of this process that stands for `file`, which is none of a NIC's own.
pub(crate) fn descriptor_of(file: u64) -> Option<c_int> {
    let is = |fd: &c_int| file_of(*fd) == Some(file) && !descriptors::is_own(*fd, file);
    let Ok(open) = fs::read_dir("/proc/self/fd") else {
        // No descriptor is left to read the folder by, or `/proc` is not there.
        return (0..MOST_LOOKED_AT).find(is);
    };
    let numbers = open.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.into_iter().find(is)
}

/// Descriptors that are looked at where the system does not list them.
const MOST_LOOKED_AT: c_int = 1 << 16;
