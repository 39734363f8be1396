//! The descriptors that links hold for long.
//!
//! Programs close descriptors that they do not know, and the next file gets the number: packets
//! would be taken from it and sent to it. A library between a program and the system, such as
//! `warpverbs-preload`, asks here which descriptors are not the program's. A number alone does not
//! decide: the file counts as well, so a link need not report that it closes a descriptor.

use rustix::fs::fstat;
use rustix::io::fcntl_dupfd_cloexec;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The lowest number of an own descriptor, where the process may have so many: programs put their own
/// files at low ones without asking.
const LOWEST: RawFd = 512;
/// Those with higher numbers are not known.
const MOST: usize = 1 << 16;

/// By number: [`file`] of what a link had there last, or 0.
static FILES: [AtomicU64; MOST] = [const { AtomicU64::new(0) }; MOST];
/// No higher number is in use.
static END: AtomicUsize = AtomicUsize::new(0);

/// One number for a file's device and inode, which is not 0.
pub fn file(device: u64, inode: u64) -> u64 {
    (device.rotate_left(40) ^ inode).max(1)
}

/// Makes a descriptor known as a link's own.
pub fn own(fd: OwnedFd) -> OwnedFd {
    let fd = fcntl_dupfd_cloexec(&fd, LOWEST).unwrap_or(fd);
    let number = fd.as_raw_fd() as usize;
    if let (Some(place), Ok(stat)) = (FILES.get(number), fstat(&fd)) {
        place.store(file(stat.st_dev, stat.st_ino), Ordering::Release);
        END.fetch_max(number + 1, Ordering::Release);
    }
    fd
}

/// Whether `fd`, at which `file` is open, is a link's own.
pub fn is_own(fd: RawFd, file: u64) -> bool {
    let place = usize::try_from(fd).ok().and_then(|fd| FILES.get(fd));
    place.is_some_and(|place| place.load(Ordering::Acquire) == file)
}

/// The numbers that own descriptors have or had, in ascending order, each with its [`file()`].
pub fn all_own() -> impl Iterator<Item = (RawFd, u64)> {
    let used = &FILES[..END.load(Ordering::Acquire)];
    let files = used.iter().enumerate();
    files.map(|(fd, file)| (fd as RawFd, file.load(Ordering::Acquire))).filter(|at| at.1 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn a_descriptor_is_a_links_own_while_its_number_is_that_of_its_file() {
        let open = || OwnedFd::from(File::open("/proc/self/exe").unwrap());
        let file_of = |fd: &OwnedFd| fstat(fd).map(|stat| file(stat.st_dev, stat.st_ino)).unwrap();
        let fd = own(open());
        let (number, known) = (fd.as_raw_fd(), file_of(&fd));
        assert!(is_own(number, known) && all_own().any(|own| own == (number, known)));
        let null = OwnedFd::from(File::open("/dev/null").unwrap());
        assert!(!is_own(number, file_of(&null)), "another file has the number");
        assert!(!is_own(null.as_raw_fd(), file_of(&null)));
        assert!(!is_own(-1, known) && !is_own(RawFd::MAX, known));
    }
}
