//! Memory that processes share: memfds whose length is sealed.

use crate::{HostBuf, MemError, Region};
use memmap2::MmapOptions;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::stat::fstat;
use nix::unistd::ftruncate;
use std::ffi::CStr;
use std::io;
use std::os::fd::OwnedFd;
use thiserror::Error;

/// An access to a mapped page that is gone kills the process, so the length must stay.
const SEALS: SealFlag =
    SealFlag::F_SEAL_SHRINK.union(SealFlag::F_SEAL_GROW).union(SealFlag::F_SEAL_SEAL);

/// The reason why a descriptor is not a sealed memfd of the expected length.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "fields are named by what they are")]
pub enum SharedError {
    /// Not a memfd.
    #[error("no memfd: {kind}")]
    NoMemfd { kind: io::ErrorKind },
    /// Its owner could make it shorter.
    #[error("a memfd without the seal against getting shorter")]
    Unsealed,
    /// It has another length.
    #[error("a memfd of {found:#x} bytes")]
    Length { found: u64 },
}

/// A new memfd of `len` zeroed bytes, sealed against changes of its length.
///
/// # Errors
/// The system's error. More bytes than a file of this process may have are
/// [`io::ErrorKind::FileTooLarge`]: the system would send SIGXFSZ, which ends a process silently.
pub fn sealed_memfd(len: u64) -> io::Result<OwnedFd> {
    named_memfd(c"warpverbs", len)
}

/// The same with a name, which `/proc` shows.
///
/// # Errors
/// Those of [`sealed_memfd`].
pub fn named_memfd(name: &CStr, len: u64) -> io::Result<OwnedFd> {
    let (limit, _) = getrlimit(Resource::RLIMIT_FSIZE)?;
    if len > limit {
        let why = format!(
            "{len} bytes of shared memory, and files of this process may have {limit} (ulimit -f)"
        );
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    let fd = memfd_create(name, MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)?;
    let size = i64::try_from(len).map_err(|_| io::ErrorKind::InvalidInput)?;
    ftruncate(&fd, size)?;
    fcntl(&fd, FcntlArg::F_ADD_SEALS(SEALS))?;
    Ok(fd)
}

/// Checks that `fd` is a memfd of `len` bytes that cannot get shorter.
///
/// # Errors
/// The descriptor is something else.
pub fn check_sealed(fd: &OwnedFd, len: u64) -> Result<(), SharedError> {
    let no_memfd = |errno: nix::Error| SharedError::NoMemfd { kind: io::Error::from(errno).kind() };
    let seals = fcntl(fd, FcntlArg::F_GET_SEALS).map_err(no_memfd)?;
    if !SealFlag::from_bits_retain(seals).contains(SealFlag::F_SEAL_SHRINK) {
        return Err(SharedError::Unsealed);
    }
    match fstat(fd).map_err(no_memfd)?.st_size as u64 {
        found if found == len => Ok(()),
        found => Err(SharedError::Length { found }),
    }
}

/// Maps all `len` bytes of a memfd. The descriptor is not needed any longer. Other processes may read
/// and write them at any time.
///
/// # Errors
/// The descriptor is not a [`sealed_memfd`] of that length, or the system refuses.
pub fn map_sealed(fd: &OwnedFd, len: u64) -> io::Result<Region> {
    check_sealed(fd, len).map_err(io::Error::other)?;
    let size = usize::try_from(len).ok().filter(|size| *size != 0);
    // Shared, readable and writable, and unmapped on drop; the file cannot get shorter.
    let mapping = MmapOptions::new().len(size.ok_or(io::ErrorKind::InvalidInput)?).map_raw(fd)?;
    Ok(Region::new(HostBuf(mapping)))
}

impl Region {
    /// Copies bytes into host memory seen as a ring: behind its last byte comes its first. `at` is
    /// taken modulo its length.
    ///
    /// # Errors
    /// More bytes than the ring has, or memory that the CPU does not reach.
    #[inline]
    pub fn write_ring(&self, at: u64, data: &[u8]) -> Result<(), MemError> {
        let (at, first) = self.until_end(at, data.len())?;
        self.write(at, &data[..first])?;
        if first < data.len() {
            self.write(0, &data[first..])?;
        }
        Ok(())
    }

    /// As [`write_ring`](Self::write_ring), out of the ring.
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn read_ring(&self, at: u64, out: &mut [u8]) -> Result<(), MemError> {
        let (at, first) = self.until_end(at, out.len())?;
        let (now, later) = out.split_at_mut(first);
        self.read(at, now)?;
        if !later.is_empty() {
            self.read(0, later)?;
        }
        Ok(())
    }

    /// Where `at` lies in the ring, and how many of `len` bytes are before its end.
    #[inline]
    fn until_end(&self, at: u64, len: usize) -> Result<(u64, usize), MemError> {
        let region_len = self.len() as u64;
        if len as u64 > region_len || region_len == 0 {
            return Err(MemError::OutOfBounds { offset: at, len: len as u64, region_len });
        }
        // Rings of a power of two need no division.
        let at = match region_len.is_power_of_two() {
            true => at & (region_len - 1),
            false => at % region_len,
        };
        Ok((at, len.min((region_len - at) as usize)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HostBuf;

    #[test]
    fn two_mappings_of_a_memfd_show_the_same_bytes() {
        let fd = sealed_memfd(8192).unwrap();
        let (one, other) = (map_sealed(&fd, 8192).unwrap(), map_sealed(&fd, 8192).unwrap());
        drop(fd);
        one.write(8000, b"shared").unwrap();
        let mut seen = [0; 6];
        other.read(8000, &mut seen).unwrap();
        assert_eq!(&seen, b"shared");
    }

    #[test]
    fn what_could_kill_a_reader_is_refused() {
        let fd = sealed_memfd(4096).unwrap();
        assert_eq!(check_sealed(&fd, 8192), Err(SharedError::Length { found: 4096 }));
        assert!(ftruncate(&fd, 0).is_err());
        let loose = memfd_create(c"loose", MFdFlags::MFD_ALLOW_SEALING).unwrap();
        ftruncate(&loose, 4096).unwrap();
        assert_eq!(check_sealed(&loose, 4096), Err(SharedError::Unsealed));
        let file = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        assert!(matches!(check_sealed(&file, 0), Err(SharedError::NoMemfd { .. })));
        assert!(map_sealed(&loose, 4096).is_err());
    }

    #[test]
    fn more_than_a_file_may_have_is_an_error() {
        /// Tells the process that the test starts, in which files are small.
        const LIMITED: &str = "WARPVERBS_TEST_FILE_LIMIT";
        if std::env::var_os(LIMITED).is_none() {
            let own = "memfd::tests::more_than_a_file_may_have_is_an_error";
            let out = std::process::Command::new("sh")
                .args(["-c", "ulimit -f 8; exec \"$0\" --exact \"$1\" --nocapture"])
                .arg(std::env::current_exe().unwrap())
                .arg(own)
                .env(LIMITED, "1")
                .output()
                .unwrap();
            let text = String::from_utf8_lossy(&out.stdout);
            // A signal is no exit code.
            assert!(out.status.success() && text.contains("1 passed"), "{}: {text}", out.status);
            return;
        }
        sealed_memfd(4096).unwrap();
        let error = sealed_memfd(1 << 20).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        assert!(error.to_string().starts_with("1048576 bytes of shared memory"), "{error}");
    }

    #[test]
    fn a_ring_goes_on_at_its_beginning() {
        for len in [96, 128] {
            let ring = HostBuf::region(len).unwrap();
            let data: Vec<u8> = (1..=40).collect();
            for at in 0..3 * len as u64 {
                ring.fill(0, len, 0).unwrap();
                ring.write_ring(at, &data).unwrap();
                let mut back = vec![0; 40];
                ring.read_ring(at, &mut back).unwrap();
                assert_eq!(back, data);
                let mut byte = [0];
                ring.read((at + 39) % len as u64, &mut byte).unwrap();
                assert_eq!(byte, [40]);
            }
            assert!(ring.write_ring(0, &vec![0; len + 1]).is_err());
        }
    }
}
