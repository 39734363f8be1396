//! The memory that a program has registered.

use crate::index::{Index, Range, device};
use crate::{Desc, Error, FilePath, Files, Kind, RegList, Status};
use std::collections::HashMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};
use warpverbs_agent::{Agent, Memory, Registration};
use warpverbs_gpu::Buffer;
use warpverbs_mem::Region;

/// A registered range.
pub(crate) struct Extent {
    pub(crate) desc: Desc,
    pub(crate) kind: Kind,
    what: What,
}

enum What {
    /// Memory, until it is deregistered.
    Memory(RwLock<Option<Registration>>),
    /// A file that the program has opened, or that was opened for it.
    File(Option<OwnedFd>),
}

impl Extent {
    fn registration(&self) -> Option<RwLockReadGuard<'_, Option<Registration>>> {
        match &self.what {
            What::Memory(slot) => Some(slot.read().unwrap_or_else(PoisonError::into_inner)),
            What::File(_) => None,
        }
    }

    /// The bytes, of memory that is registered.
    pub(crate) fn region(&self) -> Option<Region> {
        Some(self.registration()?.as_ref()?.buffer().region().clone())
    }

    /// The number of the open file.
    pub(crate) fn file(&self) -> Option<i32> {
        match &self.what {
            What::File(Some(opened)) => Some(opened.as_raw_fd()),
            What::File(None) => i32::try_from(self.desc.dev).ok(),
            What::Memory(_) => None,
        }
    }

    /// Ends the registration, and waits until nothing touches the memory any more.
    fn end(&self, timeout: Duration) -> Result<(), Error> {
        let What::Memory(slot) = &self.what else { return Ok(()) };
        let registration = slot.write().unwrap_or_else(PoisonError::into_inner).take();
        registration.map_or(Ok(()), |one| Ok(one.deregister(timeout)?))
    }
}

/// Looks at registrations together, those that have not ended.
pub(crate) fn with<T>(
    mut extents: Vec<Arc<Extent>>,
    look: impl FnOnce(&[&Registration]) -> T,
) -> T {
    // Each once: a thread that waits to write keeps out a second look.
    extents.sort_by_key(Arc::as_ptr);
    extents.dedup_by_key(|one| Arc::as_ptr(one));
    let held: Vec<_> = extents.iter().filter_map(|one| one.registration()).collect();
    let these: Vec<&Registration> = held.iter().filter_map(|one| one.as_ref()).collect();
    look(&these)
}

/// By this a program names a registration.
type Key = (Kind, Desc);

fn key(kind: Kind, desc: &Desc) -> Key {
    (kind, Desc { dev: device(kind, desc.dev), ..*desc })
}

/// All registered ranges.
#[derive(Default)]
pub(crate) struct Memories {
    table: RwLock<Table>,
}

#[derive(Default)]
struct Table {
    extents: HashMap<u32, Arc<Extent>>,
    /// Numbers of registrations of one descriptor, the newest last.
    by_key: HashMap<Key, Vec<u32>>,
    /// Of files, which the agent does not number.
    files: u32,
    index: Arc<Index<Arc<Extent>>>,
}

impl Table {
    fn add(&mut self, id: u32, extent: Extent) {
        self.by_key.entry(key(extent.kind, &extent.desc)).or_default().push(id);
        self.extents.insert(id, Arc::new(extent));
    }

    fn sort(&mut self) {
        let range = |(id, extent): (&u32, &Arc<Extent>)| Range {
            kind: extent.kind,
            dev: device(extent.kind, extent.desc.dev),
            addr: extent.desc.addr,
            // A file of no length is registered as a whole.
            len: match (extent.kind, extent.desc.len) {
                (Kind::File, 0) => u64::MAX - extent.desc.addr,
                (_, len) => len,
            },
            id: *id,
            value: extent.clone(),
        };
        self.index = Arc::new(Index::new(self.extents.iter().map(range).collect()));
    }
}

impl Memories {
    fn change<T>(&self, change: impl FnOnce(&mut Table) -> T) -> T {
        change(&mut self.table.write().unwrap_or_else(PoisonError::into_inner))
    }

    fn look<T>(&self, look: impl FnOnce(&Table) -> T) -> T {
        look(&self.table.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Where which address is, as of now.
    pub(crate) fn index(&self) -> Arc<Index<Arc<Extent>>> {
        self.look(|table| table.index.clone())
    }

    /// Registers memory that `adopt` gives; all of the list or nothing.
    pub(crate) fn register(
        &self,
        agent: &Agent,
        list: &RegList,
        adopt: &mut dyn FnMut(&Desc) -> Result<Buffer, Error>,
    ) -> Result<(), Error> {
        let mut made = Vec::with_capacity(list.descs.len());
        for one in &list.descs {
            let buffer = adopt(&one.desc)?;
            // Dropped with `made` if a later one fails: nothing knows of it yet.
            made.push((agent.register(Memory::from(buffer), label(list.kind))?, one.desc));
        }
        self.change(|table| {
            for (registration, desc) in made {
                let id = registration.id();
                let what = What::Memory(RwLock::new(Some(registration)));
                table.add(id, Extent { desc, kind: list.kind, what });
            }
            table.sort();
        });
        Ok(())
    }

    /// Registers files, which the agent has no part in: open ones, or such that are named by path and opened here.
    pub(crate) fn register_files(&self, list: &RegList, files: &Files) -> Result<(), Error> {
        let mut made = Vec::with_capacity(list.descs.len());
        for one in &list.descs {
            let opened = FilePath::parse(&one.meta).map(|path| path.open()).transpose()?;
            if opened.is_none() {
                let closed = Error::new(
                    Status::InvalidParam,
                    format!("device {}, expected the number of an open file", one.desc.dev),
                );
                files.check(i32::try_from(one.desc.dev).map_err(|_| closed)?)?;
            }
            made.push(Extent { desc: one.desc, kind: list.kind, what: What::File(opened) });
        }
        self.change(|table| {
            for extent in made {
                table.files += 1;
                // From the top, where the agent's numbers never get to.
                table.add(u32::MAX - table.files, extent);
            }
            table.sort();
        });
        Ok(())
    }

    /// Takes the newest registrations of these descriptors out of the table; all of them or none.
    fn take(&self, list: &RegList) -> Result<Vec<Arc<Extent>>, Error> {
        self.change(|table| {
            let mut wanted: HashMap<Key, usize> = HashMap::new();
            for (at, one) in list.descs.iter().enumerate() {
                let key = key(list.kind, &one.desc);
                let count = wanted.entry(key).or_default();
                *count += 1;
                if table.by_key.get(&key).map_or(0, Vec::len) < *count {
                    return Err(unknown(at, list.kind, &one.desc));
                }
            }
            let mut taken = Vec::with_capacity(list.descs.len());
            for one in &list.descs {
                let key = key(list.kind, &one.desc);
                let Some(ids) = table.by_key.get_mut(&key) else { continue };
                let id = ids.pop();
                if ids.is_empty() {
                    table.by_key.remove(&key);
                }
                taken.extend(id.and_then(|id| table.extents.remove(&id)));
            }
            table.sort();
            Ok(taken)
        })
    }

    /// Deregisters, and waits until nothing touches the memory any more, `timeout` for all together.
    pub(crate) fn deregister(&self, list: &RegList, timeout: Duration) -> Result<(), Error> {
        end_all(self.take(list)?, timeout)
    }

    /// As [`Self::deregister`], all that is registered.
    pub(crate) fn deregister_all(&self, timeout: Duration) -> Result<(), Error> {
        let all = self.change(std::mem::take);
        end_all(all.extents.into_values(), timeout)
    }

    /// The extents of these descriptors, each the newest.
    pub(crate) fn named(&self, list: &RegList) -> Result<Vec<Arc<Extent>>, Error> {
        self.look(|table| {
            let find = |(at, one): (usize, &crate::RegDesc)| {
                let ids = table.by_key.get(&key(list.kind, &one.desc));
                let newest = ids.and_then(|ids| table.extents.get(ids.last()?)).cloned();
                newest.ok_or_else(|| unknown(at, list.kind, &one.desc))
            };
            list.descs.iter().enumerate().map(find).collect()
        })
    }
}

/// Ends registrations, `timeout` for all together.
fn end_all(extents: impl IntoIterator<Item = Arc<Extent>>, timeout: Duration) -> Result<(), Error> {
    let end = Instant::now() + timeout;
    let mut first = Ok(());
    for extent in extents {
        let left = end.saturating_duration_since(Instant::now());
        // One that is held does not keep the others registered.
        first = first.and(extent.end(left));
    }
    first
}

fn unknown(at: usize, kind: Kind, desc: &Desc) -> Error {
    let Desc { addr, len, dev } = desc;
    let why =
        format!("descriptor {at}: {len} bytes at {addr:#x} of {kind} {dev} are not registered");
    Error::new(Status::NotFound, why)
}

/// The label under which the agent registers memory of a kind.
fn label(kind: Kind) -> &'static str {
    match kind {
        Kind::Vram => "VRAM",
        _ => "DRAM",
    }
}
