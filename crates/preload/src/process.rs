//! The process that owns the devices.
//!
//! Devices belong to the process that opened them, in which the NICs' threads run. A child of `fork()`
//! has a copy of all that its parent had in memory at that moment, locks that other threads held
//! included, and shares the descriptors and the mapped rings; a child of `vfork()` has the memory itself.
//! Neither may do anything with it: the NIC would be stepped twice, and packets taken out of rings that
//! both have. So each function of ours asks first whether it [is called by the owner](is_owner), which
//! takes no lock. A child of `fork()` that opens a device begins with [values of its own](Own); what it
//! has of its parent's is never touched and never dropped.

use crate::real::Real;
use nix::libc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use std::{fs, ptr};
use warpverbs_nic::link::descriptors;
use warpverbs_uverbs::{Errno, Refusal};

/// The process that has opened a device; 0 for none.
static OWNER: AtomicU32 = AtomicU32::new(0);
/// How many times `fork()` lies between the program's first process and this one.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Number of this process. Always a system call: children of `vfork()` would find a kept number of
/// their parent.
fn own() -> u32 {
    // SAFETY: takes nothing, and cannot fail.
    unsafe { libc::getpid() }.cast_unsigned()
}

/// Whether this process has opened a device and does not share its memory with a parent.
pub(crate) fn is_owner() -> bool {
    let owner = OWNER.load(Ordering::Relaxed);
    owner != 0 && owner == own()
}

/// Makes this process the owner, if it can be.
pub(crate) fn claim() -> Result<(), Refusal> {
    static WATCHED: AtomicBool = AtomicBool::new(false);
    if !WATCHED.swap(true, Ordering::AcqRel) {
        // SAFETY: the handler may run in a child of any thread.
        if unsafe { libc::pthread_atfork(None, None, Some(in_child)) } != 0 {
            WATCHED.store(false, Ordering::Release);
            return Err(Refusal::new(Errno::ENOMEM, "no handler of fork() can be added"));
        }
    }
    match OWNER.compare_exchange(0, own(), Ordering::AcqRel, Ordering::Acquire) {
        Err(owner) if owner != own() => {
            let why = format!("this process has its memory from process {owner}, without fork()");
            Err(Refusal::new(Errno::EIO, why))
        }
        _ => Ok(()),
    }
}

/// First acts of a child of `fork()`: nothing here is its own. It also closes its copies of the
/// descriptors of its parent's links. It cannot use them, and peers see by them when its parent
/// ends.
unsafe extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    if OWNER.swap(0, Ordering::Relaxed) == 0 {
        return;
    }
    for (fd, file) in descriptors::all_own() {
        if file_of(fd) == Some(file) {
            // SAFETY: a descriptor of this process that nothing in it uses.
            unsafe { (Real::get().close)(fd) };
        }
    }
}

/// The open file of a descriptor, as [`descriptors::file`] has it.
pub(crate) fn file_of(fd: i32) -> Option<u64> {
    status(fd).map(|stat| descriptors::file(stat.st_dev, stat.st_ino))
}

/// The C library's `fstat`.
pub(crate) fn status(fd: i32) -> Option<libc::stat> {
    // SAFETY: all zeros is a stat.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: any number may be asked for; there is room for the answer.
    (unsafe { (Real::get().fstat)(fd, &mut stat) } == 0).then_some(stat)
}

/// How `/proc` shows the names of devices' files, behind which the number of the device follows.
pub(crate) const SHOWN: &str = "/memfd:warpverbs-uverbs";

/// A mapping of a device's file.
struct Mapping {
    from: usize,
    to: usize,
    offset: usize,
    inode: u64,
}

/// The first find of `find` among the mappings of devices' files.
fn mapped<T>(find: impl Fn(Mapping) -> Option<T>) -> Option<T> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    // From-to, rights, offset, device, inode, name.
    maps.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let (from, to) = words.next()?.split_once('-')?;
        let number = |word| usize::from_str_radix(word, 16).ok();
        let (from, to, offset) = (number(from)?, number(to)?, number(words.nth(1)?)?);
        let inode = words.nth(1)?.parse::<u64>().ok()?;
        let is_device = words.next().is_some_and(|name| name.starts_with(SHOWN));
        is_device.then(|| find(Mapping { from, to, offset, inode })).flatten()
    })
}

/// The inode of the device's file that is mapped at `address`, and the offset there.
pub(crate) fn mapped_at(address: usize) -> Option<(u64, u64)> {
    mapped(|Mapping { from, to, offset, inode }| {
        let holds = (from..to).contains(&address);
        holds.then(|| (inode, (offset + (address - from)) as u64))
    })
}

/// Where the page at `wanted` of the device's file with this inode is mapped.
pub(crate) fn mapping_of(of: u64, wanted: u64) -> Option<usize> {
    mapped(|Mapping { from, to, offset, inode }| {
        let at = from + (wanted as usize).checked_sub(offset)?;
        (inode == of && at < to).then_some(at)
    })
}

/// A value that is made when it is first asked for, and never dropped. No lock: a signal handler or a
/// child may ask while another thread makes it; then several are made, and one is kept.
pub(crate) struct Once<T>(AtomicPtr<T>);

impl<T> Once<T> {
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    pub(crate) fn get(&self, make: impl FnOnce() -> T) -> &'static T {
        let held = self.0.load(Ordering::Acquire);
        // SAFETY: null, or from a box that is never freed.
        unsafe { held.as_ref() }.unwrap_or_else(|| self.replace(held, make()))
    }

    /// Puts `value` in the place of `held`, unless another thread has done so meanwhile.
    fn replace(&self, held: *mut T, value: T) -> &'static T {
        let new = Box::into_raw(Box::new(value));
        match self.0.compare_exchange(held, new, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: from the box above, which is never freed any more.
            Ok(_) => unsafe { &*new },
            Err(other) => {
                // SAFETY: from the box above, which nobody else has seen.
                drop(unsafe { Box::from_raw(new) });
                // SAFETY: not null, since values are only replaced by values, and never freed.
                unsafe { &*other }
            }
        }
    }
}

/// A value of this process: a child of `fork()` has another one.
pub(crate) struct Own<T>(Once<(u32, T)>);

impl<T: Default> Own<T> {
    pub(crate) const fn new() -> Self {
        Self(Once::new())
    }

    pub(crate) fn get(&self) -> &'static T {
        self.after(FORKS.load(Ordering::Relaxed))
    }

    fn after(&self, forks: u32) -> &'static T {
        let mut held = self.0.get(|| (forks, T::default()));
        if held.0 != forks {
            held = self.0.replace(ptr::from_ref(held).cast_mut(), (forks, T::default()));
        }
        &held.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn a_child_has_values_of_its_own() {
        static VALUE: Own<Mutex<Vec<u32>>> = Own::new();
        VALUE.after(0).lock().unwrap().push(1);
        assert_eq!(*VALUE.after(0).lock().unwrap(), [1]);
        // As in a child, while another thread of its parent holds the lock.
        let held = VALUE.after(0).lock().unwrap();
        assert!(VALUE.after(1).lock().unwrap().is_empty());
        VALUE.after(1).lock().unwrap().push(2);
        assert_eq!((&held[..], &VALUE.after(1).lock().unwrap()[..]), (&[1][..], &[2][..]));
    }

    #[test]
    fn one_of_several_that_were_made_at_once_is_kept() {
        static VALUE: Once<u32> = Once::new();
        let first = VALUE.get(|| *VALUE.get(|| 1) + 1);
        assert_eq!((*first, *VALUE.get(|| 3)), (1, 1));
    }
}
