//! Memory keys: who may touch which bytes, how.
//!
//! One key serves as lkey and rkey of a region: a random 24-bit index and a random 8-bit variant,
//! `key = index << 8 | variant`. Keys come from a cryptographic generator, so that a peer that
//! was not given one cannot guess it.

use crate::access::{Access, AccessError, KeyError};
use crate::{MemError, Region, Span};
use rand::rngs::{StdRng, SysRng};
use rand::{Rng, SeedableRng};
use rustc_hash::FxHashMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Validity {
    Live,
    /// By its user or a SEND_INVAL, for good.
    Invalidated,
    /// By a test, until it restores it.
    Revoked,
}

#[derive(Debug)]
struct Entry {
    key: u32,
    pd: u32,
    access: Access,
    validity: Validity,
    proxy_lkey: Option<NonZeroU32>,
    region: Region,
    /// Address of the region's first byte in work requests.
    start: u64,
}

/// Where the last lookup ended: a hint that makes the next one with the same key cheap. Always
/// verified, so a stale one is harmless.
#[derive(Clone, Copy, Debug, Default)]
pub struct KeyHint(u32);

/// Fewer than the 2^24 indexes, so that random ones stay hard to hit and quick to find.
const MAX_KEYS: usize = 1 << 20;

/// All memory keys of a NIC.
#[derive(Debug)]
pub struct KeyTable {
    slots: Vec<Option<Entry>>,
    free: Vec<u32>,
    by_index: FxHashMap<u32, u32>,
    rng: StdRng,
    epoch: Arc<AtomicU64>,
}

impl KeyTable {
    /// An empty table. Keys are unpredictable unless a `seed` is given.
    pub fn new(seed: Option<u64>) -> Result<Self, KeyError> {
        let rng = match seed {
            Some(seed) => StdRng::seed_from_u64(seed),
            None => StdRng::try_from_rng(&mut SysRng).map_err(|_| KeyError::NoEntropy)?,
        };
        let (slots, free, by_index) = (Vec::new(), Vec::new(), FxHashMap::default());
        Ok(Self { slots, free, by_index, rng, epoch: Arc::default() })
    }

    /// Generation counter, incremented (release) whenever a key is revoked or removed. Cache a
    /// look-up together with this value; load it again (acquire), and drop the cache if it has
    /// changed.
    pub fn epoch(&self) -> Arc<AtomicU64> {
        self.epoch.clone()
    }

    fn begin_epoch(&self) {
        self.epoch.fetch_add(1, Ordering::Release);
    }

    /// Registers `region` and returns its key, never 0, never an index of 0 or 1 (0x100 is the
    /// terminator lkey of a receive WQE).
    pub fn insert(&mut self, pd: u32, region: &Region, access: Access) -> Result<u32, KeyError> {
        self.insert_proxied(pd, region, access, None)
    }

    /// As [`Self::insert`], for work requests that name the region's first byte by the address
    /// `start` instead of its own.
    pub fn insert_at(
        &mut self,
        pd: u32,
        region: &Region,
        access: Access,
        start: u64,
    ) -> Result<u32, KeyError> {
        self.insert_entry(pd, region, access, None, start)
    }

    /// As [`Self::insert`], for memory that a proxy device has under a key of its own.
    pub fn insert_proxied(
        &mut self,
        pd: u32,
        region: &Region,
        access: Access,
        proxy_lkey: Option<NonZeroU32>,
    ) -> Result<u32, KeyError> {
        self.insert_entry(pd, region, access, proxy_lkey, region.addr())
    }

    fn insert_entry(
        &mut self,
        pd: u32,
        region: &Region,
        access: Access,
        proxy_lkey: Option<NonZeroU32>,
        start: u64,
    ) -> Result<u32, KeyError> {
        if access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC)
            && !access.contains(Access::LOCAL_WRITE)
        {
            return Err(KeyError::NeedsLocalWrite { asked: access });
        }
        let len = region.len() as u64;
        if start.checked_add(len).is_none() {
            return Err(KeyError::Wraps { addr: start, len });
        }
        if self.by_index.len() >= MAX_KEYS {
            return Err(KeyError::Exhausted { max: MAX_KEYS });
        }
        let key = loop {
            let key = self.rng.next_u32();
            if key >> 8 > 1 && !self.by_index.contains_key(&(key >> 8)) {
                break key;
            }
        };
        let (validity, region) = (Validity::Live, region.clone());
        let entry = Entry { key, pd, access, validity, proxy_lkey, region, start };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = Some(entry);
                slot
            }
            None => {
                self.slots.push(Some(entry));
                (self.slots.len() - 1) as u32
            }
        };
        self.by_index.insert(key >> 8, slot);
        Ok(key)
    }

    /// Removes a key and returns its region.
    pub fn remove(&mut self, key: u32) -> Option<Region> {
        let (slot, _) = self.present(key).ok()?;
        self.by_index.remove(&(key >> 8));
        self.begin_epoch();
        self.free.push(slot);
        self.slots[slot as usize].take().map(|entry| entry.region)
    }

    fn present(&self, key: u32) -> Result<(u32, &Entry), AccessError> {
        let slot = *self.by_index.get(&(key >> 8)).ok_or(AccessError::UnknownKey { key })?;
        match &self.slots[slot as usize] {
            Some(entry) if entry.key == key => Ok((slot, entry)),
            Some(entry) => Err(AccessError::WrongVariant { key, expected: entry.key as u8 }),
            None => Err(AccessError::UnknownKey { key }),
        }
    }

    fn present_mut(&mut self, key: u32) -> Result<&mut Entry, AccessError> {
        let (slot, _) = self.present(key)?;
        self.slots[slot as usize].as_mut().ok_or(AccessError::UnknownKey { key })
    }

    /// The entry of a live key of `pd` that grants `needed`.
    fn granted(&self, pd: u32, key: u32, needed: Access) -> Result<&Entry, AccessError> {
        let (_, entry) = self.present(key)?;
        if entry.validity != Validity::Live {
            return Err(AccessError::Invalidated { key });
        }
        if entry.pd != pd {
            return Err(AccessError::WrongPd { key, found: entry.pd, expected: pd });
        }
        if !entry.access.contains(needed) {
            return Err(AccessError::Denied { key, granted: entry.access, needed });
        }
        Ok(entry)
    }

    #[inline]
    fn entry(&self, key: u32, hint: &mut KeyHint) -> Option<&Entry> {
        if let Some(Some(entry)) = self.slots.get(hint.0 as usize)
            && entry.key == key
        {
            return Some(entry);
        }
        self.entry_by_index(key, hint)
    }

    #[inline(never)]
    fn entry_by_index(&self, key: u32, hint: &mut KeyHint) -> Option<&Entry> {
        let (slot, entry) = self.present(key).ok()?;
        hint.0 = slot;
        Some(entry)
    }

    /// The bytes `[addr, addr + len)` if `key` exists, is of `pd`, grants `needed` and covers them.
    // Always: of every WQE, and a range handed over through memory costs as much as finding it.
    #[inline(always)]
    pub fn find(
        &self,
        hint: &mut KeyHint,
        pd: u32,
        key: u32,
        addr: u64,
        len: u32,
        needed: Access,
    ) -> Option<Span<'_>> {
        let entry = self.entry(key, hint)?;
        let region_len = entry.region.len() as u64;
        // An `addr` below `start` wraps to an offset beyond any region.
        let offset = addr.wrapping_sub(entry.start);
        let inside = offset <= region_len && u64::from(len) <= region_len - offset;
        let granted =
            entry.validity == Validity::Live && entry.pd == pd && entry.access.contains(needed);
        let Entry { region, proxy_lkey, .. } = entry;
        (inside && granted).then_some(Span { region, offset, len, proxy_lkey: *proxy_lkey })
    }

    /// As [`Self::find`], with the reason of a refusal; existence, validity, domain, right and
    /// range are checked in that order.
    #[inline]
    pub fn lookup(
        &self,
        hint: &mut KeyHint,
        pd: u32,
        key: u32,
        addr: u64,
        len: u32,
        needed: Access,
    ) -> Result<Span<'_>, AccessError> {
        match self.find(hint, pd, key, addr, len, needed) {
            Some(span) => Ok(span),
            None => Err(self.explain(pd, key, addr, len, needed)),
        }
    }

    /// Why [`Self::find`] found nothing.
    #[cold]
    fn explain(&self, pd: u32, key: u32, addr: u64, len: u32, needed: Access) -> AccessError {
        let entry = match self.granted(pd, key, needed) {
            Ok(entry) => entry,
            Err(error) => return error,
        };
        let (start, region_len) = (entry.start, entry.region.len() as u64);
        AccessError::OutOfBounds { key, addr, len: u64::from(len), start, region_len }
    }

    /// Whether [`Self::invalidate`] would succeed: the key must exist, be live, of `pd` and carry
    /// [`Access::INVALIDATE`].
    pub fn check_invalidate(&self, pd: u32, key: u32) -> Result<(), AccessError> {
        self.granted(pd, key, Access::INVALIDATE).map(drop)
    }

    /// Invalidates a key for good.
    pub fn invalidate(&mut self, pd: u32, key: u32) -> Result<(), AccessError> {
        self.check_invalidate(pd, key)?;
        self.present_mut(key)?.validity = Validity::Invalidated;
        self.begin_epoch();
        Ok(())
    }

    /// Revokes a key, or restores one that was revoked; an invalidated key stays so.
    pub fn set_revoked(&mut self, key: u32, revoked: bool) -> Result<(), AccessError> {
        let entry = self.present_mut(key)?;
        match (entry.validity, revoked) {
            (Validity::Invalidated, _) => return Err(AccessError::Invalidated { key }),
            (_, true) => entry.validity = Validity::Revoked,
            (_, false) => entry.validity = Validity::Live,
        }
        self.begin_epoch();
        Ok(())
    }

    /// Keys in use.
    pub fn len(&self) -> usize {
        self.by_index.len()
    }

    /// Whether no key is in use.
    pub fn is_empty(&self) -> bool {
        self.by_index.is_empty()
    }
}

impl Span<'_> {
    /// An owned copy of the span, which keeps the memory alive.
    pub fn to_region(&self) -> Result<Region, MemError> {
        self.region.slice(self.offset, self.len as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HostBuf;

    fn table() -> KeyTable {
        KeyTable::new(Some(7)).unwrap()
    }

    #[test]
    fn checks_come_in_order() {
        let mut t = table();
        let region = HostBuf::region(64).unwrap();
        let key = t.insert(5, &region, Access::LOCAL_WRITE).unwrap();
        let hint = &mut KeyHint::default();
        let at = region.addr();
        let mut look = |pd, key, addr, len, needed| {
            t.lookup(hint, pd, key, addr, len, needed).map(|span| (span.offset, span.len))
        };
        assert_eq!(look(5, key, at + 60, 4, Access::LOCAL_WRITE), Ok((60, 4)));
        assert_eq!(look(5, key, at + 64, 0, Access::empty()), Ok((64, 0)));
        let (none, read) = (Access::empty(), Access::REMOTE_READ);
        let outside = |addr, len: u32| AccessError::OutOfBounds {
            key,
            addr,
            len: len.into(),
            start: at,
            region_len: 64,
        };
        for (addr, len) in [(at + 61, 4), (at - 1, 4), (at, u32::MAX)] {
            assert_eq!(look(5, key, addr, len, none), Err(outside(addr, len)));
        }
        let denied = AccessError::Denied { key, granted: Access::LOCAL_WRITE, needed: read };
        assert_eq!(look(5, key, at, 4, read), Err(denied));
        let other_pd = AccessError::WrongPd { key, found: 5, expected: 6 };
        assert_eq!(look(6, key, at, 4, read), Err(other_pd));
        let variant = AccessError::WrongVariant { key: key ^ 1, expected: key as u8 };
        assert_eq!(look(6, key ^ 1, at, 4, none), Err(variant));
        let unknown = AccessError::UnknownKey { key: key ^ 0x100 };
        assert_eq!(look(6, key ^ 0x100, at, 4, none), Err(unknown));
    }

    #[test]
    fn a_region_may_begin_at_another_address() {
        let mut t = table();
        let region = HostBuf::region(64).unwrap();
        for start in [0, 0x5000, u64::MAX - 64] {
            let key = t.insert_at(5, &region, Access::empty(), start).unwrap();
            let look = |addr, len| {
                let found = t.lookup(&mut KeyHint::default(), 5, key, addr, len, Access::empty());
                found.map(|span| (span.region.addr(), span.offset, span.len))
            };
            assert_eq!(look(start, 64), Ok((region.addr(), 0, 64)));
            assert_eq!(look(start + 60, 4), Ok((region.addr(), 60, 4)));
            let beyond = |addr, len| AccessError::OutOfBounds {
                key,
                addr,
                len: u64::from(len),
                start,
                region_len: 64,
            };
            for (addr, len) in [(start.wrapping_sub(1), 4), (start + 61, 4), (region.addr(), 1)] {
                assert_eq!(look(addr, len), Err(beyond(addr, len)));
            }
        }
        let (addr, len) = (u64::MAX - 63, 64);
        let wraps = t.insert_at(5, &region, Access::empty(), addr);
        assert_eq!(wraps, Err(KeyError::Wraps { addr, len }));
    }

    #[test]
    fn a_stale_hint_is_harmless() {
        let mut t = table();
        let region = HostBuf::region(64).unwrap();
        let old = t.insert(1, &region, Access::empty()).unwrap();
        let mut hint = KeyHint::default();
        t.lookup(&mut hint, 1, old, region.addr(), 1, Access::empty()).unwrap();
        assert!(t.remove(old).is_some());
        let new = t.insert(1, &region, Access::empty()).unwrap();
        let gone = t.lookup(&mut hint, 1, old, region.addr(), 1, Access::empty());
        assert_eq!(gone.unwrap_err(), AccessError::UnknownKey { key: old });
        assert!(t.lookup(&mut hint, 1, new, region.addr(), 1, Access::empty()).is_ok());
    }

    #[test]
    fn invalidation_is_for_good_and_revocation_is_not() {
        let mut t = table();
        let region = HostBuf::region(64).unwrap();
        let plain = t.insert(1, &region, Access::empty()).unwrap();
        let open = t.insert(1, &region, Access::INVALIDATE).unwrap();
        assert!(matches!(t.invalidate(1, plain), Err(AccessError::Denied { .. })));
        assert!(matches!(t.invalidate(2, open), Err(AccessError::WrongPd { .. })));
        t.set_revoked(open, true).unwrap();
        let hint = &mut KeyHint::default();
        assert!(t.lookup(hint, 1, open, region.addr(), 1, Access::empty()).is_err());
        t.set_revoked(open, false).unwrap();
        assert!(t.lookup(hint, 1, open, region.addr(), 1, Access::empty()).is_ok());
        t.invalidate(1, open).unwrap();
        assert_eq!(t.set_revoked(open, false), Err(AccessError::Invalidated { key: open }));
    }

    #[test]
    fn remote_write_needs_local_write() {
        let region = HostBuf::region(64).unwrap();
        for asked in [Access::REMOTE_WRITE, Access::REMOTE_ATOMIC | Access::REMOTE_READ] {
            let refused = table().insert(1, &region, asked);
            assert_eq!(refused, Err(KeyError::NeedsLocalWrite { asked }));
            assert!(table().insert(1, &region, asked | Access::LOCAL_WRITE).is_ok());
        }
    }

    #[test]
    fn keys_differ_without_a_seed() {
        let region = HostBuf::region(64).unwrap();
        let draw = || KeyTable::new(None).unwrap().insert(1, &region, Access::empty()).unwrap();
        // Three equal draws of 32 bits would be an event of 2^-64.
        let (a, b, c) = (draw(), draw(), draw());
        assert!(a != b || b != c);
    }
}
