//! Weak memory: for each location all stores in modification order, each with what it publishes.
//!
//! An operational form of RC11 (C11 repaired, without load buffering) with PTX's scopes. A thread
//! has a view: how far every thread's accesses happen before its next one, and the oldest store of
//! each location it may still read. A release stores the view with the value; an acquire that
//! reads it joins it, if each of the two is in the other's scope.

use crate::op::{Access, Atomic, Order, Scope, Site};
use crate::race::Race;
use rustc_hash::{FxHashMap, FxHasher};
use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::rc::Rc;

mod view;

pub(crate) use view::WORDS;
use view::{Message, Published, View, published};
pub use view::{Place, THREADS};

/// One location and its first value.
#[derive(Clone, Copy, Debug)]
pub struct Initial {
    /// Its address.
    pub addr: u64,
    /// Bytes: 1, 4 or 8.
    pub size: u8,
    /// Its first value.
    pub value: u64,
    /// Whether it is ever accessed atomically.
    pub atomic: bool,
}

#[derive(Clone)]
struct Store {
    value: u64,
    thread: usize,
    /// The writer's epoch.
    time: u16,
    scope: Scope,
    plain: bool,
    /// Of an update: nothing comes between it and the store before it.
    update: bool,
    message: Option<Rc<Published>>,
    site: Site,
}

#[derive(Clone)]
struct Location {
    addr: u64,
    size: u8,
    /// Index into floors; `None` if it is only accessed plainly.
    word: Option<usize>,
    stores: Vec<Store>,
    /// Position of the newest plain store.
    plain: usize,
    /// Epoch of each thread's last read, plain and atomic; 0 for none.
    plain_reads: [u16; THREADS],
    atomic_reads: [u16; THREADS],
    /// Scope of each thread's last atomic read.
    read_scopes: [Scope; THREADS],
    /// Hash of all that tells states apart, which every state that holds it would otherwise
    /// compute; `None` since the last change.
    hash: Cell<Option<u64>>,
}

impl Location {
    fn hash(&self) -> u64 {
        let compute = || {
            let mut hasher = FxHasher::default();
            (self.addr, self.plain_reads, self.atomic_reads).hash(&mut hasher);
            for store in &self.stores {
                (store.value, store.thread, store.time).hash(&mut hasher);
                store.message.as_ref().map(|message| message.1).hash(&mut hasher);
            }
            hasher.finish()
        };
        let hash = self.hash.get().unwrap_or_else(compute);
        self.hash.set(Some(hash));
        hash
    }
}

/// A location that is about to change, by itself.
fn change(location: &mut Rc<Location>) -> &mut Location {
    let location = Rc::make_mut(location);
    location.hash.set(None);
    location
}

/// One thread's part of the memory.
#[derive(Clone)]
struct Thread {
    place: Place,
    now: View,
    /// Views that relaxed loads have read and an acquire fence of that scope or a wider one would
    /// join.
    pending: [View; 3],
    /// `now` at the last release fence, and its scope.
    released: Option<(View, Scope)>,
}

/// Cheap to clone: everything is copied on write.
#[derive(Clone)]
pub(crate) struct Memory {
    locations: Vec<Rc<Location>>,
    index: Rc<FxHashMap<u64, usize>>,
    threads: Vec<Rc<Thread>>,
    sc: Rc<[u16; WORDS]>,
}

impl Memory {
    pub(crate) fn new(places: &[Place], initial: &[Initial]) -> Self {
        assert!(places.len() <= THREADS, "{} threads, at most {THREADS}", places.len());
        let thread = |(own, &place): (usize, &Place)| {
            let mut now = View::EMPTY;
            now.clock[own] = 1;
            Rc::new(Thread { place, now, pending: [View::EMPTY; 3], released: None })
        };
        let mut words = 0..WORDS;
        let location = |&Initial { addr, size, value, atomic }: &Initial| {
            let word = atomic.then(|| words.next().expect("too many atomic locations"));
            let site = Site { file: "initial", line: 0 };
            let store = Store {
                value,
                thread: 0,
                time: 0,
                scope: Scope::System,
                plain: false,
                update: false,
                message: None,
                site,
            };
            Rc::new(Location {
                addr,
                size,
                word,
                stores: vec![store],
                plain: 0,
                plain_reads: [0; THREADS],
                atomic_reads: [0; THREADS],
                read_scopes: [Scope::System; THREADS],
                hash: Cell::new(None),
            })
        };
        Self {
            locations: initial.iter().map(location).collect(),
            index: Rc::new(initial.iter().enumerate().map(|(i, l)| (l.addr, i)).collect()),
            threads: places.iter().enumerate().map(thread).collect(),
            sc: Rc::new([0; WORDS]),
        }
    }

    /// Index of the location at `addr`, and a check of its size.
    pub(crate) fn locate(&self, addr: u64, size: u8) -> Result<usize, Race> {
        let at = *self.index.get(&addr).ok_or(Race::Unknown { addr })?;
        match self.locations[at].size {
            first if first == size => Ok(at),
            first => Err(Race::Size { addr, first, now: size }),
        }
    }

    /// The floor's index of a location that is accessed atomically.
    fn word(&self, at: usize) -> Result<usize, Race> {
        let location = &self.locations[at];
        location.word.ok_or(Race::Plain { addr: location.addr })
    }

    /// Position of the newest store.
    pub(crate) fn newest(&self, at: usize) -> usize {
        self.locations[at].stores.len() - 1
    }

    pub(crate) fn value(&self, at: usize, position: usize) -> u64 {
        self.locations[at].stores[position].value
    }

    /// The newest value at `addr`.
    pub(crate) fn last(&self, addr: u64) -> Option<u64> {
        let at = *self.index.get(&addr)?;
        self.locations[at].stores.last().map(|store| store.value)
    }

    /// Position of the oldest store that `thread` may read.
    pub(crate) fn floor(&self, thread: usize, at: usize) -> usize {
        let location = &self.locations[at];
        let seen = location.word.map_or(0, |w| self.threads[thread].now.floor[w].into());
        location.plain.max(seen)
    }

    /// Raises the oldest store that `thread` may read: time has passed.
    pub(crate) fn raise_floor(&mut self, thread: usize, at: usize, position: usize) {
        let Some(word) = self.locations[at].word else { return };
        let floor = &mut Rc::make_mut(&mut self.threads[thread]).now.floor[word];
        *floor = (*floor).max(position as u16);
    }

    /// Where `thread` may put a store into the modification order, newest first.
    pub(crate) fn store_positions(&self, thread: usize, at: usize) -> impl Iterator<Item = usize> {
        let location = &self.locations[at];
        let free = |p: &usize| location.stores.get(*p).is_none_or(|next| !next.update);
        (self.floor(thread, at) + 1..=location.stores.len()).rev().filter(free)
    }

    /// The epoch of a thread's next access.
    fn epoch(&self, thread: usize) -> u16 {
        self.threads[thread].now.clock[thread]
    }

    /// The thread has published its view: what it does from now on is not part of that.
    fn next_epoch(&mut self, thread: usize) {
        Rc::make_mut(&mut self.threads[thread]).now.clock[thread] += 1;
    }

    fn before(&self, thread: usize, by: usize, time: u16) -> bool {
        by == thread || self.threads[thread].now.clock[by] >= time
    }

    /// Whether operations of the two scopes on two threads include each other.
    fn strong(&self, a: usize, a_scope: Scope, b: usize, b_scope: Scope) -> bool {
        let needed = self.threads[a].place.reach(self.threads[b].place);
        a_scope >= needed && b_scope >= needed
    }

    /// Every conflicting access of others must happen before this one, or be an atomic one in
    /// scope; `atomic` is this one's scope.
    fn check(
        &self,
        thread: usize,
        at: usize,
        writes: bool,
        atomic: Option<Scope>,
    ) -> Result<(), Race> {
        let location = &self.locations[at];
        let addr = location.addr;
        // Stores before the newest plain store were checked against it.
        for store in location.stores[location.plain..].iter().rev() {
            if self.before(thread, store.thread, store.time) {
                continue;
            }
            let (other, by) = (Some(store.site), store.thread);
            match atomic {
                Some(scope) if !store.plain => {
                    if !self.strong(thread, scope, by, store.scope) {
                        return Err(Race::Scope { addr, other, by });
                    }
                }
                _ => return Err(Race::Unordered { addr, other, by }),
            }
        }
        if !writes {
            return Ok(());
        }
        for by in 0..self.threads.len() {
            let (plain, read) = (location.plain_reads[by], location.atomic_reads[by]);
            if !self.before(thread, by, plain) {
                return Err(Race::Unordered { addr, other: None, by });
            }
            if self.before(thread, by, read) {
                continue;
            }
            match atomic {
                None => return Err(Race::Unordered { addr, other: None, by }),
                Some(scope) if !self.strong(thread, scope, by, location.read_scopes[by]) => {
                    return Err(Race::Scope { addr, other: None, by });
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// A thread that wrote `at` and is not ordered before `thread`, and where it did.
    pub(crate) fn other_writer(&self, thread: usize, at: usize) -> Option<(usize, Site)> {
        let unordered = |s: &&Store| !self.before(thread, s.thread, s.time);
        let store = self.locations[at].stores.iter().find(unordered)?;
        Some((store.thread, store.site))
    }

    pub(crate) fn read_plain(&mut self, thread: usize, at: usize) -> Result<u64, Race> {
        let time = self.epoch(thread);
        self.check(thread, at, false, None)?;
        let newest = self.newest(at);
        let location = change(&mut self.locations[at]);
        location.plain_reads[thread] = time;
        Ok(location.stores[newest].value)
    }

    pub(crate) fn write_plain(
        &mut self,
        thread: usize,
        at: usize,
        value: u64,
        site: Site,
    ) -> Result<(), Race> {
        let time = self.epoch(thread);
        self.check(thread, at, true, None)?;
        let location = change(&mut self.locations[at]);
        location.plain = location.stores.len();
        let (scope, plain, update, message) = (Scope::System, true, false, None);
        location.stores.push(Store { value, thread, time, scope, plain, update, message, site });
        Ok(())
    }

    /// A load, or a compare-and-swap that fails, of the store at `position`.
    pub(crate) fn load(
        &mut self,
        thread: usize,
        at: usize,
        position: usize,
        order: Order,
        scope: Scope,
    ) -> Result<u64, Race> {
        let word = self.word(at)?;
        let time = self.epoch(thread);
        self.check(thread, at, false, Some(scope))?;
        let location = change(&mut self.locations[at]);
        location.atomic_reads[thread] = time;
        location.read_scopes[thread] = scope;
        let value = location.stores[position].value;
        self.observe(thread, (at, word, position), order, scope);
        Ok(value)
    }

    /// Updates the reader's view after it has read the store at `position`.
    fn observe(
        &mut self,
        thread: usize,
        (at, word, position): (usize, usize, usize),
        order: Order,
        scope: Scope,
    ) {
        let store = &self.locations[at].stores[position];
        let by = store.thread;
        let message = store.message.clone();
        let message = message.filter(|m| self.strong(thread, scope, by, m.0.scope));
        let needed = self.threads[thread].place.reach(self.threads[by].place);
        let own = Rc::make_mut(&mut self.threads[thread]);
        own.now.floor[word] = own.now.floor[word].max(position as u16);
        match message {
            Some(message) if order.acquires() => own.now.join(&message.0.view),
            Some(message) => own.pending[needed as usize].join(&message.0.view),
            None => {}
        }
    }

    /// A store that becomes the one at `position`; later ones move up.
    pub(crate) fn store(
        &mut self,
        thread: usize,
        at: usize,
        position: usize,
        value: u64,
        op: &Atomic,
    ) -> Result<(), Race> {
        let word = self.word(at)?;
        let time = self.epoch(thread);
        self.check(thread, at, true, Some(op.scope))?;
        self.insert(thread, (at, word, position), (value, time), op, None);
        Ok(())
    }

    /// An update of the newest store; `new` is what it stores.
    pub(crate) fn update(
        &mut self,
        thread: usize,
        at: usize,
        new: u64,
        op: &Atomic,
    ) -> Result<u64, Race> {
        let word = self.word(at)?;
        let time = self.epoch(thread);
        self.check(thread, at, true, Some(op.scope))?;
        let newest = self.newest(at);
        let old = &self.locations[at].stores[newest];
        let (value, inherited) = (old.value, old.message.clone());
        let location = change(&mut self.locations[at]);
        location.atomic_reads[thread] = time;
        location.read_scopes[thread] = op.scope;
        self.observe(thread, (at, word, newest), op.order, op.scope);
        self.insert(thread, (at, word, newest + 1), (new, time), op, inherited);
        Ok(value)
    }

    fn insert(
        &mut self,
        thread: usize,
        (at, word, position): (usize, usize, usize),
        (value, time): (u64, u16),
        op: &Atomic,
        inherited: Option<Rc<Published>>,
    ) {
        if position < self.locations[at].stores.len() {
            self.make_room(word, position);
        }
        let own = Rc::make_mut(&mut self.threads[thread]);
        own.now.floor[word] = position as u16;
        let scope = op.scope;
        let mut message = match (op.order.releases(), own.released) {
            (true, _) => Some(Message { view: own.now, scope }),
            (false, Some((view, of))) => Some(Message { view, scope: of.min(scope) }),
            (false, None) => None,
        };
        // An update goes on with the release sequence of what it read.
        if let Some(inherited) = &inherited {
            let inherited = &inherited.0;
            let mut both = message.unwrap_or(*inherited);
            both.view.join(&inherited.view);
            both.scope = both.scope.min(inherited.scope);
            message = Some(both);
        }
        let (plain, update) = (false, !matches!(op.access, Access::Store(_)));
        let (message, site) = (message.map(published), op.site);
        let store = Store { value, thread, time, scope, plain, update, message, site };
        change(&mut self.locations[at]).stores.insert(position, store);
        if op.order.releases() {
            self.next_epoch(thread);
        }
    }

    /// Moves every view of `word` that is at `position` or later up by one.
    fn make_room(&mut self, word: usize, position: usize) {
        let up = |floor: &mut u16| *floor += u16::from(usize::from(*floor) >= position);
        for thread in &mut self.threads {
            let thread = Rc::make_mut(thread);
            up(&mut thread.now.floor[word]);
            thread.pending.iter_mut().for_each(|view| up(&mut view.floor[word]));
            thread.released.iter_mut().for_each(|(view, _)| up(&mut view.floor[word]));
        }
        up(&mut Rc::make_mut(&mut self.sc)[word]);
        for location in &mut self.locations {
            for store in &mut change(location).stores {
                if let Some(message) = &mut store.message {
                    let mut moved = message.0;
                    up(&mut moved.view.floor[word]);
                    *message = published(moved);
                }
            }
        }
    }

    pub(crate) fn fence(&mut self, thread: usize, order: Order, scope: Scope) {
        let own = Rc::make_mut(&mut self.threads[thread]);
        if order.acquires() {
            let pending = own.pending;
            pending[..=scope as usize].iter().for_each(|view| own.now.join(view));
        }
        if order == Order::SeqCst {
            let sc = Rc::make_mut(&mut self.sc);
            own.now.join_floor(sc);
            *sc = own.now.floor;
        }
        if order.releases() {
            own.released = Some((own.now, scope));
            self.next_epoch(thread);
        }
    }

    /// A barrier that orders memory among `members`.
    pub(crate) fn barrier(&mut self, members: &[usize]) {
        let mut all = View::EMPTY;
        members.iter().for_each(|&m| all.join(&self.threads[m].now));
        for &member in members {
            Rc::make_mut(&mut self.threads[member]).now = all;
            self.next_epoch(member);
        }
    }

    /// Equal for states in which the same can happen.
    pub(crate) fn hash_into(&self, hasher: &mut FxHasher) {
        self.locations.iter().for_each(|location| location.hash().hash(hasher));
        self.sc.hash(hasher);
    }

    /// The same for what one thread knows.
    pub(crate) fn hash_thread(&self, thread: usize, hasher: &mut FxHasher) {
        let thread = &self.threads[thread];
        (thread.now, thread.pending).hash(hasher);
        thread.released.hash(hasher);
    }
}
