//! Handles: numbers in the shape of pointers, which nobody follows.
//!
//! A table says what each stands for. No number is given twice, so a handle that was freed, of another
//! type, or never given is seen as such, whatever the caller does; and an object that one thread frees
//! lives on until the calls that use it in other threads return.

use crate::call::Failure;
use rustc_hash::FxHashMap;
use std::any::Any;
use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

/// A type that handles stand for.
pub(crate) trait Object: Send + Sync + 'static {
    /// The handle's type in the interface.
    const NAME: &'static str;
}

struct Entry {
    name: &'static str,
    object: Arc<dyn Any + Send + Sync>,
}

#[derive(Default)]
struct Table {
    given: usize,
    live: FxHashMap<usize, Entry>,
}

static TABLE: LazyLock<RwLock<Table>> = LazyLock::new(RwLock::default);

/// Between two handles, so that they look like pointers to programs that look.
const STEP: usize = 64;

fn look<T>(look: impl FnOnce(&Table) -> T) -> T {
    look(&TABLE.read().unwrap_or_else(PoisonError::into_inner))
}

fn change<T>(change: impl FnOnce(&mut Table) -> T) -> T {
    change(&mut TABLE.write().unwrap_or_else(PoisonError::into_inner))
}

/// A handle of a `T`, or what the caller takes for one.
#[repr(transparent)]
pub(crate) struct Handle<T>(*mut c_void, PhantomData<fn() -> T>);

impl<T: Object> Handle<T> {
    /// A new handle of an object.
    pub(crate) fn new(object: T) -> Self {
        let entry = Entry { name: T::NAME, object: Arc::new(object) };
        let number = change(|table| {
            table.given += STEP;
            table.live.insert(table.given, entry);
            table.given
        });
        Self(ptr::without_provenance_mut(number), PhantomData)
    }

    /// The object, which must be there.
    pub(crate) fn get(&self) -> Result<Arc<T>, Failure> {
        self.maybe()?.ok_or_else(|| self.wrong(None))
    }

    /// The object, unless the handle is null.
    pub(crate) fn maybe(&self) -> Result<Option<Arc<T>>, Failure> {
        if self.0.is_null() {
            return Ok(None);
        }
        let found = look(|table| {
            let entry = table.live.get(&self.0.addr()).ok_or(None)?;
            Ok(entry.object.clone()).map(|object| (object, entry.name))
        });
        let (object, name) = found.map_err(|name| self.wrong(name))?;
        object.downcast().map(Some).map_err(|_| self.wrong(Some(name)))
    }

    /// Ends the handle, and gives the object.
    pub(crate) fn take(&self) -> Result<Arc<T>, Failure> {
        let object = self.get()?;
        // Of two threads that free it, one has it.
        match change(|table| table.live.remove(&self.0.addr())) {
            Some(_) => Ok(object),
            None => Err(self.wrong(None)),
        }
    }

    fn wrong(&self, name: Option<&str>) -> Failure {
        let handle = self.0;
        let expected = T::NAME;
        Failure::invalid(match name {
            _ if handle.is_null() => format!("a handle is null, expected {expected}"),
            Some(name) => format!("handle {handle:p} is {name}, expected {expected}"),
            None => format!("handle {handle:p} was freed or never given, expected {expected}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq)]
    struct Name(String);
    impl Object for Name {
        const NAME: &'static str = "name";
    }
    #[derive(Debug)]
    struct Number;
    impl Object for Number {
        const NAME: &'static str = "number";
    }

    fn same<T>(handle: &Handle<impl Object>) -> Handle<T> {
        Handle(handle.0, PhantomData)
    }

    #[test]
    fn handles_of_nothing_and_of_others_are_refused() {
        let one = Handle::new(Name("one".into()));
        assert_eq!(*one.get().unwrap(), Name("one".into()));
        let wrong = same::<Number>(&one).get().unwrap_err();
        assert_eq!(wrong.why, format!("handle {:#x} is name, expected number", one.0.addr()));
        let held = one.get().unwrap();
        assert_eq!(one.take().unwrap(), held);
        let freed = one.take().unwrap_err();
        assert!(freed.why.contains("was freed or never given"), "{}", freed.why);
        // A number is not used again.
        let two = Handle::new(Name("two".into()));
        assert_ne!(one.0, two.0);
        assert!(one.get().is_err());
        let none = Handle::<Name>(ptr::null_mut(), PhantomData);
        assert!(none.maybe().unwrap().is_none());
        assert_eq!(none.get().unwrap_err().why, "a handle is null, expected name");
    }

    #[test]
    fn one_of_many_threads_frees() {
        let handle = Handle::new(Name("all".into()));
        let threads = (0..8).map(|_| {
            let mine = same::<Name>(&handle);
            let address = mine.0.addr();
            std::thread::spawn(move || {
                let mine = Handle::<Name>(ptr::without_provenance_mut(address), PhantomData);
                mine.take().is_ok()
            })
        });
        let freed = threads.collect::<Vec<_>>().into_iter().map(|one| one.join().unwrap());
        assert_eq!(freed.filter(|freed| *freed).count(), 1);
    }
}
