//! Parts of libibverbs that nothing else in warpverbs needs, over the objects of `warpverbs-verbs`:
//! CQs that are polled field by field ([`ExtendedCq`]), QPs that are posted to in batches
//! ([`ExtendedQp`]), memory that is not pinned ([`OnDemandMr`]), alternate paths ([`Alternate`]), and
//! what a device tells of these ([`ExtraAttr`]).

/// The function `$op` of the extension of `$context`, if its provider has it.
macro_rules! extension_op {
    ($context:expr, $op:ident) => {{
        let (context, offset) = ($context.ptr(), std::mem::offset_of!(sys::verbs_context, $op));
        // SAFETY: a live context, which its owner lends; the offset is that of the field that the
        // last argument names.
        unsafe { sys::extension_field(context.as_ptr(), offset, |whole| &whole.$op) }.flatten()
    }};
}

/// Calls the function `$function` of an object's own table; `None` if the object was not made for it.
/// Of a structure whose end grows, only what every version has is read.
macro_rules! call_own {
    ($object:expr, $function:ident($($arg:expr),*)) => {{
        let object: *mut _ = $object;
        // SAFETY: a live object, which its owner here holds.
        let function = unsafe { (*object).$function };
        // SAFETY: the state that the call wants, says the place that uses this macro.
        function.map(|call| unsafe { call(object, $($arg),*) })
    }};
}

pub mod alternate;
mod attr;
mod cq;
mod error;
mod on_demand;
mod qp;

pub use alternate::{Alternate, Migration};
pub use attr::{AtomicSupport, DeviceClock, DeviceFlags, ExtraAttr, OnDemandOps, OnDemandPaging};
pub use cq::{CompletionFields, ExtendedCq, Polled, Polling};
pub use error::{ExtraError, Offer};
pub use on_demand::OnDemandMr;
pub use qp::{Batch, BatchError, ExtendedQp, SendOps};
