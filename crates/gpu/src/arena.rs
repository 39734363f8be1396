//! Address ranges in which processes place memory that they share.
//!
//! An [`Arena`] reserves addresses and uses no memory by itself. [`Arena::commit`] maps fresh memory
//! at an offset; [`Segment::export`] makes a file descriptor of it; another process gives that to
//! [`Arena::attach`] and sees the same bytes at an offset of its own choice. On a CUDA device the
//! memory is the device's (virtual memory management with POSIX descriptors), on the SIMT device a
//! sealed memfd.
//!
//! A segment is memory like any other: its [`Buffer`] goes to kernels, to [`Gpu::read`](crate::Gpu::read)
//! and to the registration with a NIC, and stays mapped as long as anybody holds it.

use crate::{Buffer, GpuError};
use nix::sys::resource::{Resource, getrlimit};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use thiserror::Error;
use warpverbs_mem::{
    Backing, Copier, Dmabuf, Kind, NotExported, Region, Share, ShareHandle, SharePiece,
};

/// Why memory cannot be placed or shared.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "fields are named by what they are")]
pub enum ArenaError {
    /// No address range of this length. `limit` is that of this process (`ulimit -v`), in bytes.
    #[error("cannot reserve {len:#x} bytes of address space: {cause}{}", at_most(*.limit))]
    Reserve { len: u64, limit: Option<u64>, cause: String },
    /// Offsets and lengths are multiples of the granule, and a length is not zero.
    #[error("{what} {value:#x} is not a positive multiple of {granule:#x}")]
    Granule { what: &'static str, value: u64, granule: u64 },
    /// The range is not inside the arena.
    #[error("range {offset:#x}+{len:#x} is outside an arena of {arena:#x} bytes")]
    Outside { offset: u64, len: u64, arena: u64 },
    /// Something is mapped there, or was until a moment ago: memory that kernels may still use is
    /// unmapped when they have ended.
    #[error("range {offset:#x}+{len:#x} overlaps {other:#x}+{other_len:#x}, which is in use")]
    Occupied { offset: u64, len: u64, other: u64, other_len: u64 },
    /// More than the device has at all.
    #[error("{len:#x} bytes asked for, the device has {total:#x}")]
    TooLarge { len: u64, total: u64 },
    /// No file descriptor is left.
    #[error("no file descriptor left: {cause}; this process may have {limit} (ulimit -n)")]
    Descriptors { limit: u64, cause: io::Error },
    /// The descriptor is not one of a segment of this length.
    #[error("the file descriptor is {found}; expected {expected}")]
    WrongDescriptor { expected: String, found: String },
    /// Segments do not follow each other in one arena.
    #[error("segment {index} does not begin where the one before it ends, or is of another arena")]
    Apart { index: usize },
    /// A call of the system failed.
    #[error("{call}: {cause}")]
    System { call: &'static str, cause: io::Error },
    /// The device refused.
    #[error(transparent)]
    Gpu(#[from] GpuError),
}

fn at_most(limit: Option<u64>) -> String {
    limit.map_or_else(String::new, |limit| {
        format!("; this process may have {limit:#x} in all (ulimit -v): reserve less")
    })
}

impl ArenaError {
    /// Of a failed call, where having too many open files is a case of its own.
    pub(crate) fn system(call: &'static str, cause: io::Error) -> Self {
        let full = [nix::libc::EMFILE, nix::libc::ENFILE].map(Some).contains(&cause.raw_os_error());
        match getrlimit(Resource::RLIMIT_NOFILE) {
            Ok((limit, _)) if full => Self::Descriptors { limit, cause },
            _ => Self::System { call, cause },
        }
    }

    /// Of a reservation that was refused.
    pub(crate) fn reserve(len: u64, cause: impl fmt::Display) -> Self {
        let limit = getrlimit(Resource::RLIMIT_AS).ok().map(|(limit, _)| limit);
        let limit = limit.filter(|&limit| limit != nix::libc::RLIM_INFINITY);
        Self::Reserve { len, limit, cause: cause.to_string() }
    }
}

/// Bytes of all pieces, or more than any arena has.
pub(crate) fn shared_bytes(share: &Share) -> u64 {
    let all = share.pieces.iter().try_fold(0u64, |sum, piece| sum.checked_add(piece.len));
    all.unwrap_or(u64::MAX)
}

/// The device's part of an arena.
///
/// # Safety
/// `[addr, addr + len)` is reserved, 16-byte aligned, until the value is dropped, and only what
/// `commit` and `attach` return is mapped there, each over exactly its range. For [`Kind::Host`] it
/// is readable and writable, whatever other processes do, until it is dropped.
pub(crate) unsafe trait Reservation: Send + Sync {
    fn addr(&self) -> u64;
    fn len(&self) -> u64;
    fn granule(&self) -> u64;
    fn kind(&self) -> Kind;
    fn copier(&self) -> Option<Arc<dyn Copier>>;
    fn export_dmabuf(&self, addr: u64, len: u64) -> Result<Dmabuf, NotExported>;
    /// Maps fresh memory.
    fn commit(self: Arc<Self>, range: Taken) -> Result<Box<dyn Mapped>, ArenaError>;
    /// Maps the memory of a descriptor.
    fn attach(self: Arc<Self>, range: Taken, fd: OwnedFd) -> Result<Box<dyn Mapped>, ArenaError>;
    /// Zeroes fresh memory.
    fn zero(&self, region: &Region) -> Result<(), ArenaError>;
}

/// Memory in its place, unmapped some time after this is dropped.
pub(crate) trait Mapped: Send + Sync {
    /// A new descriptor of the memory.
    fn export(&self) -> Result<OwnedFd, ArenaError>;
}

/// Ranges in use: offset and length.
type Ranges = Arc<Mutex<BTreeMap<u64, u64>>>;

/// A range that nobody else gets as long as this lives.
pub(crate) struct Taken {
    ranges: Ranges,
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.ranges.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.offset);
    }
}

/// Reserved addresses. Cloning shares them; they are given back when no clone and no memory in them
/// is left.
#[derive(Clone)]
pub struct Arena {
    reservation: Arc<dyn Reservation>,
    ranges: Ranges,
}

impl Arena {
    pub(crate) fn new(reservation: Arc<dyn Reservation>) -> Self {
        Self { reservation, ranges: Ranges::default() }
    }

    /// First address, for kernels and for the NIC.
    pub fn addr(&self) -> u64 {
        self.reservation.addr()
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.reservation.len()
    }

    /// Whether it has no addresses.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Offsets and lengths of segments are multiples of this, a power of two.
    pub fn granule(&self) -> u64 {
        self.reservation.granule()
    }

    /// Fresh zeroed memory at `offset`, which can be exported.
    pub fn commit(&self, offset: u64, len: u64) -> Result<Segment, ArenaError> {
        let range = self.take(offset, len)?;
        let mapped = self.reservation.clone().commit(range)?;
        let segment = self.segment(offset, len, mapped);
        self.reservation.zero(segment.buffer.region())?;
        Ok(segment)
    }

    /// The memory of a segment of `len` bytes that `fd` was [exported](Segment::export) from, by this
    /// process or another, at `offset`.
    pub fn attach(&self, offset: u64, len: u64, fd: OwnedFd) -> Result<Segment, ArenaError> {
        let range = self.take(offset, len)?;
        let mapped = self.reservation.clone().attach(range, fd)?;
        Ok(self.segment(offset, len, mapped))
    }

    /// Segments of this arena that follow each other without gaps, as one piece of memory.
    ///
    /// # Errors
    /// [`ArenaError::Apart`] if they do not, or if there are none.
    pub fn join(&self, segments: &[Segment]) -> Result<Buffer, ArenaError> {
        let mut end = segments.first().map_or(u64::MAX, Segment::offset);
        for (index, segment) in segments.iter().enumerate() {
            let here = Arc::ptr_eq(&segment.memory.reservation, &self.reservation);
            if !here || segment.offset != end {
                return Err(ArenaError::Apart { index });
            }
            end += segment.len();
        }
        let parts: Vec<_> = segments.iter().map(|segment| segment.memory.clone()).collect();
        let first = parts.first().ok_or(ArenaError::Apart { index: 0 })?;
        let len = parts.iter().map(|part| part.len).sum();
        let joined = Joined { addr: first.addr, len, parts };
        Ok(Buffer::of_region(Region::new(joined)))
    }

    /// Maps another process's memory at the start of this arena, which is as long as all its
    /// pieces.
    pub(crate) fn import(&self, share: Share, len: u64) -> Result<Buffer, ArenaError> {
        let (mut segments, mut at) = (Vec::new(), 0);
        for piece in share.pieces {
            let ShareHandle::Descriptor(fd) = piece.handle else {
                let (expected, found) = ("of memory".to_owned(), "a CUDA IPC handle".to_owned());
                return Err(ArenaError::WrongDescriptor { expected, found });
            };
            segments.push(self.attach(at, piece.len, fd)?);
            at += piece.len;
        }
        let outside = ArenaError::Outside { offset: share.offset, len, arena: at };
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        self.join(&segments)?.slice(share.offset, len).map_err(|_| outside)
    }

    fn segment(&self, offset: u64, len: u64, mapped: Box<dyn Mapped>) -> Segment {
        let reservation = self.reservation.clone();
        let memory = Arc::new(Memory { addr: self.addr() + offset, len, mapped, reservation });
        Segment { offset, buffer: Buffer::of_region(Region::from_arc(memory.clone())), memory }
    }

    fn take(&self, offset: u64, len: u64) -> Result<Taken, ArenaError> {
        let granule = self.granule();
        for (what, value, right) in [("offset", offset, true), ("length", len, len > 0)]
            .map(|(what, value, positive)| (what, value, positive && value.is_multiple_of(granule)))
        {
            if !right {
                return Err(ArenaError::Granule { what, value, granule });
            }
        }
        let arena = self.len();
        let end = offset.checked_add(len).filter(|end| *end <= arena);
        let end = end.ok_or(ArenaError::Outside { offset, len, arena })?;
        let mut ranges = self.ranges.lock().unwrap_or_else(PoisonError::into_inner);
        match ranges.range(..end).next_back() {
            Some((&other, &other_len)) if other + other_len > offset => {
                Err(ArenaError::Occupied { offset, len, other, other_len })
            }
            _ => {
                ranges.insert(offset, len);
                Ok(Taken { ranges: self.ranges.clone(), offset, len })
            }
        }
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Arena({:#x}+{:#x})", self.addr(), self.len())
    }
}

/// Memory in an arena. Dropping it detaches it; the memory stays mapped as long as a kernel, a copy
/// or a registration holds its buffer, and as long as another process has it attached.
pub struct Segment {
    offset: u64,
    buffer: Buffer,
    memory: Arc<Memory>,
}

impl Segment {
    /// Where it begins in the arena.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Its bytes.
    pub fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.memory.len
    }

    /// Whether there are no bytes: never.
    pub fn is_empty(&self) -> bool {
        self.memory.len == 0
    }

    /// A new file descriptor of the memory, which [`Arena::attach`] takes. Close-on-exec.
    pub fn export(&self) -> Result<OwnedFd, ArenaError> {
        self.memory.mapped.export()
    }
}

impl fmt::Debug for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Segment({:#x} at {:#x})", self.len(), self.offset)
    }
}

struct Memory {
    addr: u64,
    len: u64,
    // Before the reservation.
    mapped: Box<dyn Mapped>,
    reservation: Arc<dyn Reservation>,
}

// SAFETY: `Reservation` promises it of what `mapped` is the owner of.
unsafe impl Backing for Memory {
    fn addr(&self) -> u64 {
        self.addr
    }

    fn len(&self) -> usize {
        self.len as usize
    }

    fn kind(&self) -> Kind {
        self.reservation.kind()
    }

    fn copier(&self) -> Option<Arc<dyn Copier>> {
        self.reservation.copier()
    }

    fn export_dmabuf(&self) -> Result<Dmabuf, NotExported> {
        self.reservation.export_dmabuf(self.addr, self.len)
    }

    fn share(&self, offset: u64, _len: u64) -> Result<Share, NotExported> {
        let exported = self.mapped.export().map_err(|error| NotExported(error.to_string()))?;
        let handle = ShareHandle::Descriptor(exported);
        Ok(Share { pieces: vec![SharePiece { handle, len: self.len }], offset })
    }
}

/// At least one segment, each where the one before it ends.
struct Joined {
    addr: u64,
    len: u64,
    parts: Vec<Arc<Memory>>,
}

// SAFETY: all of the range is that of `parts`, which are `Backing`s.
unsafe impl Backing for Joined {
    fn addr(&self) -> u64 {
        self.addr
    }

    fn len(&self) -> usize {
        self.len as usize
    }

    fn kind(&self) -> Kind {
        self.parts[0].kind()
    }

    fn copier(&self) -> Option<Arc<dyn Copier>> {
        self.parts[0].copier()
    }

    fn share(&self, offset: u64, len: u64) -> Result<Share, NotExported> {
        let (start, end) = (self.addr + offset, self.addr + offset + len);
        let touched =
            |part: &&Arc<Memory>| part.addr < end.max(start + 1) && start < part.addr + part.len;
        let mut all = Share { pieces: Vec::new(), offset: 0 };
        for part in self.parts.iter().filter(touched) {
            if all.pieces.is_empty() {
                all.offset = start - part.addr;
            }
            all.pieces.append(&mut part.share(0, part.len)?.pieces);
        }
        Ok(all)
    }
}
