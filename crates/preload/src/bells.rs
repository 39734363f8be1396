//! Doorbells of bnxt_re and ionic: stores of 8 bytes to a page that all queues of a context share, without a
//! record beside them.
//!
//! In plain memory the page would keep the last store alone, and rings between two looks of the NIC would be
//! lost without a trace. So the page lies behind the end of the device's file: each store to it raises SIGBUS,
//! whose handler executes it. It puts the value in the place of the queue that it names. There a later one says
//! all that those before it said.
//!
//! The handler takes no lock, and its tables are never freed: devices that are opened later use them again.

use crate::inside::inside;
use crate::memory::refuse_region;
use crate::process::{self, Own, mapped_at};
use crate::registers::{Bell, Registers};
use crate::store::Store;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use warpverbs_mem::{HostBuf, Region};
use warpverbs_uverbs::{Errno, Refusal};

/// Offset of the page in the device's file, which ends there.
pub(crate) const OFFSET: u64 = 1 << 26;
const PAGE: u64 = 4096;
/// Devices that are open at once, at most.
const MOST: usize = 64;
/// Queues of a NIC differ in so many bits of their numbers; doorbells of bnxt_re have no more.
const NUMBERS: usize = 1 << 20;
/// Addresses of words in one part of all.
const PART: usize = 1 << 18;
/// Places of a device, one for each queue, and bytes of one.
pub(crate) const PLACES: u32 = 1 << 16;
const PLACE: usize = 32;
/// Mappings of a device's page that are known without a look at the process' mappings.
const KNOWN: usize = 64;

/// All that were ever made in this process.
static ALL: Own<All> = Own::new();
/// In place of a word's address: the queue is destroyed.
const GONE: u64 = 1;
/// Stores that rang no queue, in this process, by [`Unheard`].
static UNHEARD: [Stores; 3] = [const { Stores::new() }; 3];

/// Why a store rings no queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unheard {
    /// It is no doorbell, so a queue may wait for what it said.
    Meaningless,
    /// It names a queue that never was.
    Nobody,
    /// It names a queue that is destroyed.
    Gone,
}

/// Stores of one kind since they were last told of.
struct Stores {
    count: AtomicU64,
    last: AtomicU64,
}

impl Stores {
    const fn new() -> Self {
        Self { count: AtomicU64::new(0), last: AtomicU64::new(0) }
    }

    fn add(&self, value: u64) {
        self.last.store(value, Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Release);
    }
}

struct All([AtomicPtr<Bells>; MOST]);

impl Default for All {
    fn default() -> Self {
        Self([const { AtomicPtr::new(null_mut()) }; MOST])
    }
}

/// The doorbells of one open device.
struct Bells {
    registers: Registers,
    /// Inode of its file; 0: it is closed.
    inode: AtomicU64,
    /// Where the program has mapped the page, as rings that were looked up have found.
    pages: [AtomicU64; KNOWN],
    /// By kind and number: the address of the word for its last doorbell, 0 or [`GONE`]. In parts that have no huge
    /// pages, of which a few entries are used.
    words: Vec<Region>,
    places: Region,
    /// How many places were ever used, and those that were given back.
    free: Mutex<(u32, Vec<u32>)>,
}

fn all() -> impl Iterator<Item = &'static Bells> {
    // SAFETY: null, or from a box that is never freed.
    ALL.get().0.iter().filter_map(|bells| unsafe { bells.load(Ordering::Acquire).as_ref() })
}

impl Bells {
    /// Of the device whose file has this inode.
    fn take(inode: u64, registers: Registers) -> Result<&'static Self, Refusal> {
        let take = |bells: &&Self| {
            bells.registers == registers
                && bells
                    .inode
                    .compare_exchange(0, inode, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
        };
        if let Some(bells) = all().find(take) {
            return Ok(bells);
        }
        let memory = |bytes| {
            HostBuf::region(bytes).map_err(|error| Refusal::new(Errno::ENOMEM, error.to_string()))
        };
        let words = (0..Bell::COUNT * NUMBERS / PART)
            .map(|_| memory(8 * PART))
            .collect::<Result<_, _>>()?;
        let places = memory(PLACES as usize * PLACE)?;
        let (inode, free) = (AtomicU64::new(inode), Mutex::default());
        let pages = [const { AtomicU64::new(0) }; KNOWN];
        let new = Box::into_raw(Box::new(Self { registers, inode, pages, words, places, free }));
        let put = |at: &AtomicPtr<Self>| {
            at.compare_exchange(null_mut(), new, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        if ALL.get().0.iter().any(put) {
            // SAFETY: from the box above, which is never freed any more.
            return Ok(unsafe { &*new });
        }
        // SAFETY: from the box above, which nobody else has seen.
        drop(unsafe { Box::from_raw(new) });
        Err(Refusal::new(Errno::ENOMEM, format!("{MOST} open devices at most")))
    }

    /// Where the address of a queue's word is.
    fn word(&self, bell: Bell, queue: u32) -> Option<&AtomicU64> {
        let at = bell as usize * NUMBERS + queue as usize % NUMBERS;
        self.words.get(at / PART)?.atomic_u64((at % PART) as u64 * 8).ok()
    }

    /// Puts a doorbell in the place of its queue.
    fn ring(&self, offset: usize, value: u64) -> Result<(), Unheard> {
        let meaning = self.registers.meaning(offset, value);
        let (bell, queue) = meaning.ok_or(Unheard::Meaningless)?;
        let place = |bell| match self.word(bell, queue).map_or(0, |at| at.load(Ordering::Acquire)) {
            0 => Err(Unheard::Nobody),
            GONE => Err(Unheard::Gone),
            // SAFETY: a word that is never freed: of this device's places, or of the NIC's doorbells.
            at => Ok(unsafe { &*(at as *const AtomicU64) }),
        };
        let word = place(bell)?;
        let told = match bell {
            // The last index that was told is of the ring that has ended.
            Bell::CutOff => Some(0),
            Bell::Arm => self.registers.consumed(value),
            _ => None,
        };
        if let Some(told) = told {
            place(Bell::Consumed)?.store(told.to_le(), Ordering::Release);
        }
        word.store(value.to_le(), Ordering::Release);
        Ok(())
    }
}

/// The doorbells of an open device, until it is closed and its queues are gone.
pub(crate) struct OpenBells(&'static Bells);

impl Drop for OpenBells {
    fn drop(&mut self) {
        self.0.pages.iter().for_each(|page| page.store(0, Ordering::Release));
        self.0.inode.store(0, Ordering::Release);
    }
}

impl OpenBells {
    /// Of the device whose file has this inode.
    pub(crate) fn new(inode: u64, registers: Registers) -> Result<Arc<Self>, Refusal> {
        Bells::take(inode, registers).map(|bells| Arc::new(Self(bells)))
    }

    /// A place for the doorbells of a new queue.
    pub(crate) fn place(self: &Arc<Self>) -> Result<Place, Refusal> {
        let mut free = self.0.free.lock().unwrap_or_else(PoisonError::into_inner);
        let (used, freed) = &mut *free;
        let number = freed.pop().or_else(|| {
            *used = (*used + 1).min(PLACES);
            Some(*used).filter(|used| *used < PLACES)
        });
        drop(free);
        let Some(number) = number else {
            return Err(Refusal::new(Errno::ENOMEM, format!("{PLACES} queues at most")));
        };
        let region = self.0.places.slice(u64::from(number) * PLACE as u64, PLACE);
        let region = region.map_err(|error| refuse_region("a doorbell", &error))?;
        let place = Place { bells: self.clone(), number, region, rung: Vec::new() };
        place.clear();
        Ok(place)
    }
}

/// A place for the last doorbells of one queue.
pub(crate) struct Place {
    bells: Arc<OpenBells>,
    number: u32,
    region: Region,
    /// The doorbells that lead here or elsewhere on behalf of the queue.
    rung: Vec<(Bell, u32)>,
}

impl Place {
    /// Its words.
    pub(crate) fn region(&self) -> &Region {
        &self.region
    }

    /// From now on, doorbells of this kind that name `queue` are put at `offset` of `region`, which is the
    /// place's own or lives as long as the process.
    pub(crate) fn answer(
        &mut self,
        bell: Bell,
        queue: u32,
        (region, offset): (&Region, u64),
    ) -> Result<(), Refusal> {
        let word =
            region.atomic_u64(offset).map_err(|error| refuse_region("a doorbell", &error))?;
        if let Some(address) = self.bells.0.word(bell, queue) {
            address.store(std::ptr::from_ref(word) as u64, Ordering::Release);
            self.rung.push((bell, queue));
        }
        Ok(())
    }

    /// The queue has posted nothing.
    pub(crate) fn clear(&self) {
        for word in [0, 8, 16] {
            if let Ok(word) = self.region.atomic_u64(word) {
                word.store(0, Ordering::Release);
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for (bell, queue) in &self.rung {
            if let Some(address) = self.bells.0.word(*bell, *queue) {
                address.store(GONE, Ordering::Release);
            }
        }
        let mut free = self.bells.0.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.1.push(self.number);
    }
}

/// Stores to doorbell pages since the last call that have rung no queue, a line for each kind.
pub(crate) fn take_unheard() -> impl Iterator<Item = String> {
    let kinds = ["were no doorbells", "named no queue", "named a queue that is destroyed"];
    UNHEARD.iter().zip(kinds).filter_map(|(stores, kind)| {
        let count = stores.count.swap(0, Ordering::Acquire);
        let last = stores.last.load(Ordering::Relaxed);
        let line = || format!("{count} stores to doorbell pages {kind}, the last of {last:#x}");
        (count > 0).then(line)
    })
}

/// A mapping of a page is taken away.
pub(crate) fn forget(page: u64) {
    for known in all().flat_map(|bells| &bells.pages) {
        let _ = known.compare_exchange(page, 0, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// The device whose page lies at `page`.
fn find(page: u64) -> Option<&'static Bells> {
    let is_known =
        |bells: &&Bells| bells.pages.iter().any(|known| known.load(Ordering::Acquire) == page);
    if let Some(bells) = all().find(is_known) {
        return Some(bells);
    }
    let look = || mapped_at(page as usize);
    // Also in a thread whose calls go to the C library anyhow: one that ends.
    let (inode, offset) = inside(look).unwrap_or_else(look)?;
    let found = all().find(|bells| bells.inode.load(Ordering::Acquire) == inode);
    let bells = found.filter(|_| offset == OFFSET)?;
    // In the place of another one, perhaps, which is then looked up again.
    bells.pages[(page / PAGE) as usize % KNOWN].store(page, Ordering::Release);
    Some(bells)
}

/// Executes the store that has raised SIGBUS at `address`, if it is one to a doorbell page. A child of `fork()`
/// has a copy of the places alone, so its stores are not executed.
///
/// # Safety
/// `context` is that of the thread, as the kernel gives it to a handler.
pub(crate) unsafe fn rang(address: u64, context: *mut c_void) -> bool {
    let Some(bells) = process::is_owner().then(|| find(address & !(PAGE - 1))).flatten() else {
        return false;
    };
    // SAFETY: as the caller says.
    let Some(store) = (unsafe { Store::of(context) }) else { return false };
    if let Err(why) = bells.ring((address % PAGE) as usize, store.value) {
        UNHEARD[why as usize].add(store.value);
    }
    // SAFETY: as the caller says.
    unsafe { store.finish(context) };
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    use warpverbs_bnxt::doorbell::{Doorbell, Kind};

    fn bell(kind: Kind, queue: u32, index: u32) -> u64 {
        Doorbell { kind, queue, index, epoch: false, toggle: false, valid: false }.word()
    }

    #[test]
    fn a_doorbell_goes_to_the_place_of_its_queue_alone() {
        let [one, other] = [1, 2].map(|inode| OpenBells::new(inode, Registers::Bnxt).unwrap());
        assert!(!std::ptr::eq(one.0, other.0));
        let (mut cq, mut qp) = (one.place().unwrap(), one.place().unwrap());
        let word =
            |place: &Place, at| place.region().atomic_u64(at).unwrap().load(Ordering::Acquire);
        let region = cq.region().clone();
        cq.answer(Bell::Consumed, 7, (&region, 0)).unwrap();
        cq.answer(Bell::Arm, 7, (&region, 8)).unwrap();
        let region = qp.region().clone();
        // Doorbells have 20 bits of a number.
        qp.answer(Bell::Receive, 0xab_0007, (&region, 0)).unwrap();
        let rings = [
            bell(Kind::Completion, 7, 3),
            bell(Kind::ArmSolicited, 7, 4),
            bell(Kind::Receive, 0xb_0007, 5),
        ];
        for ring in rings {
            assert_eq!(one.0.ring(0, ring), Ok(()), "{ring:#x}");
            assert_eq!(other.0.ring(0, ring), Err(Unheard::Nobody), "{ring:#x}");
        }
        // An arm of a CQ tells how far its consumer is.
        let told = bell(Kind::Completion, 7, 4);
        assert_eq!([word(&cq, 0), word(&cq, 8), word(&qp, 0)], [told, rings[1], rings[2]]);
        for (unheard, why) in [
            (bell(Kind::Send, 7, 1), Unheard::Nobody),
            (bell(Kind::Completion, 8, 1), Unheard::Nobody),
            (bell(Kind::ArmEnable, 7, 1), Unheard::Meaningless),
            (u64::MAX, Unheard::Meaningless),
        ] {
            assert_eq!(one.0.ring(0, unheard), Err(why), "{unheard:#x}");
        }
        // The end of a ring takes the last index with it.
        cq.answer(Bell::CutOff, 7, (&cq.region().clone(), 16)).unwrap();
        let end = bell(Kind::CutOffAck, 7, 3);
        assert_eq!(one.0.ring(0, end), Ok(()));
        assert_eq!([word(&cq, 0), word(&cq, 8), word(&cq, 16)], [0, rings[1], end]);
        // A later doorbell takes the place of an earlier one, and nothing is left for the next queue.
        assert_eq!(one.0.ring(0, bell(Kind::Completion, 7, 9)), Ok(()));
        assert_eq!(word(&cq, 0), bell(Kind::Completion, 7, 9));
        drop(cq);
        assert_eq!(one.0.ring(0, rings[0]), Err(Unheard::Gone));
        let next = one.place().unwrap();
        assert_eq!((word(&next, 0), word(&next, 8)), (0, 0));
        // The device is closed once its queues are gone, and another one begins with what it had.
        let before = one.0;
        drop((one, next));
        assert!(!std::ptr::eq(OpenBells::new(3, Registers::Bnxt).unwrap().0, before));
        drop(qp);
        let again = OpenBells::new(4, Registers::Bnxt).unwrap();
        assert_eq!(again.0.ring(0, rings[2]), Err(Unheard::Gone));
    }
}
