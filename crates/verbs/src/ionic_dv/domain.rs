//! Parent domains, whose allocators give libionic the memory of its queues.

use super::library::IonicDv;
use super::sys::{ALLOCATORS_AND_CONTEXT, AllocParentDomain, ParentDomainInitAttr, USE_DEFAULT};
use crate::call::{check, object};
use crate::safe::Owned;
use crate::sys::{extension_op, ibv_pd};
use crate::vendor::VendorError;
use crate::{CallError, Pd, VerbsError};
use nix::errno::Errno;
use std::ffi::c_void;
use std::mem::{take, transmute};
use std::ptr::{NonNull, null_mut};
use std::sync::{Arc, Mutex, PoisonError};
use warpverbs_ionic::dv::{TAG_CQ, TAG_RQ, TAG_SQ};
use warpverbs_mem::Region;

/// A parent domain of one pipeline, with queues in the memory of the program. Cloning shares it.
#[derive(Clone)]
pub(super) struct Domain {
    inner: Arc<Owned<ibv_pd, Pd, Box<Giver>>>,
}

/// The allocator's state.
#[derive(Default)]
struct Giver(Mutex<Wanted>);

#[derive(Default)]
struct Wanted {
    /// Memory for what is being made, by its use.
    memory: Vec<(u64, Region)>,
    /// Why it was not given.
    refused: Option<VendorError>,
}

/// A queue by its tag.
fn name(tag: u64) -> &'static str {
    match tag {
        TAG_CQ => "the CQ",
        TAG_SQ => "the send queue",
        TAG_RQ => "the receive queue",
        _ => "a queue",
    }
}

impl Giver {
    /// The memory for this use, if there is any, and it is as the library wants it; the default, otherwise.
    fn give(&self, bytes: usize, align: usize, tag: u64) -> *mut c_void {
        let mut wanted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((_, region)) = wanted.memory.iter().find(|(of, _)| *of == tag) else {
            return USE_DEFAULT;
        };
        let (address, len) = (region.addr(), region.len());
        if bytes == len && address.is_multiple_of(align as u64) {
            return address as *mut c_void;
        }
        let found = format!("{bytes} bytes at a multiple of {align}");
        let expected = format!("{len} bytes at {address:#x}");
        let (of, what) = ("libionic", name(tag));
        wanted.refused = Some(VendorError::Layout { of, what, found, expected });
        Errno::EINVAL.set();
        null_mut()
    }
}

/// The allocator.
///
/// # Safety
/// `giver` is that of a live domain.
unsafe extern "C" fn give(
    _: *mut ibv_pd,
    giver: *mut c_void,
    bytes: usize,
    align: usize,
    tag: u64,
) -> *mut c_void {
    // SAFETY: as the caller says.
    unsafe { &*giver.cast::<Giver>() }.give(bytes, align, tag)
}

/// The other way: who made the queue holds its memory.
unsafe extern "C" fn take_back(_: *mut ibv_pd, _: *mut c_void, _: *mut c_void, _: u64) {}

impl Domain {
    /// A domain beside `pd`, whose queues go by one of the device's pipelines, in turn, and lie in the program's
    /// memory alone.
    pub(super) fn new(dv: &IonicDv, pd: &Pd, turn: u32) -> Result<Self, VerbsError> {
        let (call, context) = ("ibv_alloc_parent_domain", pd.context());
        let alloc = extension_op!(context.ptr().as_ptr(), alloc_parent_domain);
        let alloc = alloc.ok_or(CallError::absent(call))?;
        // SAFETY: the type that the header gives the function.
        let alloc: AllocParentDomain = unsafe { transmute(alloc) };
        let giver = Box::<Giver>::default();
        let mut attr = ParentDomainInitAttr {
            pd: pd.ptr().as_ptr(),
            td: null_mut(),
            comp_mask: ALLOCATORS_AND_CONTEXT,
            alloc: give,
            free: take_back,
            pd_context: NonNull::from(&*giver).as_ptr().cast(),
        };
        // SAFETY: a live context and a live domain of it; the giver lives as long as the parent domain.
        let ptr = object(call, unsafe { alloc(context.ptr().as_ptr(), &mut attr) })?;
        let destroy = ("ibv_dealloc_pd", context.api().ibv_dealloc_pd);
        // SAFETY: made above; queues in it hold it.
        let inner = Arc::new(unsafe { Owned::new(ptr, destroy, pd.clone(), giver) });
        let domain = Self { inner };
        domain.restrict(dv, turn).map_err(failed)?;
        Ok(domain)
    }

    fn restrict(&self, dv: &IonicDv, turn: u32) -> Result<(), CallError> {
        let (api, pd) = (dv.api(), self.ptr());
        let context = dv.context().ptr().as_ptr();
        // SAFETY: a live context.
        let mask = api.ionic_dv_ctx_get_udma_mask.map_or(0, |mask| unsafe { mask(context) });
        let pipelines: Vec<u8> = (0..8).map(|n| 1 << n).filter(|bit| mask & bit != 0).collect();
        let pipeline = match pipelines.len() {
            0 => 1,
            count => pipelines[turn as usize % count],
        };
        // SAFETY: a live domain.
        check("ionic_dv_pd_set_udma_mask", unsafe {
            (api.ionic_dv_pd_set_udma_mask)(pd, pipeline)
        })?;
        // SAFETY: as above.
        check("ionic_dv_pd_set_sqcmb", unsafe {
            (api.ionic_dv_pd_set_sqcmb)(pd, false, false, false)
        })?;
        // SAFETY: as above.
        check("ionic_dv_pd_set_rqcmb", unsafe {
            (api.ionic_dv_pd_set_rqcmb)(pd, false, false, false)
        })
    }

    /// The library's object, which lives as long as this one.
    pub(super) fn ptr(&self) -> *mut ibv_pd {
        self.inner.ptr().as_ptr()
    }

    /// The object that `make` makes, in this memory.
    pub(super) fn giving<T>(
        &self,
        memory: Vec<(u64, Region)>,
        make: impl FnOnce() -> Result<T, VerbsError>,
    ) -> Result<T, VerbsError> {
        let wanted = || self.inner.memory().0.lock().unwrap_or_else(PoisonError::into_inner);
        *wanted() = Wanted { memory, refused: None };
        let made = make();
        match (made, take(&mut *wanted()).refused) {
            (Err(_), Some(why)) => Err(failed(why)),
            (made, _) => made,
        }
    }
}

pub(super) fn failed(error: impl Into<VendorError>) -> VerbsError {
    Box::new(error.into()).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpverbs_mem::HostBuf;

    #[test]
    fn memory_is_given_for_its_use_and_size_alone() {
        let region = HostBuf::region(8192).unwrap();
        let giver = Giver::default();
        giver.0.lock().unwrap().memory = vec![(TAG_SQ, region.clone())];
        let refused = || giver.0.lock().unwrap().refused.take();
        assert_eq!(giver.give(8192, 4096, TAG_SQ) as u64, region.addr());
        assert_eq!(giver.give(8192, 4096, TAG_CQ), USE_DEFAULT);
        assert_eq!(refused(), None);
        for (bytes, align) in [(4096, 4096), (8192, 1 << 40)] {
            assert!(giver.give(bytes, align, TAG_SQ).is_null());
            let text = refused().expect("a reason").to_string();
            assert!(text.contains("libionic wants") && text.contains("the send queue"), "{text}");
        }
    }
}
