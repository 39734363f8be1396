//! Lists of descriptors: of memory to be moved, and of memory to be registered.

use crate::border::{Data, Out};
use crate::call::{Code, Failure, call};
use crate::handle::{Handle, Object};
use crate::lock;
use crate::strings::{entry, kind_of, name_of, number_of};
use std::ffi::{c_int, c_uint};
use std::io::Write as _;
use std::sync::Mutex;
use warpverbs_nixl::{Desc, Kind, MOST_DESCRIPTORS, RegDesc};

/// Descriptors of one kind of memory, or of one that is not known.
pub(crate) struct Descs<T> {
    kind: Option<Kind>,
    all: Mutex<Vec<T>>,
}

/// Memory to be moved.
pub(crate) type XferList = Descs<Desc>;
/// Memory to be registered.
pub(crate) type RegList = Descs<RegDesc>;

impl Object for XferList {
    const NAME: &'static str = "nixl_capi_xfer_dlist_t";
}

impl Object for RegList {
    const NAME: &'static str = "nixl_capi_reg_dlist_t";
}

/// The entries of both kinds of lists.
pub(crate) trait Item: Clone {
    /// The entry by which a list grows when it is made longer.
    const EMPTY: Self;
    fn desc(&self) -> &Desc;
    fn meta(&self) -> &[u8];
}

const NOWHERE: Desc = Desc { addr: 0, len: 0, dev: 0 };

impl Item for Desc {
    const EMPTY: Self = NOWHERE;

    fn desc(&self) -> &Desc {
        self
    }

    fn meta(&self) -> &[u8] {
        &[]
    }
}

impl Item for RegDesc {
    const EMPTY: Self = Self { desc: NOWHERE, meta: Vec::new() };

    fn desc(&self) -> &Desc {
        &self.desc
    }

    fn meta(&self) -> &[u8] {
        &self.meta
    }
}

impl<T: Clone> Descs<T> {
    fn known(&self) -> Result<(Kind, Vec<T>), Failure> {
        let kind = self.kind.ok_or_else(|| {
            Failure::invalid(
                "the list is of memory of unknown kind, which nothing can be done with",
            )
        })?;
        Ok((kind, lock(&self.all).clone()))
    }
}

impl XferList {
    /// The list as it is now.
    pub(crate) fn list(&self) -> Result<warpverbs_nixl::List, Failure> {
        self.known().map(|(kind, descs)| warpverbs_nixl::List { kind, descs })
    }
}

impl RegList {
    /// The list as it is now.
    pub(crate) fn list(&self) -> Result<warpverbs_nixl::RegList, Failure> {
        self.known().map(|(kind, descs)| warpverbs_nixl::RegList { kind, descs })
    }
}

impl<T: Item> Descs<T> {
    fn new(kind: c_uint) -> Result<Self, Failure> {
        Ok(Self { kind: kind_of(kind)?, all: Mutex::default() })
    }

    fn count(&self) -> usize {
        lock(&self.all).len()
    }

    fn push(&self, item: T) -> Result<(), Failure> {
        let mut all = lock(&self.all);
        room(all.len().saturating_add(1))?;
        all.push(item);
        Ok(())
    }

    fn remove(&self, index: c_int) -> Result<(), Failure> {
        let mut all = lock(&self.all);
        let at = usize::try_from(index)
            .map_err(|_| Failure::invalid(format!("index is {index}, expected 0 or more")))?;
        entry(&all, at, "descriptor")?;
        all.remove(at);
        Ok(())
    }

    fn resize(&self, len: usize) -> Result<(), Failure> {
        room(len)?;
        lock(&self.all).resize(len, T::EMPTY);
        Ok(())
    }

    fn print(&self) -> Result<(), Failure> {
        let all = lock(&self.all).clone();
        let kind = name_of(self.kind).to_string_lossy();
        let mut text = format!("{} descriptors of {kind}\n", all.len());
        for (at, one) in all.iter().enumerate() {
            let Desc { addr, len, dev } = one.desc();
            text += &format!("{at:>6}: {len:#x} bytes at {addr:#x}, device {dev}");
            text += &match one.meta() {
                [] => "\n".to_owned(),
                meta => format!(", metadata {:?}\n", String::from_utf8_lossy(meta)),
            };
        }
        std::io::stdout().write_all(text.as_bytes()).map_err(|error| {
            Failure::new(Code::BACKEND, format!("standard output cannot be written: {error}"))
        })
    }
}

fn room(count: usize) -> Result<(), Failure> {
    match count <= MOST_DESCRIPTORS {
        true => Ok(()),
        false => {
            let why = format!("{count} descriptors, expected at most {MOST_DESCRIPTORS}");
            Err(Failure::invalid(why))
        }
    }
}

/// The functions that both kinds of lists have.
macro_rules! functions {
    ($list:ty: $create:ident $destroy:ident $get_type:ident $count:ident $is_empty:ident $trim:ident
     $remove:ident $clear:ident $resize:ident $print:ident) => {
        /// A list without descriptors.
        #[unsafe(no_mangle)]
        extern "C" fn $create(mem_type: c_uint, dlist: Out<Handle<$list>>) -> Code {
            call(stringify!($create), || {
                let dlist = dlist.place("dlist")?;
                dlist.set(Handle::new(<$list>::new(mem_type)?));
                Ok(())
            })
        }

        /// Frees a list.
        #[unsafe(no_mangle)]
        extern "C" fn $destroy(dlist: Handle<$list>) -> Code {
            call(stringify!($destroy), || dlist.take().map(drop))
        }

        /// The kind of memory.
        #[unsafe(no_mangle)]
        extern "C" fn $get_type(dlist: Handle<$list>, mem_type: Out<c_uint>) -> Code {
            call(stringify!($get_type), || {
                let (dlist, mem_type) = (dlist.get()?, mem_type.place("mem_type")?);
                mem_type.set(number_of(dlist.kind));
                Ok(())
            })
        }

        /// How many descriptors.
        #[unsafe(no_mangle)]
        extern "C" fn $count(dlist: Handle<$list>, count: Out<usize>) -> Code {
            call(stringify!($count), || {
                let (dlist, count) = (dlist.get()?, count.place("count")?);
                count.set(dlist.count());
                Ok(())
            })
        }

        /// Whether there are none.
        #[unsafe(no_mangle)]
        extern "C" fn $is_empty(dlist: Handle<$list>, is_empty: Out<bool>) -> Code {
            call(stringify!($is_empty), || {
                let (dlist, is_empty) = (dlist.get()?, is_empty.place("is_empty")?);
                is_empty.set(dlist.count() == 0);
                Ok(())
            })
        }

        /// Gives back memory that the list does not use.
        #[unsafe(no_mangle)]
        extern "C" fn $trim(dlist: Handle<$list>) -> Code {
            call(stringify!($trim), || {
                lock(&dlist.get()?.all).shrink_to_fit();
                Ok(())
            })
        }

        /// Removes a descriptor; those behind it move up.
        #[unsafe(no_mangle)]
        extern "C" fn $remove(dlist: Handle<$list>, index: c_int) -> Code {
            call(stringify!($remove), || dlist.get()?.remove(index))
        }

        /// Removes all descriptors.
        #[unsafe(no_mangle)]
        extern "C" fn $clear(dlist: Handle<$list>) -> Code {
            call(stringify!($clear), || {
                lock(&dlist.get()?.all).clear();
                Ok(())
            })
        }

        /// Cuts the list, or adds descriptors of nothing.
        #[unsafe(no_mangle)]
        extern "C" fn $resize(dlist: Handle<$list>, new_size: usize) -> Code {
            call(stringify!($resize), || dlist.get()?.resize(new_size))
        }

        /// Prints the list to standard output.
        #[unsafe(no_mangle)]
        extern "C" fn $print(dlist: Handle<$list>) -> Code {
            call(stringify!($print), || dlist.get()?.print())
        }
    };
}

functions! {
    XferList: nixl_capi_create_xfer_dlist nixl_capi_destroy_xfer_dlist nixl_capi_xfer_dlist_get_type
    nixl_capi_xfer_dlist_desc_count nixl_capi_xfer_dlist_is_empty nixl_capi_xfer_dlist_trim
    nixl_capi_xfer_dlist_rem_desc nixl_capi_xfer_dlist_clear nixl_capi_xfer_dlist_resize
    nixl_capi_xfer_dlist_print
}

functions! {
    RegList: nixl_capi_create_reg_dlist nixl_capi_destroy_reg_dlist nixl_capi_reg_dlist_get_type
    nixl_capi_reg_dlist_desc_count nixl_capi_reg_dlist_is_empty nixl_capi_reg_dlist_trim
    nixl_capi_reg_dlist_rem_desc nixl_capi_reg_dlist_clear nixl_capi_reg_dlist_resize
    nixl_capi_reg_dlist_print
}

/// How many descriptors: an older name.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_xfer_dlist_len(dlist: Handle<XferList>, len: Out<usize>) -> Code {
    call("nixl_capi_xfer_dlist_len", || {
        let (dlist, len) = (dlist.get()?, len.place("len")?);
        len.set(dlist.count());
        Ok(())
    })
}

/// Adds a descriptor.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_xfer_dlist_add_desc(
    dlist: Handle<XferList>,
    addr: usize,
    len: usize,
    dev_id: u64,
) -> Code {
    call("nixl_capi_xfer_dlist_add_desc", || {
        dlist.get()?.push(Desc { addr: addr as u64, len: len as u64, dev: dev_id })
    })
}

/// Adds a descriptor, with bytes that belong to it: a path, for a file.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_reg_dlist_add_desc(
    dlist: Handle<RegList>,
    addr: usize,
    len: usize,
    dev_id: u64,
    metadata: Data,
    metadata_len: usize,
) -> Code {
    call("nixl_capi_reg_dlist_add_desc", || {
        let meta = metadata.get_if_there(metadata_len, "metadata")?.to_vec();
        let desc = Desc { addr: addr as u64, len: len as u64, dev: dev_id };
        dlist.get()?.push(RegDesc { desc, meta })
    })
}
