//! A span of memory that stays valid while the value lives.

mod weak;

pub use weak::WeakRegion;

use crate::guarded::{self, Word};
use crate::{Copier, Dmabuf, Kind, MemError, NotExported, Share};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

/// Owner of a span of memory.
///
/// # Safety
/// `[addr, addr + len)` must stay allocated, at the same place, until the value is dropped; for
/// [`Kind::Host`] it must be readable and writable by this process, or, with the feature
/// `fault-guard`, a handler of SIGSEGV and SIGBUS must go on where `resume_at` says: accesses to
/// what is not mapped fail then. `addr` may be any: who needs words of more than a byte checks it.
pub unsafe trait Backing: Send + Sync + 'static {
    /// First byte, as the NIC addresses it.
    fn addr(&self) -> u64;
    /// Length in bytes.
    fn len(&self) -> usize;
    /// Whether there are no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Where the bytes live.
    fn kind(&self) -> Kind;
    /// They are registers of a device, mapped for the CPU: a GPU maps them as I/O memory.
    fn is_register(&self) -> bool {
        false
    }
    /// The engine that moves these bytes, unless the CPU can.
    fn copier(&self) -> Option<Arc<dyn Copier>> {
        None
    }
    /// A dmabuf in which these bytes lie, for NICs to reach them.
    fn export_dmabuf(&self) -> Result<Dmabuf, NotExported> {
        Err(NotExported(format!("{} memory is not exported", self.kind())))
    }
    /// How another process maps `[offset, offset + len)`, which lies inside.
    fn share(&self, _offset: u64, _len: u64) -> Result<Share, NotExported> {
        let what = "was not allocated to be shared with other processes";
        Err(NotExported(format!("this {} memory {what}", self.kind())))
    }
}

/// Host memory of another owner.
struct Foreign<K> {
    addr: u64,
    len: usize,
    _keep: K,
}

// SAFETY: `Region::foreign` has its caller's promise.
unsafe impl<K: Send + Sync + 'static> Backing for Foreign<K> {
    fn addr(&self) -> u64 {
        self.addr
    }

    fn len(&self) -> usize {
        self.len
    }

    fn kind(&self) -> Kind {
        Kind::Host
    }
}

/// Memory of another region, and a value that outlives its last user.
struct KeptWith<K> {
    region: Region,
    // Dropped after the memory.
    _keep: K,
}

// SAFETY: the region keeps its bytes as its own backing has promised.
unsafe impl<K: Send + Sync + 'static> Backing for KeptWith<K> {
    fn addr(&self) -> u64 {
        self.region.addr
    }

    fn len(&self) -> usize {
        self.region.len()
    }

    fn kind(&self) -> Kind {
        self.region.kind
    }

    fn is_register(&self) -> bool {
        self.region.is_register()
    }

    fn copier(&self) -> Option<Arc<dyn Copier>> {
        self.region.copier()
    }

    fn export_dmabuf(&self) -> Result<Dmabuf, NotExported> {
        self.region.export_dmabuf()
    }

    fn share(&self, offset: u64, len: u64) -> Result<Share, NotExported> {
        let part = self.region.slice(offset, len as usize);
        part.map_err(|error| NotExported(error.to_string()))?.share()
    }
}

/// A span of memory, kept alive by this value. Cloning shares it.
#[derive(Clone)]
pub struct Region {
    addr: u64,
    len: u64,
    kind: Kind,
    backing: Arc<dyn Backing>,
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Region({}, {:#x}+{:#x})", self.kind, self.addr, self.len)
    }
}

impl Region {
    /// All of `backing`.
    pub fn new(backing: impl Backing) -> Self {
        Self::from_arc(Arc::new(backing))
    }

    /// All of a shared `backing`.
    pub fn from_arc(backing: Arc<dyn Backing>) -> Self {
        Self { addr: backing.addr(), len: backing.len() as u64, kind: backing.kind(), backing }
    }

    /// Host memory of another owner, from `addr` on. `keep` is dropped with the last clone of the region.
    ///
    /// # Safety
    /// Until `keep` is dropped, the memory must be as [`Backing`] says of its own.
    pub unsafe fn foreign(addr: u64, len: usize, keep: impl Send + Sync + 'static) -> Self {
        Self::new(Foreign { addr, len, _keep: keep })
    }

    /// The same memory. `keep` is dropped after the last clone or part of what is returned, which says that
    /// nobody has the memory from there any more.
    pub fn kept_with(self, keep: impl Send + Sync + 'static) -> Self {
        Self::new(KeptWith { region: self, _keep: keep })
    }

    /// Part of this region, sharing ownership.
    pub fn slice(&self, offset: u64, len: usize) -> Result<Self, MemError> {
        let addr = self.range(offset, len)?;
        Ok(Self { addr, len: len as u64, kind: self.kind, backing: self.backing.clone() })
    }

    /// Address of the first byte, as the NIC addresses it.
    pub fn addr(&self) -> u64 {
        self.addr
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where the bytes live.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Whether they are registers of a device, which a GPU maps as I/O memory.
    pub fn is_register(&self) -> bool {
        self.backing.is_register()
    }

    /// The engine that moves these bytes, unless the CPU can.
    pub fn copier(&self) -> Option<Arc<dyn Copier>> {
        self.backing.copier()
    }

    /// The engine that moves these bytes, to and from host memory.
    ///
    /// # Errors
    /// There is none.
    pub fn engine(&self) -> Result<Arc<dyn Copier>, MemError> {
        self.copier().ok_or(MemError::NoCopier { from: self.kind, to: Kind::Host })
    }

    /// Whether this value alone keeps the memory alive.
    pub(crate) fn is_unshared(&mut self) -> bool {
        Arc::get_mut(&mut self.backing).is_some()
    }

    /// A dmabuf in which these bytes lie, with the offset of the first. Fails where driver, kernel
    /// or kind of memory have none.
    pub fn export_dmabuf(&self) -> Result<Dmabuf, NotExported> {
        let Dmabuf { fd, offset } = self.backing.export_dmabuf()?;
        // A slice begins after its backing.
        Ok(Dmabuf { fd, offset: offset + (self.addr - self.backing.addr()) })
    }

    /// How another process maps these bytes. Fails for memory that cannot be mapped there.
    pub fn share(&self) -> Result<Share, NotExported> {
        self.backing.share(self.addr - self.backing.addr(), self.len)
    }

    /// Absolute address of `offset`, if `[offset, offset + len)` is inside.
    #[inline]
    pub fn range(&self, offset: u64, len: usize) -> Result<u64, MemError> {
        match offset.checked_add(len as u64) {
            Some(end) if end <= self.len => Ok(self.addr + offset),
            _ => Err(MemError::OutOfBounds { offset, len: len as u64, region_len: self.len }),
        }
    }

    #[inline]
    fn host_range(&self, offset: u64, len: usize, align: usize) -> Result<u64, MemError> {
        let addr = self.range(offset, len)?;
        if self.kind != Kind::Host {
            return Err(MemError::NotHost { addr });
        }
        if !addr.is_multiple_of(align as u64) {
            return Err(MemError::Misaligned { addr, align });
        }
        Ok(addr)
    }

    /// The 32-bit word at `offset`. Host memory only.
    #[inline]
    pub fn atomic_u32(&self, offset: u64) -> Result<&AtomicU32, MemError> {
        let addr = self.host_range(offset, 4, 4)?;
        // SAFETY: in bounds, aligned, host memory that lives as long as `self`; atomics tolerate
        // any concurrent access by others.
        Ok(unsafe { AtomicU32::from_ptr(addr as *mut u32) })
    }

    /// The 64-bit word at `offset`. Host memory only.
    #[inline]
    pub fn atomic_u64(&self, offset: u64) -> Result<&AtomicU64, MemError> {
        let addr = self.host_range(offset, 8, 8)?;
        // SAFETY: in bounds, aligned, host memory that lives as long as `self`; atomics tolerate
        // any concurrent access by others.
        Ok(unsafe { AtomicU64::from_ptr(addr as *mut u64) })
    }

    /// The byte at `offset`. Host memory only.
    #[inline]
    pub fn atomic_u8(&self, offset: u64) -> Result<&AtomicU8, MemError> {
        let addr = self.host_range(offset, 1, 1)?;
        // SAFETY: in bounds host memory that lives as long as `self`.
        Ok(unsafe { AtomicU8::from_ptr(addr as *mut u8) })
    }

    /// Copies bytes out of host memory.
    pub fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), MemError> {
        let (addr, len) = (self.host_range(offset, out.len(), 1)?, out.len());
        let copied = match <&mut [u8; 8]>::try_from(&mut *out) {
            Ok(word) if addr.is_multiple_of(8) => {
                // SAFETY: 8 bytes in bounds, host memory; aligned.
                let value = unsafe { u64::load(addr, Ordering::Acquire) };
                value.map(|value| *word = value.to_ne_bytes())
            }
            // SAFETY: `addr` is in bounds, host memory; `out` is as long.
            _ => unsafe { host_copy(out.as_mut_ptr() as u64, addr, len) },
        };
        copied.ok_or(MemError::Unmapped { addr, len, written: false })
    }

    /// Copies bytes into host memory.
    pub fn write(&self, offset: u64, data: &[u8]) -> Result<(), MemError> {
        let addr = self.host_range(offset, data.len(), 1)?;
        // SAFETY: in bounds, host memory.
        let written = unsafe { host_write(addr, data) };
        written.ok_or(MemError::Unmapped { addr, len: data.len(), written: true })
    }

    /// Sets bytes of host memory.
    pub fn fill(&self, offset: u64, len: usize, byte: u8) -> Result<(), MemError> {
        let addr = self.host_range(offset, len, 1)?;
        // SAFETY: in bounds, host memory.
        let set = unsafe { guarded::set(addr, byte, len) };
        set.ok_or(MemError::Unmapped { addr, len, written: true })
    }

    /// Changes the 32-bit word at `offset` by an atomic, and says what it was. Host memory only.
    pub fn update_u32(&self, offset: u64, change: impl Fn(u32) -> u32) -> Result<u32, MemError> {
        self.update(offset, change)
    }

    /// As [`Self::update_u32`], of 64 bits.
    pub fn update_u64(&self, offset: u64, change: impl Fn(u64) -> u64) -> Result<u64, MemError> {
        self.update(offset, change)
    }

    fn update<W: Word>(&self, offset: u64, change: impl Fn(W) -> W) -> Result<W, MemError> {
        let len = size_of::<W>();
        let addr = self.host_range(offset, len, len)?;
        // SAFETY: in bounds, aligned, host memory.
        let old = unsafe { W::update(addr, change) };
        old.ok_or(MemError::Unmapped { addr, len, written: false })
    }
}

/// As [`host_copy`], from bytes that nobody else writes: they may lie in read-only memory, from
/// which nothing may be loaded with acquire order.
///
/// # Safety
/// `dst` is the address of as many bytes of host memory.
#[inline]
unsafe fn host_write(dst: u64, data: &[u8]) -> Option<()> {
    let eight = data.try_into().map(u64::from_ne_bytes);
    let four = data.try_into().map(u32::from_ne_bytes);
    match (eight, four) {
        // SAFETY: the caller has 8 bytes at `dst`; aligned.
        (Ok(value), _) if dst.is_multiple_of(8) => unsafe { value.store(dst, Ordering::Release) },
        // SAFETY: the caller has 4 bytes at `dst`; aligned.
        (_, Ok(value)) if dst.is_multiple_of(4) => unsafe { value.store(dst, Ordering::Release) },
        // SAFETY: the caller has the bytes at `dst`.
        _ => unsafe { copy_bytes(dst, data.as_ptr() as u64, data.len()) },
    }
}

/// Moves `len` bytes between host addresses. A 4- or 8-byte move between naturally aligned places
/// is one acquire load and one release store, so that a poller never sees a torn flag. `None`: the
/// owner has unmapped some of them.
///
/// # Safety
/// Both are addresses of `len` bytes of host memory.
#[inline]
pub(crate) unsafe fn host_copy(dst: u64, src: u64, len: usize) -> Option<()> {
    if len == 8 && (dst | src).is_multiple_of(8) {
        // SAFETY: the caller has 8 bytes at `src`; aligned.
        let value = unsafe { u64::load(src, Ordering::Acquire) }?;
        // SAFETY: the caller has 8 bytes at `dst`; aligned.
        unsafe { value.store(dst, Ordering::Release) }
    } else if len == 4 && (dst | src).is_multiple_of(4) {
        // SAFETY: the caller has 4 bytes at `src`; aligned.
        let value = unsafe { u32::load(src, Ordering::Acquire) }?;
        // SAFETY: the caller has 4 bytes at `dst`; aligned.
        unsafe { value.store(dst, Ordering::Release) }
    } else {
        // SAFETY: the caller has both.
        unsafe { copy_more(dst, src, len) }
    }
}

/// Remaining cases of [`host_copy`]: out of line, so that its callers stay short.
///
/// # Safety
/// As for [`host_copy`].
#[inline(never)]
unsafe fn copy_more(dst: u64, src: u64, len: usize) -> Option<()> {
    if matches!(len, 4 | 8) && dst.is_multiple_of(len as u64) {
        let mut value = [0; 8];
        // SAFETY: the caller has `len` bytes at `src`; `value` has 8.
        unsafe { guarded::copy(value.as_mut_ptr() as u64, src, len) }?;
        // SAFETY: the caller has `len` bytes at `dst`.
        return unsafe { host_write(dst, &value[..len]) };
    }
    // SAFETY: the caller has both.
    unsafe { copy_bytes(dst, src, len) }
}

/// # Safety
/// As for [`host_copy`].
#[inline(never)]
unsafe fn copy_bytes(dst: u64, src: u64, len: usize) -> Option<()> {
    // SAFETY: the caller has both.
    unsafe { guarded::copy(dst, src, len) }?;
    // Orders the bytes before whatever announces them (CQE owner byte, a later flag).
    std::sync::atomic::fence(Ordering::Release);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HostBuf;
    use crate::testing::{LazyCopier, LazyMemory};
    use std::sync::Mutex;

    /// Every length to 80, every alignment of both sides, overlapping ranges as well: the bytes are
    /// those of a copy through an array, and none beside them changes.
    #[test]
    fn copies_move_these_bytes_and_no_others() {
        let region = HostBuf::region(256).unwrap();
        let start: Vec<u8> = (0..=255).collect();
        let mut after = [0; 256];
        for len in 0..=80 {
            for (from, to) in (0..16).flat_map(|from| (0..16).map(move |to| (from, to + len % 96)))
            {
                region.write(0, &start).unwrap();
                // SAFETY: both end before byte 16 + 80 + 80.
                unsafe { host_copy(region.addr() + to as u64, region.addr() + from as u64, len) }
                    .unwrap();
                region.read(0, &mut after).unwrap();
                let mut expected = start.clone();
                expected.copy_within(from..from + len, to);
                assert_eq!(after, *expected, "{len} bytes from {from} to {to}");
            }
        }
        region.fill(3, 250, 7).unwrap();
        region.read(0, &mut after).unwrap();
        assert_eq!((after[2], after[3], after[252], after[253]), (start[2], 7, 7, after[253]));
        assert!(after[3..253].iter().all(|byte| *byte == 7));
    }

    /// Writes down its drop.
    struct Mark(Arc<Mutex<Vec<&'static str>>>, &'static str);

    impl Drop for Mark {
        fn drop(&mut self) {
            self.0.lock().unwrap().push(self.1);
        }
    }

    #[test]
    fn what_is_kept_with_a_region_goes_after_its_last_user_and_its_owner() {
        let said = Arc::new(Mutex::new(Vec::new()));
        let mark = |what| Mark(said.clone(), what);
        let bytes = HostBuf::region(64).unwrap();
        let keep = (bytes.clone(), mark("owner"));
        // SAFETY: the bytes of `bytes`, which is kept.
        let whole = unsafe { Region::foreign(bytes.addr(), 64, keep) };
        let others = whole.clone();
        let kept = whole.slice(3, 50).unwrap().kept_with(mark("all"));
        drop(whole);
        assert_eq!((kept.addr(), kept.len()), (bytes.addr() + 3, 50));
        let part = kept.slice(1, 7).unwrap();
        part.write(0, b"by part").unwrap();
        let mut found = [0; 7];
        bytes.read(4, &mut found).unwrap();
        assert_eq!(&found, b"by part");
        part.write(1, &[0; 7]).unwrap_err();
        drop(kept);
        assert!(said.lock().unwrap().is_empty());
        drop(part);
        assert_eq!(*said.lock().unwrap(), ["all"], "users of the region before it do not count");
        drop(others);
        assert_eq!(*said.lock().unwrap(), ["all", "owner"]);

        // SAFETY: as above.
        let whole =
            unsafe { Region::foreign(bytes.addr(), 64, (bytes.clone(), mark("2nd owner"))) };
        drop(whole.kept_with(mark("2nd all")));
        assert_eq!(said.lock().unwrap()[2..], ["2nd owner", "2nd all"]);
    }

    #[test]
    fn what_is_kept_changes_nothing_of_the_memory() {
        let engine = Arc::new(LazyCopier::default());
        let file = crate::sealed_memfd(64).unwrap();
        let (device, _) = LazyMemory::exporting(64, 3, &engine, Some((file, 4096))).unwrap();
        let part = device.slice(5, 50).unwrap().kept_with(()).slice(2, 20).unwrap();
        assert_eq!((part.kind(), part.addr(), part.len()), (Kind::Cuda(3), device.addr() + 7, 20));
        assert!(part.copier().is_some() && !part.is_register());
        assert_eq!(part.export_dmabuf().unwrap().offset, 4096 + 7);
        let refused = part.share().unwrap_err().0;
        assert!(refused.contains("cuda"), "{refused}");
    }
}
